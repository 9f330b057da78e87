"""A Gluster volume, read through its FUSE mount, and the commands to glusterd about it."""

import asyncio
import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import assert_never
from xml.etree.ElementTree import Element

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.clock import Clock
from migrator.core.entry import Entry, EntryType
from migrator.core.errors import MigratorError, ToolFailed
from migrator.core.tasks import result_or_none
from migrator.fs.beneath import Root, held
from migrator.fs.model import SourceHealth
from migrator.fs.ports import Block, WalkedRoot
from migrator.fs.reading import ANSWER_TIMEOUT_S, ReadingFileSystem
from migrator.fs.writing import descriptor_path
from migrator.gluster import xml
from migrator.gluster.model import (
    SPLIT_BRAIN,
    Brick,
    BrickHeal,
    BrickRoom,
    TaskKind,
    TaskProgress,
    VolumeHealth,
    VolumeState,
    VolumeTask,
)
from migrator.gluster.rules import brick_rules, version_in, volume_fingerprint, volume_problems, wrong_volume_problem
from migrator.hosts.ports import Command, Completed, Conversation, ConversationOver, Processes


class VolumeOverview(Struct, frozen=True, kw_only=True):
    """A snapshot of the volume for `brick list`. `tasks` are the unfinished ones, `progress` has their counters by id
    (None if glusterd does not report them), `rooms` is by brick name. `version` is that of the host that answered.
    """

    state: VolumeState
    version: str | None
    rooms: Mapping[str, BrickRoom]
    tasks: tuple[VolumeTask, ...]
    progress: Mapping[str, TaskProgress | None]


# The bricks to which the client process behind a FUSE mount is connected, from the mount's `.meta` directory.
#
# glusterd can report every brick up while this machine's client has lost one: the mount then shows fewer files, and no
# error. The client itself answers `.meta` (the meta translator, in every client since GlusterFS 3.6), which is not
# listed.


_GRAPHS = b".meta/graphs"
_CLIENT = re.compile(rb".+-client-\d+")
_READ_BYTES = 65536


def connections(root: bytes) -> dict[str, bool]:
    """By brick name, True if the mount's client is connected to it. Raises OSError if the mount does not report
    it.
    """
    found: dict[str, bool] = {}
    with Root(root) as opened:
        with opened.directory(_GRAPHS) as fd:
            # A symlink names the graph in use; older ones stay listed until they are no longer used.
            graph = _GRAPHS + b"/" + os.readlink(b"active", dir_fd=fd)
        with opened.directory(graph) as fd:
            clients = [name for name in map(os.fsencode, os.listdir(fd)) if _CLIENT.fullmatch(name)]
        for client in clients:
            facts = graph + b"/" + client
            host = _read(opened, facts + b"/options/remote-host").strip()
            path = _read(opened, facts + b"/options/remote-subvolume").strip()
            name = (host + b":" + path).decode("utf-8", "backslashreplace")
            found[name] = b"\nconnected = 1\n" in b"\n" + _read(opened, facts + b"/private") + b"\n"
    return found


def connection_problems(bricks: Sequence[Brick], connected: dict[str, bool]) -> tuple[str, ...]:
    """Sentences for the bricks of the volume to which the mount's client is not connected, and for those that have left it:
    then the client is about to connect anew.
    """
    left = sorted(connected.keys() - {brick.name for brick in bricks})
    problems = [f"this mount's client still knows brick {name}, which has left the volume" for name in left]
    problems += (
        f"this mount's client is not connected to brick {brick.name}: it silently shows fewer files"
        if brick.name in connected
        else f"this mount's client does not know brick {brick.name}: mount the volume anew"
        for brick in bricks
        if not connected.get(brick.name, False)
    )
    return tuple(problems)


_SPLIT_BRAIN_STATUS = "replica.split-brain-status"
"""Answered by the mount's client (GlusterFS 3.7 and later), for files whose look-up succeeds."""


