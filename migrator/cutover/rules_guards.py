"""Preflight checks before a freeze, and descriptions of cutovers. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isnan

from migrator.core.entry import UserTree
from migrator.core.states import BatchState
from migrator.core.units import format_duration, format_size, several
from migrator.cutover import model
from migrator.report.model import Blocker

# Descriptions of states and freezes.


_HELD = 1.1
"""A freeze no longer than this many times its prediction counts as no longer than predicted."""


_WORDS = {
    model.CutoverState.PLANNED: "planned",
    model.CutoverState.FREEZING: "freezing",
    model.CutoverState.FROZEN: "frozen",
    model.CutoverState.FINAL_PASS: "frozen: final pass",
    model.CutoverState.VERIFYING: "frozen: verifying",
    model.CutoverState.VERIFIED: "frozen: verified",
    model.CutoverState.SWITCHING: "frozen: switching",
    model.CutoverState.SWITCHED: "switched, not open on the target yet",
    model.CutoverState.THAWING: "thawing, not open on the target yet",
    model.CutoverState.THAWED: "on the target, source kept",
    model.CutoverState.RETAINED: "on the target, source kept",
    model.CutoverState.PURGING: "on the target, source being purged",
    model.CutoverState.PURGED: "on the target, source purged",
    model.CutoverState.REVERTING: "being thawed on the source",
    model.CutoverState.REVERTED: "on the source, cutover given up",
    model.CutoverState.ROLLBACK_FREEZING: "rollback: freezing",
    model.CutoverState.ROLLBACK_FROZEN: "rollback: frozen",
    model.CutoverState.CARRYING_BACK: "rollback: carrying back",
    model.CutoverState.ROLLBACK_VERIFYING: "rollback: verifying",
    model.CutoverState.ROLLBACK_VERIFIED: "rollback: verified",
    model.CutoverState.SWITCHING_BACK: "rollback: switching back",
    model.CutoverState.SWITCHED_BACK: "rollback: switched back",
    model.CutoverState.ROLLBACK_THAWING: "rollback: switched back",
    model.CutoverState.ROLLED_BACK: "on the source, rolled back",
    model.CutoverState.ROLLBACK_REVERTING: "rollback given up, being thawed on the target",
}


def state_words(state: model.CutoverState) -> str:
    """A description of a state."""
    return _WORDS[state]


def freeze_words(record: model.CutoverRecord) -> str:
    """How long a user was frozen, and the prediction; empty before the thaw."""
    if record.freeze_s is None:
        return ""
    predicted_s = record.predicted_freeze_s
    predicted = "nothing was" if predicted_s is None else f"{format_duration(predicted_s)} were"
    return f"{record.tree.user} was frozen for {format_duration(record.freeze_s)}; {predicted} predicted."


def cutover_blockers(records: Sequence[model.CutoverRecord], *, at_work: bool) -> Iterator[Blocker]:
    """Cutovers that an operator has to act on: those that were given up and, while no run is active, those that left
    their user frozen or a purge unfinished.
    """
    for record in records:
        verb = "rollback" if record.state in model.ROLLBACK_STATES else "cutover"
        command = f"migrator {verb} --user {record.tree.user}"
        subject = f"{record.tree.user}: {verb}"
        if record.under_way and not at_work:
            why = f": {record.failure}" if record.failure else ""
            yield Blocker(
                subject=subject,
                on=f"it was left {state_words(record.state)}, and the user may not be able to work{why}",
                hint=f"{command} (it goes on, or gives it up and thaws the user)",
            )
        elif record.state is model.CutoverState.PURGING and not at_work:
            yield Blocker(
                subject=f"{record.tree.user}: purge",
                on=f"the purge of the source has begun and not ended: {record.failure or 'it was stopped or killed'}",
                hint=f"migrator purge --user {record.tree.user} --dry-run, then with --confirm (it resumes)",
            )
        elif record.state is model.CutoverState.REVERTED and record.failure:
            yield Blocker(
                subject=subject,
                on=f"it was given up, and the user works on the source: {record.failure}",
                hint=f"put that right, then {command}",
            )


def newest_attempts(records: Sequence[model.CutoverRecord]) -> tuple[model.CutoverRecord, ...]:
    """The newest attempt of each tree, in the order of the trees' first attempts."""
    oldest_first = sorted(records, key=lambda record: record.id)
    return tuple({record.tree.path: record for record in oldest_first}.values())


def outcome_of(
    record: model.CutoverRecord, ending: model.Ending, words: str, *, hint: str = "", problems: tuple[str, ...] = ()
) -> model.TreeOutcome:
    """The outcome of a tree that has an attempt."""
    return model.TreeOutcome(
        tree=record.tree,
        batch=record.batch,
        ending=ending,
        cutover=record,
        words=words,
        hint=hint,
        problems=problems,
    )


def places_words(cutovers: Sequence[model.CutoverRecord]) -> str:
    """How many users are where, as one sentence; empty if no user was cut over."""
    parts = [
        f"{several(count, 'user')} {what}"
        for count, what in (
            (sum(one.state in model.SETTLED_STATES for one in cutovers), "on the target"),
            (sum(one.state in model.UNDER_WAY_STATES for one in cutovers), "on the way"),
            (sum(one.state in model.ENDED_STATES for one in cutovers), "back on the source after an attempt"),
        )
        if count
    ]
    return f"{', '.join(parts)}." if parts else ""


