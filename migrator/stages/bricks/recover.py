"""Bringing back what a drain left on bricks (`brick drain --recover`), and proving what is in the volume already.

A copy is made of each inode, whole and proven, before any name is touched. What the volume still shows under a name is set
aside, and waits there until what clients remember has run out and nobody has opened or changed it; only then the copy gets the
names, and only what still is the leftover is removed. Where lies what says how far it is: nothing else is remembered.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from migrator.decide.recovery import (
    against,
    changed,
    is_done,
    name_state,
    original,
    originals,
    times_of,
    too_many,
    united,
    with_open_elsewhere,
)
from migrator.domain.brick import Brick
from migrator.domain.entry import EntryType
from migrator.domain.errors import MigratorError, ToolFailed
from migrator.domain.paths import show
from migrator.domain.recovery import ASIDE, COPIES, BrickLeftovers, Leftover, NameState, RecoverySummary, SetLeftover
from migrator.ports.blocking import Blocking
from migrator.ports.clock import Clock
from migrator.ports.recovery import LeftoverBricks, VolumeRecovery
from migrator.stages.bricks.parent_times import ParentTimes

T = TypeVar("T")

_AT_ONCE = 100
"""Inodes that are set aside together, so that the wait is one."""

_SETTLE_S = 2.0
"""Clients open by a name that they remember for a second (entry-timeout of the FUSE mount, by default)."""

_ROUNDS = 2
"""A name that the volume did not know may be known to it when it is asked for, and what was set aside may not be found at once:
then everything is looked at once more."""

_CONTENT_TIMEOUT_S = 24 * 3600.0
_CALL_TIMEOUT_S = 300.0


@dataclass(slots=True, kw_only=True)
class _Group:
    """One inode that is being brought back. `digest` is that of its content; `begun_before`: its copy was proven by a call
    that came before, and has names already.
    """

    leftover: Leftover
    states: Mapping[bytes, NameState]
    digest: bytes = b""
    begun_before: bool = False
    aside: list[bytes] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Recovery:
    """Works on the bricks of one drain. `in_volume`: they still belong to the volume. `own_times`: Gluster keeps times itself."""

    bricks: Sequence[Brick]
    volume_id: str
    in_volume: bool
    own_times: bool
    leftovers: LeftoverBricks
    volume: VolumeRecovery
    blocking: Blocking
    clock: Clock
    _problems: dict[bytes, str] = field(default_factory=dict)
    _kept: set[bytes] = field(default_factory=set)
    _recovered: int = 0
    _names: int = 0
    _parents: ParentTimes = field(init=False)

    def __post_init__(self) -> None:
        self._parents = ParentTimes(volume=self.volume)

    async def bring_back(self) -> RecoverySummary:
        """Everything that may be. May be called again after a crash. Raises HostLost, ToolFailed, UsageError."""
        unseen: list[str] = []
        for number in range(_ROUNDS):
            self._problems.clear()
            self._kept.clear()
            unseen.clear()
            looked = await self._look()
            unseen += [
                f"{name}: {reason}" for name, one in looked.items() for reason in (*one.unseen, *one.open_unknown)
            ]
            found = self._united(looked)
            if words := too_many(len(found)):
                return RecoverySummary(recovered=self._recovered, names=self._names, problems=(words,))
            for start in range(0, len(found), _AT_ONCE):
                await self._some(found[start : start + _AT_ONCE])
            if number + 1 == _ROUNDS or (not self._problems and not await self._waits()):
                break
        # A copy that no leftover needs any more has all its names, or was never given one. Its leftover may be unseen.
        await self._change(partial(self.volume.tidy, None if unseen else frozenset(self._kept)))
        await self._put_times_back()
        problems = [f"{show(name)}: {reason}" for name, reason in sorted(self._problems.items())]
        return RecoverySummary(recovered=self._recovered, names=self._names, problems=(*problems, *unseen))

    async def _waits(self) -> bool:
        """Whether anything is still set aside."""
        found = await self._look()
        return any(name.startswith(ASIDE) for brick in found.values() for one in brick.found for name in one.names)

    async def proven(self) -> Mapping[str, frozenset[bytes]]:
        """By brick the names on it that are in the volume as other files of equal content, now. Changes nothing. Raises HostLost,
        ToolFailed, UsageError.
        """
        if not self.in_volume:
            # Of names on bricks that have just left the volume clients remember what they were: that would prove itself.
            await self.clock.sleep(_SETTLE_S)
        first = await self._look(digests=True)
        proven: dict[str, dict[bytes, Leftover]] = {}
        for brick in self.bricks:
            names: dict[bytes, Leftover] = {}
            for leftover in () if brick.arbiter else first[brick.name].found:
                if (
                    leftover.open
                    or not leftover.gfid
                    or (leftover.type in (EntryType.FILE, EntryType.SYMLINK) and not leftover.digest)
                ):
                    continue
                try:
                    states = await self._states(leftover)
                except OSError:
                    continue
                if set(states.values()) == {NameState.EQUAL} and not any(
                    name.startswith(ASIDE) for name in leftover.names
                ):
                    names |= dict.fromkeys(leftover.names, leftover)
            proven[brick.name] = names
        # What is equal was the leftover itself if Gluster has taken it up meanwhile.
        second = await self._look()
        certain = {name: frozenset(_unchanged(names, second[name])) for name, names in proven.items()}
        held = [certain[brick.name] for brick in self.bricks if not brick.arbiter]
        for brick in self.bricks:
            if brick.arbiter and held:
                # It has the names of what the others have, without content.
                certain[brick.name] = frozenset.intersection(*held)
        return certain

    async def _look(self, *, digests: bool = False) -> dict[str, BrickLeftovers]:
        found = [
            await self.leftovers.look(brick, volume_id=self.volume_id, digests=digests and not brick.arbiter)
            for brick in self.bricks
        ]
        return {one.brick: one for one in with_open_elsewhere(found)}

    def _united(self, looked: Mapping[str, BrickLeftovers]) -> tuple[SetLeftover, ...]:
        return united(list(looked.values()), {brick.name for brick in self.bricks if brick.arbiter})

    async def _states(self, leftover: Leftover) -> dict[bytes, NameState]:
        """What each of its names is. Without a digest `equal` says only that nothing speaks against it."""
        volume = self.volume

        def see() -> dict[bytes, NameState]:
            copy = volume.copy_inode(leftover)
            states = {}
            for path in originals(leftover):
                seen = volume.look(path)
                state = name_state(leftover, seen, copy_inode=copy, equal=True, in_volume=self.in_volume)
                if state is NameState.EQUAL and leftover.digest and leftover.digest != volume.digest(path):
                    state = NameState.OTHER
                states[path] = state
            return states

        return await self.blocking(see, timeout_s=_CONTENT_TIMEOUT_S)

    async def _some(self, found: Sequence[SetLeftover]) -> None:
        """Some of them, from their look to their new names."""
        groups: list[_Group] = []
        for one in found:
            with self._told(one.leftover):
                group = await self._prepare(one)
                groups += [] if group is None else [group]
        groups = await self._unchanged(groups)
        waiting: list[_Group] = []
        for group in groups:
            with self._told(group.leftover):
                await self._set_aside(group)
                waiting.append(group)
        if any(group.aside for group in waiting):
            await self._settle(waiting)
        for group in await self._unchanged(waiting, digests=True):
            with self._told(group.leftover):
                await self._place(group)

    async def _settle(self, groups: Sequence[_Group]) -> None:
        """Until clients have forgotten the names. Whoever ends the command has them back at once."""
        try:
            await self.clock.sleep(_SETTLE_S)
        except asyncio.CancelledError:
            for group in groups:
                with self._told(group.leftover):
                    await self._give_back(group)
            raise

    async def _prepare(self, found: SetLeftover) -> _Group | None:
        """Its copy, whole and proven; None where it needs none. Raises ToolFailed where it is left alone."""
        leftover = found.leftover
        brick = next(brick for brick in self.bricks if brick.name == leftover.brick)
        if not leftover.gfid:
            # Its name is not asked for: a client that does can hang (GlusterFS 10.3, cluster.lookup-optimize off; #3688 there).
            raise ToolFailed(
                "it was put on the brick past Gluster, which does not know it: move it off the brick, and copy it in through the "
                "mount if it is wanted"
            )
        states = await self._states(leftover)
        digest = b""
        if NameState.EQUAL in states.values():
            digest = await self._read(brick, leftover, None)
            states = await self._states(replace(leftover, digest=digest))
        aside = [original(name) for name in leftover.names if name.startswith(ASIDE)]
        group = _Group(leftover=leftover, states=states, digest=digest, aside=aside)
        if is_done(states) and not leftover.open:
            await self._drop(group)
            return None
        if reasons := (*found.reasons, *against(leftover, states)):
            await self._give_back(group)
            raise ToolFailed("; ".join(reasons))
        if NameState.COPY in states.values():
            group.begun_before = True
        else:
            group.digest = await self._copy(brick, leftover)
            await self._agrees(group)
        return group

    async def _agrees(self, group: _Group) -> None:
        """Of several copies of a set the brick that was read may have the old one: the volume tells by the good one. Raises
        ToolFailed.
        """
        if len(self.bricks) == 1:
            return
        for path in (path for path, state in group.states.items() if state is NameState.ITSELF):
            if group.digest != await self.blocking(partial(self.volume.digest, path), timeout_s=_CONTENT_TIMEOUT_S):
                await self._give_back(group)
                raise ToolFailed(f"the volume shows another content at {show(path)} than {group.leftover.brick} has")

    async def _copy(self, brick: Brick, leftover: Leftover) -> bytes:
        volume, times = self.volume, times_of(leftover, own=self.own_times)
        descriptor = await self._change(lambda: volume.begin_copy(leftover))
        try:
            digest = await self._read(brick, leftover, descriptor)
            await self._call(lambda: volume.end_copy(leftover, descriptor, times=times))
        finally:
            if descriptor is not None:
                volume.abandon(descriptor)
        if digest != await self.blocking(lambda: volume.digest(COPIES + leftover.key), timeout_s=_CONTENT_TIMEOUT_S):
            raise ToolFailed("its copy in the volume has another content")
        return digest

    async def _read(self, brick: Brick, leftover: Leftover, descriptor: int | None) -> bytes:
        """The digest of what the brick has, which is written into a copy on the way where there is one."""
        if leftover.type is EntryType.SYMLINK:
            return hashlib.sha256(leftover.target).digest()
        if leftover.type is not EntryType.FILE:
            return b""
        digest, position = hashlib.sha256(), 0
        sparse = leftover.blocks * 512 < leftover.size_bytes

        async def take(piece: bytes) -> None:
            nonlocal position
            digest.update(piece)
            if descriptor is not None:
                at = position
                await self._call(lambda: self.volume.write(descriptor, piece, at, sparse=sparse))
            position += len(piece)

        await self.leftovers.read(brick, leftover, take)
        return digest.digest()

    async def _unchanged(self, groups: Sequence[_Group], *, digests: bool = False) -> list[_Group]:
        """Those that still are what they were when their copy was made, on every brick; the others get back what was set aside."""
        if not groups:
            return []
        looked = await self._look(digests=digests)
        now = {(one.brick, one.inode): one for brick in looked.values() for one in brick.found}
        copies = {one.leftover.gfid: one.reasons for one in self._united(looked)}
        good = []
        for group in groups:
            found = now.get((group.leftover.brick, group.leftover.inode))
            why = changed(group.leftover, found, group.aside) or "; ".join(copies.get(group.leftover.gfid, ()))
            if not why and digests and not group.begun_before and found is not None and found.digest != group.digest:
                why = "its content changed"
            if not why:
                good.append(group)
                continue
            with self._told(group.leftover):
                await self._give_back(group)
                raise ToolFailed(why)
        return good

    async def _set_aside(self, group: _Group) -> None:
        for path in [path for path, state in group.states.items() if state is NameState.ITSELF]:
            if path not in group.aside:
                group.aside.append(path)
            try:
                await self._change(partial(self.volume.set_aside, path), path)
            except OSError:
                await self._give_back(group)
                raise

    async def _give_back(self, group: _Group) -> None:
        """What was set aside gets its names again, where nothing else has them by now."""
        for path in group.aside:
            try:
                await self._change(partial(self.volume.put_back, path), path)
            except FileExistsError as error:
                raise ToolFailed(
                    f"the volume has something else at {show(path)} by now; what was there before waits at {show(ASIDE + path)}"
                ) from error
        if not group.begun_before and NameState.COPY not in group.states.values():
            await self._call(partial(self.volume.drop_copy, group.leftover))

    async def _place(self, group: _Group) -> None:
        """The copy gets the names; then what was set aside goes. Raises OSError, ToolFailed."""
        placed = [path for path, state in group.states.items() if state in (NameState.ABSENT, NameState.ITSELF)]
        for path in placed:
            waits = f"; what was there before waits at {show(ASIDE + path)}" if path in group.aside else ""
            try:
                await self._change(partial(self.volume.place, group.leftover, path), path)
            except FileExistsError as error:
                raise ToolFailed(f"the volume has something else at {show(path)} by now{waits}") from error
            except OSError as error:
                reason = f"{show(path)} cannot be given to its copy ({error.strerror or error})"
                if path != placed[0]:
                    raise ToolFailed(reason + waits) from error
                try:
                    await self._give_back(group)
                except OSError as again:
                    # Its directory has another name by now, or is gone.
                    raise ToolFailed(reason + waits) from again
                raise ToolFailed(reason) from error
        for path in () if group.begun_before else placed:
            if group.digest != await self.blocking(partial(self.volume.digest, path), timeout_s=_CONTENT_TIMEOUT_S):
                raise ToolFailed("what the volume has there now has another content: what was set aside is kept")
        await self._drop(group)
        self._recovered += 1
        self._names += len(placed)

    async def _drop(self, group: _Group) -> None:
        for path in group.aside:
            await self._call(partial(self.volume.drop_aside, group.leftover, path))
        await self._call(partial(self.volume.drop_copy, group.leftover))

    async def _put_times_back(self) -> None:
        if self._parents.changed:
            await self.clock.sleep(_SETTLE_S)
            await self._call(self._parents.put_back)

    async def _change(self, work: Callable[[], T], path: bytes = b"") -> T:
        """What changes the directory of a path, and may make or remove the working directory in the root."""
        directories = tuple(dict.fromkeys((path.rpartition(b"/")[0], b"")))
        return await self._call(lambda: self._parents.around(directories, work))

    async def _call(self, work: Callable[[], T]) -> T:
        return await self.blocking(work, timeout_s=_CALL_TIMEOUT_S)

    @contextmanager
    def _told(self, leftover: Leftover) -> Iterator[None]:
        """What goes wrong with one is told, and the others go on."""
        try:
            yield
        except (MigratorError, OSError, TimeoutError) as error:
            reason = (
                error.message if isinstance(error, MigratorError) else getattr(error, "strerror", None) or "no answer"
            )
            self._problems[leftover.names[0]] = reason
            self._kept.add(leftover.key)


def _unchanged(names: Mapping[bytes, Leftover], now: BrickLeftovers) -> Iterator[bytes]:
    found = {name: one for one in now.found for name in one.names}
    for name, before in names.items():
        one = found.get(name)
        if (
            one is not None
            and not one.open
            and (one.inode, one.gfid, one.ctime_ns) == (before.inode, before.gfid, before.ctime_ns)
        ):
            yield name
