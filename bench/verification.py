"""Verification: every file of a finished copy is compared with its source, by what people use today and by `migrator`."""

import shlex
import time
from collections.abc import Callable

from bench.bulk import copied
from bench.lab import VOLUME, BenchLab, bench_lab
from bench.options import Options
from bench.peers import left_out
from bench.results import Section, Table
from bench.timing import Contestant, Series, alternate, call, ratio, shell
from bench.trees import TREE, describe, sized_users
from migrator.core.units import MIB

NAME = "verify"
BIG_FILES, BIG_BYTES = 16, 256 * MIB
LARGE = "large"
TEN_TIMES, EIGHT_TENTHS = 10.0, 0.8
PROGRAM, RSYNC, XXHSUM, READ = "migrator verify", "rsync -aHAXcn", "find and xxh128sum", "cat of each brick"


def verification(lab: BenchLab, options: Options) -> Section:
    """Small files beside the quickest of the others (`rsync -aHAXcn` takes twice as long), big ones beside rsync."""
    small = _measured(lab, options, TREE, XXHSUM)
    small_facts = describe(lab.tally(TREE))
    size_bytes = max(round(BIG_BYTES * options.scale), MIB)
    with bench_lab(options, f"verify-{LARGE}", sized_users(LARGE, (size_bytes,) * BIG_FILES, options.seed)) as own_lab:
        large = _measured(own_lab, options, LARGE, RSYNC)
        large_facts = describe(own_lab.tally(LARGE))
    of_small, of_large = ({one.name: one.times_s for one in series} for series in (small, large))
    return Section(
        name=NAME,
        title="Verification of a finished copy",
        facts={"small files": small_facts, "big files": large_facts, "volume": VOLUME},
        tables=(
            Table(
                title="Small files",
                series=small,
                ratios=ratio(f"migrator against {XXHSUM}", of_small.get(XXHSUM, []), of_small[PROGRAM], TEN_TIMES),
            ),
            Table(
                title="Big files",
                series=large,
                ratios=[
                    *ratio("migrator against the bricks' own rate", of_large[READ], of_large[PROGRAM], EIGHT_TENTHS),
                    *ratio(f"migrator against {RSYNC}", of_large.get(RSYNC, []), of_large[PROGRAM]),
                ],
            ),
        ),
        notes=(
            f"`{PROGRAM}` reads the content on the target only: its streams digested that of the source while they copied it.",
            "All compare content. `migrator verify` also compares owners, modes, times, ACLs, attributes and hard links, as "
            f"`{RSYNC}` does, and writes its manifest.",
            f"`{READ}` reads the files on all bricks at once and then those of the target at once, and compares nothing.",
        ),
        left_out=left_out("rsync", "xxh128sum"),
    )


def _measured(lab: BenchLab, options: Options, group: str, peer: str) -> list[Series]:
    program = copied(lab, options, group)
    time.sleep(3)  # content that was written at this moment counts as changing
    works: dict[str, Callable[[], object]] = {
        PROGRAM: lambda: program.verb("verify", "--all"),
        RSYNC: lambda: call(["rsync", "-aHAXcn", f"{lab.source / group}/", f"{lab.target / group}/"]),
        XXHSUM: lambda: _sums(lab, group),
        READ: lambda: _read(lab, group),
    }

    def contestant(name: str) -> Contestant:
        def work() -> dict[str, float]:
            works[name]()
            return {}

        rounds = options.rounds(1 if name == peer else 2)
        return Contestant(name=name, work=work, prepare=lambda: lab.settle(cold=options.cold), rounds=rounds)

    needed = {RSYNC: "rsync", XXHSUM: "xxh128sum"}[peer]
    names = (PROGRAM, READ) if left_out(needed) else (PROGRAM, peer, READ)
    return alternate([contestant(name) for name in names], options.rounds(2))


def _sums(lab: BenchLab, group: str) -> None:
    sums = "find . -mindepth 2 -type f -print0 | sort -z | xargs -0 -P 4 -n 30 xxh128sum | sort"
    places = [shlex.quote(str(side / group)) for side in (lab.source, lab.target)]
    shell(f"cmp <(cd {places[0]}; {sums}) <(cd {places[1]}; {sums})")


def _read(lab: BenchLab, group: str) -> None:
    reading = "find {} -type f -print0 | xargs -0 -P 2 -n 200 cat >/dev/null"
    bricks = [reading.format(shlex.quote(str(brick / group))) for brick in lab.bricks]
    shell(" & ".join([*bricks, "wait"]))
    shell(reading.format(shlex.quote(str(lab.target / group))))
