"""`announce`, and the facts that it passes to hooks."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.entry import UserTree
from migrator.core.errors import Interrupted, MigratorError, Refused, UsageError
from migrator.core.events import EventKind, Severity
from migrator.core.paths import join, show
from migrator.core.units import format_duration, format_time
from migrator.core.windows import ALWAYS, OpenTimes
from migrator.cutover import model
from migrator.cutover.model_announce import Announced, Announcement, AnnouncementRecord, AnnounceSummary
from migrator.cutover.records import AnnouncementRecords, CutoverLedger
from migrator.cutover.rules_states import describe_state
from migrator.hooks.calls import HookedStep, HookSkipped, StepHooks, find_hooks
from migrator.hooks.model import HookEvent, HookFacts, HookState, HookStep
from migrator.hooks.rules import in_order
from migrator.ledger.event_log import emit_event
from migrator.operations.run_files import CallPorts, RecordedRun
from migrator.plan.model import PlannedTree
from migrator.site.rules_links import link_path, naming_problem

VERB = "announce"


class AnnounceRequest(Struct, frozen=True, kw_only=True):
    """The trees of one plan to announce, by batch, and when their move begins.

    `link` is the path of site.toml that is switched, with `{user}` in it; None if a hook makes the switch. `times`: when freezes
    may begin. `again`: also announce to users who were notified of the same time before.
    """

    plan: str
    trees: Mapping[int, Sequence[UserTree]]
    begins_at_s: float
    link: str | None
    pid: int
    times: OpenTimes = ALWAYS
    dry_run: bool = False
    again: bool = False


class Notices(Protocol):
    """Writes the notices to users."""

    def write(self, tree: UserTree, announced: Sequence[AnnouncementRecord]) -> Path | None:
        """The mail text of the tree's user, with these announcements; None if there is none. Raises OSError."""


@asynccontextmanager
async def hook_calls(
    world: CallPorts, step: HookStep, *, verb: str, doing: str, pid: int, interrupted: Interrupted
) -> AsyncIterator[tuple[StepHooks, RecordedRun]]:
    """A recorded run of a verb that calls the hooks of one step. The caller sets the exit code.

    Raises UsageError (a site without `init`), Refused (a hook is not safe to call), LockHeld, and `interrupted`.
    """
    world.ledger.site.required()
    with world.locks.hold(doing, verb):
        try:
            async with world.files.recorded(world.ledger, world.clock, verb=verb, pid=pid) as run:
                report = partial(emit_event, world, run_id=run.id)
                calls = StepHooks(ports=world, hooks=world.hooks, run_id=run.id, report=report)
                await calls.begin((step,))
                yield calls, run
        except asyncio.CancelledError:
            raise interrupted from None


class AnnouncePorts(CallPorts, frozen=True, kw_only=True):
    """The ports of an announcement."""

    ledger: CutoverLedger


async def announce(request: AnnounceRequest, world: AnnouncePorts, notices: Notices) -> AnnounceSummary:
    """Pass the facts of each user to the `announce` hooks, one user after the other. May be called again: it skips
    users who were notified of the same time, unless the request has `again`.

    Raises UsageError (a time in the past or outside of the windows, a site without `init`), Refused (a user without a plain name,
    no announce hook, a hook refuses), LockHeld, Interrupted, and MigratorError if a notice cannot be written.
    """
    if request.begins_at_s <= world.clock.now_s():
        raise UsageError(
            f"{format_time(request.begins_at_s)} is over",
            hint="give a time that is ahead, as in --begins '2030-01-31 19:00'; without an offset (+01:00) it is UTC",
        )
    if not request.times.is_open(request.begins_at_s):
        raise UsageError(
            f"at {format_time(request.begins_at_s)} no window of [cutover] is open",
            cause="cutovers are refused then",
            hint=f"the next one opens at {format_time(request.times.from_(request.begins_at_s))}",
        )
    await _require_hooks(world)
    due = _due(request, world)
    if request.dry_run:
        return _summary(request, due)
    async with hook_calls(
        world,
        HookStep.ANNOUNCE,
        verb=VERB,
        doing=f"announcing {format_time(request.begins_at_s)}",
        pid=request.pid,
        interrupted=Interrupted(
            "the announcements were interrupted", hint="the same command announces to the remaining users"
        ),
    ) as (calls, run):
        planned = {one.tree.path: one for one in world.ledger.plans.trees(request.plan)}
        announcements = [
            await _tell(request, calls, one, planned.get(one.tree.path), notices, records=world.ledger.announcements)
            for one in due
        ]
        summary = _summary(request, announcements)
        run.exit_code = summary.exit_code
    return summary


def _summary(request: AnnounceRequest, announcements: Sequence[Announcement]) -> AnnounceSummary:
    return AnnounceSummary(
        plan=request.plan,
        begins_at_s=request.begins_at_s,
        dry_run=request.dry_run,
        announcements=tuple(announcements),
    )


