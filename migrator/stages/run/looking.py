"""Judging files that did not arrive, by a look at the source."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass, replace

from migrator.decide.stopping import stop_reason
from migrator.domain.entry import Entry
from migrator.domain.paths import show
from migrator.domain.transfer import FileProblem, FileProblemKind, StopReason
from migrator.ports.filesystem import FileSystem
from migrator.stages.run.context import PassUnderWay

_AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of the suspects. `reappeared` may be there although they were not found: try again.

    `stop`: the looks themselves failed for a reason that concerns more than one file.
    """

    vanished: tuple[FileProblem, ...] = ()
    bad: tuple[FileProblem, ...] = ()
    reappeared: tuple[FileProblem, ...] = ()
    stop: tuple[StopReason, str] | None = None


async def judge(under_way: PassUnderWay, suspects: Sequence[FileProblem]) -> Judgement:
    """Vanished is only what a look proves to be absent on a source that is whole; everything else is bad."""
    vanished: list[FileProblem] = []
    bad: list[FileProblem] = []
    reappeared: list[FileProblem] = []
    for first in range(0, len(suspects), _AT_ONCE):
        some = suspects[first : first + _AT_ONCE]
        looks = await look_at_all(under_way, [suspect.path for suspect in some])
        if looks is None:
            return Judgement(stop=(StopReason.DISCONNECTED, "the source does not answer"))
        for suspect, seen in zip(some, looks, strict=True):
            if seen is None:
                vanished.append(replace(suspect, kind=FileProblemKind.VANISHED))
            elif isinstance(seen, OSError):
                problem = bad_file(suspect.path, seen)
                reason = None if suspect.path in under_way.known_io_errors else stop_reason(seen.errno)
                if reason is not None:
                    recorded = (problem,) if reason is StopReason.IO_ERROR else ()
                    return Judgement(bad=recorded, stop=(reason, f"{show(suspect.path)}: {problem.reason}"))
                bad.append(problem)
            elif suspect.kind is FileProblemKind.VANISHED:
                reappeared.append(
                    replace(
                        suspect,
                        kind=FileProblemKind.BAD,
                        errno=errno.ESTALE,
                        reason=f"{suspect.reason} (but it is there)",
                    )
                )
            else:
                bad.append(suspect)
    settled = await settle_vanished(under_way, vanished)
    if settled.stop is not None:
        return settled
    return Judgement(vanished=settled.vanished, bad=tuple(bad), reappeared=(*reappeared, *settled.reappeared))


async def settle_vanished(under_way: PassUnderWay, vanished: Sequence[FileProblem]) -> Judgement:
    """What looks did not find is gone only if the source was whole after the looks. While files are being moved
    between bricks nothing is known to be gone: to be tried again.
    """
    if not vanished:
        return Judgement()
    health = await under_way.health.begun_after_now()
    if health.problems:
        return Judgement(stop=(StopReason.SOURCE_UNHEALTHY, "; ".join(health.problems)))
    if health.doubts:
        reason = f"not there, but it may be all the same: {'; '.join(health.doubts)}"
        return Judgement(
            reappeared=tuple(
                replace(problem, kind=FileProblemKind.BAD, errno=errno.ENOENT, reason=reason) for problem in vanished
            )
        )
    return Judgement(vanished=tuple(vanished))


async def look_at_all(under_way: PassUnderWay, paths: Sequence[bytes]) -> list[Entry | OSError | None] | None:
    """One look at each path on the source; None where the source does not answer in time."""
    source = under_way.world.source
    try:
        return await under_way.world.blocking(
            lambda: [look(source, path) for path in paths], timeout_s=under_way.request.stall_timeout_s
        )
    except TimeoutError:
        return None


def look(filesystem: FileSystem, path: bytes) -> Entry | OSError | None:
    """A look whose failure is a value."""
    try:
        return filesystem.look(path)
    except OSError as error:
        return error


def bad_file(path: bytes, error: OSError) -> FileProblem:
    """A file that a system call failed for."""
    reason = error.strerror or str(error)
    return FileProblem(path=path, kind=FileProblemKind.BAD, errno=error.errno, reason=reason)
