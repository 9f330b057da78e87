"""The conversion schedule as tables."""

from collections.abc import Iterator

from msgspec import Struct

from migrator.core.units import first_of, format_size, several
from migrator.plan.schedule import model
from migrator.plan.schedule.rules import describe_obstacle, format_day
from migrator.render.document import NONE, Block, Cells, figure, paragraph, paths, records, table, text, wide

_BATCH_ROWS = 20
_ORDERS = {
    model.ScheduleOrder.PLANNED: "as planned",
    model.ScheduleOrder.HEAVIEST: "heaviest first",
    model.ScheduleOrder.SOONEST: "bricks free soonest",
}
_CHANGES = {
    model.Change.COPY_HALVED: "copies take twice as long",
    model.Change.DRAIN_HALVED: "drains take twice as long",
    model.Change.GROWTH_DOUBLED: "users add twice as much",
    model.Change.BRICKS_NOT_JOINED: "cleared bricks are not given to the target",
}


def schedule_blocks(schedule: model.Schedule, begins_at_s: float) -> Iterator[Block]:
    """The whole schedule, with the order of the plan in full, or the reason why there is none. Days count from
    `begins_at_s`, when the plan was made (seconds since the epoch).
    """
    if schedule.problem is not None:
        yield paragraph(f"There is no schedule: {schedule.problem}.")
        return
    tables = _Tables(schedule=schedule, begins_at_s=begins_at_s)
    yield from tables.verdict()
    if not schedule.growth_basis:
        yield paragraph(
            "It is not known what users add meanwhile, so nothing is counted for it: every day here may be too early. Set "
            "[capacity] growth, or plan again when a week was measured.",
            alert=True,
        )
    yield tables.batches()
    yield tables.bricks()
    yield tables.orders()
    yield tables.servers()
    yield tables.what_if()
    yield table("What the schedule rests on", [wide("assumption")], ((sentence,) for sentence in schedule.assumptions))


def schedule_summary(schedule: model.Schedule, begins_at_s: float) -> str:
    """The schedule in a sentence: when the first brick and the whole source are free, or why they never are."""
    if schedule.problem is not None:
        return f"no schedule: {schedule.problem}"
    planned = schedule.orders[0].outcome
    if planned.obstacle is not None:
        return f"impossible: {describe_obstacle(planned.obstacle, begins_at_s)}"
    first = min((step.cleared_day for step in planned.subvolumes if step.cleared_day is not None), default=None)
    days = [
        f"{what} on day {format_day(day, begins_at_s)}"
        for what, day in (("first one cleared", first), ("source empty", planned.done_day))
        if day is not None
    ]
    return "; ".join(days)


def _remedies(found: model.Remedies | None) -> Iterator[str]:
    if found is None:
        return
    if found.more_bytes is not None:
        inodes = f" and {several(found.more_inodes, 'inode')} more" if found.more_inodes else ""
        yield f"{format_size(found.more_bytes)} more for users on the target{inodes}"
    if found.reap_bytes is not None:
        yield (
            f"what was not changed for a year is skipped ({format_size(found.reap_bytes)}) of {first_of(found.reap_users)}: [reap] in site.toml"
        )
    if found.max_fill is not None:
        yield f"[capacity] max_fill of {found.max_fill:.0%}"


