"""What speaks against freezing a user at all: the guards before a cutover, as sentences. Pure.

The freeze costs the user time, so what can be known to go wrong later on is asked before it. What is not known speaks
against it too.
"""

from collections.abc import Iterable, Sequence
from math import isnan
from typing import assert_never

from migrator.decide.cutover_words import state_words
from migrator.domain.cutover import ENDED_STATES, ROLLBACK_STATES, SETTLED_STATES, CutoverRecord, CutoverState
from migrator.domain.cutover_seen import BackupSeen, TargetTop
from migrator.domain.paths import show
from migrator.domain.states import BatchState
from migrator.domain.tree import UserTree
from migrator.domain.units import format_duration, several

_READY = (BatchState.SEEDED, BatchState.CONVERGING, BatchState.VERIFIED)


def cutover_problems(
    tree: UserTree,
    *,
    plan: str,
    batch: int,
    state: BatchState | None,
    before: CutoverRecord | None,
    elsewhere: Sequence[CutoverRecord] | None,
    failed_chunks: int | None,
    bad_files: int | None,
    predicted_freeze_s: float | None,
    max_freeze_s: float,
    freeze_accepted: bool,
    target_top: TargetTop,
    backup: BackupSeen,
    link: Sequence[str] | None,
    capacity: Sequence[str] | None,
    mounts: Sequence[str] | None,
    freeze: Sequence[str] | None,
    lacking_archives: int | str | None,
) -> tuple[str, ...]:
    """Every reason against freezing the user of one tree, with what to do next; none where it may begin.

    `before` is the newest attempt of this tree by any plan, `elsewhere` those of other trees that are under way and not
    part of this command. `freeze_accepted`: a freeze longer than `max_freeze_s`, or one that is not predicted, was asked for
    by name. `link` are the problems of the path that is switched, `capacity` those of room on the target, `mounts` those
    of both mounts and of the source's health, `freeze` those of the site's way to freeze (a hook that is missing).
    `lacking_archives` is how many files of the tree the plan archives that are in no archive, or a sentence where archives
    cannot be read. None everywhere stands for what is not known.
    """
    return (
        *_before(tree, before, plan=plan, batch=batch),
        *_elsewhere(elsewhere),
        *_batch(batch, state),
        *_left(batch, failed_chunks, bad_files),
        *_freeze_length(batch, predicted_freeze_s, max_freeze_s, freeze_accepted),
        *_closed(tree, target_top, state),
        *_backup(backup),
        *_told(f"the path of {tree.user}", link),
        *_told("the room on the target", capacity),
        *_told("the mounts", mounts),
        *_told("the way to freeze", freeze),
        *_archives(tree, lacking_archives),
    )


def _before(tree: UserTree, before: CutoverRecord | None, *, plan: str, batch: int) -> Iterable[str]:
    if before is None or before.state in ENDED_STATES:
        return
    if before.state is CutoverState.PLANNED and (before.plan, before.batch) == (plan, batch):
        return
    if before.state in SETTLED_STATES:
        yield (
            f"{tree.user} works on the target already ({state_words(before.state)}, plan {before.plan}, batch "
            f"{before.batch}): there is nothing to cut over"
        )
    elif before.state in ROLLBACK_STATES:
        yield (
            f"a rollback of {tree.user} is under way ({state_words(before.state)}): finish it with "
            f"`migrator rollback --user {tree.user}`"
        )
    else:
        yield (
            f"a cutover of {tree.user} has begun already ({state_words(before.state)}, plan {before.plan}, batch "
            f"{before.batch}): go on with it, with `migrator cutover --user {tree.user}`"
        )


def _elsewhere(elsewhere: Sequence[CutoverRecord] | None) -> Iterable[str]:
    if elsewhere is None:
        yield "whether other users are being cut over is not known: see `migrator status`"
        return
    for other in elsewhere:
        if other.under_way:
            verb = "rollback" if other.state in ROLLBACK_STATES else "cutover"
            yield (
                f"{other.tree.user} may be frozen by a {verb} that has not ended ({state_words(other.state)}): finish it "
                f"with `migrator {verb} --user {other.tree.user}`"
            )


def _batch(batch: int, state: BatchState | None) -> Iterable[str]:
    if state is None:
        yield f"how far batch {batch} is, is not known: see `migrator status`"
    elif state not in _READY:
        yield f"batch {batch} is {state.value}: copy it first, with `migrator run --user-batch {batch}`"


def _left(batch: int, failed_chunks: int | None, bad_files: int | None) -> Iterable[str]:
    again = f"put their reasons right (`migrator status`), then `migrator run --user-batch {batch}`"
    for count, what in ((failed_chunks, "chunk"), (bad_files, "file")):
        if count is None:
            yield f"whether any {what} of batch {batch} has failed is not known: see `migrator status`"
        elif count:
            yield f"{several(count, what)} of batch {batch} failed: {again}"


def _freeze_length(batch: int, predicted_s: float | None, most_s: float, accepted: bool) -> Iterable[str]:
    if accepted:
        return
    otherwise = "or accept it with --accept-freeze"
    if predicted_s is None or isnan(predicted_s):
        yield (
            f"how long the freeze would be is not predicted: make a delta pass with `migrator run --user-batch {batch}`, "
            f"{otherwise}"
        )
    elif not predicted_s <= most_s:
        yield (
            f"the freeze is predicted to last {format_duration(predicted_s)}, longer than [cutover] max_freeze "
            f"({format_duration(most_s)}): make another delta pass with `migrator run --user-batch {batch}`, {otherwise}"
        )


def _closed(tree: UserTree, top: TargetTop, state: BatchState | None) -> Iterable[str]:
    name = f"the tree {show(tree.path)} on the target"
    match top:
        case TargetTop.CLOSED:
            return
        case TargetTop.UNKNOWN:
            yield f"whether {name} is closed to users is not known: see `migrator doctor`"
        case TargetTop.MISSING:
            # Of a batch that is yet to be copied that is said already.
            if state is None or state in _READY:
                yield f"{name} is not there: see who took it away, then `migrator scan`, `plan` and `run` bring it anew"
        case TargetTop.OPEN:
            yield (
                f"{name} is open, so somebody may have changed it: make it root's with mode 0700, and see "
                "`migrator verify` for what differs"
            )
        case _:
            assert_never(top)


def _backup(backup: BackupSeen) -> Iterable[str]:
    if backup is BackupSeen.MISSING:
        yield "no backup of the target is recorded, and the site asks for one before the switch: make it, and record it"
    elif backup is BackupSeen.UNKNOWN:
        yield "whether a backup of the target is recorded is not known"


def _archives(tree: UserTree, lacking: int | str | None) -> Iterable[str]:
    if lacking is None:
        yield f"whether all is archived that the plan archives of {tree.user} is not known: see `migrator doctor`"
    elif isinstance(lacking, str):
        yield lacking
    elif lacking:
        yield (
            f"{several(lacking, 'file')} of {tree.user} that the plan archives {'is' if lacking == 1 else 'are'} in no archive "
            f"that was read back: `migrator reap archive --user {tree.user}`"
        )


def _told(what: str, problems: Sequence[str] | None) -> Iterable[str]:
    if problems is None:
        yield f"the state of {what} is not known: see `migrator doctor`"
    else:
        yield from problems
