"""`report --send`: a report that was written is handed to hooks. Nothing else is done."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from migrator.decide.hooks import in_order
from migrator.domain.errors import Interrupted, Refused, UsageError
from migrator.domain.hooks import HookEvent, HookFacts, HookStep
from migrator.domain.paths import show
from migrator.domain.report_run import ReportSent
from migrator.ports.blocking import Blocking
from migrator.ports.clock import Clock
from migrator.ports.hooks import Hooks
from migrator.ports.ledger import Ledger
from migrator.ports.locks import Locks
from migrator.ports.progress import Progress
from migrator.ports.run_files import RunFiles
from migrator.ports.site import SiteRecord
from migrator.stages.hooking import HookedStep, HookSkipped, StepHooks, find_hooks, hook_world
from migrator.stages.recorded_run import recorded_run
from migrator.stages.saying import say

VERB = "report"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRequest:
    """Which report, as the directory that holds its files, absolute. `plan` is the one that it counts by."""

    directory: bytes
    plan: str | None
    source_root: bytes
    target_root: bytes
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendWorld:
    """Everything outside the program that sending touches."""

    ledger: Ledger
    hooks: Hooks
    locks: Locks
    files: RunFiles
    progress: Progress
    clock: Clock
    blocking: Blocking
    tokens: Callable[[], str]


async def require_report_hooks(hooks: Hooks, blocking: Blocking) -> None:
    """Raises Refused where nobody would send a report: before it is made."""
    found = await find_hooks(hooks, blocking)
    stage = _step(b"").stage(HookEvent.POST)
    if not found.problems and not in_order(found.hooks, stage):
        raise Refused(
            f"nobody would send the report: there is no hook in {stage.name}.d of {show(hooks.directory)}",
            cause="this program sends nothing itself: it hands the report to hooks",
            hint="put one there, such as hooks/post-report.d/50-mail-report of the samples (docs/reports.md)",
        )


async def send_report(request: SendRequest, world: SendWorld) -> ReportSent:
    """Call the `report` hooks for a report that lies there. May be called again: it is sent again.

    Raises UsageError (a site without `init`), Refused (a hook refuses, or is not as it has to be), LockHeld, Interrupted.
    """
    site = world.ledger.site.read()
    if site is None:
        raise UsageError("this site has no record yet", hint="run `migrator init`")
    with world.locks.hold(VERB, "sending a report"), world.files.open(VERB, world.clock.now_s()) as directory:
        try:
            async with recorded_run(
                world.ledger.runs, world.clock, verb=VERB, pid=request.pid, directory=directory.path
            ) as run:
                result = await _send(request, world, site, run.id)
                run.exit_code = result.exit_code
        except asyncio.CancelledError:
            raise Interrupted("sending the report was interrupted", hint="run the same command again") from None
    return result


async def _send(request: SendRequest, world: SendWorld, site: SiteRecord, run_id: int) -> ReportSent:
    calls = StepHooks(
        world=hook_world(
            world,
            world.hooks,
            site,
            source_root=request.source_root,
            target_root=request.target_root,
            run_id=run_id,
            say=partial(say, world, run_id=run_id),
        )
    )
    await calls.begin((HookStep.REPORT,))
    facts = HookFacts(run_id=run_id, plan=request.plan, report=request.directory, started_at_s=world.clock.now_s())
    try:
        sent = await calls.tell(_step(request.directory), facts)
    except HookSkipped as skipped:
        return ReportSent(directory=request.directory, sent=False, reason=skipped.message)
    reason = "" if sent else "a hook that sends it failed: see the events of `migrator status`"
    return ReportSent(directory=request.directory, sent=sent, reason=reason)


def _step(directory: bytes) -> HookedStep:
    return HookedStep(
        step=HookStep.REPORT,
        key=f"report in {show(directory)}",
        subject=VERB,
        words=f"sending the report in {show(directory)}",
    )