class _Tables(Struct, frozen=True, kw_only=True):
    """The tables of one schedule."""

    schedule: model.Schedule
    begins_at_s: float

    @property
    def planned(self) -> model.ScheduleOutcome:
        return self.schedule.orders[0].outcome

    def day(self, day: float | None) -> str:
        return "never" if day is None else format_day(day, self.begins_at_s)

    def obstacle(self, obstacle: model.Obstacle) -> str:
        return describe_obstacle(obstacle, self.begins_at_s)

    def verdict(self) -> Iterator[Block]:
        obstacle = self.planned.obstacle
        if obstacle is None:
            yield paragraph(
                f"The source is empty on day {self.day(self.planned.done_day)}. Days count from the creation of this plan."
            )
            return
        tried = "in every order" if self.schedule.every_drain_order else "in the likely orders"
        yield paragraph(
            f"Impossible, with drains {tried}: {self.obstacle(obstacle)}. What follows is how far it comes.", alert=True
        )
        better = [_ORDERS[one.order] for one in self.schedule.orders[1:] if one.outcome.obstacle is None]
        ways = [*_remedies(self.schedule.remedies), *(f"the batches in another order ({name})" for name in better)]
        if not ways:
            yield paragraph("Neither more room on the target nor less to copy would make it possible.", alert=True)
        for way in ways:
            yield paragraph(f"What would make it possible: {way}.", alert=True)

    def batches(self) -> Block:
        cells: Cells[model.BatchStep] = (
            (figure("batch"), lambda step: str(step.batch)),
            (figure("copying begins"), lambda step: self.day(step.begins_day)),
            (figure("users moved"), lambda step: self.day(step.moved_day)),
            (figure("source freed"), lambda step: self.day(step.freed_day)),
            (figure("waited, days"), lambda step: f"{step.waited_days:.1f}" if step.waited_days else NONE),
        )
        note = "A batch waits while it has not the room on the target."
        return records("Batches, by day", cells, self.planned.batches, limit=_BATCH_ROWS, note=note)

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
            (text("remark"), lambda step: "the last: retired with the volume" if step.retired else ""),
        )
        return records("Bricks, by day", cells, self.planned.subvolumes)

    def orders(self) -> Block:
        return table(
            "Orders side by side, by day",
            [
                text("order"),
                figure("first brick cleared"),
                figure("half of them"),
                figure("source empty"),
                wide("remark"),
            ],
            ((_ORDERS[one.order], *self._cleared(one), self._order_remark(one)) for one in self.schedule.orders),
        )

    def _cleared(self, one: model.OrderSchedule) -> tuple[str, str, str]:
        days = sorted(step.cleared_day for step in one.outcome.subvolumes if step.cleared_day is not None)
        half = (len(one.outcome.subvolumes) + 1) // 2
        return (
            self.day(days[0] if days else None),
            self.day(days[half - 1] if len(days) >= half else None),
            self.day(one.outcome.done_day),
        )

    def _order_remark(self, one: model.OrderSchedule) -> str:
        if one.outcome.obstacle is not None:
            return self.obstacle(one.outcome.obstacle)
        if one is not self.schedule.orders[0] and one.outcome == self.planned:
            return "the same as planned"
        if one.order is model.ScheduleOrder.SOONEST:
            numbers = [step.batch for step in one.outcome.batches]
            more = " ..." if len(numbers) > _BATCH_ROWS else ""
            return f"batches {', '.join(map(str, numbers[:_BATCH_ROWS]))}{more}"
        return ""

    def servers(self) -> Block:
        days = [{host.host: host.free_day for host in one.outcome.hosts} for one in self.schedule.orders]
        return table(
            "Servers free, by day",
            [paths("server"), *(figure(_ORDERS[one.order]) for one in self.schedule.orders)],
            ((host, *(self.day(found[host]) for found in days)) for host in days[0]),
        )

    def what_if(self) -> Block:
        cells: Cells[model.WhatIf] = (
            (text("if"), lambda one: _CHANGES[one.change]),
            (figure("first brick cleared"), lambda one: self.day(one.first_cleared_day)),
            (figure("last server free"), lambda one: self.day(_last([host.free_day for host in one.hosts]))),
            (figure("source empty"), lambda one: self.day(one.done_day)),
            (wide("remark"), lambda one: "" if one.obstacle is None else self.obstacle(one.obstacle)),
        )
        return records("What if, by day", cells, self.schedule.what_if)


def _last(days: list[float | None]) -> float | None:
    known = [day for day in days if day is not None]
    return max(known) if known and len(known) == len(days) else None
