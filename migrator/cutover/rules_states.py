"""The users who are frozen, blocked or moved, by the records of their cutovers. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from migrator.core.blocker import Blocker
from migrator.core.events import Finding, failure, warning
from migrator.core.units import format_duration, format_size, several
from migrator.cutover import model
from migrator.cutover.model_calls import CutoverEnding, CutoverOutcome
from migrator.cutover.rules_freezes import FrozenUser

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


def describe_state(state: model.CutoverState) -> str:
    """A description of a state."""
    return _WORDS[state]


FROZEN_CHECK = "frozen users"
"""The name of the check of `doctor`."""


def frozen_users(records: Iterable[model.CutoverRecord], *, at_work: Callable[[bytes], bool]) -> tuple[FrozenUser, ...]:
    """The users who are frozen now: first those whom no command thaws, then the others; each by time. `at_work`: whether
    a command holds the tree.
    """
    found = [
        FrozenUser(
            tree=one.tree,
            state=one.state,
            since_s=one.frozen_since_s,
            at_work=at_work(one.tree.path),
            hint=_resuming(one),
            reason=one.failure,
        )
        for one in records
        if one.frozen_since_s is not None
    ]
    return tuple(sorted(found, key=lambda one: (one.at_work, one.since_s)))


def check_frozen(users: Sequence[FrozenUser], *, now_s: float) -> list[Finding]:
    """A finding for each frozen user: a failure if no command thaws them."""
    findings = []
    for one in users:
        message = f"{one.tree.user} has been frozen for {format_duration(max(now_s - one.since_s, 0.0))}: {describe_state(one.state)}"
        if one.at_work:
            findings.append(warning(FROZEN_CHECK, message, "a command is running: see `migrator status`"))
        else:
            findings.append(failure(FROZEN_CHECK, f"{message}; no command is running for it", one.hint))
    return findings


def _resuming(record: model.CutoverRecord) -> str:
    verb = "rollback" if record.state in model.ROLLBACK_STATES else "cutover"
    return f"migrator {verb} --user {record.tree.user} (it resumes, or aborts and thaws the user)"


def cutover_blockers(records: Sequence[model.CutoverRecord], *, at_work: Collection[bytes]) -> Iterator[Blocker]:
    """Cutovers that an operator has to act on: those that were given up, and those that left their user frozen or a purge
    unfinished. `at_work`: the user trees that a command holds.
    """
    # Frozen users first.
    for record in sorted(records, key=lambda one: not one.under_way):
        left = record.tree.path not in at_work
        verb = "rollback" if record.state in model.ROLLBACK_STATES else "cutover"
        command = f"migrator {verb} --user {record.tree.user}"
        subject = f"{record.tree.user}: {verb}"
        if record.under_way and left:
            why = f": {record.failure}" if record.failure else ""
            yield Blocker(
                subject=subject,
                on=f"it stopped ({describe_state(record.state)}), and the user may be unable to work{why}",
                hint=_resuming(record),
            )
        elif record.state is model.CutoverState.PURGING and left:
            yield Blocker(
                subject=f"{record.tree.user}: purge",
                on=f"the purge of the source has begun and not ended: {record.failure or 'it was stopped or killed'}",
                hint=f"migrator purge --user {record.tree.user} --dry-run, then with --confirm (it resumes)",
            )
        elif record.state is model.CutoverState.THAWED and record.failure and left:
            yield Blocker(
                subject=subject,
                on=f"the user works on the target, and the source was not searched for late writes: {record.failure}",
                hint=f"fix that, then {command}",
            )
        elif record.state is model.CutoverState.RETAINED and record.notes.late and record.notes.late.left:
            yield Blocker(
                subject=subject,
                on=record.notes.late.words,
                hint="check each of them, and copy the changes that are worth keeping to the target",
            )
        elif record.state is model.CutoverState.REVERTED and record.failure:
            yield Blocker(
                subject=subject,
                on=f"it was given up, and the user works on the source: {record.failure}",
                hint=f"fix that, then {command}",
            )


def newest_attempts(records: Sequence[model.CutoverRecord]) -> tuple[model.CutoverRecord, ...]:
    """The newest attempt of each tree, in the order of the trees' first attempts."""
    oldest_first = sorted(records, key=lambda record: record.id)
    return tuple({record.tree.path: record for record in oldest_first}.values())


def outcome_of(
    record: model.CutoverRecord,
    ending: CutoverEnding,
    message: str,
    *,
    hint: str = "",
    problems: tuple[str, ...] = (),
) -> CutoverOutcome:
    """The outcome of a tree that has an attempt."""
    return CutoverOutcome(
        tree=record.tree,
        batch=record.batch,
        ending=ending,
        cutover=record,
        words=message,
        hint=hint,
        problems=problems,
    )


def describe_sides(cutovers: Sequence[model.CutoverRecord]) -> str:
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


def describe_purged(cutovers: Sequence[model.CutoverRecord]) -> str:
    """How much of the source purges have freed, as one sentence; empty if there was no purge."""
    purged = [one for one in cutovers if one.state is model.CutoverState.PURGED]
    if not purged:
        return ""
    sums = [one.purge for one in purged if one.purge is not None]
    size, inodes = format_size(sum(one.size_bytes for one in sums)), several(sum(one.inodes for one in sums), "inode")
    return f"The source of {several(len(purged), 'user')} is purged: {size} and {inodes} were freed there."
