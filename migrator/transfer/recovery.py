"""Recovery after a crash: orphaned streams are ended, their temporary files removed, their chunks pending again."""

from collections.abc import Sequence
from contextlib import ExitStack

from migrator.core.errors import LockHeld, Refused
from migrator.core.events import EventKind, Severity
from migrator.core.states import AttemptState, ChunkState
from migrator.core.units import several
from migrator.hosts.ports import HostLost
from migrator.ledger.locks import of_call
from migrator.ledger.model import RunRecord, SiteRecord
from migrator.operations.run_files import last_heard_s
from migrator.site.rules_guards import health_problems
from migrator.transfer import model
from migrator.transfer.context import RunInvocation, TransferPorts
from migrator.transfer.guards import mounts_changed
from migrator.transfer.leftovers import remove_after_crash
from migrator.transfer.stream import OpenAttempt

LEASE_MARGIN_S = 15.0
"""Time for a host to end its streams after its lease (TERM, grace, KILL)."""


async def recover(invocation: RunInvocation, site: SiteRecord) -> None:
    """Finish every attempt that killed runs left unfinished. May be called again. Runs at work are left alone: they hold
    the lock of their call.

    Raises Refused if a process of an attempt cannot be ended: its chunk must not be reissued while that runs. Before it
    removes anything, raises Refused if the mounts are not the expected ones or the source is not whole: an apparent
    temporary file could be a user's.
    """
    world = invocation.world
    if not world.ledger.passes.runs_with_attempts():
        return
    with ExitStack() as held:
        await _take_turn(world, held)
        for run in world.ledger.passes.runs_with_attempts():
            try:
                held.enter_context(world.locks.hold("recovery", of_call(run.directory)))
            except LockHeld:
                continue
            await _recover_from(invocation, site, run)


async def _take_turn(world: TransferPorts, held: ExitStack) -> None:
    """Wait while another call recovers: streams of the killed run may still write where this call is to copy."""
    while True:
        try:
            held.enter_context(world.locks.hold("recovery", "recovery"))
        except LockHeld:
            await world.clock.sleep(1.0)
        else:
            return


async def _recover_from(invocation: RunInvocation, site: SiteRecord, run: RunRecord) -> None:
    world = invocation.world
    unfinished = world.ledger.passes.unfinished_attempts(run_id=run.id)
    stuck = await _end_on_all_hosts(invocation, unfinished, last_heard_s(run))
    await _refuse_in_doubt(invocation, site)
    for attempt in unfinished:
        if attempt.token in stuck:
            continue
        await remove_after_crash(invocation, attempt)
        left = OpenAttempt(id=attempt.id, counters=attempt.counters, stderr_tail=attempt.stderr_tail)
        left.finish(world, AttemptState.INTERRUPTED, ChunkState.PENDING)
        message = f"attempt {attempt.id} of an earlier run had not ended: its chunk is given out again"
        invocation.report(EventKind.ORPHAN_ENDED, Severity.INFO, f"attempt {attempt.id}", message)
    if stuck:
        raise Refused(
            f"{several(len(stuck), 'stream')} of an earlier run cannot be ended",
            cause="they hang in the kernel (D state), on a file system that does not answer",
            hint="check the servers of both file systems; when the processes are gone, run the same command again "
            f"(processes with MIGRATOR_TOKEN={stuck[0]} and others)",
        )


async def _refuse_in_doubt(invocation: RunInvocation, site: SiteRecord) -> None:
    world, timeout_s = invocation.world, invocation.request.stall_timeout_s
    health = await world.source.health()
    problems = (
        *await mounts_changed(world, site, timeout_s),
        *health_problems(health, health, tasks_count=False),
    )
    if problems:
        for problem in problems:
            invocation.report(EventKind.GUARD_REFUSED, Severity.ERROR, "recovery", problem)
        raise Refused(
            f"an earlier run was killed, and its temporary files cannot be removed: {'; '.join(problems)}",
            cause="a check failed, or could not be made, which counts the same",
            hint="see `migrator doctor` for the remedy of each, then run the same command again",
        )


async def _end_on_all_hosts(
    invocation: RunInvocation, unfinished: Sequence[model.AttemptRecord], heard_at_s: float
) -> Sequence[str]:
    """The tokens of streams that cannot be ended. An unreachable host ends its streams itself when its lease runs out.
    The lease counts from the last heartbeat of the previous run; raises Refused if it is not over.
    """
    world = invocation.world
    by_host: dict[str, list[model.AttemptRecord]] = {}
    for attempt in unfinished:
        by_host.setdefault(attempt.host, []).append(attempt)
    stuck: list[str] = []
    for host, attempts in by_host.items():
        lane = next((lane for lane in world.lanes if lane.attempts_on == host), None)
        tokens = [attempt.token for attempt in attempts]
        last_s = max([heard_at_s, *(attempt.started_at_s for attempt in attempts)])
        if lane is None:
            _require_lease_over(invocation, host, last_s, "site.toml does not name it any more")
            continue
        try:
            stuck += await lane.end_orphans(tokens)
        except HostLost as error:
            _require_lease_over(invocation, host, last_s, error.message)
    return stuck


def _require_lease_over(invocation: RunInvocation, host: str, last_s: float, why: str) -> None:
    left_s = last_s + invocation.request.lease_s + LEASE_MARGIN_S - invocation.world.clock.now_s()
    if left_s <= 0:
        return
    raise Refused(
        f"streams of an earlier run may still run on host {host}: {why}",
        cause="the host cannot be reached; it ends them by itself when its lease runs out",
        hint=f"run the same command again in {left_s:.0f} s, or when the host, or the batch system, answers",
    )
