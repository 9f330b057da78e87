"""A verification by brick servers finds what one through the mounts finds, on a real volume with every odd file."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.support.cluster.brick_runs import BrickRuns, brick_runs, work_trees
from tests.support.cluster.fixtures import with_ssh
from tests.support.cluster.handle import LabHandle

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root]

READ_BY = ("read_by", "source_clock_ns", "target_clock_ns")


Found = tuple[list[dict[str, Any]], list[dict[str, Any]], str]


def verify(runs: BrickRuns, *words: str, via: str, code: int, by_copies: int = 0) -> Found:
    """The rows of all manifests and of their differences, and what was said. At least `by_copies` files count as read when
    they were copied.
    """
    settings = runs.site.file.read_text()
    runs.site.file.write_text(re.sub('via = "[a-z]+"', f'via = "{via}"', settings))
    done = runs.site.call("verify", "--all", "--json", *words)
    assert done.returncode == code, done.stderr
    rows: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    for record in json.loads(done.stdout):
        assert record["whole"], record["reasons"]
        table = pq.read_table(record["manifest"])
        clocks_ns = [clock for clock in table["source_clock_ns"].to_pylist() if clock is not None]
        by_copies -= sum(clock < record["started_at_s"] * 10**9 for clock in clocks_ns)
        rows += table.drop_columns(list(READ_BY)).to_pylist()
        differences += pq.read_table(Path(record["manifest"]).with_name("differences.parquet")).to_pylist()
    assert by_copies <= 0
    return rows, differences, done.stderr


def spoil(target: Path) -> None:
    """One difference of each kind that a copy can have."""
    tree = target / "work" / "ann"
    changed = tree / "one" / "big-1"
    facts = changed.stat()
    first = changed.read_bytes()[0]
    with changed.open("r+b") as stream:
        stream.write(bytes([first ^ 1]))
    os.utime(changed, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    (tree / "one" / "big-2").unlink()
    (tree / "one" / "extra").write_text("nobody's")
    os.truncate(tree / "one" / "big-3", 5)
    os.chown(tree / "one" / "big-4", 4711, 4712)
    (tree / "one" / "big-5").chmod(0o604)
    os.utime(tree / "one" / "big-6", ns=(0, 0))
    os.removexattr(tree / "one" / "small-1", "user.note")
    os.setxattr(tree / "one" / "small-2", "user.other", b"too much")
    (tree / "three" / "again").unlink()
    (tree / "three" / "again").write_bytes((tree / "one" / "big-1").read_bytes())


def test_hosts_and_mounts_find_the_same(lab: LabHandle, scratch: Path) -> None:
    with_ssh(lab)
    with work_trees(lab), brick_runs(lab, scratch / "site", trees="*/*") as runs:
        for words in (("scan",), ("plan", "--activate"), ("run", "--all", "--deltas", "0")):
            assert runs.site.call(*words).returncode == 0, words
        rows, _, said = verify(runs, "--reread", via="auto", code=0)
        digested = sum(row["digest"] is not None for row in rows)
        assert rows == verify(runs, via="auto", code=0, by_copies=digested * 3 // 4)[0]
        assert rows == verify(runs, via="mount", code=0)[0]
        assert "not from the bricks" not in said
        by_mounts = re.findall(r"([0-9,]+) files? of [0-9,]+ were read through the mounts", said)
        assert sum(map(int, by_mounts)) < digested / 4, said
        spoil(runs.site.target)
        rows, differences, _ = verify(runs, via="auto", code=3)
        assert (rows, differences) == verify(runs, via="mount", code=3)[:2]
        kinds = {"content", "missing", "extra", "size", "owner", "mode", "mtime", "xattr", "hard-links"}
        assert {row["kind"] for row in differences} == kinds
