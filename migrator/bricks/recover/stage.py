"""`brick drain --recover`: brings back files that a drain left on bricks, and proves which are in the
volume already.
"""

import asyncio
import errno
import hashlib
import os
import stat
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from migrator.bricks.recover import model, rules
from migrator.core.clock import Clock
from migrator.core.entry import EntryType
from migrator.core.errors import MigratorError, ToolFailed
from migrator.core.paths import show
from migrator.core.tasks import Blocking
from migrator.fs.beneath import Root, entry_path
from migrator.fs.writing import descriptor_path, set_capability, set_xattrs, write_piece
from migrator.gluster.looks import HostLeftovers
from migrator.gluster.model import Brick
from migrator.operations.engine import reason_of

# Writing through the mount, by descriptor, without following symlinks.
#
# Copies are made in a directory of the volume's root that only root can enter. They get their names by `link(2)`, which
# replaces nothing: GlusterFS supports neither RENAME_NOREPLACE nor RENAME_EXCHANGE (10.3 answers EINVAL). A file that
# the volume still shows under a name is first renamed into that directory, under its whole path. The path alone records
# where it belongs.


_GFID = "glusterfs.gfid.string"
_PIECE_BYTES = 1 << 20
_LISTED_S = 60.0
_LOOKED_AT = 8
_CREATED_MODE = 0o600
_DIRECTORY_MODE = 0o700
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class MountedVolumeRecovery:
    """Looks up and writes names through the mount of a volume."""

    def __init__(self, root: bytes) -> None:
        self._path = root
        self._listed: dict[bytes, float] = {}

    def look(self, path: bytes) -> model.VolumeName | None:
        """Look up a name. The volume does not find a file on a drained brick by its name if no other brick has a
        link-to file for it (cluster.lookup-optimize). After a mount lists the directory, it finds the name. So the
        directory is listed.
        """
        try:
            with self._parent(path) as (fd, name):
                seen = _look(fd, name)
                directory = path.rpartition(b"/")[0]
                if seen is not None or self._listed.get(directory, -_LISTED_S) > time.monotonic() - _LISTED_S:
                    return seen
                self._listed[directory] = time.monotonic()
                _list(fd)
                return _look(fd, name)
        except FileNotFoundError:
            return None

    def digest(self, path: bytes) -> bytes:
        """Return the digest of a file's content or a symlink's target; empty for other types. Reads the content anew,
        not from the page cache.
        """
        with self._parent(path) as (fd, name):
            facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISLNK(facts.st_mode):
                return hashlib.sha256(os.readlink(name, dir_fd=fd)).digest()
            return _digest(fd, name) if stat.S_ISREG(facts.st_mode) else b""

    def copy_inode(self, leftover: model.Leftover) -> int | None:
        """Return the inode of an existing copy; None if there is none."""
        self._check_own()
        seen = self.look(model.COPIES + leftover.key)
        return None if seen is None else seen.inode

    def begin_copy(self, leftover: model.Leftover) -> int | None:
        """Make an empty copy, replacing one that was begun before. Return a descriptor to write to for a file, which
        `abandon` closes.
        """
        with self._work(model.COPIES + leftover.key) as (fd, name):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=fd)
            if leftover.type is EntryType.SYMLINK:
                os.symlink(leftover.target, name, dir_fd=fd)
                return None
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            return os.open(name, flags, _CREATED_MODE, dir_fd=fd)

    def write(self, descriptor: int, piece: bytes, position: int, *, sparse: bool) -> None:
        """Write content."""
        write_piece(descriptor, piece, position, skip_zeros=sparse)

    def abandon(self, descriptor: int) -> None:
        """Close the descriptor of `begin_copy` if the copy is not completed."""
        os.close(descriptor)

    def end_copy(self, leftover: model.Leftover, descriptor: int | None, *, times: tuple[int, int]) -> None:
        """Set owner, mode, attributes and times (modification, access), and write it to disk."""
        with self._work(model.COPIES + leftover.key) as (directory, name):
            if leftover.type is EntryType.SYMLINK:
                os.chown(name, leftover.uid, leftover.gid, dir_fd=directory, follow_symlinks=False)
                for key, value in leftover.xattrs.items():
                    os.setxattr(entry_path(directory, name), key, value, follow_symlinks=False)
                os.utime(name, ns=(times[1], times[0]), dir_fd=directory, follow_symlinks=False)
            else:
                if descriptor is not None:
                    os.ftruncate(descriptor, leftover.size_bytes)
                pinned = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
                try:
                    _dress(descriptor_path(pinned), leftover, times)
                finally:
                    os.close(pinned)
                if descriptor is not None:
                    os.fsync(descriptor)
            os.fsync(directory)

    def set_aside(self, path: bytes) -> None:
        """Set a name aside, whatever file has it by now. May be called again."""
        with self._parent(path) as (fd, name), self._work(model.ASIDE + path) as (aside, aside_name):
            waiting = _look_again(aside, aside_name)
            here = _look(fd, name)
            if here is None:
                return
            if waiting is not None:
                if waiting.inode != here.inode:
                    raise FileExistsError(errno.EEXIST, "something else was set aside under this name already", path)
                # Both are names of one file: a rename would do nothing, and leave both (rename(2)).
                os.unlink(aside_name, dir_fd=aside)
            os.rename(name, aside_name, src_dir_fd=fd, dst_dir_fd=aside)
            # If the volume does not find it by its name yet, the next check of the brick detects the problem.
            moved = _look(aside, aside_name)
            if moved is not None and moved.inode != here.inode:
                _return(aside, aside_name, moved, fd, name)
                raise OSError(errno.ESTALE, "something else took its name just now", path)

    def put_back(self, path: bytes) -> None:
        """Restore the name of a file that was set aside. Raises FileExistsError if another file has it by now."""
        with self._work(model.ASIDE + path) as (aside, aside_name), self._parent(path) as (fd, name):
            waiting, here = _look_again(aside, aside_name), _look(fd, name)
            if waiting is None:
                return
            if here is not None and here.inode == waiting.inode:
                # It has its name again already.
                os.unlink(aside_name, dir_fd=aside)
                return
            _return(aside, aside_name, waiting, fd, name)

    def place(self, leftover: model.Leftover, path: bytes) -> None:
        """Link the copy under a name. Raises FileExistsError if another file has it."""
        with self._work(model.COPIES + leftover.key) as (copies, copy), self._parent(path) as (fd, name):
            os.link(copy, name, src_dir_fd=copies, dst_dir_fd=fd, follow_symlinks=False)

    def drop_aside(self, leftover: model.Leftover, path: bytes) -> None:
        """Remove an original that was set aside. Raises ESTALE if it is no longer the leftover."""
        with self._work(model.ASIDE + path) as (aside, name):
            seen = _look_again(aside, name)
            if seen is None:
                return
            if not seen.gfid or seen.gfid != leftover.gfid:
                raise OSError(errno.ESTALE, "what was set aside is another file by now", path)
            os.unlink(name, dir_fd=aside)

    def drop_copy(self, leftover: model.Leftover) -> None:
        """Remove the working name of the copy. Its other names stay."""
        self._check_own()
        with suppress(FileNotFoundError), self._parent(model.COPIES + leftover.key) as (fd, name):
            os.unlink(name, dir_fd=fd)

    def tidy(self, keep: Collection[bytes] | None) -> None:
        """Remove the working names of all copies except those with these keys (None: no exceptions), then empty
        directories.
        """
        self._check_own()
        if keep is not None:
            with suppress(FileNotFoundError), self._parent(model.COPIES + b"any") as (fd, _):
                for name in map(os.fsencode, os.listdir(fd)):
                    if name not in keep:
                        os.unlink(name, dir_fd=fd)
        for path in (model.COPIES, model.ASIDE, model.WORK_DIRECTORY):
            with suppress(FileNotFoundError):
                self._tidy(path.rstrip(b"/"))

    def _tidy(self, path: bytes) -> None:
        waiting, found = [path], []
        with Root(self._path) as root:
            while waiting:
                one = waiting.pop()
                found.append(one)
                with root.directory(one) as fd, os.scandir(fd) as listing:
                    waiting += [
                        one + b"/" + os.fsencode(item.name) for item in listing if item.is_dir(follow_symlinks=False)
                    ]
            for one in reversed(found):
                try:
                    with root.parent(one) as (fd, name):
                        os.rmdir(name, dir_fd=fd)
                except OSError as error:
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                        raise

    def _check_own(self) -> None:
        """Check the working directory: it must be root's alone. Raises PermissionError if another user made it."""
        with suppress(FileNotFoundError), self._parent(model.WORK_DIRECTORY) as (fd, name):
            _check(os.stat(name, dir_fd=fd, follow_symlinks=False))

    @contextmanager
    def _parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        directory, _, name = path.rpartition(b"/")
        with Root(self._path) as root, root.directory(directory) as fd:
            yield fd, name

    @contextmanager
    def _work(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """Open the directory of a path below the working directory. Missing directories are made, and each must be
        root's alone.
        """
        directory, _, name = path.rpartition(b"/")
        with Root(self._path) as root:
            fd = root.open(b"", os.O_RDONLY | os.O_DIRECTORY)
            try:
                for number, component in enumerate(directory.split(b"/")):
                    with suppress(FileExistsError):
                        os.mkdir(component, _DIRECTORY_MODE, dir_fd=fd)
                        os.fsync(fd)
                    deeper = os.open(component, _DIRECTORY, dir_fd=fd)
                    os.close(fd)
                    fd = deeper
                    facts = os.fstat(fd)
                    if number == 0:
                        _check(facts)
                yield fd, name
            finally:
                os.close(fd)


def _check(facts: os.stat_result) -> None:
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
        words = f"{model.WORK_DIRECTORY.decode()} in the root of the volume is not root's alone: move it away"
        raise PermissionError(errno.EPERM, words, model.WORK_DIRECTORY)


def _return(aside: int, aside_name: bytes, waiting: model.VolumeName, directory: int, name: bytes) -> None:
    """Restore the name of a file that was set aside, unless another file has it."""
    if waiting.type is EntryType.DIRECTORY:
        # A directory has no second name. A rename can replace only an empty directory.
        os.rename(aside_name, name, src_dir_fd=aside, dst_dir_fd=directory)
        return
    os.link(aside_name, name, src_dir_fd=aside, dst_dir_fd=directory, follow_symlinks=False)
    os.unlink(aside_name, dir_fd=aside)


def _look(directory: int, name: bytes) -> model.VolumeName | None:
    try:
        facts = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    try:
        gfid = uuid.UUID(os.getxattr(entry_path(directory, name), _GFID, follow_symlinks=False).decode("ascii")).bytes
    except (OSError, ValueError):
        gfid = b""
    return model.VolumeName(
        type=EntryType.of_mode(facts.st_mode),
        gfid=gfid,
        inode=facts.st_ino,
        size_bytes=facts.st_size,
        mode=stat.S_IMODE(facts.st_mode),
    )


def _list(directory: int) -> None:
    """List a directory with a look-up of each entry. After the first entries the kernel requests look-ups only if the
    caller examines some (FUSE_READDIRPLUS_AUTO).
    """
    with os.scandir(directory) as listing:
        for number, entry in enumerate(listing):
            if number % _LOOKED_AT == 0:
                with suppress(OSError):
                    entry.stat(follow_symlinks=False)


def _look_again(directory: int, name: bytes) -> model.VolumeName | None:
    """As `_look`. A rename on a drained brick may leave no link-to file where the new name belongs. Then the volume
    finds the name only after a listing (cluster.lookup-optimize).
    """
    seen = _look(directory, name)
    if seen is None and name in map(os.fsencode, os.listdir(directory)):
        seen = _look(directory, name)
        if seen is None:
            raise OSError(errno.EBUSY, "the volume lists what was set aside, and does not find it", name)
    return seen


def _digest(directory: int, name: bytes) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.ESTALE, "it was replaced", name)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        digest = hashlib.sha256()
        while piece := os.read(fd, _PIECE_BYTES):
            digest.update(piece)
        return digest.digest()
    finally:
        os.close(fd)


