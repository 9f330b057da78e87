"""The `gluster` command as a shell that stays: it starts slowly and answers fast.

Every start of `gluster` runs a Python of its own to look for geo-replication (75 ms, GlusterFS 10.3); the shell of the
same command, which reads one command a line, answers `volume status` in 2 ms.
"""

import asyncio
import os
import re
from collections.abc import Sequence
from contextlib import suppress

from migrator.domain.errors import ToolFailed
from migrator.ports.processes import Command, Conversation, ConversationOver, Conversations

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
