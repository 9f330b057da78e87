"""One look at the target's storage targets, as guards and `doctor` need it: what could not be asked is told, not raised."""

from dataclasses import dataclass
from typing import overload

from migrator.decide.storage_targets import emergency_problems, fullest_words, lost_targets, room_of
from migrator.domain.errors import ToolFailed
from migrator.domain.site import Capacity
from migrator.domain.storage_targets import StorageSeen, StorageTarget
from migrator.ports.storage_targets import StorageTargets


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageLook:
    """What was seen, or why nothing was (`failure`). A target that has none of its own (`asked` False) tells nothing."""

    seen: StorageSeen | None = None
    failure: str = ""
    hint: str = ""
    asked: bool = True

    @overload
    def room(self, capacity: Capacity) -> Capacity: ...
    @overload
    def room(self, capacity: None) -> None: ...
    @overload
    def room(self, capacity: Capacity | None) -> Capacity | None: ...
    def room(self, capacity: Capacity | None) -> Capacity | None:
        """What statfs told, cut to what new files really have."""
        return capacity if capacity is None or self.seen is None else room_of(capacity, self.seen)

    @property
    def targets(self) -> tuple[StorageTarget, ...]:
        """What was seen; none where nothing is known."""
        return () if self.seen is None else self.seen.targets

    @property
    def problems(self) -> tuple[str, ...]:
        """Why nothing should be written there now; none where nothing is known."""
        if self.seen is None:
            return ()
        return (*self.lost, *emergency_problems(self.seen))

    @property
    def lost(self) -> tuple[str, ...]:
        """What does not answer; nothing where nothing is known."""
        return () if self.seen is None else lost_targets(self.seen)


async def words_for_full(storage: StorageTargets | None) -> str:
    """After a write found no room: the storage targets that are full, or the fullest; empty where nobody can say."""
    targets = (await look_at_storage(storage)).targets
    return fullest_words(targets) if targets else ""


async def look_at_storage(storage: StorageTargets | None) -> StorageLook:
    """Ask once; `storage` None: there is nothing to ask, and no program is started."""
    if storage is None:
        return StorageLook(asked=False)
    try:
        return StorageLook(seen=await storage.look())
    except ToolFailed as error:
        return StorageLook(failure=error.message, hint=error.hint)