async def _require_hooks(world: CallPorts) -> None:
    found = await find_hooks(world.hooks, world.blocking)
    stage = _hooked("", UserTree(path=b"", user=""), 0.0).stage(HookEvent.POST)
    if not found.problems and not in_order(found.hooks, stage):
        raise Refused(
            f"no user would be notified: there is no hook in {stage.name}.d of {show(world.hooks.directory)}",
            cause="this program sends nothing itself: it hands the facts of each user to hooks",
            hint="put one there, such as hooks/post-announce.d/50-tell-user of the samples (docs/cutover.md)",
        )


def _due(request: AnnounceRequest, world: AnnouncePorts) -> list[Announcement]:
    """Every tree, and its user's announcement if it is due. Raises Refused before any hook is called."""
    found, ledger = [], world.ledger
    for batch, trees in request.trees.items():
        predictions = ledger.predictions.of_batch(request.plan, batch)
        freeze_s = predictions[-1].prediction.freeze_s if predictions else None
        for tree in trees:
            outcome, reason = Announced.WOULD_NOTIFY, ""
            latest, step = ledger.cutovers.latest(tree.path), _hooked(request.plan, tree, request.begins_at_s)
            earlier = None if request.again else ledger.hooks.latest(step.step, step.key)
            if latest is not None and latest.state in model.SETTLED_STATES | model.UNDER_WAY_STATES:
                outcome, reason = (
                    Announced.NOT_DUE,
                    f"a cutover was begun already: {describe_state(latest.state)}",
                )
            elif earlier is not None and earlier.state == HookState.DONE:
                outcome, reason = (
                    Announced.BEFORE,
                    f"was notified of {format_time(request.begins_at_s)} before",
                )
            else:
                _link(request, tree)
            found.append(Announcement(tree=tree, batch=batch, outcome=outcome, freeze_s=freeze_s, reason=reason))
    return found


def _link(request: AnnounceRequest, tree: UserTree) -> bytes | None:
    if request.link is None:
        return None
    if problem := naming_problem(request.link, tree):
        raise Refused(
            f"no link can be named for {show(tree.path)}: {problem}",
            hint="give the tree a user in [users] map; `migrator doctor` lists all of these",
        )
    return link_path(request.link, tree)


def _hooked(plan: str, tree: UserTree, begins_at_s: float) -> HookedStep:
    begins = format_time(begins_at_s)
    return HookedStep(
        step=HookStep.ANNOUNCE,
        key=f"plan {plan}: {begins} announced to {show(tree.path)}",
        subject=f"{tree.user}: {VERB}",
        words=f"telling {tree.user} of {begins}",
    )


async def _tell(
    request: AnnounceRequest,
    calls: StepHooks,
    one: Announcement,
    planned: PlannedTree | None,
    notices: Notices,
    *,
    records: AnnouncementRecords,
) -> Announcement:
    """Pass the facts of one user to the hooks. Raises Refused if one of them refuses."""
    if one.outcome is not Announced.WOULD_NOTIFY:
        return one
    tree, step = one.tree, _hooked(request.plan, one.tree, request.begins_at_s)
    now_s = calls.ports.clock.now_s()
    record = AnnouncementRecord(plan=request.plan, tree=tree.path, begins_at_s=request.begins_at_s, at_s=now_s)
    with MigratorError.of_files(
        "the notice of a user cannot be written", hint="make room, then run the same command again"
    ):
        notice = notices.write(tree, (*records.all(), record))
    facts = HookFacts(
        run_id=calls.run_id,
        plan=request.plan,
        batch=one.batch,
        trees=(tree,),
        user=tree.user,
        link=_link(request, tree),
        old_path=join(calls.hooks.source_root, tree.path),
        new_path=join(calls.hooks.target_root, tree.path),
        files=planned.files if planned else 0,
        size_bytes=planned.size_bytes if planned else 0,
        freeze_s=one.freeze_s,
        notice=None if notice is None else bytes(notice.absolute()),
        begins_at_s=request.begins_at_s,
        started_at_s=now_s,
    )
    try:
        called = await calls.call_all(step, facts)
    except HookSkipped as skipped:
        return replace(one, outcome=Announced.SKIPPED, reason=skipped.message)
    if not called:
        reason = "a hook that notifies users failed: see the events of `migrator status`"
        return replace(one, outcome=Announced.FAILED, reason=reason)
    records.record(record)
    freeze = "" if one.freeze_s is None else f", with a freeze of {format_duration(one.freeze_s)}"
    begins = format_time(request.begins_at_s)
    message = f"{tree.user} was notified that the move of {show(tree.path)} begins at {begins}{freeze}"
    calls.report(EventKind.USER_NOTIFIED, Severity.INFO, step.subject, message)
    return replace(one, outcome=Announced.NOTIFIED)
