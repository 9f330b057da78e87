"""Asking glusterd: what is asked, what is asked again, and what a failure becomes."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from migrator.core.errors import ToolFailed
from migrator.gluster.volume import GlusterCommands, GlusterSource
from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Command, Completed, OnOutput, OnStart

RECORDED = Path(__file__).parents[1] / "fixtures" / "gluster"


class Recorded:
    """Answers with recordings, in order, and keeps what was asked."""

    def __init__(self, *answers: str | Completed) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[bytes, ...]] = []

    async def run(self, command: Command) -> Completed:
        self.asked.append(command.argv)
        answer = self._answers.pop(0)
        if isinstance(answer, Completed):
            return answer
        # The exit code means nothing: real failures gave 0, 1, 2 and 234.
        return Completed(exit_code=0, stdout=(RECORDED / answer).read_bytes(), stderr=b"", timed_out=False)

    async def stream(
        self, command: Command, *, on_start: OnStart, on_stdout: OnOutput, on_stderr: OnOutput
    ) -> Completed:
        raise AssertionError("not asked for here")

    async def survivors(self, tokens: Sequence[str]) -> Mapping[str, tuple[ProcessIdentity, ...]]:
        raise AssertionError("not asked for here")

    async def end(self, token: str, *, grace_s: float) -> bool:
        raise AssertionError("not asked for here")


class NoWaiting:
    """A clock whose sleeps are over at once."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now_s(self) -> float:
        return 0.0

    def monotonic_s(self) -> float:
        return 0.0

    async def sleep(self, duration_s: float) -> None:
        self.slept.append(duration_s)


def commands(recorded: Recorded, *, volume: str = "vol1", clock: NoWaiting | None = None) -> GlusterCommands:
    return GlusterCommands(recorded, clock or NoWaiting(), volume=volume, gluster="/usr/sbin/gluster")


def test_the_state_is_made_of_two_answers() -> None:
    recorded = Recorded("volume-info-distribute.xml", "volume-status-removebrick-inprogress.xml")
    state = asyncio.run(commands(recorded).state())
    assert [brick.online for brick in state.bricks] == [True] * 6
    assert state.tasks == ("Remove brick (in progress) of 10.213.77.13:/srv/b2/data",)
    assert len(state.task_ids) == 1
    start = (b"/usr/sbin/gluster", b"--mode=script", b"--xml", b"volume")
    assert recorded.asked == [
        (*start, b"info", b"vol1"),
        (*start, b"status", b"vol1"),
    ]


def test_a_locked_cluster_is_asked_again() -> None:
    clock = NoWaiting()
    recorded = Recorded("volume-status-lock-conflict.xml", "volume-status-lock-conflict.xml", "quota-list.xml")
    assert len(asyncio.run(commands(recorded, clock=clock).quotas())) == 2
    assert len(recorded.asked) == 3
    assert len(clock.slept) == 2


def test_quotas_that_are_off_are_none() -> None:
    assert list(asyncio.run(commands(Recorded("quota-list-disabled.xml")).quotas())) == []


def test_a_heal_that_is_launched_or_refused_is_told_in_words_only() -> None:
    """GlusterFS 10.3, asked for XML: the exit codes were 0 and 1."""
    launched = (
        b"Launching heal operation to perform index self heal on volume vol1 has been successful \n"
        b"Use heal info commands to check status.\n"
    )
    recorded = Recorded(Completed(exit_code=0, stdout=launched, stderr=b"", timed_out=False))
    asyncio.run(commands(recorded).heal())
    assert recorded.asked[0][-3:] == (b"volume", b"heal", b"vol1")
    refused = (
        b"Launching heal operation to perform index self heal on volume vol1 has been unsuccessful:\n"
        b"Glusterd Syncop Mgmt brick op 'Heal' failed. Please check glustershd log file for details.\n"
    )
    for exit_code, stdout, stderr in ((1, refused, b""), (1, b"", refused), (0, b"", b"")):
        recorded = Recorded(Completed(exit_code=exit_code, stdout=stdout, stderr=stderr, timed_out=False))
        with pytest.raises(ToolFailed, match=r"has been unsuccessful|nothing at all"):
            asyncio.run(commands(recorded).heal())


@pytest.mark.parametrize("answer", ["volume-info-glusterd-down.xml", "volume-nosuch.xml"])
def test_a_look_that_fails_is_a_problem_and_no_error(tmp_path: Path, answer: str) -> None:
    source = GlusterSource(bytes(tmp_path), commands(Recorded(answer)))
    health = asyncio.run(source.health())
    assert health.state is None
    assert "not known" in health.problems[0]


def test_a_healthy_volume_says_nothing_about_a_directory_that_is_no_mount_of_it(tmp_path: Path) -> None:
    recorded = Recorded("volume-info-distribute.xml", "volume-status.xml")
    source = GlusterSource(bytes(tmp_path), commands(recorded))
    (problem,) = asyncio.run(source.health()).problems
    assert "is not a mount of volume vol1" in problem


def test_a_root_that_is_missing_is_a_problem(tmp_path: Path) -> None:
    source = GlusterSource(bytes(tmp_path / "missing"), commands(Recorded()))
    assert "cannot be read" in asyncio.run(source.health()).problems[0]