def _dress(path: bytes, leftover: model.Leftover, times: tuple[int, int]) -> None:
    os.chown(path, leftover.uid, leftover.gid)
    set_xattrs(path, leftover.xattrs)
    os.chmod(path, leftover.mode)  # noqa: PTH101 (the path is bytes)
    set_capability(path, leftover.xattrs)
    os.utime(path, ns=(times[1], times[0]))
    facts = os.stat(path)
    found = (facts.st_uid, facts.st_gid, stat.S_IMODE(facts.st_mode), facts.st_size, facts.st_mtime_ns)
    if found != (leftover.uid, leftover.gid, leftover.mode, leftover.size_bytes, times[0]):
        raise OSError(errno.EIO, "the volume does not keep its owner, mode, size or time", leftover.names[0])


T = TypeVar("T")

SETTLE_S = 2.0
"""Clients cache a name for 1 s (default entry-timeout of the FUSE mount), and open files by it."""

CONTENT_TIMEOUT_S = 24 * 3600.0
_CALL_TIMEOUT_S = 300.0


@dataclass(slots=True, kw_only=True)
class Group:
    """One inode that is being brought back. `digest` is that of its content. `begun_before` is set if an earlier call
    proved its copy, which has names already.
    """

    leftover: model.Leftover
    states: Mapping[bytes, model.NameState]
    digest: bytes = b""
    begun_before: bool = False
    aside: list[bytes] = field(default_factory=list)


