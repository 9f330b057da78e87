"""A Gluster volume, read through its FUSE mount, with the health of its bricks."""

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never
from xml.etree.ElementTree import Element

from migrator.adapters.filesystems.gluster_client import connection_problems, connections
from migrator.adapters.filesystems.gluster_shell import GlusterShell
from migrator.adapters.filesystems.gluster_tasks_xml import (
    is_not_started,
    parse_progress,
    parse_rooms,
    parse_volume_tasks,
)
from migrator.adapters.filesystems.gluster_xml import (
    GlusterBusy,
    GlusterFailed,
    is_quota_disabled,
    parse_answer,
    parse_heals,
    parse_online,
    parse_peers_down,
    parse_quotas,
    parse_task_ids,
    parse_tasks,
    parse_volume_info,
    with_status,
)
from migrator.adapters.filesystems.reading import ANSWER_TIMEOUT_S, ReadingFileSystem
from migrator.decide.volume_health import volume_fingerprint, volume_problems, wrong_volume_problem
from migrator.domain.brick import BrickHeal, SourceHealth, VolumeState
from migrator.domain.brick_list import BrickRoom
from migrator.domain.errors import MigratorError, ToolFailed
from migrator.domain.volume_tasks import TaskKind, TaskProgress, VolumeTask
from migrator.ports.clock import Clock
from migrator.ports.processes import Command, Completed, Conversations, Processes
from migrator.ports.volume import VolumeOverview

_TRIES = 8
_PAUSE_S = 0.5
_VERSION = re.compile(rb"glusterfs (\d+(?:\.\d+)+)")
_TIMEOUT_S = 120.0
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
            completed = await self._processes.run(Command(argv=argv, timeout_s=_TIMEOUT_S))
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
        completed = await self._processes.run(Command(argv=argv, timeout_s=_TIMEOUT_S))
        if completed.timed_out:
            raise ToolFailed(
                f"gluster {' '.join(words)} did not answer within {_TIMEOUT_S:.0f} s",
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
