"""Advice about single files."""

import errno

import pytest

from migrator.transfer.model import FileProblem, FileProblemKind
from migrator.transfer.rules import advice


@pytest.mark.parametrize(
    ("number", "part"),
    [(errno.EIO, "dmesg"), (errno.EACCES, "root"), (errno.ENAMETOOLONG, "rename"), (None, "log"), (9999, "log")],
)
def test_every_problem_has_a_next_step(number: int | None, part: str) -> None:
    problem = FileProblem(path=b"x", kind=FileProblemKind.BAD, errno=number, reason="r")
    assert part in advice(problem)