# The recovery.
#
# Each inode is copied, complete and proven, before any name is touched. A file that the volume still shows under a name
# is set aside until the caches of clients have expired, and no client has opened or changed it. Only then the copy gets
# the names, and an original is removed only if it is still the leftover. The place of a file is the only record of its
# progress.


_AT_ONCE = 100
"""Number of inodes that are set aside together, to wait only once for the caches of clients."""

_ROUNDS = 2
"""A second round is needed because the volume may find an unknown name only after a look-up, and may not find a file
that was set aside at once.
"""


@dataclass(slots=True, kw_only=True)
class Recovery:
    """Works on the bricks of one drain. `in_volume`: they still belong to the volume. `own_times`: Gluster keeps times
    itself.
    """

    bricks: Sequence[Brick]
    volume_id: str
    in_volume: bool
    own_times: bool
    leftovers: HostLeftovers
    volume: MountedVolumeRecovery
    blocking: Blocking
    clock: Clock
    _problems: dict[bytes, str] = field(default_factory=dict)
    _kept: set[bytes] = field(default_factory=set)
    _recovered: int = 0
    _names: int = 0

    async def bring_back(self) -> model.RecoverySummary:
        """Recover all leftovers that can be recovered. May be called again after a crash. Raises HostLost, ToolFailed,
        UsageError.
        """
        unseen: list[str] = []
        for number in range(_ROUNDS):
            self._problems.clear()
            self._kept.clear()
            unseen.clear()
            looked = await self._look()
            unseen += [f"{name}: {reason}" for name, one in looked.items() for reason in one.unseen]
            found = self._united(looked)
            if words := rules.too_many(len(found)):
                return model.RecoverySummary(recovered=self._recovered, names=self._names, problems=(words,))
            for start in range(0, len(found), _AT_ONCE):
                await self._some(found[start : start + _AT_ONCE])
            if number + 1 == _ROUNDS or (not self._problems and not await self._waits()):
                break
        # A copy without a leftover has all its names, or was never given one. A copy is kept if its leftover may be
        # unseen.
        await self._call(partial(self.volume.tidy, None if unseen else frozenset(self._kept)))
        problems = [f"{show(name)}: {reason}" for name, reason in sorted(self._problems.items())]
        return model.RecoverySummary(recovered=self._recovered, names=self._names, problems=(*problems, *unseen))

    async def _waits(self) -> bool:
        """Whether any file is still set aside."""
        found = await self._look()
        return any(
            name.startswith(model.ASIDE) for brick in found.values() for one in brick.found for name in one.names
        )

    async def proven(self) -> Mapping[str, frozenset[bytes]]:
        """Return, by brick, the names on it that are in the volume now as other files with equal content. Changes
        nothing. Raises HostLost, ToolFailed, UsageError.
        """
        if not self.in_volume:
            # For names on bricks that have just left the volume, clients may still use cached entries, and a file would
            # prove itself.
            await self.clock.sleep(SETTLE_S)
        first = await self._look(digests=True)
        proven: dict[str, dict[bytes, model.Leftover]] = {}
        for brick in self.bricks:
            names: dict[bytes, model.Leftover] = {}
            for leftover in () if brick.arbiter else first[brick.name].found:
                if leftover.open or not leftover.gfid or not leftover.digest:
                    continue
                try:
                    states = await self._states(leftover)
                except OSError:
                    continue
                if set(states.values()) == {model.NameState.EQUAL} and not any(
                    name.startswith(model.ASIDE) for name in leftover.names
                ):
                    names |= dict.fromkeys(leftover.names, leftover)
            proven[brick.name] = names
        # An equal file was the leftover itself if Gluster has moved it meanwhile.
        second = await self._look()
        certain = {name: frozenset(_unchanged(names, second[name])) for name, names in proven.items()}
        held = [certain[brick.name] for brick in self.bricks if not brick.arbiter]
        for brick in self.bricks:
            if brick.arbiter and held:
                # An arbiter has the names that the other bricks have, without content.
                certain[brick.name] = frozenset.intersection(*held)
        return certain

    async def _look(self, *, digests: bool = False) -> dict[str, model.BrickLeftovers]:
        found = [
            await self.leftovers.look(brick, volume_id=self.volume_id, digests=digests and not brick.arbiter)
            for brick in self.bricks
        ]
        return {one.brick: one for one in rules.with_open_elsewhere(found)}

    def _united(self, looked: Mapping[str, model.BrickLeftovers]) -> tuple[model.SetLeftover, ...]:
        return rules.united(list(looked.values()), {brick.name for brick in self.bricks if brick.arbiter})

    async def _states(self, leftover: model.Leftover) -> dict[bytes, model.NameState]:
        """Return the state of each of its names. Without a digest `equal` only means that types and sizes agree."""
        volume = self.volume

        def see() -> dict[bytes, model.NameState]:
            copy = volume.copy_inode(leftover)
            states = {}
            for path in rules.originals(leftover):
                seen = volume.look(path)
                state = rules.name_state(leftover, seen, copy_inode=copy, in_volume=self.in_volume)
                if state is model.NameState.EQUAL and leftover.digest:
                    alike = leftover.digest == volume.digest(path) and volume.look(path) == seen
                    state = state if alike else model.NameState.OTHER
                states[path] = state
            return states

        return await self.blocking(see, timeout_s=CONTENT_TIMEOUT_S)

    async def _some(self, found: Sequence[model.SetLeftover]) -> None:
        """Recover a group of leftovers, from the first look-up to the new names."""
        groups: list[Group] = []
        for one in found:
            with self._told(one.leftover):
                group = await self._prepare(one)
                groups += [] if group is None else [group]
        groups = await self._unchanged(groups)
        waiting: list[Group] = []
        for group in groups:
            with self._told(group.leftover):
                await self._set_aside(group)
                waiting.append(group)
        if any(group.aside for group in waiting):
            await self._settle(waiting)
        for group in await self._unchanged(waiting, digests=True):
            with self._told(group.leftover):
                self._names += await self._place(group)
                self._recovered += 1

    async def _settle(self, groups: Sequence[Group]) -> None:
        """Wait until the caches of clients have expired. An interruption restores the names at once."""
        try:
            await self.clock.sleep(SETTLE_S)
        except asyncio.CancelledError:
            for group in groups:
                with self._told(group.leftover):
                    await self._give_back(group)
            raise

    async def _prepare(self, found: model.SetLeftover) -> Group | None:
        """Make a complete, proven copy; None if none is needed. Raises ToolFailed if the leftover must stay."""
        leftover = found.leftover
        brick = next(brick for brick in self.bricks if brick.name == leftover.brick)
        if not leftover.gfid:
            # Its name is not looked up: a client that does so can hang (GlusterFS 10.3, cluster.lookup-optimize off;
            # #3688 there).
            raise ToolFailed(
                "it was put on the brick past Gluster, which does not know it: move it off the brick, and copy it in through the "
                "mount if it is wanted"
            )
        if leftover.type not in (EntryType.FILE, EntryType.SYMLINK):
            raise ToolFailed(
                f"it is neither a file nor a symlink ({leftover.type.value}): make it in the volume, and remove it"
            )
        states = await self._states(leftover)
        digest = b""
        if model.NameState.EQUAL in states.values():
            digest = await self._read(brick, leftover, None)
            states = await self._states(replace(leftover, digest=digest))
        aside = [rules.original(name) for name in leftover.names if name.startswith(model.ASIDE)]
        group = Group(leftover=leftover, states=states, digest=digest, aside=aside)
        # An arbiter has an empty link-to file for one with content. Each brick of a set is proven by itself.
        if rules.is_done(states) and not leftover.open and (leftover.link_to or not found.reasons):
            await self._drop(group)
            return None
        if reasons := (*found.reasons, *rules.against(leftover, states)):
            await self._give_back(group)
            raise ToolFailed("; ".join(reasons))
        if model.NameState.COPY in states.values():
            group.begun_before = True
        else:
            group.digest = await self._copy(brick, leftover)
            await self._agrees(group)
        return group

    async def _set_aside(self, group: Group) -> None:
        """Set aside the names that the volume still shows. Raises OSError, ToolFailed."""
        for path in [path for path, state in group.states.items() if state is model.NameState.ITSELF]:
            if path not in group.aside:
                group.aside.append(path)
            try:
                await self._call(partial(self.volume.set_aside, path))
            except OSError:
                await self._give_back(group)
                raise

    async def _give_back(self, group: Group) -> None:
        """Restore names that were set aside, unless other files have them by now. Raises OSError, ToolFailed."""
        for path in group.aside:
            try:
                await self._call(partial(self.volume.put_back, path))
            except FileExistsError as error:
                raise ToolFailed(
                    f"the volume has something else at {show(path)} by now; what was there before waits at {show(model.ASIDE + path)}"
                ) from error
        if not group.begun_before and model.NameState.COPY not in group.states.values():
            await self._call(partial(self.volume.drop_copy, group.leftover))

    async def _place(self, group: Group) -> int:
        """Give the names to the copy, then remove the originals, and return the number of names. Raises OSError and
        ToolFailed.
        """
        placed = [
            path for path, state in group.states.items() if state in (model.NameState.ABSENT, model.NameState.ITSELF)
        ]
        for path in placed:
            waits = f"; what was there before waits at {show(model.ASIDE + path)}" if path in group.aside else ""
            try:
                await self._call(partial(self.volume.place, group.leftover, path))
            except FileExistsError as error:
                raise ToolFailed(f"the volume has something else at {show(path)} by now{waits}") from error
            except OSError as error:
                reason = f"{show(path)} cannot be given to its copy ({error.strerror or error})"
                if path != placed[0]:
                    raise ToolFailed(reason + waits) from error
                try:
                    await self._give_back(group)
                except OSError as again:
                    # Its directory was renamed or removed.
                    raise ToolFailed(reason + waits) from again
                raise ToolFailed(reason) from error
        for path in () if group.begun_before else placed:
            if group.digest != await self._digest(path):
                raise ToolFailed("what the volume has there now has another content: what was set aside is kept")
        await self._drop(group)
        return len(placed)

    async def _drop(self, group: Group) -> None:
        """Remove the original that was set aside, and the working name of the copy. Raises OSError."""
        for path in group.aside:
            await self._call(partial(self.volume.drop_aside, group.leftover, path))
        await self._call(partial(self.volume.drop_copy, group.leftover))

    async def _call(self, work: Callable[[], T]) -> T:
        """Work in the volume, with a timeout. Raises the errors of `work`, and TimeoutError."""
        return await self.blocking(work, timeout_s=_CALL_TIMEOUT_S)

    async def _digest(self, path: bytes) -> bytes:
        return await self.blocking(partial(self.volume.digest, path), timeout_s=CONTENT_TIMEOUT_S)

    async def _agrees(self, group: Group) -> None:
        """Check the copy that was read against the volume, which uses the good copy of a set. The brick may have a
        stale one. Raises ToolFailed.
        """
        if len(self.bricks) == 1:
            return
        for path in (path for path, state in group.states.items() if state is model.NameState.ITSELF):
            if group.digest != await self._digest(path):
                await self._give_back(group)
                raise ToolFailed(f"the volume shows another content at {show(path)} than {group.leftover.brick} has")

    async def _copy(self, brick: Brick, leftover: model.Leftover) -> bytes:
        volume, times = self.volume, rules.times_of(leftover, own=self.own_times)
        descriptor = await self._call(lambda: volume.begin_copy(leftover))
        try:
            digest = await self._read(brick, leftover, descriptor)
            await self._call(lambda: volume.end_copy(leftover, descriptor, times=times))
        finally:
            if descriptor is not None:
                volume.abandon(descriptor)
        if digest != await self._digest(model.COPIES + leftover.key):
            raise ToolFailed("its copy in the volume has another content")
        return digest

    async def _read(self, brick: Brick, leftover: model.Leftover, descriptor: int | None) -> bytes:
        """Return the digest of the brick's content. If there is a copy, write the content to it on the way."""
        if leftover.type is EntryType.SYMLINK:
            return hashlib.sha256(leftover.target).digest()
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

    async def _unchanged(self, groups: Sequence[Group], *, digests: bool = False) -> list[Group]:
        """Return the groups that have not changed on any brick since their copy was made. The names of the others are
        restored.
        """
        if not groups:
            return []
        looked = await self._look(digests=digests)
        now = {(one.brick, one.inode): one for brick in looked.values() for one in brick.found}
        copies = {one.leftover.gfid: one.reasons for one in self._united(looked)}
        good = []
        for group in groups:
            found = now.get((group.leftover.brick, group.leftover.inode))
            why = rules.changed(group.leftover, found, group.aside) or "; ".join(copies.get(group.leftover.gfid, ()))
            if not why and digests and not group.begun_before and found is not None and found.digest != group.digest:
                why = "its content changed"
            if not why:
                good.append(group)
                continue
            with self._told(group.leftover):
                await self._give_back(group)
                raise ToolFailed(why)
        return good

    @contextmanager
    def _told(self, leftover: model.Leftover) -> Iterator[None]:
        """Record the failure of one leftover; the others continue."""
        try:
            yield
        except (MigratorError, OSError, TimeoutError) as error:
            self._problems[leftover.names[0]] = reason_of(error)
            self._kept.add(leftover.key)


def _unchanged(names: Mapping[bytes, model.Leftover], now: model.BrickLeftovers) -> Iterator[bytes]:
    found = {name: one for one in now.found for name in one.names}
    for name, before in names.items():
        one = found.get(name)
        if (
            one is not None
            and not one.open
            and (one.inode, one.gfid, one.ctime_ns) == (before.inode, before.gfid, before.ctime_ns)
        ):
            yield name
