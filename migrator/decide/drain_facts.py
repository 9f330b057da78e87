"""What a look at the world says of a drain: where its bricks are, which task is its own, what is known and what is not. Pure."""

from collections.abc import Iterator
from enum import Enum, auto

from migrator.decide.subvolumes import subvolumes
from migrator.decide.task_failures import FEW, are_few
from migrator.decide.throttle import still_changed
from migrator.domain.brick import VolumeState
from migrator.domain.drain import DrainRecord, DrainState, DrainStep
from migrator.domain.drain_seen import Act, DrainSeen, Halt
from migrator.domain.units import several
from migrator.domain.volume_tasks import TaskKind, TaskStatus, VolumeTask, remove_brick_of

_AGAIN = "then run the same command again: it goes on from what it finds"
_S = DrainState
_MOVING = (TaskStatus.IN_PROGRESS, TaskStatus.NOT_STARTED)
"""A host is `not started` for a moment after a start; for longer it stands still, which has a limit of its own."""

_MOST_CAUSES = 3
_TASK_MATTERS = frozenset(
    {_S.STARTED, _S.DRAINING, _S.DRAINED, _S.AUDITING, _S.AUDITED, _S.COMMITTING, _S.STOPPING, _S.STARTING}
)


class Bricks(Enum):
    """Where the bricks of a drain are: in the volume, out of it, or only some of them in it."""

    IN = auto()
    OUT = auto()
    SOME = auto()


def cannot_tell(record: DrainRecord, seen: DrainSeen) -> Halt | None:
    """Why nothing may be concluded from this look; None where it says what has to be known."""
    state = seen.state
    if state is None or seen.tasks is None:
        return Halt(
            words=f"the state of volume {record.volume} is not known",
            hint=f"see `gluster volume status`, and that glusterd runs, {_AGAIN}",
            look_again=True,
        )
    if (state.volume, state.volume_id) != (record.volume, record.volume_id):
        return Halt(
            words=f"volume {state.volume} is another one than the drain was begun on (its id is {state.volume_id})",
            hint="look at [source] volume in site.toml, and at which cluster the gluster command asks",
        )
    if not state.started:
        return Halt(words=f"volume {record.volume} is not started", hint=f"start it, {_AGAIN}", look_again=True)
    if record.state in _TASK_MATTERS and own_task(record, seen) is None and state.peers_down != ():
        gone = "which is not known" if state.peers_down is None else ", ".join(state.peers_down)
        return Halt(
            words=f"whether the drain of {record.shown_bricks} goes on is not known: hosts are missing ({gone})",
            hint=f"bring glusterd up on every host, {_AGAIN}",
            look_again=True,
        )
    return None


def bricks_seen(record: DrainRecord, seen: DrainSeen) -> Bricks:
    """Where the bricks are, by the volume's own list. The state has to be known."""
    names = {brick.name for brick in seen.state.bricks} if seen.state is not None else set()
    inside = names.intersection(record.bricks)
    if not inside:
        return Bricks.OUT
    return Bricks.IN if inside == set(record.bricks) else Bricks.SOME


def own_task(record: DrainRecord, seen: DrainSeen) -> VolumeTask | None:
    """The remove-brick of any of these bricks, whoever began it."""
    return remove_brick_of(seen.tasks or (), record.bricks)


def another_drain(record: DrainRecord, task: VolumeTask) -> Halt | None:
    """Why a drain that Gluster shows is none of this record: it is of other bricks too. None where it may be its own."""
    if set(task.bricks) == set(record.bricks):
        return None
    return Halt(
        words=f"somebody drains {', '.join(task.bricks)} together, and not {record.shown_bricks} alone",
        hint="finish or stop that drain by hand, then run the same command again",
    )


def counter_problems(record: DrainRecord, seen: DrainSeen) -> tuple[str, ...]:
    """Why Gluster's counters do not say that everything was moved. What is not told speaks against it."""
    return tuple(_counter_problems(record, seen))


def _counter_problems(record: DrainRecord, seen: DrainSeen) -> Iterator[str]:
    progress = seen.progress
    if progress is None:
        yield "Gluster tells no counters of the drain"
        return
    task = own_task(record, seen)
    if task is None or progress.task_id != task.id:
        yield "the counters are those of another task"
    missing = len(hosts_of(record, seen.state)) - len(progress.counters)
    if missing > 0 or not progress.counters:
        yield f"{several(max(missing, 1), 'host')} with bricks of the drain tell no counters"
    for one in progress.counters:
        if one.status is not TaskStatus.COMPLETED:
            yield f"on {one.host} it is {one.status.value}, not completed"
    if progress.failures:
        yield f"{several(progress.failures, 'file')} could not be moved (failures)"
    if progress.skipped:
        yield f"{several(progress.skipped, 'file')} were skipped"


def moves(seen: DrainSeen) -> bool:
    """Whether Gluster moves files on any host that tells."""
    return seen.progress is not None and any(one.status in _MOVING for one in seen.progress.counters)


def can_recover(seen: DrainSeen) -> bool:
    """Whether what has failed is brought back first: never beside Gluster, which may move the same files."""
    return seen.may_recover and not moves(seen)


def ended_badly(seen: DrainSeen) -> bool:
    """Whether Gluster has ended on every host that tells, and says that it has failed, or could not move everything."""
    progress = seen.progress
    if progress is None or not progress.counters or moves(seen):
        return False
    failed = any(one.status in (TaskStatus.FAILED, TaskStatus.STOPPED) for one in progress.counters)
    return failed or bool(progress.failures or progress.skipped)


def only_few_failed(seen: DrainSeen) -> bool:
    """Whether Gluster came to its end on every host, with a few failures, as users make them who work meanwhile."""
    progress = seen.progress
    if progress is None or any(one.status is not TaskStatus.COMPLETED for one in progress.counters):
        return False
    few = are_few(progress.failures, moved_files=progress.files)
    return few and progress.failures > 0 and not progress.skipped


