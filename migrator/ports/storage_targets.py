"""The storage and metadata targets of the target's file system, as its own tool tells of them."""

from collections.abc import Collection, Mapping
from typing import Protocol

from migrator.domain.quota import UserQuota
from migrator.domain.storage_targets import DirectoryFacts, StorageSeen, StripeSettings


class StorageTargets(Protocol):
    """Asks the tool of the file system. Every question has a timeout, and starts a program of its own."""

    async def look(self) -> StorageSeen:
        """Every target with its states and its room. Room lags by 40 to 80 s, states by more. May be called at any time,
        also by several at once. Raises ToolFailed: no tool, no answer, or one that cannot be read.
        """

    async def problems(self) -> tuple[str, ...]:
        """Why what lies on the target may not be readable, as sentences. What cannot be asked is a problem."""

    async def directory(self, path: bytes) -> DirectoryFacts:
        """What new files in a directory get; an absolute path. Raises ToolFailed."""

    async def set_stripe(self, path: bytes, stripe: StripeSettings) -> None:
        """Give a directory these settings, for what is made in it from now on, and look whether it has them. May be
        called again. Raises ToolFailed.
        """

    async def quota_problem(self) -> str | None:
        """Why nobody can say what users take up by BeeGFS's own accounting; None where it can be asked."""

    async def quotas(self, uids: Collection[int]) -> Mapping[int, UserQuota]:
        """What these users take up on the target, and may. Whoever is not told of is left out; everybody is where the file system
        has no quotas. Use lags by minutes. Raises ToolFailed.
        """
