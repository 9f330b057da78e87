"""The conversion schedule as tables."""

from collections.abc import Iterator

from msgspec import Struct

from migrator.core.units import format_size
from migrator.plan.schedule import model
from migrator.plan.schedule.rules import describe_obstacle, format_day
from migrator.render.document import NONE, Block, Cells, figure, paragraph, paths, records, table, text, wide

_BATCH_ROWS = 20


def schedule_blocks(schedule: model.Schedule, begins_at_s: float) -> Iterator[Block]:
    """The schedule, or the reason why there is none. Days count from `begins_at_s`, when the plan was made (seconds since
    the epoch).
    """
    if schedule.outcome is None:
        yield paragraph(f"There is no schedule: {schedule.problem}.")
        return
    tables = _Tables(schedule=schedule, outcome=schedule.outcome, begins_at_s=begins_at_s)
    yield tables.verdict()
    if not schedule.growth_basis:
        yield paragraph(
            "The growth of users is unknown and counts as zero: every day here may be too early. Set [capacity] growth, "
            "or plan again after a week of measurements.",
            alert=True,
        )
    yield tables.batches()
    yield tables.bricks()
    yield tables.servers()
    yield table("Assumptions of the schedule", [wide("assumption")], ((one,) for one in schedule.assumptions))


def schedule_summary(schedule: model.Schedule, begins_at_s: float) -> str:
    """The schedule in a sentence: when the first brick and the whole source are free, or why they never are."""
    if schedule.outcome is None:
        return f"no schedule: {schedule.problem}"
    planned = schedule.outcome
    if planned.obstacle is not None:
        return f"impossible: {describe_obstacle(planned.obstacle, begins_at_s)}"
    first = min((step.cleared_day for step in planned.subvolumes if step.cleared_day is not None), default=None)
    days = [
        f"{what} on day {format_day(day, begins_at_s)}"
        for what, day in (("first one cleared", first), ("source empty", planned.done_day))
        if day is not None
    ]
    return "; ".join(days)


class _Tables(Struct, frozen=True, kw_only=True):
    """The tables of one schedule."""

    schedule: model.Schedule
    outcome: model.ScheduleOutcome
    begins_at_s: float

    def day(self, day: float | None) -> str:
        return "never" if day is None else format_day(day, self.begins_at_s)

    def verdict(self) -> Block:
        obstacle = self.outcome.obstacle
        if obstacle is None:
            return paragraph(
                f"The source is empty on day {self.day(self.outcome.done_day)}. Days count from the creation of this plan."
            )
        tried = "in every order" if self.schedule.every_drain_order else "in the likely orders"
        return paragraph(
            f"Impossible, with drains {tried}: {describe_obstacle(obstacle, self.begins_at_s)}. The tables end there.",
            alert=True,
        )

    def batches(self) -> Block:
        cells: Cells[model.BatchStep] = (
            (figure("batch"), lambda step: str(step.batch)),
            (figure("copying begins"), lambda step: self.day(step.begins_day)),
            (figure("users moved"), lambda step: self.day(step.moved_day)),
            (figure("source freed"), lambda step: self.day(step.freed_day)),
            (figure("waited, days"), lambda step: f"{step.waited_days:.1f}" if step.waited_days else NONE),
        )
        note = "A batch waits until the target has enough free space."
        return records("Batches, by day", cells, self.outcome.batches, limit=_BATCH_ROWS, note=note)

    def bricks(self) -> Block:
        cells: Cells[model.SubvolumeStep] = (
            (figure("set"), lambda step: str(step.subvolume)),
            (wide("bricks"), lambda step: ", ".join(step.bricks)),
            (
                figure("drain begins"),
                lambda step: NONE if step.drain_begins_day is None else self.day(step.drain_begins_day),
            ),
            (figure("cleared"), lambda step: self.day(step.cleared_day)),
            (figure("to move"), lambda step: NONE if step.drain_begins_day is None else format_size(step.moved_bytes)),
            (text("remark"), lambda step: "last: retired with the volume" if step.retired else ""),
        )
        return records("Bricks, by day", cells, self.outcome.subvolumes)

    def servers(self) -> Block:
        cells: Cells[model.HostStep] = (
            (paths("server"), lambda step: step.host),
            (figure("free"), lambda step: self.day(step.free_day)),
        )
        return records("Servers free, by day", cells, self.outcome.hosts)
