"""The guard of those who read bricks: the same reasons as for a scan by way of the bricks."""

from migrator.decide.scan_way import reasons_against_bricks, task_changes
from migrator.decide.volume_health import volume_fingerprint
from migrator.domain.brick import VolumeState
from migrator.domain.errors import MigratorError
from migrator.ports.bricks import BrickVolume
from migrator.ports.lanes import BrickLook


class VolumeGuard:
    """The `BrickGuard` port over a volume. Tasks that began after its first look are told too when they have ended."""

    def __init__(self, volume: BrickVolume) -> None:
        self._volume = volume
        self._first: VolumeState | None = None

    async def look(self) -> BrickLook:
        """Look at the volume now; a look that fails is a reason against."""
        try:
            state = await self._volume.state_for_bricks()
        except MigratorError as error:
            return BrickLook(reasons=(f"the volume's state is not known: {error.message}",), fingerprint="")
        self._first = self._first or state
        reasons = reasons_against_bricks(state) or task_changes(self._first, state)
        return BrickLook(reasons=reasons, fingerprint=volume_fingerprint(state))
