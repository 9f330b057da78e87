"""The names of what is brought back: what the volume shows is set aside, the copy gets the names, and directories their times."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from migrator.domain.errors import ToolFailed
from migrator.domain.paths import show
from migrator.domain.recovery import ASIDE, Leftover, NameState
from migrator.ports.blocking import Blocking
from migrator.ports.clock import Clock
from migrator.ports.recovery import VolumeRecovery
from migrator.stages.bricks.parent_times import ParentTimes

T = TypeVar("T")

SETTLE_S = 2.0
"""Clients open by a name that they remember for a second (entry-timeout of the FUSE mount, by default)."""

CONTENT_TIMEOUT_S = 24 * 3600.0
_CALL_TIMEOUT_S = 300.0


@dataclass(slots=True, kw_only=True)
class Group:
    """One inode that is being brought back. `digest` is that of its content; `begun_before`: its copy was proven by a call
    that came before, and has names already.
    """

    leftover: Leftover
    states: Mapping[bytes, NameState]
    digest: bytes = b""
    begun_before: bool = False
    aside: list[bytes] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Placing:
    """Changes names in the volume, for one call of a recovery. Every method may be called again after a crash."""

    volume: VolumeRecovery
    blocking: Blocking
    clock: Clock
    _parents: ParentTimes = field(init=False)

    def __post_init__(self) -> None:
        self._parents = ParentTimes(volume=self.volume)

    async def set_aside(self, group: Group) -> None:
        """What the volume shows of it. Raises OSError, ToolFailed."""
        for path in [path for path, state in group.states.items() if state is NameState.ITSELF]:
            if path not in group.aside:
                group.aside.append(path)
            try:
                await self.change(partial(self.volume.set_aside, path), path)
            except OSError:
                await self.give_back(group)
                raise

    async def give_back(self, group: Group) -> None:
        """What was set aside gets its names again, where nothing else has them by now. Raises OSError, ToolFailed."""
        for path in group.aside:
            try:
                await self.change(partial(self.volume.put_back, path), path)
            except FileExistsError as error:
                raise ToolFailed(
                    f"the volume has something else at {show(path)} by now; what was there before waits at {show(ASIDE + path)}"
                ) from error
        if not group.begun_before and NameState.COPY not in group.states.values():
            await self.call(partial(self.volume.drop_copy, group.leftover))

    async def place(self, group: Group) -> int:
        """The copy gets the names; then what was set aside goes. How many names it got. Raises OSError, ToolFailed."""
        placed = [path for path, state in group.states.items() if state in (NameState.ABSENT, NameState.ITSELF)]
        for path in placed:
            waits = f"; what was there before waits at {show(ASIDE + path)}" if path in group.aside else ""
            try:
                await self.change(partial(self.volume.place, group.leftover, path), path)
            except FileExistsError as error:
                raise ToolFailed(f"the volume has something else at {show(path)} by now{waits}") from error
            except OSError as error:
                reason = f"{show(path)} cannot be given to its copy ({error.strerror or error})"
                if path != placed[0]:
                    raise ToolFailed(reason + waits) from error
                try:
                    await self.give_back(group)
                except OSError as again:
                    # Its directory has another name by now, or is gone.
                    raise ToolFailed(reason + waits) from again
                raise ToolFailed(reason) from error
        for path in () if group.begun_before else placed:
            if group.digest != await self.blocking(partial(self.volume.digest, path), timeout_s=CONTENT_TIMEOUT_S):
                raise ToolFailed("what the volume has there now has another content: what was set aside is kept")
        await self.drop(group)
        return len(placed)

    async def drop(self, group: Group) -> None:
        """The original that was set aside, and the copy's own name. Raises OSError."""
        for path in group.aside:
            await self.call(partial(self.volume.drop_aside, group.leftover, path))
        await self.call(partial(self.volume.drop_copy, group.leftover))

    async def put_times_back(self) -> None:
        """Directories that nobody else has changed get the times of before the call."""
        if self._parents.changed:
            await self.clock.sleep(SETTLE_S)
            await self.call(self._parents.put_back)

    async def change(self, work: Callable[[], T], path: bytes = b"") -> T:
        """What changes the directory of a path, and may make or remove the working directory in the root."""
        directories = tuple(dict.fromkeys((path.rpartition(b"/")[0], b"")))
        return await self.call(lambda: self._parents.around(directories, work))

    async def call(self, work: Callable[[], T]) -> T:
        """Anything else in the volume. Raises what it raises, and TimeoutError."""
        return await self.blocking(work, timeout_s=_CALL_TIMEOUT_S)
