"""What any verb of bricks works with: a real ledger, fakes unless given, and a program that may be killed before each call."""

from dataclasses import dataclass
from typing import Any, TypeVar

from migrator.app import new_token
from migrator.app.ledger import MigrationLedger
from migrator.gluster.model import VolumeState
from migrator.ledger.locks import VOLUME
from tests.support.fakes import FakeLocks, FakeProgress, FakeRunFiles, VirtualClock, inline
from tests.support.kills import Death, DoingHooks, dying, ticking

W = TypeVar("W")
_PARTS = ("volume", "source", "walks", "hooks", "ledger", "times")
_CALLS = (
    *("places", "versions", "target_room", "back_up", "blamed", "open_files", "marks"),
    *("writers", "endpoints", "scan", "cover", "list_to"),
)


@dataclass
class SimulatedShields:
    """The shields of a simulated volume. They are put on while nobody else works there, and do not come off while Gluster
    moves files.
    """

    volume: Any
    locks: FakeLocks

    @property
    def on(self) -> bool:
        return bool(self.volume.shielded)

    async def put_on(self, _: VolumeState) -> int:
        assert any(VOLUME in one.names for one in self.locks.held)
        self.volume.shielded = True
        return 0

    async def take_off(self, _: VolumeState) -> int:
        assert not self.volume.moving
        self.volume.shielded = False
        return 0


def ports_of(kind: type[W], ledger: MigrationLedger, death: Death | None, **ports: Any) -> W:
    """The ports of a verb. The program is killed before one of its calls if `death` says so."""
    hooks, locks, newest = ports.get("hooks", DoingHooks()), ports.get("locks", FakeLocks()), ledger.runs.latest()
    given: dict[str, Any] = {
        "back_up": lambda _: None,
        "hooks": hooks,
        "ledger": ledger,
        "locks": locks,
        "files": FakeRunFiles(locks, opened=newest.id if newest else 0),
        "progress": FakeProgress(),
        "clock": VirtualClock(),
        "blocking": inline,
        "tokens": getattr(hooks, "new_token", new_token),
        **ports,
    }
    if death is not None:
        given |= {name: dying(given[name], death) for name in _PARTS if given.get(name) is not None}
        given |= {name: ticking(given[name], death) for name in _CALLS if given.get(name) is not None}
    return kind(**given)
