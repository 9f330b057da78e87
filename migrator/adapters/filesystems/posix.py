"""A plain mounted directory as the source."""

import asyncio
from collections.abc import Sequence

from migrator.adapters.filesystems.reading import ANSWER_TIMEOUT_S, ReadingFileSystem
from migrator.decide.volume_health import mount_fingerprint
from migrator.domain.brick import SourceHealth


class PosixSource(ReadingFileSystem):
    """The `SourceFileSystem` port over any mounted tree: healthy as long as the same thing is mounted."""

    async def health(self) -> SourceHealth:
        """The mount's identity as a fingerprint; a root that cannot be read is a problem."""
        try:
            identity = await asyncio.wait_for(asyncio.to_thread(self.identity), ANSWER_TIMEOUT_S)
        except TimeoutError:
            return SourceHealth(problems=("the source's root does not answer",), fingerprint="")
        except OSError as error:
            return SourceHealth(problems=(f"the source's root cannot be read: {error.strerror}",), fingerprint="")
        return SourceHealth(problems=(), fingerprint=mount_fingerprint(identity))

    async def quotas(self) -> Sequence[tuple[bytes, int]]:
        """None that the program knows of."""
        return ()
