"""Asking BeeGFS's own command for its targets, by scripts in its place."""

import asyncio
from pathlib import Path

import pytest

from migrator.adapters.executors.process import LocalProcesses
from migrator.adapters.filesystems.storage_targets import BeegfsTargets

HEADER = "TargetID     Reachability  Consistency   NodeID\n========     ============  ===========   ======\n"


def program(directory: Path, name: str, wanted: str, answer: str, code: int = 0) -> None:
    file = directory / name
    file.write_text(f"#!/bin/sh\n[ \"$*\" = '{wanted}' ] || exit 9\ncat <<'END'\n{answer}END\nexit {code}\n")
    file.chmod(0o755)


def problems(directory: Path) -> tuple[str, ...]:
    return asyncio.run(BeegfsTargets(LocalProcesses(), path=f"{directory}:/usr/bin:/bin").problems())


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("beegfs", "target list --state"), ("beegfs-ctl", "--listtargets --nodetype=storage --state")],
)
def test_the_command_of_either_version_is_asked(tmp_path: Path, name: str, wanted: str) -> None:
    program(tmp_path, name, wanted, f"{HEADER}     101 Online Good 1\n")
    assert problems(tmp_path) == ()
    program(tmp_path, name, wanted, f"{HEADER}     101 Online Good 1\n     201 Offline Good 2\n")
    (problem,) = problems(tmp_path)
    assert "201" in problem


def test_an_answer_that_is_missing_counts_as_a_problem(tmp_path: Path) -> None:
    (nothing,) = problems(tmp_path)
    program(tmp_path, "beegfs", "target list --state", f"{HEADER}     101 Online Good 1\n", code=1)
    (failed,) = problems(tmp_path)
    assert "not known" in nothing
    assert "not known" in failed