def split_brain(root: bytes, path: bytes) -> str:
    """In which respects the copies of a file disagree; empty if they do not, if that is unknown, or on another file system.
    Blocking.
    """
    try:
        with Root(root) as opened, held(opened.open(path, os.O_PATH | os.O_NOFOLLOW)) as fd:
            printed = os.getxattr(descriptor_path(fd), _SPLIT_BRAIN_STATUS)
    except OSError:
        return ""
    kinds = [kind for kind in ("data", "metadata") if b"%s-split-brain:yes" % kind.encode() in printed.split()]
    return f"{SPLIT_BRAIN} ({' and '.join(kinds)})" if kinds else ""


_FORGET = "inode-invalidate"
"""Set on a path, it makes the client give up the path's inode, with all that it keeps of it. It is not sent to any brick."""
_FORGOTTEN_WITHIN_S = 5.0
_LOOK_AGAIN_S = 0.001


def forget_content(root: bytes, path: bytes) -> None:
    """Make the mount's client forget the content of a file. It keeps that of small files for as long as their mtime stays the
    same (`performance.quick-read`), so that it may show the content of a copy which was marked after it was read. A path that
    is gone or no file is left alone. Raises OSError. Blocking.
    """
    try:
        with Root(root) as opened, held(opened.open(path, os.O_PATH | os.O_NOFOLLOW)) as fd:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return
            link = Path(os.fsdecode(descriptor_path(fd)))
            named = link.readlink()
            os.setxattr(link, _FORGET, b"1")
            give_up_s = time.monotonic() + _FORGOTTEN_WITHIN_S
            # The client asks the kernel to drop the name. When that is done, the link of a descriptor ends with " (deleted)".
            while link.readlink() == named:
                if time.monotonic() > give_up_s:
                    raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
                time.sleep(_LOOK_AGAIN_S)
    except FileNotFoundError:
        return


def _read(root: Root, path: bytes) -> bytes:
    with held(root.open(path, os.O_RDONLY)) as fd:
        return os.read(fd, _READ_BYTES)


# The `gluster` command as a shell that keeps running.
#
# Every start of `gluster` runs a Python process to look for geo-replication (75 ms, GlusterFS 10.3). Its shell, which
# reads one command per line, answers `volume status` in 2 ms.


_TIMEOUT_S = 10.0
"""For one answer; then a separate command with a longer timeout is used."""

_QUESTIONS = 1000
"""A shell is replaced after this many questions: it was not designed to run for weeks."""

_FAILURES = 3
_PAUSE_QUESTIONS = 50
"""After this many failures in a row, this many questions are asked without a shell."""

_KINDS = frozenset({("volume", "info"), ("volume", "status"), ("pool", "list")})
"""Only these go to the shell: each prints one document, from glusterd itself."""

_WORD = re.compile(r"[A-Za-z0-9_.-]+")
_BEGIN, _END = b"<?xml", b"</cliOutput>"


class GlusterShell:
    """One shell at a time, started when it is first needed. `gluster` is the command."""

    def __init__(self, begin: Callable[[Command], Conversation], gluster: str) -> None:
        self._begin = begin
        self._argv = (os.fsencode(gluster), b"--mode=script", b"--xml")
        self._conversation: Conversation | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = 0
        self._failures = 0
        self._pause = 0

    def begin(self) -> None:
        """Start it before the first question, in the running event loop, because it starts slowly."""
        with suppress(ToolFailed):
            self._begun()

    async def ask(self, words: Sequence[str]) -> bytes | None:
        """The XML of one answer; None if a separate command is needed."""
        if tuple(words[:2]) not in _KINDS or not all(map(_WORD.fullmatch, words)):
            return None
        if self._pause:
            self._pause -= 1
            return None
        try:
            conversation = self._begun()
            printed = await conversation.ask(" ".join(words).encode() + b"\n", until=_is_over, timeout_s=_TIMEOUT_S)
        except (ConversationOver, ToolFailed):
            printed = b""
        if _is_answer(printed):
            self._failures = 0
            return printed
        self.close()
        self._failures += 1
        if self._failures >= _FAILURES:
            self._failures, self._pause = 0, _PAUSE_QUESTIONS
        return None

    def close(self) -> None:
        """End the shell; the next question starts another. May be called again."""
        if self._conversation is not None:
            self._conversation.end()
            self._conversation = None

    def _begun(self) -> Conversation:
        loop = asyncio.get_running_loop()
        if self._conversation is not None and (self._asked >= _QUESTIONS or self._loop is not loop):
            self.close()
        if self._conversation is None:
            self._conversation = self._begin(Command(argv=self._argv))
            self._loop, self._asked = loop, 0
        self._asked += 1
        return self._conversation


