"""After a crash: what is left of earlier streams is ended, their temporary files removed, their chunks given back."""

from collections.abc import Sequence

from migrator.decide.site_guards import health_problems
from migrator.domain.errors import Refused
from migrator.domain.events import EventKind, Severity
from migrator.domain.states import AttemptState, ChunkState
from migrator.domain.units import several
from migrator.ports.ledger import SiteRecord
from migrator.stages.run.context import Invocation, World
from migrator.stages.run.guards import mount_findings
from migrator.stages.run.leftovers import remove_after_crash

_ORPHAN_TRIES = 3
_ORPHAN_PAUSE_S = 5.0


async def recover(invocation: Invocation, site: SiteRecord) -> None:
    """Bring every attempt that a crash left unfinished to its end. May be called again.

    Raises Refused where a process of one cannot be ended: its chunk must not be given out beside it. And before
    anything is removed where the mounts are not the expected ones or the source is not whole: a file that only seems
    to be no user's could be one.
    """
    world = invocation.world
    unfinished = world.ledger.passes.unfinished_attempts()
    if not unfinished:
        return
    stuck = await _end(world, [attempt.token for attempt in unfinished])
    await _refuse_in_doubt(invocation, site)
    for attempt in unfinished:
        if attempt.token in stuck:
            continue
        await remove_after_crash(invocation, attempt)
        world.ledger.passes.finish(
            attempt.id,
            at_s=world.clock.now_s(),
            state=AttemptState.INTERRUPTED.value,
            exit_code=None,
            counters=attempt.counters,
            stderr_tail=attempt.stderr_tail,
            chunk_state=ChunkState.PENDING,
            problems=(),
        )
        message = f"attempt {attempt.id} of an earlier run had not ended: its chunk is given out again"
        invocation.say(EventKind.ORPHAN_ENDED, Severity.INFO, f"attempt {attempt.id}", message)
    if stuck:
        raise Refused(
            f"{several(len(stuck), 'stream')} of an earlier run cannot be ended",
            cause="they hang in the kernel (D state), on a file system that does not answer",
            hint="check the servers of both file systems; when the processes are gone, run the same command again "
            f"(processes with MIGRATOR_TOKEN={stuck[0]} and others)",
        )


async def _refuse_in_doubt(invocation: Invocation, site: SiteRecord) -> None:
    world, timeout_s = invocation.world, invocation.request.stall_timeout_s
    health = await world.source.health()
    problems = (
        *await mount_findings(world, world.source, site.source, timeout_s),
        *await mount_findings(world, world.target, site.target, timeout_s),
        *health_problems(health, health, tasks_count=False),
    )
    if problems:
        for problem in problems:
            invocation.say(EventKind.GUARD_REFUSED, Severity.ERROR, "recovery", problem)
        raise Refused(
            f"an earlier run was killed, and what it left cannot be cleared away: {'; '.join(problems)}",
            cause="something is not as it has to be, or could not be looked at, which counts the same",
            hint="see `migrator doctor` for the remedy of each, then run the same command again",
        )


async def _end(world: World, tokens: Sequence[str]) -> Sequence[str]:
    left: Sequence[str] = tokens
    for number in range(_ORPHAN_TRIES):
        if number:
            await world.clock.sleep(_ORPHAN_PAUSE_S)
        left = await world.executor.end_orphans(left)
        if not left:
            break
    return left
