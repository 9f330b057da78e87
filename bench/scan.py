"""Scans: `migrator scan` by both ways against `find` on the mount, with caches cold and warm."""

import shlex
import statistics
from collections.abc import Callable, Mapping
from functools import partial

from bench.lab import OUTSIDE_FILES, VOLUME, BenchLab
from bench.options import Options
from bench.peers import left_out
from bench.program import new_site
from bench.results import Section, Table
from bench.timing import Contestant, ContestantFailed, Ratio, Series, alternate, ratio, shell
from bench.trees import TREE, describe
from migrator.core.units import format_count

WARM_TIMES, COLD_TIMES, MOUNT_TIMES = 25.0, 10.0, 3.0
FIND, BRICKS, MOUNT = "find -printf on the mount", "migrator scan --via bricks", "migrator scan --via mount"
FIND_FORMAT = r"%p\0%s\0%m\0%U\0%G\0%T@\0%n\0%l\0"


def scan(lab: BenchLab, options: Options) -> Section:
    expected = lab.tally(TREE)
    lab.empty_target()
    program = new_site(lab, options, [f"{TREE}/*"])

    def find() -> dict[str, float]:
        tree, output = shlex.quote(str(lab.source / TREE)), shlex.quote(str(lab.work / "find.out"))
        shell(f"find {tree} -printf {shlex.quote(FIND_FORMAT)} > {output}")
        return {}

    def by_program(via: str) -> dict[str, float]:
        record, parts_s = program.scan(via)
        if record["files"] != expected.files + OUTSIDE_FILES:
            raise ContestantFailed(f"{record['files']} files, not {expected.files + OUTSIDE_FILES}")
        return parts_s

    walks: dict[str, tuple[Callable[[], dict[str, float]], int]] = {
        FIND: (find, 1),
        BRICKS: (partial(by_program, "bricks"), 2),
        MOUNT: (partial(by_program, "mount"), 2),
    }

    def contestant(name: str, *, cold: bool) -> Contestant:
        work, rounds = walks[name]
        # What is warm follows the cold run of the same walk; with `--warm`, one that is not timed.
        prepare = partial(lab.settle, cold=cold) if options.cold else work
        return Contestant(name=name, work=work, prepare=prepare, rounds=options.rounds(rounds))

    caches = (True, False) if options.cold else (False,)
    order = [(name, cold) for name in walks if name != FIND or not left_out("find") for cold in caches]
    series = alternate([contestant(name, cold=cold) for name, cold in order], options.rounds(2))
    tables: list[Table] = []
    notes = [
        "`migrator scan` reads more than `find` does here: xattrs and ACLs of every entry, and, on bricks, the times that "
        "Gluster keeps in an xattr; it writes them all as Parquet and commits them to the ledger.",
        "Warm: the same walk was the one before, and nothing was dropped since.",
    ]
    for cold in caches:
        title = "Caches cold" if cold else "Caches warm"
        found = {one.name: one for one, (_, was_cold) in zip(series, order, strict=True) if was_cold == cold}
        ratios = _ratios(found, COLD_TIMES if cold else WARM_TIMES)
        tables.append(Table(title=title, series=list(found.values()), ratios=ratios))
        if found[BRICKS].runs:
            entries = (expected.files + expected.directories) / statistics.median(found[BRICKS].times_s)
            notes.append(f"{title}: {format_count(round(entries))} entries/s by `{BRICKS}` as a whole.")
    return Section(
        name="scan",
        title="Scan",
        facts={"tree": describe(expected), "volume": VOLUME},
        tables=tables,
        notes=notes,
        left_out=left_out("find"),
    )


def _ratios(by_name: Mapping[str, Series], at_least: float) -> list[Ratio]:
    if FIND not in by_name:
        return []
    find, bricks = by_name[FIND].times_s, by_name[BRICKS]
    walks = [run.parts_s["walk_s"] for run in bricks.runs]
    reads = [run.parts_s["walk_s"] + run.parts_s["finish_s"] for run in bricks.runs]
    found = [
        *ratio(f"{BRICKS}, start-up and checks aside, against find", find, reads, at_least),
        *ratio(f"{BRICKS}, all of the command, against find", find, bricks.times_s),
        *ratio(f"{BRICKS}, its walk, against find", find, walks),
    ]
    if MOUNT in by_name:
        mount = by_name[MOUNT]
        found += ratio(
            f"{MOUNT}, its walk, against find", find, [run.parts_s["walk_s"] for run in mount.runs], MOUNT_TIMES
        )
        found += ratio(f"{MOUNT}, all of the command, against find", find, mount.times_s)
    return found
