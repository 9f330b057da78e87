"""A Gluster volume read through its FUSE mount, and glusterd asked through one `gluster` shell."""

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, assert_never
from xml.etree.ElementTree import Element

from migrator.bricks.drain.model import BrickContent
from migrator.bricks.model import BrickRoom, BrickUse
from migrator.core.clock import Clock
from migrator.core.errors import MigratorError, ToolFailed
from migrator.fs.beneath import Root
from migrator.fs.reading import ANSWER_TIMEOUT_S, ReadingFileSystem
from migrator.gluster.model import Brick, BrickHeal, SourceHealth, TaskKind, TaskProgress, VolumeState, VolumeTask
from migrator.gluster.rules import volume_fingerprint, volume_problems, wrong_volume_problem
from migrator.gluster.xml import (
    GlusterBusy,
    GlusterFailed,
    is_not_started,
    is_quota_disabled,
    parse_answer,
    parse_heals,
    parse_online,
    parse_peers_down,
    parse_progress,
    parse_quotas,
    parse_rooms,
    parse_task_id,
    parse_task_ids,
    parse_tasks,
    parse_volume_info,
    parse_volume_tasks,
    with_status,
)
from migrator.hosts.ports import Command, Completed, Conversation, ConversationOver, Conversations, Processes

# ---
# A Gluster volume as `brick list` asks for it, and what a catalog knows of its bricks.


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeOverview:
    """One look at the volume. `tasks` are those that move files or wait for a commit, `progress` their counters by id (None
    where glusterd does not tell them); `rooms` by brick name. `version` is that of the host that answered.
    """

    state: VolumeState
    version: str | None
    rooms: Mapping[str, BrickRoom]
    tasks: tuple[VolumeTask, ...]
    progress: Mapping[str, TaskProgress | None]


class VolumeLook(Protocol):
    """Asks glusterd. Changes nothing."""

    async def overview(self) -> VolumeOverview:
        """Everything at once. Raises ToolFailed where the volume is not known or glusterd does not answer."""


class VolumeCommands(Protocol):
    """What every change of bricks asks glusterd, and has it do. All raise ToolFailed; a change whose answer is lost may have been
    made.
    """

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        """The volume with its peers and heals, and every task that is listed."""

    async def rooms(self) -> Mapping[str, BrickRoom]:
        """By brick name the file system that it lies on."""

    async def option(self, name: str) -> str:
        """An option as it is in effect, set or not."""

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        """The counters of a task that is listed; None where there is none of its kind any more."""

    async def fix_layout(self) -> str:
        """Begin to put the layout of all directories right; returns the id of the task."""

    async def set_option(self, name: str, value: str | None) -> None:
        """Set an option of the volume, or (None) let its default hold again. May be called again."""


class DrainCommands(VolumeCommands, Protocol):
    """What a drain asks besides, and has glusterd do."""

    async def start(self, bricks: Sequence[str]) -> str:
        """Begin to drain bricks; returns the id of the task."""

    async def stop(self, bricks: Sequence[str]) -> TaskProgress:
        """Take a drain back; returns its last counters, which nothing else tells afterwards."""

    async def commit(self, bricks: Sequence[str]) -> None:
        """Take drained bricks out of the volume. Never by force."""


class BrickUsage(Protocol):
    """What catalogs know of bricks; out of core."""

    def uses(self, catalog: str) -> Mapping[str | None, tuple[BrickUse, ...]]:
        """By brick what each user has there, with most bytes first; under None what was read through the mount. A brick
        that was read and holds nothing has an empty tuple. Raises UsageError where there is no such catalog, Refused
        where it is half written or damaged.
        """


class BrickContents(Protocol):
    """What catalogs know of bricks that are to be drained; out of core."""

    def content(self, catalog: str, bricks: Sequence[str]) -> BrickContent | None:
        """What these bricks held when they were scanned; None where the catalog was not made from any of them. Raises
        UsageError where there is no such catalog, Refused where it is half written or damaged.
        """


