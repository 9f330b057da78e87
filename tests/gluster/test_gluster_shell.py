"""The gluster shell that stays: what counts as an answer, and when it is not asked."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.core.errors import ToolFailed
from migrator.gluster.volume import GlusterShell
from migrator.hosts.ports import Command, ConversationOver

RECORDED = Path(__file__).parents[1] / "fixtures" / "gluster"
ANSWER = (RECORDED / "volume-info-distribute.xml").read_bytes()
INFO = ("volume", "info", "vol1")


class Scripted:
    """Conversations whose answers are given: bytes, or an error."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = list(answers)
        self.begun = 0
        self.ended = 0
        self.asked: list[bytes] = []

    def begin(self, command: Command) -> "Scripted":
        assert command.argv == (b"gluster", b"--mode=script", b"--xml")
        self.begun += 1
        return self

    async def ask(self, question: bytes, *, until: Callable[[bytes], bool], timeout_s: float) -> bytes:
        assert timeout_s > 0
        self.asked.append(question)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        for size in range(1, len(answer)):
            # A piece of an answer must not pass for all of it, whatever the pipe cuts.
            if until(answer[:size]) and answer[:size].strip() != answer.strip():
                return answer[:size]
        assert until(answer)
        return answer

    def end(self) -> None:
        self.ended += 1


def ask(scripted: Scripted, *questions: tuple[str, ...]) -> list[bytes | None]:
    shell = GlusterShell(scripted.begin, "gluster")

    async def all_of_them() -> list[bytes | None]:
        return [await shell.ask(words) for words in questions]

    return asyncio.run(all_of_them())


@pytest.mark.parametrize(
    "words",
    [
        ("volume", "quota", "vol1", "list"),
        ("volume", "heal", "vol1", "info", "summary"),
        ("volume", "info", "vol1\nvolume stop vol1"),
        ("volume", "info", "a b"),
        ("volume", "info", ""),
    ],
)
def test_what_it_is_not_asked(words: tuple[str, ...]) -> None:
    scripted = Scripted()
    assert ask(scripted, words) == [None]
    assert scripted.begun == 0


@pytest.mark.parametrize(
    "said",
    [
        b"Connection failed. Please check if gluster daemon is operational.\n",
        b"unrecognized word: nosense (position 1)\n" + ANSWER,
        ConversationOver("no answer within 10 s"),
        ToolFailed("gluster could not be started"),
    ],
)
def test_an_answer_that_is_none_ends_the_shell_and_the_next_one_is_new(said: bytes | Exception) -> None:
    scripted = Scripted(said, ANSWER)
    assert ask(scripted, INFO, INFO) == [None, ANSWER]
    assert (scripted.begun, scripted.ended) == (2, 1)


def test_a_shell_that_fails_again_and_again_is_left_alone_for_a_while() -> None:
    scripted = Scripted(*[ConversationOver("it ended")] * 3, *[ANSWER] * 100)
    answers = ask(scripted, *[INFO] * 60)
    assert answers[:53] == [None] * 53
    assert answers[53:] == [ANSWER] * 7


def test_a_shell_has_a_bounded_life() -> None:
    scripted = Scripted(*[ANSWER] * 1001)
    assert None not in ask(scripted, *[INFO] * 1001)
    assert (scripted.begun, scripted.ended) == (2, 1)
