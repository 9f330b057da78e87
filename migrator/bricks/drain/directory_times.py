"""The mtimes of directories that would leave the volume with the bricks of a drain are set on the other copies before the commit."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from migrator.bricks.drain.rules_times import is_latest
from migrator.bricks.known_directories import DirectoryFiles, KnownDirectoryFile, MountedDirectories
from migrator.core.errors import MigratorError, ToolFailed
from migrator.core.tasks import Blocking
from migrator.gluster.model import Brick, BrickDirectory, VolumeState
from migrator.gluster.reports import HostDirectories
from migrator.gluster.rules import CTIME_OPTION, is_on, subvolumes

_TIMEOUT_S = 24 * 3600.0


class KeptTimes(Struct, frozen=True, kw_only=True):
    """`kept` directories got their latest mtime on every copy. `lost` ones refused it, and show an earlier one later."""

    kept: int = 0
    lost: int = 0


class DirectoryTimes(Struct, frozen=True, kw_only=True):
    """Keeps the mtimes of directories over the commit of a drain. `memory` bounds the memory of a call."""

    walks: HostDirectories
    memory: DirectoryFiles
    mount: MountedDirectories
    blocking: Blocking

    async def keep(self, drain_id: int, bricks: Sequence[Brick], state: VolumeState) -> KeptTimes:
        """Set the mtimes that are latest on these bricks through the mount, which writes them to every copy. The mount
        shows no change of mtime. May be called again. A brick that stays and cannot be read means more writes. Raises
        MigratorError if none of the bricks can be read, OSError, TimeoutError.
        """
        if is_on(dict(state.options), CTIME_OPTION, default=True) is not True:
            # The bricks' own times are those of Gluster's moves.
            return KeptTimes()
        names = {brick.name for brick in bricks}
        with self.memory.opened(str(drain_id)) as known:
            known.clear()
            await self._walk_one(bricks, state, known.keep)
            for staying in subvolumes(state):
                if names.isdisjoint(brick.name for brick in staying):
                    try:
                        await self._walk_one(staying, state, partial(_drop, known))
                    except MigratorError:
                        continue
            kept = await self.blocking(lambda: self._set(known), timeout_s=_TIMEOUT_S)
            known.remove()
        return kept

    async def _walk_one(
        self, bricks: Sequence[Brick], state: VolumeState, take: Callable[[Sequence[BrickDirectory]], None]
    ) -> None:
        """Walk the first brick of a replica set that can be read, since its copies have the same times. Raises
        MigratorError if there is none.
        """
        reasons: list[str] = []
        for brick in bricks:
            if brick.online and not brick.arbiter:
                try:
                    await self.walks.walk(brick, volume_id=state.volume_id, take=take)
                except MigratorError as error:
                    reasons.append(error.message)
                else:
                    return
        raise ToolFailed(
            f"the times of directories cannot be read: {'; '.join(dict.fromkeys(reasons)) or 'no copy is up'}",
            cause="the mtime of a directory is on the brick of its last new entry, and would leave with it",
            hint="see that the host is up and has a section in site.toml, then run the same command again",
        )

    def _set(self, known: KnownDirectoryFile) -> KeptTimes:
        kept = lost = 0
        for leaving in known.all():
            try:
                shown = self.mount.look(leaving.path, leaving.gfid)
                # Gone, renamed or changed since: then every copy has the new times, or a later one is elsewhere.
                if shown is not None and shown.modified_ns == leaving.modified_ns:
                    kept += self.mount.set_mtime(shown)
            except OSError:
                lost += 1
        return KeptTimes(kept=kept, lost=lost)


def _drop(known: KnownDirectoryFile, copies: Sequence[BrickDirectory]) -> None:
    """Forget the directories of which a staying brick has as late an mtime."""
    leaving = known.of([one.gfid for one in copies])
    known.drop([one.gfid for one in copies if one.gfid in leaving and not is_latest(leaving[one.gfid], one)])
