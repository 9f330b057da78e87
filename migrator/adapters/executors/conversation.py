"""A program that stays and answers questions: what asks glusterd again and again need not start anew for each."""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress

from migrator.adapters.executors.process import Child, ready
from migrator.ports.processes import Command, ConversationOver

_READ_BYTES = 1 << 16
_LIMIT_BYTES = 64 << 20


class LocalConversation:
    """The `Conversation` port with a process of this machine."""

    def __init__(self, command: Command) -> None:
        """Raises ToolFailed where it cannot be started."""
        self._child = Child(command, open_input=True)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._child.stderr, self._drain)
        self._asking = asyncio.Lock()
        self._over = False

    @property
    def pid(self) -> int:
        """The program's."""
        return self._child.identity.pid

    async def ask(self, question: bytes, *, until: Callable[[bytes], bool], timeout_s: float) -> bytes:
        """See the port."""
        async with self._asking:
            if self._over:
                raise ConversationOver("it was ended")
            answered = False
            try:
                async with asyncio.timeout(timeout_s):
                    answer = await self._answer(question, until)
                answered = True
            except TimeoutError:
                raise ConversationOver(f"no answer within {timeout_s:.0f} s") from None
            finally:
                if not answered:
                    self.end()
            return answer

    def end(self) -> None:
        """See the port: KILL, since it has nothing to put in order."""
        if self._over:
            return
        self._over = True
        self._loop.remove_reader(self._child.stderr)  # of a loop that is closed already it is none any more
        if not self._child.reap():
            with suppress(ProcessLookupError):
                os.killpg(self._child.identity.pid, signal.SIGKILL)
        self._child.close()

    async def _answer(self, question: bytes, until: Callable[[bytes], bool]) -> bytes:
        try:
            # What it said unasked belongs to no question.
            if (self._read(self._child.stdout) or b"").strip():
                raise ConversationOver("it spoke unasked")
            left = memoryview(question)
            while left:
                try:
                    left = left[os.write(self._child.stdin, left) :]
                except BlockingIOError:
                    await ready(self._child.stdin, writing=True)
            answer = bytearray()
            while not answer or not until(bytes(answer)):
                await ready(self._child.stdout, writing=False)
                piece = self._read(self._child.stdout)
                answer += piece or b""
                if piece == b"" or len(answer) > _LIMIT_BYTES:
                    raise ConversationOver("the program ended" if piece == b"" else "it does not stop speaking")
            return bytes(answer)
        except OSError as error:
            raise ConversationOver(f"it cannot be spoken to: {error.strerror}") from error

    def _drain(self) -> None:
        """What it says on standard error is of no use, but somebody has to read it, or it would wait for that."""
        if self._read(self._child.stderr) == b"":
            self._loop.remove_reader(self._child.stderr)

    @staticmethod
    def _read(fd: int) -> bytes | None:
        """What is there; None where nothing is, and b"" at its end."""
        try:
            return os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return None


class LocalConversations:
    """The `Conversations` port."""

    def begin(self, command: Command) -> LocalConversation:
        """See the port."""
        return LocalConversation(command)