# ---
# Which bricks the client process behind a FUSE mount is connected to, from the mount's own `.meta` directory.
#
# glusterd can see every brick up while this machine's client has lost one: the mount then shows fewer files, and no error.
# `.meta` is answered by the client itself (the meta translator, in every client since GlusterFS 3.6) and is not listed.


_GRAPHS = b".meta/graphs"
_CLIENT = re.compile(rb".+-client-\d+")
_READ_BYTES = 65536


def connections(root: bytes) -> dict[str, bool]:
    """By brick name whether the mount's client is connected to it. Raises OSError where the mount does not tell."""
    found: dict[str, bool] = {}
    with Root(root) as opened:
        with opened.directory(_GRAPHS) as fd:
            # The graph in use is named by a symlink; older ones stay listed until nothing uses them.
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
    """Sentences for the bricks of the volume that this mount's client does not reach."""
    return tuple(
        f"this mount's client is not connected to brick {brick.name}: it silently shows fewer files"
        if brick.name in connected
        else f"this mount's client does not know brick {brick.name}: mount the volume anew"
        for brick in bricks
        if not connected.get(brick.name, False)
    )


def _read(root: Root, path: bytes) -> bytes:
    fd = root.open(path, os.O_RDONLY)
    try:
        return os.read(fd, _READ_BYTES)
    finally:
        os.close(fd)


# ---
# The `gluster` command as a shell that stays: it starts slowly and answers fast.
#
# Every start of `gluster` runs a Python of its own to look for geo-replication (75 ms, GlusterFS 10.3); the shell of the
# same command, which reads one command a line, answers `volume status` in 2 ms.


_TIMEOUT_S = 10.0
"""For one answer; a command of its own, which has more time, is asked then."""

_QUESTIONS = 1000
"""A shell's whole life: it was not made to run for weeks."""

_FAILURES = 3
_PAUSE_QUESTIONS = 50
"""So many failures in a row, and so many questions are asked without a shell before the next try."""

_KINDS = frozenset({("volume", "info"), ("volume", "status"), ("pool", "list")})
"""What the shell is asked: these print one document, from glusterd itself."""

_WORD = re.compile(r"[A-Za-z0-9_.-]+")
_BEGIN, _END = b"<?xml", b"</cliOutput>"


class GlusterShell:
    """One shell at a time, begun when it is first needed. `gluster` is the command."""

    def __init__(self, conversations: Conversations, gluster: str) -> None:
        self._conversations = conversations
        self._argv = (os.fsencode(gluster), b"--mode=script", b"--xml")
        self._conversation: Conversation | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = 0
        self._failures = 0
        self._pause = 0

    def begin(self) -> None:
        """Begin it ahead of the first question, in the running event loop: it is some time until it answers."""
        with suppress(ToolFailed):
            self._begun()

    async def ask(self, words: Sequence[str]) -> bytes | None:
        """The XML of one answer; None where it has to be asked by a command of its own."""
        if tuple(words[:2]) not in _KINDS or not all(map(_WORD.fullmatch, words)):
            return None
        if self._pause:
            self._pause -= 1
            return None
        try:
            conversation = self._begun()
            said = await conversation.ask(" ".join(words).encode() + b"\n", until=_is_over, timeout_s=_TIMEOUT_S)
        except (ConversationOver, ToolFailed):
            said = b""
        if _is_answer(said):
            self._failures = 0
            return said
        self.close()
        self._failures += 1
        if self._failures >= _FAILURES:
            self._failures, self._pause = 0, _PAUSE_QUESTIONS
        return None

    def close(self) -> None:
        """End the shell; the next question begins another. May be called again."""
        if self._conversation is not None:
            self._conversation.end()
            self._conversation = None

    def _begun(self) -> Conversation:
        loop = asyncio.get_running_loop()
        if self._conversation is not None and (self._asked >= _QUESTIONS or self._loop is not loop):
            self.close()
        if self._conversation is None:
            self._conversation = self._conversations.begin(Command(argv=self._argv))
            self._loop, self._asked = loop, 0
        self._asked += 1
        return self._conversation


def _is_over(said: bytes) -> bool:
    """A whole document was said; or something that is no document, after which none is to be waited for."""
    text = said.strip()
    return text.endswith(_END) or not (text.startswith(_BEGIN) or _BEGIN.startswith(text))


