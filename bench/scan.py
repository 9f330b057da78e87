"""Scans: `migrator scan` by both ways against `find` and `fpart` on the mount, with caches cold and warm."""

import contextlib
import shlex
import shutil
import statistics
import sys
from collections.abc import Callable

from bench.lab import OUTSIDE_FILES, VOLUME, BenchLab
from bench.options import Options
from bench.peers import left_out
from bench.program import Program, new_site
from bench.results import Section, Table
from bench.timing import Contestant, ContestantFailed, Ratio, Series, alternate, call, ratio, shell
from bench.trees import TREE, Tally, describe
from migrator.core.units import format_count

WARM_TIMES, COLD_TIMES = 25.0, 10.0
START_UP = "migrator --version: its start-up alone"
FIND, FPART = "find -printf on the mount", "fpart on the mount"
SLOWEST = ("fpart on the mount", "migrator scan --via mount")
BRICKS, MOUNT = "migrator scan --via bricks", "migrator scan --via mount"
_FIND_FORMAT = r"%p\0%s\0%m\0%U\0%G\0%T@\0%n\0%l\0"


def scan(lab: BenchLab, options: Options) -> Section:
    expected = lab.tally(TREE)
    lab.empty_target()
    program = new_site(lab, options, [f"{TREE}/*"])
    tables: list[Table] = []
    for cold in (True, False) if options.cold else (False,):
        series = alternate(_contestants(lab, options, program, expected, cold=cold), options.rounds(2))
        title = "Caches cold" if cold else "Caches warm"
        tables.append(Table(title=title, series=series, ratios=_ratios(series, COLD_TIMES if cold else WARM_TIMES)))
    notes = [
        "`migrator scan` reads more than `find` does here: xattrs and ACLs of every entry, and, on bricks, the times that "
        "Gluster keeps in an xattr; it writes them all as Parquet and commits them to the ledger.",
        "Warm: the same walk has run before, not timed, and nothing was dropped since.",
    ]
    for table in tables:
        for one in table.series:
            if one.name == BRICKS and one.runs:
                entries = (expected.files + expected.directories) / statistics.median(one.times_s)
                notes.append(f"{table.title}: {format_count(round(entries))} entries/s by `{BRICKS}` as a whole.")
    return Section(
        name="scan",
        title="Scan",
        facts={"tree": describe(expected), "volume": VOLUME},
        tables=tables,
        notes=notes,
        left_out=left_out("find", "fpart"),
    )


def _contestants(lab: BenchLab, options: Options, program: Program, expected: Tally, *, cold: bool) -> list[Contestant]:
    tree = shlex.quote(str(lab.source / TREE))
    lists = lab.work / "fpart"

    def find() -> dict[str, float]:
        shell(f"find {tree} -printf {shlex.quote(_FIND_FORMAT)} > {shlex.quote(str(lab.work / 'find.out'))}")
        return {}

    def fpart() -> dict[str, float]:
        shutil.rmtree(lists, ignore_errors=True)
        lists.mkdir()
        shell(f"fpart -f 2000 -o {shlex.quote(str(lists / 'part'))} {tree}")
        return {}

    def by_program(via: str) -> dict[str, float]:
        record, parts_s = program.scan(via)
        if record["files"] != expected.files + OUTSIDE_FILES:
            raise ContestantFailed(f"{record['files']} files, not {expected.files + OUTSIDE_FILES}")
        return parts_s

    def start_up() -> dict[str, float]:
        call([sys.executable, "-m", "migrator", "--version"])
        return {}

    works: dict[str, tuple[str | None, Callable[[], dict[str, float]]]] = {
        FIND: ("find", find),
        FPART: ("fpart", fpart),
        BRICKS: (None, lambda: by_program("bricks")),
        START_UP: (None, start_up),
    }
    if cold or not options.cold:
        works[MOUNT] = (None, lambda: by_program("mount"))  # it takes so long that caches hardly matter
    missing = left_out("find", "fpart")
    warmed: list[Callable[[], dict[str, float]]] = []
    contestants: list[Contestant] = []
    for name, (needed, work) in works.items():
        if needed not in missing:

            def prepare(work=work) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 (bound in a loop)
                lab.settle(cold=cold)
                if not cold and work not in warmed:
                    warmed.append(work)
                    with contextlib.suppress(ContestantFailed):  # it fails again where it is timed
                        work()
                    lab.settle(cold=False)

            rounds = 1 if name in SLOWEST and options.repeat is None else None
            contestants.append(Contestant(name=name, work=work, prepare=prepare, rounds=rounds))
    return contestants


def _ratios(every: list[Series], at_least: float) -> list[Ratio]:
    by_name = {series.name: series for series in every}
    bricks = by_name[BRICKS]
    walks = [run.parts_s["walk_s"] for run in bricks.runs]
    reads = [run.parts_s["walk_s"] + run.parts_s["finish_s"] for run in bricks.runs]
    found: list[Ratio] = []
    if FIND in by_name:
        times_s = by_name[FIND].times_s
        found += ratio(f"{BRICKS}, start-up and checks aside, against find", times_s, reads, at_least)
        found += ratio(f"{BRICKS}, all of the command, against find", times_s, bricks.times_s)
        found += ratio(f"{BRICKS}, its walk, against find", times_s, walks)
        found += ratio(
            f"{MOUNT}, all of the command, against find", times_s, by_name[MOUNT].times_s if MOUNT in by_name else []
        )
    if FPART in by_name:
        found += ratio(f"{BRICKS}, all of the command, against fpart", by_name[FPART].times_s, bricks.times_s)
    return found
