"""The next step of a cutover or rollback, from its record and a snapshot. Pure."""

import json
import stat
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import isnan
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import asdict, replace

from migrator.core.blocker import Blocker
from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType, UserTree
from migrator.core.errors import LedgerCorrupt
from migrator.core.events import Finding, failure, ok, warning
from migrator.core.paths import show
from migrator.core.states import BatchState
from migrator.core.units import first_of, format_duration, format_size, several
from migrator.core.windows import OpenTimes
from migrator.cutover import model
from migrator.cutover.model import CutoverState as State
from migrator.cutover.model import Phase
from migrator.fs.acl import GROUP, USER, build_acl, parse_acl, show_acl
from migrator.fs.kinds.table import KINDS
from migrator.fs.model import LOCAL_FILESYSTEMS, TargetCapabilities
from migrator.fs.rules import CLOSED_MODE, kept_xattrs, opened_mode, shows_time, xattr_loss
from migrator.gluster.model import ClientSeen, VolumeState
from migrator.hooks.model import Hook, HookEvent, HookStep
from migrator.operations.model import Finished, Halt, StepRecord, StepResult
from migrator.plan.rules import FROZEN_UID

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


_PART_WORDS = {
    model.FreezePart.CLOSE: "closing the top",
    model.FreezePart.SEARCH: "searches for writers",
    model.FreezePart.SCAN: "scan of the final pass",
    model.FreezePart.COPY: "rest of the final pass",
    model.FreezePart.VERIFY: "verification",
    model.FreezePart.SWITCH: "switch",
    model.FreezePart.THAW: "thaw",
    model.FreezePart.INTERRUPTED: "an interrupted step",
}


def part_words(part: model.FreezePart) -> str:
    """A description of a part of a freeze."""
    return _PART_WORDS[part]


def freeze_parts(
    record: model.CutoverRecord,
    steps: Iterable[StepRecord[model.CutoverStep]],
    *,
    scan_s: float | None,
    until_s: float,
) -> Mapping[model.FreezePart, float]:
    """Where the seconds of a freeze went, until the thaw or `until_s`; empty before a freeze. `scan_s` is how long the
    scans of the final passes took, None if the first has not ended.
    """
    if record.frozen_at_s is None:
        return {}
    end_s = until_s if record.thawed_at_s is None else record.thawed_at_s
    found: defaultdict[model.FreezePart, float] = defaultdict(float)
    at_s = record.frozen_at_s
    for step in steps:
        part = model.FREEZE_PARTS.get(step.step)
        if part is None or not record.frozen_at_s <= step.intended_at_s < end_s:
            continue
        ended_s = end_s if step.ended_at_s is None else min(step.ended_at_s, end_s)
        part = model.FreezePart.INTERRUPTED if step.result is StepResult.INTERRUPTED else part
        found[model.FreezePart.SEARCH] += step.intended_at_s - at_s
        found[part] += ended_s - step.intended_at_s
        at_s = ended_s
    found[model.FreezePart.SEARCH] += end_s - at_s
    copied_s = found[model.FreezePart.COPY]
    found[model.FreezePart.SCAN] = copied_s if scan_s is None else min(scan_s, copied_s)
    found[model.FreezePart.COPY] -= found[model.FreezePart.SCAN]
    return {part: found[part] for part in model.FreezePart if found[part] > 0}


def too_long(parts_s: Mapping[model.FreezePart, float], *, limit_s: float) -> str:
    """Why a freeze that has reached its limit must not go on, with what took the time, the longest first."""
    longest = sorted(parts_s.items(), key=lambda one: -one[1])
    spent = ", ".join(f"{part_words(part)} {format_duration(seconds)}" for part, seconds in longest)
    return f"the freeze reached [cutover] max_freeze ({format_duration(limit_s)}): {spent}"


FROZEN_CHECK = "frozen users"
"""The name of the check of `doctor`."""


