"""The times of directories in which a recovery works: put back, where nobody else has changed the directory meanwhile."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from migrator.ports.recovery import VolumeRecovery

T = TypeVar("T")


@dataclass(slots=True)
class _Times:
    """`before` this program has touched it, and `after` it did so last; None where that could not be seen."""

    before: int | None
    after: int | None


@dataclass(slots=True, kw_only=True)
class ParentTimes:
    """Every change of one call goes through `around`; modification times in nanoseconds. Blocking."""

    volume: VolumeRecovery
    _times: dict[bytes, _Times] = field(default_factory=dict)
    _others: set[bytes] = field(default_factory=set)

    def around(self, directories: Sequence[bytes], work: Callable[[], T]) -> T:
        """Do what changes these directories. Raises what `work` raises."""
        for path in directories:
            now = self._seen(path)
            known = self._times.setdefault(path, _Times(now, now))
            if now is None or known.after != now:
                self._others.add(path)
        try:
            return work()
        finally:
            for path in directories:
                self._times[path].after = self._seen(path)

    @property
    def changed(self) -> bool:
        """Whether any directory has another time than before, and nobody else has changed it as far as is known."""
        return bool(self._own())

    def put_back(self) -> None:
        """Give them the times of before. To be called when what the mount remembers has run out: only then it shows what others
        have changed. May be called again. One that cannot be changed is left.
        """
        for path, before, after in self._own():
            with suppress(OSError):
                self.volume.restore_mtime(path, before, expected_ns=after)

    def _own(self) -> list[tuple[bytes, int, int]]:
        return [
            (path, times.before, times.after)
            for path, times in self._times.items()
            if path not in self._others
            and times.before is not None
            and times.after is not None
            and times.before != times.after
        ]

    def _seen(self, path: bytes) -> int | None:
        try:
            return self.volume.mtime_ns(path)
        except OSError:
            return None
