"""How many entries a second the walk finds on a brick: XFS with 512-byte inodes and Gluster's attributes, warm caches."""

import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.options import Options
from bench.results import Rate, Section
from bench.timing import ContestantFailed
from migrator.core.units import GIB, NS_PER_S
from migrator.gluster.walks import FrameKind, WalkFrames, decode_end
from migrator.native.program import native_program
from tests.support.hand_brick import HandBrick
from tests.support.xfs import missing_for_xfs, xfs

NAME = "walk-speed"
FILES_A_DIRECTORY = 200
TARGET_PER_CORE_S = 300_000
_TARGET_OF = "native, times from mdata, 1 worker"
_ENTRIES = 30_000


def walk_speed(options: Options) -> Section:
    """The walkers alone. Raises ContestantFailed where this machine cannot."""
    if reason := missing_for_xfs():
        raise ContestantFailed(f"it needs XFS on a loop device: {reason}")
    entries, rates, by_the_clock = options.count(_ENTRIES, 2_000), [], []
    with (
        tempfile.TemporaryDirectory(prefix="migrator-bench-") as scratch,
        xfs(Path(scratch), size_bytes=4 * GIB) as mounted,
    ):
        brick = HandBrick(root=mounted.path / "brick")
        brick.make_root()
        fill(brick, entries)
        for times in ("mdata", "file"):
            for workers in (1, len(os.sched_getaffinity(0))):
                words = ["walk", "--brick", str(brick.root), "--times", times, "--workers", str(workers)]
                name = f"native, times from {times}, {workers} worker{'s' if workers > 1 else ''}"
                per_core, per_s = measure([os.fsdecode(native_program().path), *words], options.rounds(5))
                rates.append(
                    Rate(
                        name=f"entries a core: {name}",
                        median=statistics.median(per_core),
                        lowest=min(per_core),
                        highest=max(per_core),
                        at_least=TARGET_PER_CORE_S if name == _TARGET_OF else None,
                    )
                )
                by_the_clock.append(f"{name}: {statistics.median(per_s):,.0f} entries/s by the clock.")
    return Section(
        name=NAME,
        title="The walkers alone",
        facts={"brick": f"{entries:,} small files with Gluster's own attributes, XFS, caches warm"},
        tables=(),
        rates=rates,
        notes=(
            "A core: by the processor time of the walk, which other work on the machine changes little.",
            *by_the_clock,
        ),
    )


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


def measure(argv: Sequence[str], rounds: int) -> tuple[list[float], list[float]]:
    """Entries per second of processor and of wall in some rounds, after one that fills the caches."""
    timed(argv)
    runs = [timed(argv) for _ in range(rounds)]
    return [entries / max(cpu_s, 1e-9) for entries, cpu_s, _ in runs], [entries / wall_s for entries, _, wall_s in runs]


def timed(argv: Sequence[str]) -> tuple[int, float, float]:
    """Entries found, and seconds of processor and of wall."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_ns = time.monotonic_ns()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    wall_s = (time.monotonic_ns() - began_ns) / NS_PER_S
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    reader = WalkFrames()
    ends = [decode_end(payload) for kind, payload in reader.feed(done.stdout) if kind is FrameKind.END]
    reader.finish()
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ends[0].rows + ends[0].directories, cpu_s, wall_s