def _is_over(printed: bytes) -> bool:
    """True if the output is a complete document, or no document at all: waiting longer is useless."""
    text = printed.strip()
    return text.endswith(_END) or not (text.startswith(_BEGIN) or _BEGIN.startswith(text))


def _is_answer(printed: bytes) -> bool:
    text = printed.strip()
    return text.startswith(_BEGIN) and text.endswith(_END) and text.count(_BEGIN) == 1


# The volume.


_TRIES = 8
_PAUSE_S = 0.5
_GLUSTER_TIMEOUT_S = 120.0
"""glusterd itself waits for a peer for at most two minutes."""


class GlusterCommands:
    """Commands to glusterd about one volume. `gluster` is the command: a path, or a name on PATH.

    With `conversations`, which starts a conversation with a program, a shell answers frequent questions. A question
    that the shell fails to answer is repeated with a separate command.
    """

    def __init__(
        self,
        processes: Processes,
        clock: Clock,
        *,
        volume: str,
        gluster: str = "gluster",
        conversations: Callable[[Command], Conversation] | None = None,
    ) -> None:
        self._processes = processes
        self._shell = None if conversations is None else GlusterShell(conversations, gluster)
        self._clock = clock
        self.volume = volume
        self._gluster = gluster
        self._asking_status = asyncio.Lock()

    def begin(self) -> None:
        """Start the shell before the first question, in the running event loop."""
        if self._shell is not None:
            self._shell.begin()

    def close(self) -> None:
        """End the shell. May be called again."""
        if self._shell is not None:
            self._shell.close()

    async def state(self) -> VolumeState:
        """Bricks, options, tasks, and which bricks are up. Raises ToolFailed.

        The plain status lists bricks and tasks in less time than `status tasks` alone (GlusterFS 10.3).
        """
        return (await self.state_and_tasks())[0]

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        """As `state`, with every listed task, ended ones too; a stopped volume lists none."""
        state = xml.parse_volume_info(await self.ask("info", self.volume), self.volume)
        if not state.started:
            return state, ()
        return xml.with_status(state, await self._status())

    async def rooms(self) -> Mapping[str, BrickRoom]:
        """The file system of each brick, by brick name, without bricks of hosts whose glusterd is down. Raises
        ToolFailed, also if the volume is not started.
        """
        return xml.parse_rooms(await self._status("detail"), self.volume)

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        """The counters of a listed task; None if the task is no longer listed. Raises ToolFailed."""
        match task.kind:
            case TaskKind.REMOVE_BRICK:
                words: tuple[str, ...] = ("remove-brick", self.volume, *task.bricks, "status")
            case TaskKind.REBALANCE:
                words = ("rebalance", self.volume, "status")
            case TaskKind.OTHER:
                return None
            case _:
                assert_never(task.kind)
        try:
            found = xml.parse_progress(await self.ask(*words))
        except xml.GlusterFailed as error:
            if xml.is_not_started(error):
                return None
            raise
        return found if found.task_id == task.id else None

    async def version(self) -> str | None:
        """The version of GlusterFS on the host that answers, as in `10.3`; None if not known. It is not available as
        XML.
        """
        argv = (os.fsencode(self._gluster), b"--version")
        completed = await result_or_none(self._processes.run(Command(argv=argv, timeout_s=_GLUSTER_TIMEOUT_S)))
        return None if completed is None else version_in(completed.stdout)

    async def _status(self, *words: str) -> Element:
        # It takes the cluster's lock: two at a time would only force each other to retry.
        async with self._asking_status:
            return await self.ask("status", self.volume, *words)

    async def state_for_bricks(self, state: VolumeState | None = None) -> VolumeState:
        """As `state`, or the given one, with peers and pending heals, which decide whether a brick may be read
        directly. Raises ToolFailed.
        """
        asking = asyncio.ensure_future(self._ask_gluster("pool", "list"))
        try:
            if state is None:
                state = await self.state()
            peers_down = xml.parse_peers_down(await asking)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        heals: tuple[BrickHeal, ...] = ()
        if state.started and (state.replica_count > 1 or state.disperse_count > 0):
            heals = xml.parse_heals(await self.ask("heal", self.volume, "info", "summary"))
        return replace(state, peers_down=peers_down, heals=heals)

    async def quotas(self) -> Sequence[tuple[bytes, int]]:
        """Directories with their limits in bytes; none if quotas are off. Raises ToolFailed."""
        try:
            return xml.parse_quotas(await self.ask("quota", self.volume, "list"))
        except xml.GlusterFailed as error:
            if xml.is_quota_disabled(error):
                return ()
            raise

    async def option(self, name: str) -> str:
        """The effective value of an option, set or not. Raises ToolFailed, also if there is no such option."""
        answer = await self.ask("get", self.volume, name)
        value = answer.findtext("volGetopts/Opt/Value")
        if not value:
            raise ToolFailed(f"gluster's answer lacks the option {name}")
        return value.removesuffix(" (DEFAULT)")

    async def ask(self, *words: str) -> Element:
        """One `gluster volume ...`, retried while another command holds the cluster's lock. Raises GlusterFailed if
        gluster reports a failure, otherwise ToolFailed.
        """
        return await self._ask_gluster("volume", *words)

    async def heal(self) -> None:
        """`gluster volume heal VOLUME`, which never answers in XML. Raises ToolFailed unless the text reports success:
        exit codes are not reliable (other failures also had 0).
        """
        completed = await self._run(("volume", "heal", self.volume))
        if b"has been successful" not in completed.stdout:
            printed = " ".join((completed.stdout + completed.stderr).decode("utf-8", "backslashreplace").split())
            raise ToolFailed(
                f"gluster failed: {printed[:300] or 'it printed nothing'}",
                cause="a brick or a self-heal daemon is not up",
                hint="look at `gluster volume status`",
            )

    async def _ask_gluster(self, *words: str) -> Element:
        for attempt in range(_TRIES):
            try:
                return await self._answer(words)
            except xml.GlusterBusy:
                if attempt + 1 == _TRIES:
                    raise
                await self._clock.sleep(_PAUSE_S * (attempt + 1))
        raise AssertionError("unreachable")

    async def _answer(self, words: tuple[str, ...]) -> Element:
        printed = None if self._shell is None else await self._shell.ask(words)
        if printed is not None:
            return xml.parse_answer(printed)
        completed = await self._run(words)
        return xml.parse_answer(completed.stdout, completed.stderr)

    async def _run(self, words: tuple[str, ...]) -> Completed:
        """Run a separate command. Raises ToolFailed after a timeout."""
        argv = tuple(os.fsencode(word) for word in (self._gluster, "--mode=script", "--xml", *words))
        completed = await self._processes.run(Command(argv=argv, timeout_s=_GLUSTER_TIMEOUT_S))
        if completed.timed_out:
            raise ToolFailed(
                f"gluster {' '.join(words)} did not answer within {_GLUSTER_TIMEOUT_S:.0f} s",
                cause="glusterd hangs, or waits for a host that does not answer",
                hint="look at `gluster pool list` and at glusterd's log",
            )
        return completed