def _is_answer(said: bytes) -> bool:
    text = said.strip()
    return text.startswith(_BEGIN) and text.endswith(_END) and text.count(_BEGIN) == 1


# ---
# A Gluster volume, read through its FUSE mount, with the health of its bricks.


_TRIES = 8
_PAUSE_S = 0.5
_VERSION = re.compile(rb"glusterfs (\d+(?:\.\d+)+)")
_GLUSTER_TIMEOUT_S = 120.0
"""glusterd itself gives up waiting for a peer after two minutes at most."""


class GlusterCommands:
    """Questions to glusterd about one volume. `gluster` is the command: a path, or a name on PATH.

    With `conversations` one command stays and answers what is asked often; whatever it does not answer well is asked
    again by a command of its own.
    """

    def __init__(
        self,
        processes: Processes,
        clock: Clock,
        *,
        volume: str,
        gluster: str = "gluster",
        conversations: Conversations | None = None,
    ) -> None:
        self._processes = processes
        self._shell = None if conversations is None else GlusterShell(conversations, gluster)
        self._clock = clock
        self._volume = volume
        self._gluster = gluster
        self._asking_status = asyncio.Lock()

    def begin(self) -> None:
        """Glusterd will be asked soon: begin what asks it, in the running event loop."""
        if self._shell is not None:
            self._shell.begin()

    def close(self) -> None:
        """Let go of the command that stays. May be called again."""
        if self._shell is not None:
            self._shell.close()

    async def state(self) -> VolumeState:
        """Bricks, options, tasks, and which bricks are up. Raises ToolFailed where a question has no answer.

        The plain status tells of bricks and of tasks at once, in less time than `tasks` alone needs (GlusterFS 10.3).
        """
        return (await self.state_and_tasks())[0]

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        """As `state`, with every task that is listed, ended ones too; none of a volume that is not started."""
        state = parse_volume_info(await self._ask("info", self._volume), self._volume)
        if not state.started:
            return state, ()
        status = await self._status()
        whole = with_status(
            state,
            parse_online(status, self._volume),
            parse_tasks(status, self._volume),
            task_ids=parse_task_ids(status, self._volume),
        )
        return whole, parse_volume_tasks(status, self._volume)

    async def rooms(self) -> Mapping[str, BrickRoom]:
        """By brick name the file system that it lies on; bricks of hosts whose glusterd is down are left out. Raises
        ToolFailed, also where the volume is not started.
        """
        return parse_rooms(await self._status("detail"), self._volume)

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        """The counters of a task that is listed; None where there is none of its kind any more. Raises ToolFailed."""
        match task.kind:
            case TaskKind.REMOVE_BRICK:
                words: tuple[str, ...] = ("remove-brick", self._volume, *task.bricks, "status")
            case TaskKind.REBALANCE:
                words = ("rebalance", self._volume, "status")
            case TaskKind.OTHER:
                return None
            case _:
                assert_never(task.kind)
        try:
            found = parse_progress(await self._ask(*words))
        except GlusterFailed as error:
            if is_not_started(error):
                return None
            raise
        return found if found.task_id == task.id else None

    async def version(self) -> str | None:
        """The version of GlusterFS on the host that answers, as in `10.3`; None where it does not tell. There is no XML
        of it.
        """
        argv = (os.fsencode(self._gluster), b"--version")
        try:
            completed = await self._processes.run(Command(argv=argv, timeout_s=_GLUSTER_TIMEOUT_S))
        except ToolFailed:
            return None
        found = _VERSION.match(completed.stdout)
        return None if found is None else found[1].decode("ascii")

    async def _status(self, *words: str) -> Element:
        # It takes the cluster's lock: two of our own at a time would only make one another wait and ask again.
        async with self._asking_status:
            return await self._ask("status", self._volume, *words)

    async def state_for_bricks(self, state: VolumeState | None = None) -> VolumeState:
        """As `state`, or that one, with the peers and with what waits to be healed: all that decides whether a brick
        may be read by itself. Raises ToolFailed where a question has no answer.
        """
        asking = asyncio.ensure_future(self._ask_gluster("pool", "list"))
        try:
            if state is None:
                state = await self.state()
            peers_down = parse_peers_down(await asking)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        heals: tuple[BrickHeal, ...] = ()
        if state.started and (state.replica_count > 1 or state.disperse_count > 0):
            heals = parse_heals(await self._ask("heal", self._volume, "info", "summary"))
        return replace(state, peers_down=peers_down, heals=heals)

    async def quotas(self) -> Sequence[tuple[bytes, int]]:
        """Directories with a limit in bytes; none where quotas are off. Raises ToolFailed."""
        try:
            return parse_quotas(await self._ask("quota", self._volume, "list"))
        except GlusterFailed as error:
            if is_quota_disabled(error):
                return ()
            raise

    async def option(self, name: str) -> str:
        """An option as it is in effect, set or not. Raises ToolFailed, also where there is no such option."""
        answer = await self.ask("get", self._volume, name)
        value = answer.findtext("volGetopts/Opt/Value")
        if not value:
            raise ToolFailed(f"gluster's answer does not tell the option {name}")
        return value.removesuffix(" (DEFAULT)")

    async def ask(self, *words: str) -> Element:
        """One `gluster volume ...`, tried again while another command holds the cluster's lock. Raises GlusterFailed where
        it was understood and failed, ToolFailed.
        """
        return await self._ask(*words)

    async def heal(self) -> None:
        """`gluster volume heal VOLUME`, which answers in words whatever is asked for. Raises ToolFailed where these are not that it
        was successful: its exit codes are not relied on (those of other failures were 0 as well).
        """
        completed = await self._run(("volume", "heal", self._volume))
        if b"has been successful" not in completed.stdout:
            said = " ".join((completed.stdout + completed.stderr).decode("utf-8", "backslashreplace").split())
            raise ToolFailed(
                f"gluster says: {said[:300] or 'nothing at all'}",
                cause="a brick or a self-heal daemon is not up",
                hint="look at `gluster volume status`",
            )

    async def _ask(self, *words: str) -> Element:
        """One `gluster volume ...`."""
        return await self._ask_gluster("volume", *words)

    async def _ask_gluster(self, *words: str) -> Element:
        """One question, tried again while another command holds the cluster's lock."""
        for attempt in range(_TRIES):
            try:
                return await self._answer(words)
            except GlusterBusy:
                if attempt + 1 == _TRIES:
                    raise
                await self._clock.sleep(_PAUSE_S * (attempt + 1))
        raise AssertionError("unreachable")

    async def _answer(self, words: tuple[str, ...]) -> Element:
        said = None if self._shell is None else await self._shell.ask(words)
        if said is not None:
            return parse_answer(said)
        completed = await self._run(words)
        return parse_answer(completed.stdout, completed.stderr)

    async def _run(self, words: tuple[str, ...]) -> Completed:
        """By a command of its own. Raises ToolFailed where it does not answer."""
        argv = tuple(os.fsencode(word) for word in (self._gluster, "--mode=script", "--xml", *words))
        completed = await self._processes.run(Command(argv=argv, timeout_s=_GLUSTER_TIMEOUT_S))
        if completed.timed_out:
            raise ToolFailed(
                f"gluster {' '.join(words)} did not answer within {_GLUSTER_TIMEOUT_S:.0f} s",
                cause="glusterd hangs, or waits for a host that does not answer",
                hint="look at `gluster pool list` and at glusterd's log",
            )
        return completed


