"""The files that an attempt did not bring: vanished, bad, or to be tried again, by look-ups on the source."""

import errno
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from migrator.core.entry import Entry
from migrator.core.paths import show
from migrator.fs.ports import FileSystem
from migrator.gluster.volume import split_brain
from migrator.transfer import model
from migrator.transfer.context import PassUnderWay
from migrator.transfer.rules import stop_reason
from migrator.transfer.stream import Stop

_AT_ONCE = 256


@dataclass(slots=True, kw_only=True)
class Result:
    """The judged result of one attempt. `bad` and `vanished` are final; `again` is worth another try (of files from a
    brick, through the mount); `changed` files arrived while a user wrote to them. `reported`: its message has been reported
    already, for all chunks that it concerns. `stop`: a reason that concerns more than one file.
    """

    verdict: model.AttemptVerdict = model.AttemptVerdict.DONE
    message: str = ""
    vanished: list[model.FileProblem] = field(default_factory=list)
    bad: list[model.FileProblem] = field(default_factory=list)
    again: list[model.FileProblem] = field(default_factory=list)
    changed: list[model.FileProblem] = field(default_factory=list)
    reported: bool = False
    stop: Stop | None = None

    def stop_for(self, reason: model.StopReason, detail: str) -> "Result":
        """Stop the pool. A stop blames no file, so `bad` becomes empty."""
        self.verdict, self.message, self.stop = model.AttemptVerdict.STOP, detail, (reason, detail)
        self.bad = []
        return self


async def judge(under_way: PassUnderWay, suspects: Sequence[model.FileProblem]) -> Result:
    """Judge each suspect. A path counts as vanished only if a look-up on a whole source proves its absence. All others
    are bad, or, if reported as gone but present, to be tried again.
    """
    result = Result()
    gone: list[model.FileProblem] = []
    for first in range(0, len(suspects), _AT_ONCE):
        some = suspects[first : first + _AT_ONCE]
        looks = await look_up_all(under_way, [suspect.path for suspect in some])
        if looks is None:
            return Result().stop_for(model.StopReason.DISCONNECTED, "the source does not answer")
        for suspect, seen in zip(some, looks, strict=True):
            if seen is None:
                gone.append(replace(suspect, kind=model.FileProblemKind.VANISHED))
            elif isinstance(seen, OSError):
                problem = bad_file(suspect.path, seen)
                if (stop := stop_of(problem)) is not None:
                    return Result().stop_for(*stop)
                result.bad.append(problem)
            elif suspect.kind is model.FileProblemKind.VANISHED:
                reason = f"{suspect.reason} (but it is there)"
                result.again.append(replace(suspect, kind=model.FileProblemKind.BAD, errno=errno.ESTALE, reason=reason))
            else:
                result.bad.append(suspect)
    result.bad = [await _named(under_way, problem) for problem in result.bad]
    return await settle_vanished(under_way, gone, result)


async def _named(under_way: PassUnderWay, problem: model.FileProblem) -> model.FileProblem:
    """A file that cannot be read, with the words that its copies are in split-brain, if they are."""
    words = ""
    if problem.errno == errno.EIO:
        ask = partial(split_brain, under_way.world.source.root, problem.path)
        with suppress(TimeoutError):
            words = await under_way.world.blocking(ask, timeout_s=under_way.request.stall_timeout_s)
    return replace(problem, reason=f"{problem.reason}: {words}") if words else problem


async def settle_vanished(under_way: PassUnderWay, gone: Sequence[model.FileProblem], result: Result) -> Result:
    """Paths that were not found are gone only if the source was whole after the look-ups. During a rebalance process no
    path counts as gone: it is retried.
    """
    if not gone:
        return result
    health = await under_way.health.begun_after_now()
    if health.problems:
        return Result().stop_for(model.StopReason.SOURCE_UNHEALTHY, "; ".join(health.problems))
    if health.doubts:
        reason = f"not there, but it may be all the same: {'; '.join(health.doubts)}"
        result.again += (
            replace(problem, kind=model.FileProblemKind.BAD, errno=errno.ENOENT, reason=reason) for problem in gone
        )
    else:
        result.vanished += gone
    return result


def stop_of(problem: model.FileProblem) -> Stop | None:
    """The stop of the pool that the problem of a file causes, if any. An EIO costs only its file: the source may be the
    unreadable side.
    """
    reason = stop_reason(problem.errno)
    if reason is None or reason is model.StopReason.IO_ERROR:
        return None
    return reason, f"{show(problem.path)}: {problem.reason}"


async def look_up_all(under_way: PassUnderWay, paths: Sequence[bytes]) -> list[Entry | OSError | None] | None:
    """Look each path up on the source; None if the source does not answer in time."""
    source = under_way.world.source
    try:
        return await under_way.world.blocking(
            lambda: [look_up(source, path) for path in paths], timeout_s=under_way.request.stall_timeout_s
        )
    except TimeoutError:
        return None


def look_up(filesystem: FileSystem, path: bytes) -> Entry | OSError | None:
    """A look-up that returns its error as a value."""
    try:
        return filesystem.look(path)
    except OSError as error:
        return error


def bad_file(path: bytes, error: OSError) -> model.FileProblem:
    """A file for which a system call failed."""
    reason = error.strerror or str(error)
    return model.FileProblem(path=path, kind=model.FileProblemKind.BAD, errno=error.errno, reason=reason)