_MARKS = 0o3000
_SHIELDED = (
    "files have shields (docs/bricks.md, Default ACLs): `migrator brick drain` or `brick add`, given again, or "
    "`migrator brick stop` after a drain removes them, once Gluster moves no files"
)


class GlusterSource(ReadingFileSystem):
    """The `SourceFileSystem` port over a Gluster mount.

    With one distribute brick down, the mount shows fewer files and no error. So only `health` before and after a pass
    proves that the pass read all files. While the directory `shields` has lists of shielded files, files do not have
    the ACLs that their users gave them.
    """

    def __init__(self, root: bytes, commands: GlusterCommands, *, shields: Path | None = None) -> None:
        super().__init__(root)
        self._shields = shields
        self.commands = commands
        """Also the commands that change the volume."""
        self.state_for_bricks, self.quotas = commands.state_for_bricks, commands.quotas
        self._distributed = True

    def begin(self) -> None:
        """Prepare for questions about the volume, in the running event loop. May be called again."""
        self.commands.begin()

    def close(self) -> None:
        """End the shell and release the root. May be called again."""
        self.commands.close()
        super().close()

    def look(self, path: bytes) -> Entry | None:
        """As the port."""
        entry = super().look(path)
        return None if entry is None else self._as_looked_up(entry)

    def read_directory(self, path: bytes, *, block_entries: int = 4096) -> Iterator[Block]:
        """As the port."""
        for block in super().read_directory(path, block_entries=block_entries):
            yield replace(block, entries=tuple(map(self._as_looked_up, block.entries)))

    def walked(self) -> WalkedRoot:
        """As the port."""
        return replace(super().walked(), hides_marks=self._distributed)

    def _as_looked_up(self, entry: Entry) -> Entry:
        """The entry with its mode after a look-up: for a file with both setgid and sticky, the mount of several
        subvolumes shows them for a second after a listing, and otherwise never (GlusterFS 10.3).
        """
        hides = self._distributed and entry.type is EntryType.FILE and entry.mode & _MARKS == _MARKS
        return replace(entry, mode=entry.mode & ~_MARKS) if hides else entry

    async def health(self) -> SourceHealth:
        """As the port: the bricks as reported by glusterd and by this mount's client."""
        identity = await self.identity_in_time()
        if isinstance(identity, str):
            return SourceHealth(problems=(identity,), fingerprint="")
        try:
            state = await self.commands.state()
        except MigratorError as error:
            return SourceHealth(problems=(f"the volume's state is unknown: {error.message}",), fingerprint="")
        self._distributed = brick_rules(state).distributed
        problems = list(volume_problems(state))
        wrong_volume = wrong_volume_problem(identity, self.commands.volume)
        if wrong_volume is not None:
            problems.append(wrong_volume)
        else:
            try:
                connected = await asyncio.wait_for(asyncio.to_thread(connections, self.root), ANSWER_TIMEOUT_S)
                problems += connection_problems(state.bricks, connected)
            except TimeoutError:
                problems.append("the mount did not report in time which bricks its client is connected to")
            except OSError as error:
                problems.append(f"the mount does not report which bricks its client is connected to: {error.strerror}")
        shielded = self._shields is not None and any(self._shields.glob("*"))
        return VolumeHealth(
            problems=tuple(problems),
            fingerprint=volume_fingerprint(state),
            doubts=(_SHIELDED,) if shielded else (),
            state=state,
        )

    async def overview(self) -> VolumeOverview:
        """The volume for `brick list`. Raises ToolFailed if the volume is unknown."""
        version = asyncio.ensure_future(self.commands.version())
        try:
            state, tasks = await self.commands.state_and_tasks()
            state = await self.commands.state_for_bricks(state)
            rooms = await self.commands.rooms() if state.started else {}
            unfinished = [task for task in tasks if task.unfinished]
            # The task is listed without its counters, too.
            progress = {task.id: await result_or_none(self.commands.progress(task)) for task in unfinished}
            return VolumeOverview(
                state=state, version=await version, rooms=rooms, tasks=tuple(unfinished), progress=progress
            )
        finally:
            version.cancel()
            await asyncio.gather(version, return_exceptions=True)
