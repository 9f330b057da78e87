"""The run directory: a log of JSON lines, and the files of every attempt."""

import json
import logging
import os
import subprocess
from pathlib import Path

import pytest

from migrator.core.errors import MigratorError
from migrator.hosts.ports import Command
from migrator.operations.run_files import RunFiles
from tests.support.fakes import FakeLocks

HOSTILE = (
    b"plain",
    b"-rf",
    b"with space",
    b"new\nline",
    b"\xff\xfe",
    b"quote'\"$(reboot)`",
    "é\u202e".encode(),
    b"\\x41",
)


def test_the_argv_can_be_pasted_whatever_it_holds(tmp_path: Path) -> None:
    with RunFiles(tmp_path / "runs", FakeLocks()).open("run", 0.0) as directory:
        echo = Command(argv=(b"printf", b"%s\\0", *HOSTILE))
        directory.attempt(1, 1, echo).close(keep_list=True)
        cat = Command(argv=(b"cat",), stdin=b"\0".join(HOSTILE))
        directory.attempt(2, 2, cat).close(keep_list=True)
    attempts = Path(directory.path) / "attempts"
    said = [
        subprocess.run(["bash", os.fsencode(attempts / f"{stem}.argv")], capture_output=True, check=True).stdout
        for stem in ("chunk-000001-attempt-000001", "chunk-000002-attempt-000002")
    ]
    assert said == [b"\0".join(HOSTILE) + b"\0", b"\0".join(HOSTILE)]


def test_output_is_kept_and_the_list_only_where_it_helps(tmp_path: Path) -> None:
    with RunFiles(tmp_path, FakeLocks()).open("run", 0.0) as directory:
        kept, not_kept = (directory.attempt(chunk, 1, Command(argv=(b"x",), stdin=b"a\0")) for chunk in (1, 2))
        kept.stdout(b"out")
        kept.stderr(b"err\xff")
        kept.close(keep_list=True)
        not_kept.close(keep_list=False)
        not_kept.close(keep_list=False)
    attempts = Path(directory.path) / "attempts"
    assert (attempts / "chunk-000001-attempt-000001.stdout").read_bytes() == b"out"
    assert (attempts / "chunk-000001-attempt-000001.stderr").read_bytes() == b"err\xff"
    assert sorted(file.name for file in attempts.glob("*.list")) == ["chunk-000001-attempt-000001.list"]


def test_the_log_is_one_json_object_a_line(tmp_path: Path) -> None:
    log = logging.getLogger("migrator.test")
    with RunFiles(tmp_path, FakeLocks()).open("run", 0.0) as directory:
        log.info("path %s", "a\nb", extra={"tree": b"\xff\n", "batch": 1})
        try:
            int("two\nlines")
        except ValueError:
            log.exception("failed")
    log.error("after the end")
    lines = (Path(directory.path) / "log.jsonl").read_text("ascii").split("\n")
    assert lines.pop() == ""
    first, second = map(json.loads, lines)
    assert (first["message"], first["tree"], first["batch"]) == ("path a\nb", "\\xff\\x0a", 1)
    assert "two" in second["exception"]


def test_a_state_directory_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file is in the way")
    with (
        pytest.raises(MigratorError, match="cannot be written"),
        RunFiles(tmp_path / "runs", FakeLocks()).open("run", 0.0),
    ):
        pass
