"""Conversations with real programs."""

import asyncio
import os
import sys
import time

import pytest

from migrator.hosts.ports import Command, Conversation, ConversationOver
from migrator.hosts.process import LocalConversation

ECHO = """
import sys
for line in sys.stdin:
    word = line.strip()
    if word == "end":
        break
    if word == "large":
        word = "x" * 3_000_000
    if word == "errors":
        sys.stderr.write("e" * 300_000)
    if word == "silent":
        continue
    sys.stdout.write(word + "." + ("unasked" if word == "twice" else ""))
    sys.stdout.flush()
"""


def begin() -> LocalConversation:
    argv = tuple(os.fsencode(word) for word in (sys.executable, "-c", ECHO))
    return LocalConversation(Command(argv=argv))


async def ask(conversation: Conversation, word: str, timeout_s: float = 30.0) -> bytes:
    return await conversation.ask(
        word.encode() + b"\n", until=lambda said: said.rstrip(b"unasked").endswith(b"."), timeout_s=timeout_s
    )


def test_questions_and_answers_of_any_size() -> None:
    async def talk() -> None:
        conversation = begin()
        try:
            assert await ask(conversation, "one") == b"one."
            assert len(await ask(conversation, "large")) == 3_000_001
            assert await ask(conversation, "errors") == b"errors."
            assert await asyncio.gather(*(ask(conversation, word) for word in "abc")) == [b"a.", b"b.", b"c."]
        finally:
            conversation.end()
            conversation.end()

    asyncio.run(talk())


@pytest.mark.parametrize("word", ["end", "silent"])
def test_no_answer_ends_it(word: str) -> None:
    async def talk() -> None:
        conversation = begin()
        with pytest.raises(ConversationOver):
            await ask(conversation, word, timeout_s=0.5 if word == "silent" else 30.0)
        with pytest.raises(ConversationOver, match="it was ended"):
            await ask(conversation, "one")

    asyncio.run(talk())


def test_cancelling_a_question_ends_the_program() -> None:
    async def talk() -> int:
        conversation = begin()
        pid = conversation.pid
        asking = asyncio.ensure_future(ask(conversation, "silent"))
        await asyncio.sleep(0.1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        with pytest.raises(ConversationOver):
            await ask(conversation, "one")
        return pid

    pid = asyncio.run(talk())
    for _ in range(12000):
        if not os.path.exists(f"/proc/{pid}"):
            break
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{pid}")
