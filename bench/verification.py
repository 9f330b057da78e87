"""Verification: every file of a finished copy is compared with its source, by what people use today and by `migrator`."""

import shlex
import time
from collections.abc import Callable

from bench.bulk import SMALL_FILES
from bench.lab import VOLUME, BenchLab, bench_lab
from bench.options import Options
from bench.peers import left_out
from bench.program import Program, new_site
from bench.results import Section, Table
from bench.timing import Contestant, Series, alternate, best_of, call, ratio, shell
from bench.trees import SMALL, UserSpec, describe, sized_users, small_users
from migrator.core.units import MIB

NAME = "verify"
BIG_FILES, BIG_BYTES = 16, 256 * MIB
LARGE = "large"
TEN_TIMES, EIGHT_TENTHS = 10.0, 0.8
PROGRAM, RSYNC, XXHSUM, READ = "migrator verify", "rsync -aHAXcn", "find and xxh128sum", "cat of each brick"


def verification(options: Options) -> Section:
    size_bytes = max(round(BIG_BYTES * options.scale), MIB)
    small, small_facts = _measured(options, SMALL, small_users(SMALL, options.count(SMALL_FILES, 100), options.seed))
    large, large_facts = _measured(options, LARGE, sized_users(LARGE, (size_bytes,) * BIG_FILES, options.seed))
    of_small, of_large = ({one.name: one.times_s for one in series} for series in (small, large))
    best = best_of([one for one in small if one.name in (RSYNC, XXHSUM)])
    return Section(
        name=NAME,
        title="Verification of a finished copy",
        facts={"small files": small_facts, "big files": large_facts, "volume": VOLUME},
        tables=(
            Table(
                title="Small files",
                series=small,
                ratios=ratio(
                    "migrator against the best of the others",
                    best,
                    of_small[PROGRAM],
                    TEN_TIMES,
                ),
            ),
            Table(
                title="Big files",
                series=large,
                ratios=ratio("migrator against the bricks' own rate", of_large[READ], of_large[PROGRAM], EIGHT_TENTHS),
            ),
        ),
        notes=(
            f"`{PROGRAM}` reads the content on the target only: its streams digested that of the source while they copied it.",
            "All compare content. `migrator verify` also compares owners, modes, times, ACLs, attributes and hard links, as "
            "`rsync -aHAXcn` does, and writes its manifest.",
            f"`{READ}` reads the files on all bricks at once and then those of the target at once, and compares nothing.",
        ),
        left_out=left_out("rsync", "xxh128sum"),
    )


def _measured(options: Options, group: str, users: tuple[UserSpec, ...]) -> tuple[list[Series], str]:
    with bench_lab(options, f"verify-{group}", users) as lab:
        lab.empty_target()
        program = new_site(lab, options, [f"{group}/*"])
        # Content that was written at this moment counts as changing.
        time.sleep(3)
        program.whole_job()
        time.sleep(3)
        missing = left_out("rsync", "xxh128sum")
        contestants = [_contestant(lab, options, PROGRAM, lambda: _verify(program))]
        if "rsync" not in missing:
            contestants.append(_contestant(lab, options, RSYNC, lambda: _rsync(lab, group)))
        if "xxh128sum" not in missing:
            contestants.append(_contestant(lab, options, XXHSUM, lambda: _sums(lab, group)))
        contestants.append(_contestant(lab, options, READ, lambda: _read(lab, group)))
        return alternate(contestants, options.rounds(1)), describe(lab.tally(group))


def _contestant(lab: BenchLab, options: Options, name: str, work: Callable[[], None]) -> Contestant:
    def timed() -> dict[str, float]:
        work()
        return {}

    return Contestant(name=name, work=timed, prepare=lambda: lab.settle(cold=options.cold), check=lambda: None)


def _verify(program: Program) -> None:
    program.verb("verify", "--all")


def _rsync(lab: BenchLab, group: str) -> None:
    call(["rsync", "-aHAXcn", f"{lab.source / group}/", f"{lab.target / group}/"])


def _sums(lab: BenchLab, group: str) -> None:
    sums = "find . -mindepth 2 -type f -print0 | sort -z | xargs -0 -P 4 -n 30 xxh128sum | sort"
    places = [shlex.quote(str(side / group)) for side in (lab.source, lab.target)]
    shell(f"cmp <(cd {places[0]}; {sums}) <(cd {places[1]}; {sums})")


def _read(lab: BenchLab, group: str) -> None:
    reading = "find {} -type f -print0 | xargs -0 -P 2 -n 200 cat >/dev/null"
    bricks = [reading.format(shlex.quote(str(brick / group))) for brick in lab.bricks]
    shell(" & ".join([*bricks, "wait"]))
    shell(reading.format(shlex.quote(str(lab.target / group))))
