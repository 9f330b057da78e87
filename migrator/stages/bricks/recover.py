"""Bringing back what a drain left on bricks (`brick drain --recover`), and proving what is in the volume already.

A copy is made of each inode, whole and proven, before any name is touched. What the volume still shows under a name is set
aside, and waits there until what clients remember has run out and nobody has opened or changed it; only then the copy gets the
names, and only what still is the leftover is removed. Where lies what says how far it is: nothing else is remembered.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

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
from migrator.stages.bricks.recover_placing import CONTENT_TIMEOUT_S, SETTLE_S, Group, Placing

_AT_ONCE = 100
"""Inodes that are set aside together, so that the wait is one."""

_ROUNDS = 2
"""A name that the volume did not know may be known to it when it is asked for, and what was set aside may not be found at once:
then everything is looked at once more."""


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
    _placing: Placing = field(init=False)

    def __post_init__(self) -> None:
        self._placing = Placing(volume=self.volume, blocking=self.blocking, clock=self.clock)

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
        await self._placing.change(partial(self.volume.tidy, None if unseen else frozenset(self._kept)))
        await self._placing.put_times_back()
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
            await self.clock.sleep(SETTLE_S)
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

        return await self.blocking(see, timeout_s=CONTENT_TIMEOUT_S)

    async def _some(self, found: Sequence[SetLeftover]) -> None:
        """Some of them, from their look to their new names."""
        groups: list[Group] = []
        for one in found:
            with self._told(one.leftover):
                group = await self._prepare(one)
                groups += [] if group is None else [group]
        groups = await self._unchanged(groups)
        waiting: list[Group] = []
        for group in groups:
            with self._told(group.leftover):
                await self._placing.set_aside(group)
                waiting.append(group)
        if any(group.aside for group in waiting):
            await self._settle(waiting)
        for group in await self._unchanged(waiting, digests=True):
            with self._told(group.leftover):
                self._names += await self._placing.place(group)
                self._recovered += 1

    async def _settle(self, groups: Sequence[Group]) -> None:
        """Until clients have forgotten the names. Whoever ends the command has them back at once."""
        try:
            await self.clock.sleep(SETTLE_S)
        except asyncio.CancelledError:
            for group in groups:
                with self._told(group.leftover):
                    await self._placing.give_back(group)
            raise

    async def _prepare(self, found: SetLeftover) -> Group | None:
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
        group = Group(leftover=leftover, states=states, digest=digest, aside=aside)
        if is_done(states) and not leftover.open and not found.reasons:
            await self._placing.drop(group)
            return None
        if reasons := (*found.reasons, *against(leftover, states)):
            await self._placing.give_back(group)
            raise ToolFailed("; ".join(reasons))
        if NameState.COPY in states.values():
            group.begun_before = True
        else:
            group.digest = await self._copy(brick, leftover)
            await self._agrees(group)
        return group

    async def _agrees(self, group: Group) -> None:
        """Of several copies of a set the brick that was read may have the old one: the volume tells by the good one. Raises
        ToolFailed.
        """
        if len(self.bricks) == 1:
            return
        for path in (path for path, state in group.states.items() if state is NameState.ITSELF):
            if group.digest != await self.blocking(partial(self.volume.digest, path), timeout_s=CONTENT_TIMEOUT_S):
                await self._placing.give_back(group)
                raise ToolFailed(f"the volume shows another content at {show(path)} than {group.leftover.brick} has")

    async def _copy(self, brick: Brick, leftover: Leftover) -> bytes:
        volume, times = self.volume, times_of(leftover, own=self.own_times)
        descriptor = await self._placing.change(lambda: volume.begin_copy(leftover))
        try:
            digest = await self._read(brick, leftover, descriptor)
            await self._placing.call(lambda: volume.end_copy(leftover, descriptor, times=times))
        finally:
            if descriptor is not None:
                volume.abandon(descriptor)
        if digest != await self.blocking(lambda: volume.digest(COPIES + leftover.key), timeout_s=CONTENT_TIMEOUT_S):
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
                await self._placing.call(lambda: self.volume.write(descriptor, piece, at, sparse=sparse))
            position += len(piece)

        await self.leftovers.read(brick, leftover, take)
        return digest.digest()

    async def _unchanged(self, groups: Sequence[Group], *, digests: bool = False) -> list[Group]:
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
                await self._placing.give_back(group)
                raise ToolFailed(why)
        return good

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
