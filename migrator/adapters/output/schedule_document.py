"""The conversion schedule as tables."""

from collections.abc import Iterator

from migrator.adapters.output.document import Block, figure, paragraph, paths, table, text, wide
from migrator.adapters.output.wording import NONE
from migrator.decide.schedule_words import obstacle_words
from migrator.domain.schedule import Change, OrderSchedule, Outcome, Remedies, Schedule, ScheduleOrder, SubvolumeStep
from migrator.domain.units import format_size, several

_BATCH_ROWS = 20
_USERS_NAMED = 10
_ORDERS = {
    ScheduleOrder.PLANNED: "as planned",
    ScheduleOrder.HEAVIEST: "heaviest first",
    ScheduleOrder.SOONEST: "bricks free soonest",
}
_CHANGES = {
    Change.COPY_HALVED: "copies take twice as long",
    Change.DRAIN_HALVED: "drains take twice as long",
    Change.GROWTH_DOUBLED: "users add twice as much",
    Change.BRICKS_NOT_JOINED: "cleared bricks are not given to the target",
}


def schedule_blocks(schedule: Schedule) -> Iterator[Block]:
    """Everything, the order of the plan in full, or why there is none. Days count from the creation of the plan."""
    if schedule.problem is not None:
        yield paragraph(f"There is no schedule: {schedule.problem}.")
        return
    planned = schedule.orders[0].outcome
    yield from _verdict(schedule, planned)
    yield _batches(planned)
    yield _bricks(planned)
    yield _orders(schedule)
    yield _servers(schedule)
    yield _what_if(schedule)
    yield table("What the schedule rests on", [wide("assumption")], ((sentence,) for sentence in schedule.assumptions))


def _verdict(schedule: Schedule, planned: Outcome) -> Iterator[Block]:
    if planned.obstacle is None:
        yield paragraph(f"The source is empty on day {_day(planned.done_day)} from the creation of this plan.")
        return
    tried = "in every order" if schedule.every_drain_order else "in the likely orders"
    yield paragraph(
        f"Impossible, with drains {tried}: {obstacle_words(planned.obstacle)}. What follows is how far it comes.",
        alert=True,
    )
    better = [_ORDERS[one.order] for one in schedule.orders[1:] if one.outcome.obstacle is None]
    ways = [*_remedies(schedule.remedies), *(f"the batches in another order ({name})" for name in better)]
    if not ways:
        yield paragraph("Neither more room on the target nor less to copy would make it possible.", alert=True)
    for way in ways:
        yield paragraph(f"What would make it possible: {way}.", alert=True)


def _remedies(found: Remedies | None) -> Iterator[str]:
    if found is None:
        return
    if found.more_bytes is not None:
        inodes = f" and {several(found.more_inodes, 'inode')} more" if found.more_inodes else ""
        yield f"{format_size(found.more_bytes)} more for users on the target{inodes}"
    if found.reap_bytes is not None:
        users = ", ".join(found.reap_users[:_USERS_NAMED])
        more = f" and {len(found.reap_users) - _USERS_NAMED} more" if len(found.reap_users) > _USERS_NAMED else ""
        yield (
            f"what was not changed for a year is skipped ({format_size(found.reap_bytes)}) of {users}{more}: [reap] in site.toml"
        )
    if found.max_fill is not None:
        yield f"[capacity] max_fill of {found.max_fill:.0%}"


def _day(day: float | None) -> str:
    return "never" if day is None else f"{day:.1f}"


def _day_or_none(day: float | None) -> str:
    return NONE if day is None else f"{day:.1f}"


def _batches(planned: Outcome) -> Block:
    return table(
        "Batches, by day",
        [
            figure("batch"),
            figure("copying begins"),
            figure("users moved"),
            figure("source freed"),
            figure("waited, days"),
        ],
        (
            (
                str(step.batch),
                _day(step.begins_day),
                _day(step.moved_day),
                _day(step.freed_day),
                f"{step.waited_days:.1f}" if step.waited_days else NONE,
            )
            for step in planned.batches
        ),
        limit=_BATCH_ROWS,
        note="A batch waits while it has not the room on the target.",
    )


def _bricks(planned: Outcome) -> Block:
    return table(
        "Bricks, by day",
        [figure("set"), wide("bricks"), figure("drain begins"), figure("cleared"), figure("to move"), text("remark")],
        (
            (
                str(step.subvolume),
                ", ".join(step.bricks),
                _day_or_none(step.drain_begins_day),
                _day(step.cleared_day),
                format_size(step.moved_bytes) if step.drain_begins_day is not None else NONE,
                _remark(step),
            )
            for step in planned.subvolumes
        ),
    )


def _remark(step: SubvolumeStep) -> str:
    return "the last: retired with the volume" if step.retired else ""


def _orders(schedule: Schedule) -> Block:
    return table(
        "Orders side by side, by day",
        [text("order"), figure("first brick cleared"), figure("half of them"), figure("source empty"), wide("remark")],
        ((_ORDERS[one.order], *_cleared(one), _order_remark(schedule, one)) for one in schedule.orders),
    )


def _cleared(one: OrderSchedule) -> tuple[str, str, str]:
    days = sorted(step.cleared_day for step in one.outcome.subvolumes if step.cleared_day is not None)
    half = (len(one.outcome.subvolumes) + 1) // 2
    return (
        _day(days[0] if days else None),
        _day(days[half - 1] if len(days) >= half else None),
        _day(one.outcome.done_day),
    )


def _order_remark(schedule: Schedule, one: OrderSchedule) -> str:
    if one.outcome.obstacle is not None:
        return obstacle_words(one.outcome.obstacle)
    if one is not schedule.orders[0] and one.outcome == schedule.orders[0].outcome:
        return "the same as planned"
    if one.order is ScheduleOrder.SOONEST:
        numbers = [step.batch for step in one.outcome.batches]
        more = " ..." if len(numbers) > _BATCH_ROWS else ""
        return f"batches {', '.join(map(str, numbers[:_BATCH_ROWS]))}{more}"
    return ""


def _servers(schedule: Schedule) -> Block:
    days = [{host.host: host.free_day for host in one.outcome.hosts} for one in schedule.orders]
    return table(
        "Servers free, by day",
        [paths("server"), *(figure(_ORDERS[one.order]) for one in schedule.orders)],
        ((host, *(_day(found[host]) for found in days)) for host in days[0]),
    )


def _what_if(schedule: Schedule) -> Block:
    hosts = schedule.orders[0].outcome.hosts
    return table(
        "What if, by day",
        [
            text("if"),
            figure("first brick cleared"),
            figure("last server free"),
            figure("source empty"),
            wide("remark"),
        ],
        (
            (
                _CHANGES[one.change],
                _day(one.first_cleared_day),
                _day(_last([host.free_day for host in one.hosts] if hosts else [])),
                _day(one.done_day),
                "" if one.obstacle is None else obstacle_words(one.obstacle),
            )
            for one in schedule.what_if
        ),
    )


def _last(days: list[float | None]) -> float | None:
    known = [day for day in days if day is not None]
    return max(known) if known and len(known) == len(days) else None
