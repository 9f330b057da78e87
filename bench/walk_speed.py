"""How many entries a second the walk finds on a brick: XFS with 512-byte inodes and Gluster's attributes, warm caches.

Per core means: of the processor time that the walk took, which other programs on the machine change little.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from migrator.core.units import GIB, NS_PER_S
from migrator.gluster.walks import FrameKind, FrameReader, decode_end
from migrator.native.program import native_program
from tests.support.hand_brick import HandBrick
from tests.support.xfs import missing_for_xfs, xfs

FILES_A_DIRECTORY = 200
TARGET_PER_CORE_S = 300_000


def fill(brick: HandBrick, entries: int) -> None:
    """Small files under names of common length, each with what Gluster keeps of it."""
    for directory in range(max(entries // FILES_A_DIRECTORY, 1)):
        path = brick.root / "home" / f"user-{directory % 40}" / f"directory-{directory}"
        path.mkdir(parents=True)
        fd = os.open(path, os.O_RDONLY)
        for number in range(FILES_A_DIRECTORY):
            os.close(os.open(f"result-{number:06}.dat", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=fd))
        os.close(fd)
    brick.adopt()


def timed(argv: Sequence[str]) -> tuple[int, float, float]:
    """Entries found, and seconds of processor and of wall."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_ns = time.monotonic_ns()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    wall_s = (time.monotonic_ns() - began_ns) / NS_PER_S
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    reader = FrameReader()
    ends = [decode_end(frame.payload) for frame in reader.feed(done.stdout) if frame.kind is FrameKind.END]
    reader.finish()
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ends[0].rows + ends[0].directories, cpu_s, wall_s


def measure(argv: Sequence[str], rounds: int) -> dict[str, float]:
    """Medians over some rounds, after one that fills the caches."""
    timed(argv)
    runs = [timed(argv) for _ in range(rounds)]
    per_core = [entries / max(cpu_s, 1e-9) for entries, cpu_s, _ in runs]
    return {
        "entries": runs[0][0],
        "entries_per_core_s": statistics.median(per_core),
        "entries_per_core_s_lowest": min(per_core),
        "entries_per_core_s_highest": max(per_core),
        "entries_per_s": statistics.median(entries / wall_s for entries, _, wall_s in runs),
    }


def main(argv: list[str]) -> int:
    """Fill, walk, print a table and with `--json` the figures; 1 where this machine cannot."""
    parser = argparse.ArgumentParser(prog="python -m bench walk-speed", description=__doc__)
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(argv)
    if reason := missing_for_xfs():
        print(f"walk-speed needs XFS on a loop device: {reason}", file=sys.stderr)
        return 1
    figures: dict[str, dict[str, float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="migrator-bench-") as scratch,
        xfs(Path(scratch), size_bytes=4 * GIB) as mounted,
    ):
        brick = HandBrick(root=mounted.path / "brick")
        brick.make_root()
        fill(brick, options.entries)
        program = os.fsdecode(native_program().path)
        for times in ("mdata", "file"):
            for workers in (1, len(os.sched_getaffinity(0))):
                words = ["walk", "--brick", str(brick.root), "--times", times, "--workers", str(workers)]
                key = f"native, times from {times}, {workers} worker{'s' if workers > 1 else ''}"
                figures[key] = measure([program, *words], options.rounds)
    if options.json:
        print(json.dumps({"target_entries_per_core_s": TARGET_PER_CORE_S, "walks": figures}, indent=2))
        return 0
    for key, row in figures.items():
        print(
            f"{key:42} {row['entries_per_core_s']:>10,.0f}/s a core "
            f"({row['entries_per_core_s_lowest']:,.0f} to {row['entries_per_core_s_highest']:,.0f}), "
            f"{row['entries_per_s']:>10,.0f}/s by the clock"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
