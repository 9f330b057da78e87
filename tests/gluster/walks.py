"""Running a walker of bricks as its own process, and reading back what it writes."""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from migrator.catalog.walk_rows import decode_listings, decode_rows
from migrator.fs.model import ScanProblem
from migrator.gluster import walks
from tests.support.hand_brick import BRICK, DEVICE


@dataclass
class Walked:
    """What one walk wrote; `end` is None where it broke off."""

    exit_code: int
    stderr: str
    hello: walks.BrickHello | None = None
    rows: dict[bytes, dict[str, Any]] = field(default_factory=dict)
    failed: list[ScanProblem] = field(default_factory=list)
    ask: list[ScanProblem] = field(default_factory=list)
    strange: list[ScanProblem] = field(default_factory=list)
    marked: list[ScanProblem] = field(default_factory=list)
    listings: list[dict[str, Any]] = field(default_factory=list)
    findings: list[walks.WalkFinding] = field(default_factory=list)
    end: walks.BrickTotals | None = None
    blocks: list[int] = field(default_factory=list)


Walk = Callable[..., Walked]


def run_walk(
    program: Sequence[str],
    brick: Path,
    *,
    trees: Sequence[bytes] = (),
    times: str = "mdata",
    workers: int = 2,
    block_rows: int | None = None,
    wrapper: Sequence[str] = (),
    only_trees: bool = False,
    own: bool = False,
    distributed: bool = False,
    more: Sequence[str] = (),
    mount: bool = False,
) -> Walked:
    """Walk a brick, or a mounted file system, to its end; every path may come once only."""
    options = ["--mount", str(brick)] if mount else ["--brick", str(brick), "--times", times]
    options += ["--workers", str(workers)]
    options += [] if block_rows is None else ["--block-rows", str(block_rows)]
    options += ["--only-trees"] if only_trees else []
    options += ["--own"] if own else []
    options += ["--distributed"] if distributed else []
    options += more
    done = subprocess.run(
        [*wrapper, *program, "walk", *options],
        input=b"".join(tree + b"\0" for tree in trees),
        capture_output=True,
        check=False,
    )
    walked = Walked(exit_code=done.returncode, stderr=done.stderr.decode())
    reader = walks.WalkFrames()
    for kind, payload in reader.feed(done.stdout):
        assert walked.end is None, "the last frame is not the last one"
        match kind:
            case walks.FrameKind.HELLO:
                walked.hello = walks.decode_hello(payload)
            case walks.FrameKind.ROWS | walks.FrameKind.DIRECTORIES:
                batch = decode_rows(payload, trees=trees, brick=BRICK, dev=DEVICE)
                batch.validate(full=True)
                walked.blocks.append(batch.num_rows)
                for row in batch.to_pylist():
                    assert row["path"] not in walked.rows, row["path"]
                    assert (row["type"] == "directory") == (kind is walks.FrameKind.DIRECTORIES)
                    walked.rows[row["path"]] = row
            case walks.FrameKind.PROBLEMS:
                found = walks.decode_problems(payload)
                walked.failed += found.unreadable
                walked.ask += found.to_ask
                walked.strange += found.strange
                walked.marked += found.marked
            case walks.FrameKind.LISTINGS:
                walked.listings += decode_listings(payload, brick=BRICK).to_pylist()
            case walks.FrameKind.FINDINGS:
                walked.findings += walks.decode_findings(payload)
            case walks.FrameKind.END:
                walked.end = walks.decode_end(payload)
    reader.finish()
    return walked
