"""How far a drain is, as its record and its samples tell it. Times in seconds since the epoch."""

from dataclasses import dataclass

from migrator.domain.drain import OUT_STATES, DrainState

_EMPTY_STATES = OUT_STATES | {DrainState.AUDITED, DrainState.COMMITTING}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainStanding:
    """One attempt to drain bricks. `files` and `size_bytes` were to be moved when it began (names, and bytes of content),
    `moved_files` and `moved_bytes` are what Gluster has counted, over all its tasks; `failures` and `skipped` those of the
    last one. The rates are of the last half hour that was looked at, `left_s` how long it still takes by them. What is not
    known is None. `looked_at_s` is when Gluster was asked last.
    """

    id: int
    volume: str
    bricks: tuple[str, ...]
    attempt: int
    state: DrainState
    since_s: float
    started_at_s: float | None
    files: int | None
    size_bytes: int | None
    moved_files: int
    moved_bytes: int
    failures: int
    skipped: int
    files_per_s: float | None
    bytes_per_s: float | None
    left_s: float | None
    looked_at_s: float | None
    failure: str
    changed_options: tuple[str, ...]

    @property
    def left_files(self) -> int | None:
        """Files that are still to be moved, as far as is known; none when an audit has found none."""
        if self.state in _EMPTY_STATES:
            return 0
        return None if self.files is None else max(self.files - self.moved_files, 0)

    @property
    def left_bytes(self) -> int | None:
        """Bytes that are still to be moved, as far as is known; none when an audit has found none."""
        if self.state in _EMPTY_STATES:
            return 0
        return None if self.size_bytes is None else max(self.size_bytes - self.moved_bytes, 0)