def broke_off(seen: DrainSeen) -> bool:
    """Whether Gluster has given up on a host although it could move what it came to: as it does where a brick cannot be
    reached for a moment, right after a reboot for instance (`Received CHILD_DOWN. Exiting` in the rebalance log, 10.3).
    """
    progress = seen.progress
    if progress is None or moves(seen) or any(one.status is TaskStatus.STOPPED for one in progress.counters):
        return False
    failed = any(one.status is TaskStatus.FAILED for one in progress.counters)
    return failed and progress.failures <= FEW and not progress.skipped


def why_failed(record: DrainRecord, seen: DrainSeen) -> str:
    """Why a drain has failed: what Gluster counts, and what is seen now that may have been the cause."""
    others = len(seen.causes) - _MOST_CAUSES
    more = (f"and {others} more",) if others > 0 else ()
    return "; ".join(dict.fromkeys((*counter_problems(record, seen), *seen.causes[:_MOST_CAUSES], *more)))


def hosts_missing(record: DrainRecord, seen: DrainSeen) -> tuple[str, ...]:
    """Hosts and bricks of the volume that are not seen to be up: what Gluster says without them is not the whole."""
    return tuple(_hosts_missing(record, seen))


def _hosts_missing(record: DrainRecord, seen: DrainSeen) -> Iterator[str]:
    state = seen.state
    if state is None:
        yield "the state of the volume is not known"
        return
    yield from parts_missing(state)
    counters = () if seen.progress is None else seen.progress.counters
    if len(counters) < len(hosts_of(record, state)):
        yield "not every host with bricks of the drain tells its counters"


def parts_missing(state: VolumeState) -> tuple[str, ...]:
    """Hosts and bricks of a volume that are not seen to be up, as sentences."""
    return tuple(_parts_missing(state))


def _parts_missing(state: VolumeState) -> Iterator[str]:
    if state.peers_down is None:
        yield "which hosts are connected is not known"
    yield from (f"host {host} is not connected" for host in state.peers_down or ())
    for brick in state.bricks:
        if brick.online is not True:
            yield f"brick {brick.name} is {'down' if brick.online is False else 'not known to be up'}"


def hosts_telling(task: VolumeTask, seen: DrainSeen) -> set[str]:
    """Hosts that tell their counters of a task, by glusterd's own words for them."""
    progress = seen.progress
    return set() if progress is None or progress.task_id != task.id else {one.host for one in progress.counters}


def hosts_of(record: DrainRecord, state: VolumeState | None) -> set[str]:
    """The hosts of the bricks of a drain."""
    bricks = () if state is None else state.bricks
    known = {brick.host for brick in bricks if brick.name in record.bricks}
    return known or {name.partition(":/")[0] for name in record.bricks}


def structure_problems(state: VolumeState, bricks: tuple[str, ...]) -> tuple[str, ...]:
    """Why these bricks can never be drained out of a volume that is made as this one is."""
    return tuple(_structure_problems(state, bricks))


def _structure_problems(state: VolumeState, bricks: tuple[str, ...]) -> Iterator[str]:
    missing = [name for name in bricks if all(brick.name != name for brick in state.bricks)]
    if missing or not bricks:
        yield f"volume {state.volume} has no brick {', '.join(missing) or 'of no name'}"
        return
    if state.disperse_count > 1:
        yield (
            "the volume is dispersed: every brick of a set holds a piece of every file, and a remove-brick of one is not "
            "safe; move its users away, and retire the volume with `migrator brick retire`"
        )
    if state.stripe_count > 1 or dict(state.options).get("features.shard") in ("on", "enable", "1", "true", "yes"):
        yield "the volume is striped or sharded: what lies on a brick cannot be told from its files"
    try:
        sets = subvolumes(state)
    except ValueError as error:
        yield f"the brick list is not understood: {error}"
        return
    wanted = set(bricks)
    touched = [members for members in sets if wanted & {brick.name for brick in members}]
    for members in touched:
        lacking = [brick.name for brick in members if brick.name not in wanted]
        if lacking:
            yield f"a replica set goes only whole: {', '.join(lacking)} belongs to it too"
    if len(touched) > 1:
        yield f"{several(len(touched), 'subvolume')} at once: drain them one after the other"
    if len(touched) == len(sets):
        yield (
            "it is the last subvolume, and there is nowhere to move its files to: `migrator brick retire` "
            "stops the volume when manifests cover everything in it"
        )


def others_at_work(seen: DrainSeen) -> tuple[str, ...]:
    """Tasks of the volume that a fix-layout cannot run beside: every remove-brick, ours too."""
    return tuple(
        f"{task.name} ({task.status.value}) of {', '.join(task.bricks)}"
        for task in seen.tasks or ()
        if task.unfinished and task.kind is not TaskKind.REBALANCE
    )


def layout_settled(record: DrainRecord, seen: DrainSeen) -> bool:
    """Whether the fix-layout that followed the stop has come to its end on every host."""
    layout = seen.layout
    if layout is None or layout.task_id != record.notes.layout_task_id or not layout.counters:
        return False
    return all(one.status is TaskStatus.COMPLETED and not one.failures for one in layout.counters)


def recover(record: DrainRecord) -> Act:
    """Bring back what is left on the bricks: the state stays what it is."""
    return Act(step=DrainStep.RECOVER, intent=record.state, result=record.state)


def options_to_restore(record: DrainRecord, state: VolumeState) -> tuple[str, ...]:
    """Options that still have a value that this drain has given them. One that somebody else has changed since is his."""
    return still_changed(record.notes.options or (), state)
