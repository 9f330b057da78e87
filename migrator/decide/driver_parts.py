"""What the streams of a driver said, part by part: what stops the run, and what the next look will have to bring."""

from collections.abc import Sequence
from dataclasses import dataclass

from migrator.decide.rsync_outcome import EndedRsync, judge_rsync
from migrator.domain.paths import show
from migrator.domain.transfer import Outcome, StopReason, StreamCounters, Verdict
from migrator.domain.units import several

_STOPPING = (
    StopReason.TARGET_FULL,
    StopReason.TARGET_QUOTA,
    StopReason.TARGET_READ_ONLY,
    StopReason.DISCONNECTED,
)
"""Not EIO: of which file, the look that follows finds out."""
_PARTIAL = 23
_JAIL_FAILED = 125
_SHOWN_PARTS = 3
_SHOWN_BYTES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PartLog:
    """What the stream of one part said on standard error, or a piece of it."""

    number: int
    stderr: bytes


def stop_of(parts: Sequence[PartLog], *, source_tree: bytes, target_tree: bytes) -> tuple[StopReason, str] | None:
    """The first error that no file is to blame for, in the words of the stream; None where there is none."""
    for part in parts:
        outcome = _judge(part.stderr, source_tree=source_tree, target_tree=target_tree, exit_code=_PARTIAL)
        if outcome.verdict is Verdict.STOP and outcome.stop in _STOPPING:
            return outcome.stop, f"part {part.number}: {outcome.message}"
    return None


def judge_jail(stderr: bytes, *, exit_code: int, counters: StreamCounters) -> Outcome | None:
    """Why the confinement could not be set up; None where it could."""
    if exit_code != _JAIL_FAILED:
        return None
    outcome = _judge(stderr, source_tree=b"/source", target_tree=b"/target", exit_code=exit_code)
    return Outcome(verdict=outcome.verdict, counters=counters, stop=outcome.stop, message=outcome.message)


def describe_parts(parts: Sequence[PartLog]) -> str:
    """Which parts complained, with the last words of the first few."""
    shown = "; ".join(
        f"part {part.number}: {show(part.stderr[-_SHOWN_BYTES:].strip())}" for part in parts[:_SHOWN_PARTS]
    )
    return f"{several(len(parts), 'part')} with errors: {shown}"


def _judge(stderr: bytes, *, source_tree: bytes, target_tree: bytes, exit_code: int) -> Outcome:
    return judge_rsync(
        EndedRsync(
            exit_code=exit_code,
            stderr=stderr,
            stderr_cut=True,
            tree=b"",
            names=(),
            source_tree=source_tree,
            target_tree=target_tree,
            counters=StreamCounters(),
        )
    )
