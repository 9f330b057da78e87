"""All that `brick list` asks glusterd."""

import asyncio
from pathlib import Path

import pytest

from migrator.core.errors import ToolFailed
from migrator.gluster.model import TaskKind
from migrator.gluster.volume import GlusterCommands, GlusterSource, VolumeOverview
from migrator.hosts.ports import Command, Completed
from tests.hosts.test_gluster_commands import RECORDED, NoWaiting, Recorded

DRAINED = "10.213.77.13:/srv/b2/data"
QUIET = {
    "volume info vol1": "volume-info-distribute.xml",
    "volume status vol1": "volume-status.xml",
    "volume status vol1 detail": "volume-status-detail.xml",
    "pool list": "pool-list.xml",
    "--version": "version.txt",
}
DRAINING = {**QUIET, "volume status vol1": "volume-status-removebrick-inprogress.xml"}


class Answering(Recorded):
    """Answers each question with its recording, in whatever order they come; what has none does not answer."""

    def __init__(self, answers: dict[str, str]) -> None:
        super().__init__()
        self._by_question = answers

    async def run(self, command: Command) -> Completed:
        self.asked.append(command.argv)
        question = " ".join(word.decode() for word in command.argv[1:] if not word.startswith((b"--mode", b"--xml")))
        name = self._by_question.get(question)
        if name is None:
            return Completed(exit_code=-9, stdout=b"", stderr=b"", timed_out=True)
        return Completed(exit_code=0, stdout=(RECORDED / name).read_bytes(), stderr=b"", timed_out=False)


def overview(tmp_path: Path, answers: dict[str, str], volume: str = "vol1") -> VolumeOverview:
    commands = GlusterCommands(Answering(answers), NoWaiting(), volume=volume)
    return asyncio.run(GlusterSource(bytes(tmp_path), commands).overview())


def test_a_drain_comes_with_its_counters(tmp_path: Path) -> None:
    question = f"volume remove-brick vol1 {DRAINED} status"
    found = overview(tmp_path, {**DRAINING, question: "remove-brick-status-inprogress-later.xml"})
    (task,) = found.tasks
    assert (task.kind, task.bricks) == (TaskKind.REMOVE_BRICK, (DRAINED,))
    progress = found.progress[task.id]
    assert progress is not None
    assert progress.files == 5715


@pytest.mark.parametrize("answer", [None, "remove-brick-status-never.xml", "remove-brick-status-other-brick-down.xml"])
def test_counters_that_are_not_told_or_of_another_task_are_not_known(tmp_path: Path, answer: str | None) -> None:
    """The third is an answer about a drain with another id."""
    question = {} if answer is None else {f"volume remove-brick vol1 {DRAINED} status": answer}
    found = overview(tmp_path, {**DRAINING, **question})
    (task,) = found.tasks
    assert found.progress == {task.id: None}


def test_a_volume_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="did not answer"):
        overview(tmp_path, {"--version": "version.txt"})
    with pytest.raises(ToolFailed, match="does not exist"):
        overview(tmp_path, {**QUIET, "volume info vol1": "volume-nosuch.xml"})
