"""What has to hold before a verification reads anything, and after it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from migrator.decide.site_guards import health_problems
from migrator.domain.brick import SourceHealth
from migrator.domain.errors import Refused
from migrator.domain.events import EventKind, Severity
from migrator.ports.filesystem import SourceFileSystem, TargetFileSystem
from migrator.ports.site import SiteRecord
from migrator.stages.mount_looks import mounts_not_recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """The guards of one verification: both mounts, and the health of the source. `say` is told of a refusal."""

    site: SiteRecord
    source: SourceFileSystem
    target: TargetFileSystem
    say: Callable[[EventKind, Severity, str], None]

    async def before(self) -> SourceHealth:
        """Refuse before anything is read: with a brick down the mount shows fewer files and no error.

        Returns the health then. Raises Refused.
        """
        problems = await self._mounts()
        health = await self.source.health()
        problems += health.problems
        if problems:
            message = "nothing was verified: " + "; ".join(problems)
            self.say(EventKind.GUARD_REFUSED, Severity.ERROR, message)
            raise Refused(
                message,
                cause="a brick or a mount is not as it has to be, so what it shows may not be all",
                hint="mend it, check with `migrator doctor`, then verify again",
            )
        return health

    async def afterwards(self, before: SourceHealth) -> tuple[str, ...]:
        """Why what was read in between may not be all; nothing where it is."""
        after = await self.source.health()
        return (*await self._mounts(), *health_problems(before, after))

    async def _mounts(self) -> tuple[str, ...]:
        return await asyncio.to_thread(mounts_not_recorded, self.site, self.source, self.target)