class GlusterSource(ReadingFileSystem):
    """The `SourceFileSystem` port over a Gluster mount.

    With one distribute brick down the mount shows fewer files and no error, so only `health` before and after a pass
    says whether what was seen is all there is.
    """

    def __init__(self, root: bytes, commands: GlusterCommands, *, volume: str) -> None:
        super().__init__(root)
        self._commands = commands
        self._volume = volume

    @property
    def commands(self) -> GlusterCommands:
        """What asks glusterd."""
        return self._commands

    def begin(self) -> None:
        """The volume will be looked at soon: get ready for it, in the running event loop. May be called again."""
        self._commands.begin()

    def close(self) -> None:
        """Close what is open. May be called again."""
        self._commands.close()
        super().close()

    async def health(self) -> SourceHealth:
        """The bricks as glusterd sees them, and as this mount's client does. A look that fails is a problem."""
        try:
            identity = await asyncio.wait_for(asyncio.to_thread(self.identity), ANSWER_TIMEOUT_S)
        except TimeoutError:
            return SourceHealth(problems=("the source's root does not answer",), fingerprint="")
        except OSError as error:
            return SourceHealth(problems=(f"the source's root cannot be read: {error.strerror}",), fingerprint="")
        try:
            state = await self._commands.state()
        except MigratorError as error:
            return SourceHealth(problems=(f"the volume's state is not known: {error.message}",), fingerprint="")
        problems = list(volume_problems(state))
        wrong_volume = wrong_volume_problem(identity, self._volume)
        if wrong_volume is not None:
            problems.append(wrong_volume)
        else:
            try:
                connected = await asyncio.wait_for(asyncio.to_thread(connections, self.root), ANSWER_TIMEOUT_S)
                problems += connection_problems(state.bricks, connected)
            except TimeoutError:
                problems.append("the mount does not tell in time which bricks its client is connected to")
            except OSError as error:
                problems.append(f"the mount does not tell which bricks its client is connected to: {error.strerror}")
        return SourceHealth(problems=tuple(problems), fingerprint=volume_fingerprint(state), state=state)

    async def overview(self) -> VolumeOverview:
        """The volume with all that `brick list` tells of it. Raises ToolFailed where the volume is not known."""
        version = asyncio.ensure_future(self._commands.version())
        try:
            state, tasks = await self._commands.state_and_tasks()
            state = await self._commands.state_for_bricks(state)
            rooms = await self._commands.rooms() if state.started else {}
            unfinished = [task for task in tasks if task.unfinished]
            progress = {task.id: await self._progress(task) for task in unfinished}
            return VolumeOverview(
                state=state, version=await version, rooms=rooms, tasks=tuple(unfinished), progress=progress
            )
        finally:
            version.cancel()
            await asyncio.gather(version, return_exceptions=True)

    async def _progress(self, task: VolumeTask) -> TaskProgress | None:
        try:
            return await self._commands.progress(task)
        except ToolFailed:
            # What glusterd does not tell of a task is left open; the task is listed all the same.
            return None

    async def state_for_bricks(self, state: VolumeState | None = None) -> VolumeState:
        """The volume as whoever reads its bricks must know it. Raises ToolFailed."""
        return await self._commands.state_for_bricks(state)

    async def quotas(self) -> Sequence[tuple[bytes, int]]:
        """Directories with a limit in bytes; empty where quotas are off. Raises ToolFailed."""
        return await self._commands.quotas()


