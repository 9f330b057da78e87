"""Asking a mounted file system by its own command: room, and whether everything in it can be read now."""

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable, Sequence
from pathlib import PurePath

from msgspec.structs import replace

from migrator.core.errors import MigratorError, ToolFailed
from migrator.core.paths import show
from migrator.fs.beneath import read_mounts
from migrator.fs.kinds.model import FileSystemKind, FileSystemReport, Malformed, MountedDirectory, Question
from migrator.fs.model import Capacity, mount_of
from migrator.hosts.connection import own_environment
from migrator.hosts.ports import Command, Processes
from migrator.hosts.process import BASE_ENVIRONMENT

SEARCH_PATH = f"{BASE_ENVIRONMENT['PATH']}:/usr/lpp/mmfs/bin:/opt/hadoop/bin:/usr/local/hadoop/bin"
"""With the directories of IBM Storage Scale and of Hadoop."""
TIMEOUT_S = 20.0
_ASK_BY_HAND = 'run it by hand as root; `kind = "posix"` disables it'


class FileSystemCommand:
    """The questions of one kind, for the file system at `root`. `also` asks for more problems of the whole file system."""

    def __init__(
        self,
        kind: FileSystemKind,
        root: bytes,
        processes: Processes,
        *,
        also: Callable[[], Awaitable[tuple[str, ...]]] | None = None,
        path: str = SEARCH_PATH,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self.kind = kind
        self._root, self._processes, self._also, self._path, self._timeout_s = root, processes, also, path, timeout_s

    async def ask(self, question: Question) -> FileSystemReport:
        """One answer. Raises ToolFailed with the command that is missing, fails, hangs, or answers in another form."""
        place = await self._place()
        outputs = [
            await self._output(words(place), may_fail=question.last_may_fail and words is question.commands[-1])
            for words in question.commands
        ]
        try:
            return question.parse(outputs, place)
        except Malformed as error:
            shown = " and ".join(dict.fromkeys(_shown(words(place)) for words in question.commands))
            raise ToolFailed(
                f"{shown}: cannot parse its output: {error}",
                cause="its version is unsupported, or its output is incomplete",
                hint=_ASK_BY_HAND,
            ) from None

    async def state(self) -> FileSystemReport:
        """What is missing now. That the command cannot tell is a doubt, not an error."""
        problems = await self._also() if self._also is not None else ()
        if self.kind.health is None:
            return FileSystemReport(problems=problems)
        try:
            answer = await self.ask(self.kind.health)
        except ToolFailed as error:
            answer = FileSystemReport(
                doubts=(f"{self.kind.title} may not show all files: its state is unknown: {error.message}",)
            )
        return replace(answer, problems=(*answer.problems, *problems))

    async def missing(self) -> tuple[str, ...]:
        """Problems and doubts of `state`: why nothing may be deleted by what is seen there."""
        answer = await self.state()
        return (*answer.problems, *answer.doubts)

    async def room_of(self, shown: Capacity) -> Capacity:
        """The room of new files by the command, never more than statfs has `shown`. Raises ToolFailed."""
        reported = None if self.kind.room is None else (await self.ask(self.kind.room)).room
        if reported is None:
            return shown
        by_statfs = (shown.total_inodes, shown.free_inodes) if self.kind.statfs_inodes else (None, None)
        free_inodes = [one for one in (reported.free_inodes, by_statfs[1]) if one is not None]
        return replace(
            reported,
            free_bytes=min(reported.free_bytes, shown.free_bytes),
            total_inodes=by_statfs[0] if reported.total_inodes is None else reported.total_inodes,
            free_inodes=min(free_inodes, default=None),
            read_only=shown.read_only,
        )

    def room(self, shown: Capacity) -> Capacity:
        """As `room_of`, and that of statfs if the command does not report it. Blocks; not on a thread with an event loop."""
        try:
            return shown if self.kind.room is None else asyncio.run(self.room_of(shown))
        except ToolFailed:
            return shown

    async def _place(self) -> MountedDirectory:
        def find() -> MountedDirectory | None:
            root = os.path.realpath(self._root)
            mount = mount_of(read_mounts(), root)
            if mount is None or not self.kind.matches(mount.filesystem, os.fsdecode(mount.source)):
                return None
            return MountedDirectory(point=mount.point, mounted_from=mount.source, root=root)

        try:
            place = await asyncio.wait_for(asyncio.to_thread(find), self._timeout_s)
        except TimeoutError:
            raise ToolFailed(f"{show(self._root)} does not answer") from None
        if place is None:
            raise ToolFailed(f"no {self.kind.title} file system is mounted at {show(self._root)}")
        return place

    async def _output(self, argv: Sequence[str | bytes], *, may_fail: bool) -> bytes:
        shown = _shown(argv)
        program = shutil.which(os.fsdecode(argv[0]), path=self._path)
        if program is None:
            raise ToolFailed(f"{shown}: this command is not installed on this machine", hint=_ASK_BY_HAND)
        command = Command(
            argv=(os.fsencode(program), *(os.fsencode(word) for word in argv[1:])),
            environment={"PATH": self._path, **own_environment(("HOME", *self.kind.environment))},
            timeout_s=self._timeout_s,
        )
        try:
            answer = await self._processes.run(command)
        except MigratorError as error:
            raise ToolFailed(f"{shown}: {error.message}", hint=_ASK_BY_HAND) from error
        if answer.failure and (answer.timed_out or not may_fail):
            raise ToolFailed(f"{shown}: {answer.failure}", hint=_ASK_BY_HAND)
        return b"" if answer.failure else answer.stdout


def _shown(argv: Sequence[str | bytes]) -> str:
    words = [PurePath(os.fsdecode(argv[0])).name, *(show(os.fsencode(word)) for word in argv[1:])]
    return f"`{' '.join(words)}`"
