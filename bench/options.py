"""What all measurements take: where, how large, how often."""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
DOCS = REPOSITORY / "docs" / "development"
BUILD = REPOSITORY / "build" / "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`scale` 1 has the sizes that the documentation speaks of; smaller ones show only that all of it works.

    With `large`, the sizes that take long are measured too. `repeat` None: every measurement has a number of its own. `cold`: caches are dropped and the volume is mounted anew
    before everything that is timed. `via` is how `migrator` reads the volume, `jobs` its streams on each host.
    """

    directory: Path
    keep: bool
    large: bool
    repeat: int | None
    scale: float
    seed: int
    cold: bool
    via: str
    jobs: int | None
    output: Path

    def rounds(self, usual: int) -> int:
        return self.repeat or usual

    def count(self, full: int, at_least: int = 1) -> int:
        return max(at_least, round(full * self.scale))


def parse_options(arguments: list[str], description: str | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m bench", description=description)
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path("/var/tmp/migrator-bench"),
        help="where the labs live; one that was kept with the same scale and seed is used again (default: %(default)s)",
    )
    parser.add_argument("--keep", action="store_true", help="leave the labs up")
    parser.add_argument(
        "--large",
        action="store_true",
        help="200,000 files for scans, bulk (a million too), verification and passes, and up to 10^8 paths: hours",
    )
    parser.add_argument("--repeat", type=int, help="rounds (default: 1 to 5, depending on the measurement)")
    parser.add_argument("--scale", type=float, default=1.0, help="of files and bytes (default: 1)")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal trees (default: 1)")
    parser.add_argument("--warm", action="store_true", help="leave caches as they are (default: drop them)")
    parser.add_argument(
        "--via",
        choices=("auto", "bricks", "mount"),
        default="bricks",
        help="how `migrator` reads the volume, where that is not itself what is measured (default: bricks)",
    )
    parser.add_argument("--jobs", type=int, help="streams of `migrator` on each host (default: its own)")
    parser.add_argument(
        "--output",
        type=Path,
        help="directory for performance.json and performance.md (default: docs/development at scale 1, else build/bench)",
    )
    found = parser.parse_args(arguments)
    if found.scale <= 0 or (found.repeat is not None and found.repeat < 1):
        sys.exit("bench: --scale and --repeat must be above 0")
    return Options(
        directory=found.dir.absolute(),
        keep=found.keep,
        large=found.large,
        repeat=found.repeat,
        scale=found.scale,
        seed=found.seed,
        cold=not found.warm,
        via=found.via,
        jobs=found.jobs,
        output=found.output or (DOCS if found.scale == 1 else BUILD),
    )