def freed_words(cutovers: Sequence[model.CutoverRecord]) -> str:
    """How much of the source purges have freed, as one sentence; empty if there was no purge."""
    purged = [one for one in cutovers if one.state is model.CutoverState.PURGED]
    if not purged:
        return ""
    sums = [one.purge for one in purged if one.purge is not None]
    size, inodes = format_size(sum(one.size_bytes for one in sums)), several(sum(one.inodes for one in sums), "inode")
    return f"The source of {several(len(purged), 'user')} is purged: {size} and {inodes} were freed there."


def freezes_words(cutovers: Sequence[model.CutoverRecord]) -> str:
    """How long users were frozen, and how many freezes kept to the prediction, as one sentence; empty if no user was
    frozen.
    """
    frozen = [(one.freeze_s, one.predicted_freeze_s) for one in cutovers if one.freeze_s is not None]
    if not frozen:
        return ""
    longest = format_duration(max(real_s for real_s, _ in frozen))
    held = sum(predicted_s is not None and real_s <= _HELD * predicted_s for real_s, predicted_s in frozen)
    users = several(len(frozen), "user")
    return f"{users} frozen, for at most {longest}; {several(held, 'freeze')} lasted no longer than predicted."


# Preflight checks before a freeze. The freeze costs the user time, so every problem that can be known is checked before
# it. An unknown fact counts as a problem.


READY = (BatchState.SEEDED, BatchState.CONVERGING, BatchState.VERIFIED)
"""The states of a batch whose users may be moved."""


NO_BACKUP = "no backup of the target is recorded, and the site asks for one: make it, and record it"


def cutover_problems(
    tree: UserTree,
    request: model.CutoverRequest,
    *,
    batch: int,
    state: BatchState | None,
    before: model.CutoverRecord | None,
    elsewhere: Sequence[model.CutoverRecord],
    failed_chunks: int,
    bad_files: int,
    predicted_freeze_s: float | None,
    lacks_backup: bool,
    checked: Mapping[str, Sequence[str] | None],
) -> Iterator[str]:
    """Every reason against freezing the user of one tree, with what to do next; empty if the freeze may begin.

    `before` is the newest attempt of this tree by any plan, `elsewhere` the attempts in flight of other trees that this
    command does not include. `checked` maps the name of each other check to its problems; None: not known.
    """
    again = f"`migrator run --user-batch {batch}`"
    yield from _before(tree, before, plan=request.plan, batch=batch)
    for other in elsewhere:
        if other.under_way:
            verb = "rollback" if other.state in model.ROLLBACK_STATES else "cutover"
            yield (
                f"{other.tree.user} may be frozen by a {verb} that has not ended ({state_words(other.state)}): finish it "
                f"with `migrator {verb} --user {other.tree.user}`"
            )
    if state is None:
        yield f"how far batch {batch} is, is not known: see `migrator status`"
    elif state not in READY:
        yield f"batch {batch} is {state.value}: copy it first, with {again}"
    for count, what in ((failed_chunks, "chunk"), (bad_files, "file")):
        if count:
            yield f"{several(count, what)} of batch {batch} failed: put their reasons right (`migrator status`), then {again}"
    otherwise = f"make a delta pass with {again}, or accept it with --accept-freeze"
    if request.accept_freeze:
        pass
    elif predicted_freeze_s is None or isnan(predicted_freeze_s):
        yield f"how long the freeze would be is not predicted: {otherwise}"
    elif predicted_freeze_s > request.max_freeze_s:
        yield (
            f"the freeze is predicted to last {format_duration(predicted_freeze_s)}, longer than [cutover] max_freeze "
            f"({format_duration(request.max_freeze_s)}): {otherwise}"
        )
    if lacks_backup:
        yield NO_BACKUP
    for what, problems in checked.items():
        if problems is None:
            yield f"the state of {what} is not known: see `migrator doctor`"
        else:
            yield from problems


def _before(tree: UserTree, before: model.CutoverRecord | None, *, plan: str, batch: int) -> Iterable[str]:
    if before is None or before.state in model.ENDED_STATES:
        return
    if before.state is model.CutoverState.PLANNED and (before.plan, before.batch) == (plan, batch):
        return
    if before.state in model.SETTLED_STATES:
        yield (
            f"{tree.user} works on the target already ({state_words(before.state)}, plan {before.plan}, batch "
            f"{before.batch}): there is nothing to cut over"
        )
    elif before.state in model.ROLLBACK_STATES:
        yield (
            f"a rollback of {tree.user} is in progress ({state_words(before.state)}): finish it with "
            f"`migrator rollback --user {tree.user}`"
        )
    else:
        yield (
            f"a cutover of {tree.user} has begun already ({state_words(before.state)}, plan {before.plan}, batch "
            f"{before.batch}): go on with it, with `migrator cutover --user {tree.user}`"
        )