def frozen_users(
    records: Iterable[model.CutoverRecord], *, at_work: Callable[[bytes], bool]
) -> tuple[model.FrozenUser, ...]:
    """The users who are frozen now: first those whom no command thaws, then the others; each by time. `at_work`: whether
    a command holds the tree.
    """
    found = [
        model.FrozenUser(
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


def check_frozen(users: Sequence[model.FrozenUser], *, now_s: float) -> list[Finding]:
    """A finding for each frozen user: a failure if no command thaws them."""
    findings = []
    for one in users:
        words = f"{one.tree.user} has been frozen for {format_duration(max(now_s - one.since_s, 0.0))}: {state_words(one.state)}"
        if one.at_work:
            findings.append(warning(FROZEN_CHECK, words, "a command is at work on it: see `migrator status`"))
        else:
            findings.append(failure(FROZEN_CHECK, f"{words}; no command is at work on it", one.hint))
    return findings


def _resuming(record: model.CutoverRecord) -> str:
    verb = "rollback" if record.state in model.ROLLBACK_STATES else "cutover"
    return f"migrator {verb} --user {record.tree.user} (it resumes, or gives it up and thaws the user)"


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
                on=f"it was left {state_words(record.state)}, and the user may not be able to work{why}",
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
                hint=f"put that right, then {command}",
            )
        elif record.state is model.CutoverState.RETAINED and record.notes.late and record.notes.late.left:
            yield Blocker(
                subject=subject,
                on=record.notes.late.words,
                hint="look at each, and bring over by hand what is missed on the target",
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
    beside: Sequence[model.CutoverRecord],
    failed_chunks: int,
    bad_files: int,
    predicted_freeze_s: float | None,
    lacks_backup: bool,
    checked: Mapping[str, Sequence[str] | None],
) -> Iterator[str]:
    """Every reason against freezing the user of one tree, with what to do next; empty if the freeze may begin.

    `before` is the newest attempt of this tree by any plan, `beside` the attempts in flight of other trees of the batch
    that this command does not include: they could not resume while it holds the batch. `checked` maps the name of each
    other check to its problems; None: not known.
    """
    again = f"`migrator run --user-batch {batch}`"
    yield from _before(tree, before, plan=request.run.plan, batch=batch)
    for other in beside:
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
    if problem := freeze_problem(predicted_freeze_s, request, batch=batch):
        yield problem
    if lacks_backup:
        yield NO_BACKUP
    for what, problems in checked.items():
        if problems is None:
            yield f"the state of {what} is not known: see `migrator doctor`"
        else:
            yield from problems


def acl_problems(tree: UserTree, directories: int, first: bytes) -> tuple[str, ...]:
    """Why a user with default ACLs is not moved to a target on which new files do not inherit them."""
    if not directories:
        return ()
    found = several(directories, "directory", "directories")
    return (
        f"new files on the target do not inherit the default ACLs that {found} of {tree.user} have, such as {show(first)}: "
        "users whom these ACLs keep out could read the files. BeeGFS: set storeClientACLs = true on the metadata servers, "
        "then run `migrator doctor`; [cutover] require_acl_inheritance = false moves users all the same",
    )


def window_problem(times: OpenTimes, at_s: float) -> str:
    """Why no freeze may begin at this time; empty if one may."""
    if times.is_open(at_s):
        return ""
    return f"no window of [cutover] is open: the next one opens at {model.begins_words(times.from_(at_s))}; give the command again then"


def freeze_problem(
    predicted_freeze_s: float | None, request: model.CutoverRequest, *, batch: int, load: float = 1.0
) -> str:
    """Why the predicted freeze prevents a cutover; empty if it does not. `load`: how many times as long work takes now
    as during the passes; the prediction has it.
    """
    otherwise = f"make a delta pass with `migrator run --user-batch {batch}`, or accept it with --accept-freeze"
    if request.accept_freeze:
        return ""
    if predicted_freeze_s is None or isnan(predicted_freeze_s):
        return f"how long the freeze would be is not predicted: {otherwise}"
    if predicted_freeze_s <= request.max_freeze_s:
        return ""
    loaded = f" (everything takes {load:.1f} times as long as during the last passes)" if load > 1.0 else ""
    return (
        f"the freeze is predicted to last {format_duration(predicted_freeze_s)}{loaded}, longer than [cutover] max_freeze "
        f"({format_duration(request.max_freeze_s)}): {otherwise}"
    )


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


# The ways there and back. Both have the same phases under different names of states and steps, so each rule is written
# once.


class Way(Struct, frozen=True, kw_only=True):
    """The steps of the way from one side, on which the user works before, to the other; their path leads to `side`
    before the switch, and to `other_side` after it.
    """

    forward: bool
    side: model.LinkSeen
    other_side: model.LinkSeen
    freeze: model.CutoverStep
    copy: model.CutoverStep
    verify: model.CutoverStep
    switch: model.CutoverStep
    thaw: model.CutoverStep
    revert: model.CutoverStep

    def top_here(self, seen: model.Seen) -> model.TopSeen:
        """The top directory on the side that the way leaves."""
        return seen.source_top if self.forward else seen.target_top

    def top_there(self, seen: model.Seen) -> model.TopSeen:
        """The top directory on the side that the way leads to."""
        return seen.target_top if self.forward else seen.source_top


THERE = Way(
    forward=True,
    side=model.LinkSeen.SOURCE,
    other_side=model.LinkSeen.TARGET,
    freeze=model.CutoverStep.FREEZE,
    copy=model.CutoverStep.FINAL_PASS,
    verify=model.CutoverStep.VERIFY,
    switch=model.CutoverStep.SWITCH,
    thaw=model.CutoverStep.THAW,
    revert=model.CutoverStep.REVERT,
)

BACK = Way(
    forward=False,
    side=model.LinkSeen.TARGET,
    other_side=model.LinkSeen.SOURCE,
    freeze=model.CutoverStep.ROLLBACK_FREEZE,
    copy=model.CutoverStep.CARRY_BACK,
    verify=model.CutoverStep.ROLLBACK_VERIFY,
    switch=model.CutoverStep.SWITCH_BACK,
    thaw=model.CutoverStep.ROLLBACK_THAW,
    revert=model.CutoverStep.ROLLBACK_REVERT,
)

PLACES: Mapping[State, tuple[Way, Phase]] = {
    State.PLANNED: (THERE, Phase.START),
    State.THAWED: (THERE, Phase.ARRIVED),
} | {
    state: (way, phase)
    for phase, states in model.PHASES.items()
    for way, state in zip((THERE, BACK), states, strict=True)
}
"""The way and phase of every state that has a next step."""

_MOVED = (State.SWITCHED, State.THAWED, State.RETAINED)
"""The states in which a rollback begins."""


# Whether the snapshot agrees with the record. If not, nothing may be changed.


_AGAIN = "then run the same command again: it goes on from here, or gives the move up"
_CLOSED = frozenset({model.TopSeen.FROZEN})
_ANY = frozenset(model.TopSeen) - {model.TopSeen.UNKNOWN}

# An interrupted freeze or thaw leaves any mixture of both ends. If a frozen top is open, somebody opened it by hand to
# let the user work again: before the switch this aborts the cutover.
_OPEN_OR_CLOSED = frozenset({model.TopSeen.OPEN, model.TopSeen.FROZEN})
_BETWEEN = _OPEN_OR_CLOSED | {model.TopSeen.PARTLY}
_TOP_HERE: Mapping[Phase, frozenset[model.TopSeen]] = {
    Phase.START: frozenset({model.TopSeen.OPEN}),
    Phase.FREEZING: _BETWEEN,
    Phase.REVERTING: _BETWEEN,
    **dict.fromkeys((Phase.SWITCHED, Phase.THAWING, Phase.ARRIVED), _CLOSED),
}
"""In every other phase it is open or closed."""

_LINK_AFTER = frozenset({Phase.SWITCHED, Phase.THAWING, Phase.ARRIVED})


def unexplained(way: Way, phase: Phase, record: model.CutoverRecord, seen: model.Seen) -> Halt | None:
    """Why nothing may be changed; None if this program can have left everything that the snapshot shows."""
    return _link(way, phase, record, seen) or _tops(way, phase, record, seen)


def unexplained_start(way: Way, record: model.CutoverRecord, seen: model.Seen) -> Halt | None:
    """The same check before a rollback begins: the user may have changed their top since."""
    if found := _link(way, Phase.START, record, seen):
        return found
    here = _OPEN_OR_CLOSED if record.state is model.CutoverState.SWITCHED else _ANY
    return _both(way, record, seen, here, _CLOSED)


def _tops(way: Way, phase: Phase, record: model.CutoverRecord, seen: model.Seen) -> Halt | None:
    here, there = _TOP_HERE.get(phase, _OPEN_OR_CLOSED), _CLOSED
    if phase in (Phase.SWITCHED, Phase.THAWING):
        # A user who was switched may have been thawed by hand.
        there = _BETWEEN
    elif phase is Phase.ARRIVED:
        # The top belongs to the user again, who may give it any mode.
        there = _ANY
    elif phase is Phase.SWITCHING and seen.link is way.other_side:
        here, there = _CLOSED, _OPEN_OR_CLOSED
    return _both(way, record, seen, here, there)


def _both(
    way: Way,
    record: model.CutoverRecord,
    seen: model.Seen,
    here: frozenset[model.TopSeen],
    there: frozenset[model.TopSeen],
) -> Halt | None:
    return _top(record, way.side, way.top_here(seen), here, seen.top_differences) or _top(
        record, way.other_side, way.top_there(seen), there, seen.top_differences
    )


def _link(way: Way, phase: Phase, record: model.CutoverRecord, seen: model.Seen) -> Halt | None:
    name = show(record.notes.link) if record.notes.link is not None else f"the path of {record.tree.user}"
    if seen.link is model.LinkSeen.UNKNOWN:
        return Halt(
            words=f"where {name} leads cannot be seen",
            hint=f"put right what keeps it from being looked at, {_AGAIN}",
        )
    if seen.link is model.LinkSeen.UNTOLD:
        return None
    side = way.other_side if phase in _LINK_AFTER else way.side
    if seen.link is side or (phase is Phase.SWITCHING and seen.link is way.other_side):
        return None
    holds = "" if seen.link_holds is None else f" ({show(seen.link_holds)})"
    where = "elsewhere" if seen.link is model.LinkSeen.OTHER else f"to the {seen.link.value}"
    return Halt(
        words=f"{name} leads {where}{holds} although the cutover is {record.state.value}: somebody else has changed it",
        hint=f"find out on which side {record.tree.user} has worked since; let {name} lead to the {side}, {_AGAIN}",
    )


_TOP_WORDS = {
    model.TopSeen.OPEN: "open",
    model.TopSeen.FROZEN: "closed",
    model.TopSeen.PARTLY: "partly closed",
}


def _top(
    record: model.CutoverRecord,
    side: str,
    found: model.TopSeen,
    expected: frozenset[model.TopSeen],
    differences: Sequence[str],
) -> Halt | None:
    if found in expected:
        return None
    name = f"the top directory of {show(record.tree.path)} on the {side}"
    if found is model.TopSeen.UNKNOWN:
        return Halt(
            words=f"{name} cannot be looked at",
            hint=f"see `migrator doctor`, put right what it finds, {_AGAIN}",
        )
    why = "; ".join(differences) if found is model.TopSeen.OTHER else f"it is {_TOP_WORDS[found]}"
    wanted = "closed again (root's, mode 0700)" if model.TopSeen.OPEN not in expected else "as it was before the freeze"
    return Halt(
        words=f"{name} is not as the cutover left it ({record.state.value}): {why}",
        hint=f"find out who changed it, and whether files were changed there meanwhile; make it {wanted}, {_AGAIN}",
    )


# The next step, from the record and a snapshot. The caller writes the intent, acts, writes the result, and asks again
# with a new snapshot. If an act fails and the next answer is the same act, the caller ends with that failure.
# - Before the switch every failure and every missing proof thaws the user without moving them.
# - Between intent and result of the switch the snapshot decides whether it was made.
# - After the switch failures are retried; nothing is reverted automatically.
# - A state that the record does not explain is left untouched.


_SHOWN = 3


def next_step(record: model.CutoverRecord, seen: model.Seen) -> model.Step:
    """The next step of a cutover, or of a rollback that has begun."""
    place = PLACES.get(record.state)
    if place is None:
        return _finished(record)
    way, phase = place
    if halt := unexplained(way, phase, record, seen):
        return halt
    match phase:
        case Phase.START | Phase.FREEZING | Phase.FROZEN | Phase.COPYING | Phase.VERIFYING | Phase.VERIFIED:
            if why := _why_revert(way, phase, record, seen):
                return _revert(way, seen, why)
            return _forward(way, phase, record, seen)
        case Phase.SWITCHING:
            return _switching(way, record, seen)
        case Phase.REVERTING:
            return _revert(way, seen, record.failure)
        case Phase.SWITCHED | Phase.THAWING:
            return model.act_of(way.thaw, seen_done=way.top_there(seen) is model.TopSeen.OPEN)
        case Phase.ARRIVED:
            return model.act_of(model.CutoverStep.RETAIN)
        case _:
            assert_never(phase)


def begin_rollback(record: model.CutoverRecord, seen: model.Seen) -> model.Step:
    """The first steps of a rollback. Call it until the record is on the way back (`turned_back`) or finished, then call
    `next_step`: otherwise a rollback that was given up would begin again.

    Before the switch this gives up the cutover. A switch or a thaw that has begun is finished first.
    """
    state = record.state
    if state in (model.CutoverState.PURGING, model.CutoverState.PURGED):
        return Halt(
            words=f"the source of {record.tree.user} {'is being' if state is model.CutoverState.PURGING else 'has been'} purged",
            hint="there is nothing to go back to: to move the user back, set up a site whose source is this target",
        )
    if state in _MOVED:
        if halt := unexplained_start(BACK, record, seen):
            return halt
        return model.act_of(BACK.freeze)
    place = PLACES.get(state)
    if place is None or turned_back(state) or state is State.THAWING:
        return next_step(record, seen)
    way, phase = place
    if halt := unexplained(way, phase, record, seen):
        return halt
    if phase is Phase.SWITCHING and seen.link is not way.side:
        return _switching(way, record, seen)
    return _revert(way, seen, record.failure or "a rollback was asked for before the switch")


def turned_back(state: model.CutoverState) -> bool:
    """Whether a user in this state is on the way back to the source, or back there."""
    return state in model.ROLLBACK_STATES or state in (
        model.CutoverState.REVERTING,
        model.CutoverState.REVERTED,
        model.CutoverState.ROLLED_BACK,
    )


def _finished(record: model.CutoverRecord) -> Finished:
    why = f": {record.failure}" if record.state is State.REVERTED and record.failure else ""
    return Finished(state=record.state, words=f"{record.tree.user} works {state_words(record.state)}{why}")


def _revert(way: Way, seen: model.Seen, reason: str) -> model.CutoverAct:
    return model.act_of(way.revert, seen_done=way.top_here(seen) is model.TopSeen.OPEN, reason=reason)


def _why_revert(way: Way, phase: Phase, record: model.CutoverRecord, seen: model.Seen) -> str:
    """Why the way is reverted; empty if it continues."""
    if record.failure:
        return record.failure
    if phase is not Phase.START and seen.too_long:
        return seen.too_long
    if phase in (Phase.START, Phase.FREEZING):
        return ""
    if way.top_here(seen) is model.TopSeen.OPEN:
        return f"the tree was opened on the {way.side} by somebody else while it had to be frozen"
    problems: list[str] = []
    match phase:
        case Phase.FROZEN:
            problems.extend(_writers(seen))
        case Phase.COPYING if _copied(record, seen) is not None:
            problems.extend(_pass_problems(way, record, seen))
        case Phase.VERIFYING:
            problems.extend(_pass_problems(way, record, seen))
            if _proof(record, seen) is not None:
                problems.extend(_proof_problems(way, record, seen))
        case Phase.VERIFIED:
            problems.extend(switch_problems(way, record, seen))
        case _:
            pass
    return "; ".join(problems)


def _forward(way: Way, phase: Phase, record: model.CutoverRecord, seen: model.Seen) -> model.CutoverAct:
    match phase:
        case Phase.START | Phase.FREEZING:
            return model.act_of(way.freeze, seen_done=way.top_here(seen) is model.TopSeen.FROZEN)
        case Phase.FROZEN | Phase.COPYING:
            if phase is Phase.FROZEN or _copied(record, seen) is None:
                return model.act_of(way.copy)
            return model.act_of(way.verify)
        case Phase.VERIFYING:
            return model.act_of(way.verify, seen_done=_proof(record, seen) is not None)
        case _:
            return model.act_of(way.switch)


def _switching(way: Way, record: model.CutoverRecord, seen: model.Seen) -> model.Step:
    """Decide from the snapshot, between the intent of the switch and its result."""
    again = model.act_of(way.switch)
    if seen.link is way.other_side:
        return model.act_of(way.switch, seen_done=True)
    opened = way.top_here(seen) is model.TopSeen.OPEN
    problems = tuple(switch_problems(way, record, seen))
    if seen.link is model.LinkSeen.UNTOLD:
        # Forward is the only safe way as long as it is the same switch with the same proof: the hook may be called twice.
        if problems:
            return Halt(
                words=f"whether {record.tree.user} was switched is not known, and it cannot be done now: "
                + "; ".join(problems),
                hint=f"find out where the path leads that the hook switches. The tree is closed on the {way.other_side}, and "
                f"frozen on the {way.side}: put right what is said, then run the same command again",
            )
        return again
    if opened:
        return _revert(way, seen, f"the tree was opened on the {way.side} by somebody else before the switch")
    if why := record.failure or seen.too_long or "; ".join(problems):
        return _revert(way, seen, why)
    return again


def switch_problems(way: Way, record: model.CutoverRecord, seen: model.Seen) -> Iterator[str]:
    """Every reason against switching the path now. An unknown fact is a reason too."""
    if way.top_here(seen) is not model.TopSeen.FROZEN:
        yield f"the tree is not seen to be frozen on the {way.side}"
    if way.top_there(seen) is not model.TopSeen.FROZEN:
        yield f"the tree is not seen to be closed on the {way.other_side}"
    yield from _writers(seen)
    yield from _pass_problems(way, record, seen)
    yield from _proof_problems(way, record, seen)
    if way.forward and seen.lacks_backup:
        yield NO_BACKUP


def _writers(seen: model.Seen) -> Sequence[str]:
    return (
        ("whether somebody still writes to the frozen tree was not looked for",)
        if seen.writing is None
        else seen.writing
    )


def _copied(record: model.CutoverRecord, seen: model.Seen) -> model.PassSeen | None:
    """The pass that counts: it has ended, and is newer than the intent of the freeze. A pass makes its own scan."""
    found, before = seen.copied, record.notes.passes_before
    if found is None or found.finished_at_s is None or before is None or found.id <= before:
        return None
    return found


def _pass_problems(way: Way, record: model.CutoverRecord, seen: model.Seen) -> Iterator[str]:
    found = _copied(record, seen)
    name = "the final pass" if way.forward else "the pass that carries back"
    if found is None:
        yield f"{name} has not ended, or did not begin in the freeze"
        return
    if not found.whole:
        yield f"{name} is not whole: the {way.side} could not be read everywhere, or was not healthy"
    for count, what in ((found.changed, "changed"), (found.vanished, "vanished")):
        if count:
            yield f"{several(count, 'file')} {what} during {name}"
    if found.failed:
        yield f"{several(found.failed, 'file')} did not arrive by {name}"


def _proof(record: model.CutoverRecord, seen: model.Seen) -> model.ProofSeen | None:
    """The verification that counts: it covers the result of the pass, and began after the intent to verify that."""
    found, copied, before = seen.proof, seen.copied, record.notes.proofs_before
    if found is None or copied is None or copied.finished_at_s is None:
        return None
    if before is None or found.id <= before:
        return None
    return found


def _proof_problems(way: Way, record: model.CutoverRecord, seen: model.Seen) -> Iterator[str]:
    found = _proof(record, seen)
    name = "the final pass" if way.forward else "the pass that carries back"
    if found is None:
        yield f"there is no verification of what {name} left"
        return
    if not found.whole:
        reasons = "; ".join(found.reasons[:3]) or "no reason was recorded"
        yield f"the verification is not whole: {reasons}"
    if found.differences:
        shown = f" ({'; '.join(found.examples[:_SHOWN])})" if found.examples else ""
        yield f"the verification found {several(found.differences, 'difference')}{shown}"
    if not found.by_policy:
        yield "the verification compared the content of fewer files than [verify] sample asks for"
    if way.forward and found.manifest is None:
        yield "the verification left no manifest"


# Tops in the ledger, and the top on the target.


_OWN_ENTRIES = 3
"""An ACL with no more entries repeats the mode; file systems store it as the mode alone."""


def write_top(top: model.FrozenTop) -> str:
    """A top as JSON for the ledger, with bytes in hexadecimal."""
    return json.dumps({name: value.hex() if isinstance(value, bytes) else value for name, value in asdict(top).items()})


def read_top(text: str) -> model.FrozenTop:
    """Parse a top from the ledger. Raises LedgerCorrupt."""
    try:
        found = json.loads(text)
        values: dict[str, Any] = {name: int(found[name]) for name in ("ino", "uid", "gid", "mode")}
        for name in ("gfid", "acl_access", "acl_default"):
            values[name] = None if found[name] is None else bytes.fromhex(found[name])
        return model.FrozenTop(tree=bytes.fromhex(found["tree"]), **values)
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerCorrupt(
            "how a user is thawed cannot be read from the ledger",
            hint="bring the ledger back from its backup, or give the top directory its owner and mode by hand",
        ) from error


def top_of(entry: Entry) -> model.FrozenTop:
    """The top directory in this entry."""
    return model.FrozenTop(
        tree=entry.path,
        ino=entry.ino,
        gfid=entry.gfid,
        uid=entry.uid,
        gid=entry.gid,
        mode=entry.mode,
        acl_access=entry.xattrs.get(ACL_ACCESS),
        acl_default=entry.xattrs.get(ACL_DEFAULT),
    )


def opened_top(like: Entry, now: Entry, capabilities: TargetCapabilities) -> model.FrozenTop:
    """The top on the target after a thaw. `now` is its current entry, `like` the entry of the top on the source before
    the freeze.
    """
    kept = kept_xattrs(like.xattrs, capabilities)
    return replace(
        top_of(now),
        gfid=None,
        uid=like.uid,
        gid=like.gid,
        mode=opened_mode(like, capabilities),
        acl_access=kept.get(ACL_ACCESS),
        acl_default=kept.get(ACL_DEFAULT),
    )


def as_before(seen: Entry, top: model.FrozenTop) -> Entry:
    """A top directory as recorded before a freeze, from its current entry `seen`, for the thaw. A freeze changes owner,
    mode and ACLs, but neither times nor other attributes.
    """
    kept = {name: value for name, value in seen.xattrs.items() if name not in (ACL_ACCESS, ACL_DEFAULT)}
    acls = {ACL_ACCESS: top.acl_access, ACL_DEFAULT: top.acl_default}
    xattrs = kept | {name: value for name, value in acls.items() if value is not None}
    return replace(seen, uid=top.uid, gid=top.gid, mode=top.mode, xattrs=xattrs)


def is_closed(now: Entry, *, uid: int, gid: int) -> bool:
    """Whether only the user that runs this program can enter the top on the target."""
    acls = {ACL_ACCESS, ACL_DEFAULT} & now.xattrs.keys()
    return not acls and (now.type, now.uid, now.gid, now.mode) == (EntryType.DIRECTORY, uid, gid, CLOSED_MODE)


def not_closed(tree: UserTree, top: Entry | None, *, uid: int, gid: int) -> tuple[str, ...]:
    """Why somebody may have changed the tree on the target before its user is moved. `uid` and `gid` are those of this
    program.
    """
    name = f"the tree {show(tree.path)} on the target"
    if top is None:
        return (f"{name} is not there: see who took it away, then `migrator scan`, `plan` and `run` bring it anew",)
    if is_closed(top, uid=uid, gid=gid):
        return ()
    return (
        f"{name} is open, so somebody may have changed it: make it root's with mode 0700, and see `migrator verify` "
        "for what differs",
    )


def target_top(
    now: Entry | None, wanted: model.FrozenTop | None, *, uid: int, gid: int
) -> tuple[model.TopSeen, tuple[str, ...]]:
    """The state of the top on the target, and sentences about the differences if it is `other`.

    `wanted` is the top when open; None if it was never opened. `uid` and `gid` are those of this program, which owns a
    closed top.
    """
    if now is None:
        return model.TopSeen.OTHER, ("it is missing",)
    if now.type is not EntryType.DIRECTORY:
        return model.TopSeen.OTHER, (f"it is a {now.type.value}",)
    if is_closed(now, uid=uid, gid=gid):
        return model.TopSeen.FROZEN, ()
    if wanted is None:
        return model.TopSeen.OTHER, (
            f"it is open (uid {now.uid}, mode {now.mode:04o}), and nobody opened it by this program",
        )
    if _same(now, wanted):
        return model.TopSeen.OPEN, ()
    if now.uid in (uid, wanted.uid) and now.gid in (gid, wanted.gid):
        # Freeze and thaw begin and end with permissions for the owner alone; only the user can have granted others any.
        partly = now.uid == uid or now.mode & 0o077 == 0
        return (model.TopSeen.PARTLY if partly else model.TopSeen.OPEN), ()
    return model.TopSeen.OTHER, (
        f"it belongs to {now.uid}:{now.gid} with mode {now.mode:04o}, and should to {wanted.uid}:{wanted.gid} "
        f"with {wanted.mode:04o}",
    )


def _same(now: Entry, wanted: model.FrozenTop) -> bool:
    return (
        (now.uid, now.gid, now.mode) == (wanted.uid, wanted.gid, wanted.mode)
        and _plain(now.xattrs.get(ACL_ACCESS)) == _plain(wanted.acl_access)
        and now.xattrs.get(ACL_DEFAULT) == wanted.acl_default
    )


def _plain(acl: bytes | None) -> object:
    """None for an ACL that repeats the mode."""
    entries = None if acl is None else parse_acl(acl)
    return None if entries is None or len(entries) <= _OWN_ENTRIES else entries


# The top directory on the source after a rollback. No pass carries it, because it is frozen. Attributes that the user
# changed on the target since the switch are taken from the target. All others, and those that the target cannot keep in
# full, are as on the source before the freeze.


def carried_top(
    source: Entry,
    target: Entry,
    *,
    source_before: model.FrozenTop,
    target_before: model.FrozenTop,
    capabilities: TargetCapabilities,
) -> Entry:
    """The top on the source after a rollback, for `MountedTarget.open_tree`.

    `source` and `target` are the current, frozen tops; they provide times and the attributes that a freeze leaves
    alone. `source_before` is the source's top before the freeze of the cutover, `target_before` the target's before the
    freeze of the rollback. `capabilities` are the target's.
    """
    opened = opened_top(as_before(source, source_before), target, capabilities)
    changed = {
        name: getattr(target_before, name)
        for name in ("uid", "gid", "mode", "acl_access", "acl_default")
        if _read(name, getattr(target_before, name)) != _read(name, getattr(opened, name))
    }
    lost = {name: value for name, value in source.xattrs.items() if xattr_loss(name, value, capabilities) is not None}
    same_time = shows_time(target.mtime_ns, source.mtime_ns, capabilities)
    carried = replace(
        source, mtime_ns=source.mtime_ns if same_time else target.mtime_ns, xattrs={**lost, **target.xattrs}
    )
    return as_before(carried, replace(source_before, **changed))


def _read(name: str, value: object) -> object:
    """An ACL as its entries, because equal ACLs may differ in bytes; any other value unchanged."""
    return _plain(value) if name.startswith("acl") and isinstance(value, bytes) else value


# Whether a tree is frozen: its top, and who can still write below it.


_OPEN_BEHIND = "performance.open-behind"
_OFF = frozenset({"off", "no", "false", "0", "disable"})
_ON = frozenset({"on", "yes", "true", "1", "enable"})
_HOSTS_SHOWN = 5
_FREEZING_SHOWN = 5


def frozen_form(top: model.FrozenTop) -> model.FrozenTop:
    """The frozen form of a top: root's, closed, without ACLs. The group stays."""
    return replace(top, uid=FROZEN_UID, mode=top.frozen_mode, acl_access=None, acl_default=None)


def judge_top(before: model.FrozenTop, now: model.FrozenTop) -> model.TopLook:
    """Compare a top with its record from before the freeze.

    A crash during a freeze or thaw leaves each attribute either as it was or as frozen; anything else was changed by
    somebody else. (Setting an ACL may clear setgid: setxattr(2) by a caller outside the group does.)
    """
    frozen = frozen_form(before)
    if now in (before, frozen):
        return model.TopLook(state=model.TopSeen.OPEN if now == before else model.TopSeen.FROZEN)
    if (now.tree, now.ino, now.gfid) != (before.tree, before.ino, before.gfid):
        another = ("another directory stands in its place",)
        return model.TopLook(state=model.TopSeen.OTHER, differences=another, another=True)
    attributes: tuple[tuple[str, Callable[[Any], str], object, object, tuple[object, ...]], ...] = (
        ("group", str, now.gid, before.gid, ()),
        ("owner", str, now.uid, before.uid, (frozen.uid,)),
        ("mode", "{:04o}".format, now.mode, before.mode, (frozen.mode, before.mode & ~stat.S_ISGID)),
        ("ACL", _shown, _unmasked(now.acl_access), _unmasked(before.acl_access), (None,)),
        ("default ACL", _shown, now.acl_default, before.acl_default, (None,)),
    )
    found = [
        f"its {name} is {shown(value)}, and was {shown(was)}"
        for name, shown, value, was, others in attributes
        if value not in (was, *others)
    ]
    state = model.TopSeen.OTHER if found else model.TopSeen.PARTLY
    return model.TopLook(state=state, differences=tuple(found))


def _unmasked(acl: bytes | None) -> bytes | None:
    """The ACL without the permissions that chmod(2) changes in it, as a freeze does: the mode has them too."""
    entries = None if acl is None else parse_acl(acl)
    if entries is None:
        return acl
    return build_acl(tuple(one if one.tag in (USER, GROUP) else replace(one, permissions=0) for one in entries))


def why_not_frozen(writers: model.Writers, *, vouched: bool) -> tuple[str, ...]:
    """Why somebody may still write below the trees, as sentences; empty if nobody can. Readers do not count.

    `vouched`: the site's freeze hook guarantees what the search could not see. It does not cover writers that the
    search did see.
    """
    writing = tuple(one for one in writers.open_files if can_write(one))
    reasons = []
    if writing:
        shown = first_of([describe_open(one) for one in writing], _FREEZING_SHOWN, mark=";")
        reasons.append(f"something can still be written below the frozen trees: {shown}")
    return (*reasons, *what_is_unseen(writers, vouched=vouched))


def what_is_unseen(writers: model.Writers, *, vouched: bool) -> tuple[str, ...]:
    """Gaps that a search after the freeze would have too, as sentences; may be called before any freeze."""
    if vouched:
        return ()
    return tuple(f"whether somebody writes was not seen: {sentence}" for sentence in writers.unseen)


def can_write(found: model.OpenFile) -> bool:
    """Whether an open file allows changes to a tree with a closed top. A process can open and create files from a
    working directory without passing the top. A file without a name belongs to no tree any more.
    """
    return not found.unlinked and (found.writable or found.kind is model.OpenKind.WORKING_DIRECTORY)


def describe_open(found: model.OpenFile) -> str:
    """One line about an open file: path, use, process, host or brick."""
    holder = f"process {found.pid}" if found.pid is not None else ""
    holder += f" ({show(found.program)})" if found.program else ""
    place = f"on {found.host}" if not found.brick else f"through brick {found.brick}"
    how = _HOW.get(found.kind, "open for writing" if found.writable else "open for reading")
    state = ", has no name any more" if found.unlinked else ""
    return f"{show(found.path)}: {how}{state}, {' '.join(part for part in (holder, place) if part)}"


_HOW = {model.OpenKind.WORKING_DIRECTORY: "a working directory", model.OpenKind.LOOP_DEVICE: "a loop device"}


def missing_freeze_hook(hooks: Collection[Hook]) -> str | None:
    """Why no hook of the site can vouch for a freeze, as `[cutover] freeze = "hook"` requires; None if one can."""
    if any(hook.stage.step is HookStep.FREEZE and hook.stage.event is HookEvent.PRE for hook in hooks):
        return None
    return (
        '[cutover] freeze is "hook", and there is no pre-freeze hook: put one into pre-freeze.d of hooks_dir, '
        "which succeeds only where the users cannot write any more"
    )


def closed_already(top: model.FrozenTop) -> str | None:
    """Why a top that is already closed cannot be frozen; None for any other top. A later thaw would not know its
    attributes.
    """
    if frozen_form(top) != top:
        return None
    return (
        f"the top of {show(top.tree)} on the source is closed already (root's, mode {top.mode:04o}), and no cutover of it is "
        "in progress by the ledger: give it the owner, mode and ACLs that it should have, and see whether the ledger is the "
        "latest one"
    )


def has_clients_elsewhere(filesystem: str) -> bool:
    """Whether other machines may have the file system mounted, and cache what they saw of it. `filesystem` is the type
    in mountinfo.
    """
    return filesystem not in LOCAL_FILESYSTEMS


_NFS_CACHE_S = 60.0
"""`acregmax` and `acdirmax` (nfs(5)): so long clients, this one too, may show a file or a top as it was before."""


def settle_s(filesystem: str, asked_s: float) -> float:
    """How long to wait until no client passes a closed top by its cache, and a scan sees what others wrote."""
    least_s = _NFS_CACHE_S if filesystem in KINDS["nfs"].types else 0.0
    return max(asked_s, least_s) if has_clients_elsewhere(filesystem) else 0.0


def clients_unseen(filesystem: str, *, mount: bytes) -> tuple[str, ...]:
    """What a search on this machine cannot see of a source that is not a Gluster volume; empty if only this machine can
    mount it. `filesystem` is the type in mountinfo.
    """
    if not has_clients_elsewhere(filesystem):
        return ()
    way = "; [target] clients lets them be asked" if filesystem == "beegfs" else ""
    return (
        f"{show(mount)} is a file system of type {filesystem}: what other machines have open there is not known here{way}",
    )


def unopened_unseen(state: VolumeState) -> tuple[str, ...]:
    """Why files that clients have open may be open on no brick. While performance.open-behind is on (the default), a
    client opens a file on the bricks only at the first read or write (GlusterFS 10.3). After it is set to off, even
    files opened before show within a second.
    """
    value = dict(state.options).get(_OPEN_BEHIND, "on")
    if value.lower() in _OFF:
        return ()
    return (
        f"{_OPEN_BEHIND} is on: what a client has open and has not written to yet shows on no brick; "
        f"`gluster volume set {state.volume} {_OPEN_BEHIND} off` shows it",
    )


_EXPORTS = (
    ("nfs.disable", _OFF, "Gluster's NFS server"),
    ("ganesha.enable", _ON, "NFS-Ganesha"),
    ("nfs-ganesha", _ON, "NFS-Ganesha"),
    ("user.smb", _ON, "Samba"),
    ("user.cifs", _ON, "Samba"),
)
"""Options of a volume (GlusterFS 10.3), the values that mean that it is exported, and by what."""


def exports_unseen(state: VolumeState) -> tuple[str, ...]:
    """The servers that export the volume to clients of their own. Those reach a file by its handle, past a closed top, and
    nobody can see what they have open.
    """
    options = dict(state.options)
    return tuple(
        f"{server} exports the volume ({name} is {options[name]}): its clients reach files by handle, past the closed top"
        for name, values, server in _EXPORTS
        if options.get(name, "").lower() in values
    )


def others_unseen(clients: Sequence[ClientSeen] | None, unseen: Sequence[str]) -> tuple[str, ...]:
    """What other clients of the volume may do unseen. `clients` None: they are not known; `unseen` says why."""
    found = [f"which clients are connected to the bricks is not known: {sentence}" for sentence in unseen]
    if clients is None and not unseen:
        found.append(
            "which clients are connected to the bricks is not known: see `gluster volume status VOLUME clients`"
        )
    if clients:
        found.append(
            f"other clients have the volume mounted: {hosts_of(clients)}: a process there may have its working directory in "
            "the tree, and make files there past the closed top"
        )
    return tuple(found)


def names_kept(machines: Sequence[str]) -> tuple[str, ...]:
    """What users of these machines may do past a closed top, because the site's mount there keeps names.

    Gluster's FUSE client does not check permissions; bricks do, when a name is looked up. While root looks up the names
    below a closed top through the same mount, others open files by them.
    """
    if not machines:
        return ()
    return (
        f"the source's mount on {first_of(machines)} keeps names: while root walks through it, users of that machine open "
        "files below a closed top (mount it there with the option entry-timeout=0)",
    )


def hosts_of(clients: Sequence[ClientSeen]) -> str:
    """The hosts of clients, with their numbers of connections."""
    hosts = Counter(client.address.rpartition(":")[0] for client in clients)
    shown = ", ".join(
        f"{host} ({several(count, 'connection')})" for host, count in sorted(hosts.items())[:_HOSTS_SHOWN]
    )
    return shown + (f", and {len(hosts) - _HOSTS_SHOWN} hosts more" if len(hosts) > _HOSTS_SHOWN else "")


def check_open_files(state: VolumeState, *, vouched: bool) -> list[Finding]:
    """For `doctor`, on sites that move users: whether all files that clients have open show on the bricks."""
    if vouched:
        return []
    exported = [
        warning(
            "exports", sentence, 'users are not frozen: have a pre-freeze hook vouch for it ([cutover] freeze = "hook")'
        )
        for sentence in exports_unseen(state)
    ]
    if not unopened_unseen(state):
        return [ok("open files", "what clients open shows on the bricks at once"), *exported]
    fix = f"before users are moved: gluster volume set {state.volume} {_OPEN_BEHIND} off"
    return [
        warning("open files", f"{_OPEN_BEHIND} is on: what is open and was not written to shows on no brick", fix),
        *exported,
    ]


def check_way_back(doubts: Sequence[str] | None, *, required: bool) -> list[Finding]:
    """For `doctor`: whether moved users could be moved back. `doubts` are the target's `what_is_unseen`; None: not
    known.
    """
    if doubts == ():
        return [
            ok("rollback", "users can be moved back: all that may write to the target can be seen, or a hook vouches")
        ]
    why = "; ".join(doubts or ("the search for processes that write to the target has failed",))
    then = "no user is moved ([cutover] require_rollback)" if required else "they are moved all the same"
    fix = 'let the search see that, or have a pre-freeze hook vouch for it, with [cutover] freeze = "hook" (docs/cutover.md)'
    return [warning("rollback", f"users could not be moved back, and {then}: {why}", fix)]


def _shown(acl: bytes | None) -> str:
    if acl is None:
        return "none"
    entries = parse_acl(acl)
    return "not readable" if entries is None else show_acl(entries)
