"""One call of a verb in the ledger: begun, seen to be alive, and ended with its exit code."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from migrator.domain.errors import ExitCode, Interrupted, MigratorError
from migrator.ports.clock import Clock
from migrator.ports.site import RunRecords


@dataclass(slots=True, kw_only=True)
class RecordedRun:
    """A call that has been begun. `exit_code` is what it ends with where nothing is raised: to be set by the call."""

    id: int
    exit_code: ExitCode = ExitCode.FAILED


@asynccontextmanager
async def recorded_run(
    runs: RunRecords,
    clock: Clock,
    *,
    verb: str,
    pid: int,
    directory: str,
    log: logging.Logger | None = None,
    heartbeat_interval_s: float | None = None,
) -> AsyncIterator[RecordedRun]:
    """A call in the ledger for the length of the block. Its heartbeat is renewed, unless it is too short for that (None). An error
    that ends it is logged, where there is a log, and goes on. The end is the last thing that is written of a call: one that was
    killed is told by its heartbeat.
    """
    run = RecordedRun(id=runs.start(verb=verb, pid=pid, at_s=clock.now_s(), directory=directory))
    try:
        if heartbeat_interval_s is None:
            yield run
        else:
            async with heartbeat(runs, clock, run.id, interval_s=heartbeat_interval_s):
                yield run
    except (asyncio.CancelledError, Interrupted):
        run.exit_code = ExitCode.INTERRUPTED
        raise
    except MigratorError as error:
        run.exit_code = error.exit_code
        if log is not None:
            log.error("%s", error.message, extra={"hint": error.hint})  # noqa: TRY400 (no traceback: it was expected)
        raise
    finally:
        runs.finish(run.id, clock.now_s(), run.exit_code.value)


@asynccontextmanager
async def heartbeat(runs: RunRecords, clock: Clock, run_id: int, *, interval_s: float) -> AsyncIterator[None]:
    """Renew the heartbeat of a call in the ledger until the end of the block."""

    async def beat() -> None:
        while True:
            await clock.sleep(interval_s)
            runs.heartbeat(run_id, clock.now_s())

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
