"""Streams on this machine, each confined to its tree."""

import os

from migrator.adapters.executors.host_executor import HostExecutor, PlaceCompiled
from migrator.adapters.executors.local_host import LocalHost
from migrator.domain.errors import Refused
from migrator.ports.processes import Processes


class LocalExecutor(HostExecutor):
    """The executor of this machine. Without root nothing can be confined, and nothing needs to be: a stream can do no
    more than its user. Confined streams die with the thread that started them: the event loop belongs into the main
    thread.
    """

    def __init__(
        self,
        processes: Processes,
        *,
        source_root: bytes,
        target_root: bytes,
        compiled: PlaceCompiled,
        host: str = "localhost",
        grace_s: float = 5.0,
        confined: bool | None = None,
    ) -> None:
        """`confined` None: as the user demands. Root cannot do without."""
        if confined is False and os.geteuid() == 0:
            raise Refused("streams of root are confined to their trees, always")
        confining = os.geteuid() == 0 if confined is None else confined
        super().__init__(
            LocalHost(processes, name=host),
            # An rsync that confines itself compares resolved paths; the confinement resolves nothing below the roots.
            source_root=source_root if confining else os.path.realpath(source_root),
            target_root=target_root if confining else os.path.realpath(target_root),
            grace_s=grace_s,
            confined=confining,
            compiled=compiled,
        )

    async def close(self) -> None:
        """Let go of the target, which is held open so that a sync tells of every error."""
        await self._host.close()
