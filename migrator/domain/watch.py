"""What `status --watch` shows beside the status: the streams at work, and what has just happened."""

from dataclasses import dataclass

from migrator.domain.events import Event
from migrator.domain.report import StatusFacts
from migrator.domain.states import ChunkKind, PassKind

_NOT_SAMPLED_YET_S = 1.0
"""An attempt is in the ledger before its process lives: a sample in between does not have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAtWork:
    """One attempt that has not ended by the ledger. `files` and `size_bytes` are its chunk's; `done_files` and `done_bytes`
    what it has done by its samples, of which those of the last seconds (`recent_files`, `recent_bytes`) were taken over
    `recent_s`. `sampled_at_s` is its newest sample, `pass_sampled_at_s` the newest of its pass. `brick` is None where the
    mount is read.
    """

    attempt_id: int
    host: str
    batch: int
    pass_kind: PassKind
    pass_number: int
    chunk: int
    kind: ChunkKind
    tree: bytes
    brick: str | None
    files: int
    size_bytes: int
    started_at_s: float
    done_files: int = 0
    done_bytes: int = 0
    recent_files: int = 0
    recent_bytes: int = 0
    recent_s: float = 0.0
    sampled_at_s: float | None = None
    pass_sampled_at_s: float | None = None

    @property
    def rate_bytes_per_s(self) -> float | None:
        """Bytes per second of late; None before the first sample."""
        return self.recent_bytes / self.recent_s if self.recent_s > 0 else None

    @property
    def confirming(self) -> bool:
        """Whether the stream itself has ended, and only its confirmation is waited for: its pass was sampled without it."""
        if self.pass_sampled_at_s is None:
            return False
        last_s = self.started_at_s if self.sampled_at_s is None else self.sampled_at_s
        return last_s + _NOT_SAMPLED_YET_S < self.pass_sampled_at_s


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchFacts:
    """Now. `rates` is the throughput in bytes per second of spans of `rates_span_s`, oldest first, 0 where nothing was
    copied; they end now, or where the last copying did. `news` are the events since the look before, oldest first, and
    `last_event` is the newest one's number.
    """

    status: StatusFacts
    streams: tuple[StreamAtWork, ...] = ()
    rates: tuple[float, ...] = ()
    rates_span_s: float = 0.0
    news: tuple[Event, ...] = ()
    last_event: int = 0
