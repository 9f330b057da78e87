"""Whether a verb probes both file systems, seen by the lock that whoever probes takes first of all."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from migrator.app import Wiring
from migrator.app import hosts as probing
from migrator.core.probe import PROBE_LOCK
from migrator.fs.probing import ProbeWorld
from migrator.ledger.ledger import Ledger
from migrator.ledger.locks import Locks


@dataclass(frozen=True)
class NotedLocks:
    """Locks that leave a note when the one for probing is taken."""

    locks: Locks
    note: Path

    def hold(self, name: str, purpose: str) -> AbstractContextManager[None]:
        assert name == PROBE_LOCK
        self.note.touch()
        return self.locks.hold(name, purpose)


def note_probes(note: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """From now on, in forks of this process. What is returned says whether somebody has probed since the call before."""
    real = probing.probe_world

    def noted(wiring: Wiring, ledger: Ledger) -> ProbeWorld:
        world = real(wiring, ledger)
        return replace(world, locks=NotedLocks(world.locks, note))

    def since_before() -> bool:
        found = note.exists()
        note.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(probing, "probe_world", noted)
    return since_before