# ---
# What every change of a Gluster volume's bricks asks glusterd, and tells it to do.


class GlusterVolumeCommands:
    """The `VolumeCommands` port."""

    def __init__(self, commands: GlusterCommands, *, volume: str) -> None:
        self._commands = commands
        self._volume = volume

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        """The volume with its peers and heals, and every task that is listed. Raises ToolFailed."""
        state, tasks = await self._commands.state_and_tasks()
        return await self._commands.state_for_bricks(state), tasks

    async def rooms(self) -> Mapping[str, BrickRoom]:
        """By brick name the file system that it lies on. Raises ToolFailed."""
        return await self._commands.rooms()

    async def option(self, name: str) -> str:
        """An option as it is in effect. Raises ToolFailed, also where there is no such option."""
        return await self._commands.option(name)

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        """The counters of a task that is listed. Raises ToolFailed."""
        return await self._commands.progress(task)

    async def fix_layout(self) -> str:
        """`rebalance VOL fix-layout start`. Raises ToolFailed."""
        return parse_task_id(await self._commands.ask("rebalance", self._volume, "fix-layout", "start"))

    async def set_option(self, name: str, value: str | None) -> None:
        """`volume set`, or `volume reset`. Raises ToolFailed."""
        if value is None:
            await self._commands.ask("reset", self._volume, name)
        else:
            await self._commands.ask("set", self._volume, name, value)
