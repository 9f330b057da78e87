"""The checks before a freeze. Pure.

The freeze costs the user time, so every problem that can be known is checked before it. An unknown fact counts as a
problem.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import isnan

from migrator.core.entry import Entry, UserTree
from migrator.core.events import Finding, ok, warning
from migrator.core.paths import show
from migrator.core.states import BatchState
from migrator.core.units import format_duration, format_time, several
from migrator.core.windows import OpenTimes
from migrator.cutover import model
from migrator.cutover.model_calls import CutoverRequest
from migrator.cutover.rules_states import describe_state
from migrator.cutover.rules_tops import FrozenTop, frozen_form, is_closed
from migrator.hooks.model import Hook, HookEvent, HookStep

READY = (BatchState.SEEDED, BatchState.CONVERGING, BatchState.VERIFIED)
"""The states of a batch whose users may be moved."""


NO_BACKUP = "no backup of the target is recorded, and [cutover] wait_for_backup requires one: make it, and record it with `migrator backup`"


def cutover_problems(
    tree: UserTree,
    request: CutoverRequest,
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
    other check to its problems; None: unknown.
    """
    again = f"`migrator run --user-batch {batch}`"
    yield from _before(tree, before, plan=request.run.plan, batch=batch)
    for other in beside:
        verb = "rollback" if other.state in model.ROLLBACK_STATES else "cutover"
        yield (
            f"{other.tree.user} may be frozen by a {verb} that has not ended ({describe_state(other.state)}): finish it "
            f"with `migrator {verb} --user {other.tree.user}`"
        )
    if state is None:
        yield f"the state of batch {batch} is unknown: see `migrator status`"
    elif state not in READY:
        yield f"batch {batch} is {state.value}: copy it first, with {again}"
    for count, what in ((failed_chunks, "chunk"), (bad_files, "file")):
        if count:
            yield f"{several(count, what)} of batch {batch} failed: fix their reasons (`migrator status`), then {again}"
    if problem := freeze_problem(predicted_freeze_s, request, batch=batch):
        yield problem
    if lacks_backup:
        yield NO_BACKUP
    for what, problems in checked.items():
        if problems is None:
            yield f"the state of {what} is unknown: see `migrator doctor`"
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
        "then run `migrator doctor`; [cutover] require_acl_inheritance = false moves users anyway",
    )


def window_problem(times: OpenTimes, at_s: float) -> str:
    """Why no freeze may begin at this time; empty if one may."""
    if times.is_open(at_s):
        return ""
    return f"no window of [cutover] is open: the next one opens at {format_time(times.from_(at_s))}; run the command again then"


def freeze_problem(predicted_freeze_s: float | None, request: CutoverRequest, *, batch: int, load: float = 1.0) -> str:
    """Why the predicted freeze prevents a cutover; empty if it does not. `load`: how many times as long work takes now
    as during the passes; the prediction has it.
    """
    otherwise = f"make a delta pass with `migrator run --user-batch {batch}`, or accept it with --accept-freeze"
    if request.accept_freeze:
        return ""
    if predicted_freeze_s is None or isnan(predicted_freeze_s):
        return f"the freeze has no prediction: {otherwise}"
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
            f"{tree.user} works on the target already ({describe_state(before.state)}, plan {before.plan}, batch "
            f"{before.batch}): there is nothing to cut over"
        )
    elif before.state in model.ROLLBACK_STATES:
        yield (
            f"a rollback of {tree.user} is in progress ({describe_state(before.state)}): finish it with "
            f"`migrator rollback --user {tree.user}`"
        )
    else:
        yield (
            f"a cutover of {tree.user} has begun already ({describe_state(before.state)}, plan {before.plan}, batch "
            f"{before.batch}): resume it with `migrator cutover --user {tree.user}`"
        )


def not_closed(tree: UserTree, top: Entry | None, *, uid: int, gid: int) -> tuple[str, ...]:
    """Why the tree on the target may have been changed before its user is moved. `uid` and `gid` are those of this
    program.
    """
    name = f"the tree {show(tree.path)} on the target"
    if top is None:
        return (
            f"{name} is missing: find out who removed it, then copy it again with `migrator scan`, `plan` and `run`",
        )
    if is_closed(top, uid=uid, gid=gid):
        return ()
    return (
        f"{name} is open, so it may have been changed: make it root's with mode 0700, and see `migrator verify` "
        "for what differs",
    )


def missing_freeze_hook(hooks: Collection[Hook]) -> str | None:
    """Why no hook of the site can vouch for a freeze, as `[cutover] freeze = "hook"` requires; None if one can."""
    if any(hook.stage.step is HookStep.FREEZE and hook.stage.event is HookEvent.PRE for hook in hooks):
        return None
    return (
        '[cutover] freeze is "hook", and there is no pre-freeze hook: put one into pre-freeze.d of hooks_dir, '
        "which succeeds only where the users cannot write any more"
    )


def closed_already(top: FrozenTop) -> str | None:
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


def check_way_back(doubts: Sequence[str] | None, *, required: bool) -> list[Finding]:
    """For `doctor`: whether moved users could be moved back. `doubts` are the target's `search_gaps`; None: not
    known.
    """
    if doubts == ():
        return [
            ok("rollback", "users can be moved back: all that may write to the target can be seen, or a hook vouches")
        ]
    why = "; ".join(doubts or ("the search for processes that write to the target has failed",))
    then = "no user is moved ([cutover] require_rollback)" if required else "they are moved anyway"
    fix = 'make that visible to the search, or let a pre-freeze hook vouch for it, with [cutover] freeze = "hook" (docs/cutover.md)'
    return [warning("rollback", f"users could not be moved back, and {then}: {why}", fix)]
