"""Big files: `migrator` against parallel plain `cp` from the bricks, which is as fast as reading and writing can be."""

from dataclasses import replace

from bench.bulk import MOUNT, PROGRAM, whole_job
from bench.lab import VOLUME, BenchLab, bench_lab
from bench.options import Options
from bench.peers import DSYNC, cps_from_the_bricks, dsync, left_out, rsync
from bench.results import Section, Table
from bench.timing import Contestant, ContestantFailed, alternate, ratio
from bench.trees import BIG, big_users, describe, tally
from migrator.core.units import GIB, MIB

CPS, RSYNC = "cp of every file at once, from the bricks", "rsync -a, mount"
EIGHT_TENTHS = 0.8
OF_DSYNC_BY_MOUNT = 0.95
BIG_BYTES = 4 * GIB


def big(options: Options) -> Section:
    with bench_lab(options, "big", big_users(options.count(BIG_BYTES), options.seed)) as lab:
        return _measure(lab, options)


def _measure(lab: BenchLab, options: Options) -> Section:
    expected = lab.tally(BIG)

    def prepare() -> None:
        lab.empty_target()
        for user in lab.users:
            (lab.target / user.path).mkdir(parents=True)
        lab.settle(cold=options.cold)

    def check() -> None:
        found = tally(lab.target / BIG)
        if (found.files, found.size_bytes) != (expected.files, expected.size_bytes):
            raise ContestantFailed(f"{describe(found)} arrived, not {describe(expected)}")

    # At full size the default of the program; a small rehearsal shall have ranges too.
    transfer: dict[str, object] = {} if options.scale >= 1 else {"range_size": f"{max(MIB, expected.size_bytes // 8)}B"}
    contestants = [
        Contestant(name=CPS, work=cps_from_the_bricks(lab, BIG), prepare=prepare, check=check),
        whole_job(lab, options, BIG, check, transfer=transfer),
        whole_job(lab, replace(options, via="mount"), BIG, check, name=MOUNT, transfer=transfer),
    ]
    missing, once = left_out("rsync", "dsync"), options.rounds(1)
    if "rsync" not in missing:
        by_rsync = rsync(lab, BIG, "-a")
        contestants.append(Contestant(name=RSYNC, work=by_rsync, prepare=prepare, check=check, rounds=once))
    if "dsync" not in missing:
        contestants.append(Contestant(name=DSYNC, work=dsync(lab, BIG), prepare=prepare, check=check))
    series = alternate(contestants, options.rounds(2))
    by_name = {one.name: one for one in series}
    runs = [run.parts_s.get("run_s", 0.0) for run in by_name[PROGRAM].runs]
    rsyncs, dsyncs = (by_name[name].times_s if name in by_name else [] for name in (RSYNC, DSYNC))
    by_mount = by_name[MOUNT].times_s
    return Section(
        name="big",
        title="Big files",
        facts={"big files": describe(expected), "volume": VOLUME},
        tables=(
            Table(
                title="Big files",
                series=series,
                ratios=[
                    *ratio("migrator, `run` alone, against parallel cp", by_name[CPS].times_s, runs, EIGHT_TENTHS),
                    *ratio("migrator, whole job, against parallel cp", by_name[CPS].times_s, by_name[PROGRAM].times_s),
                    *ratio("migrator, whole job, against rsync -a", rsyncs, by_name[PROGRAM].times_s),
                    *ratio(f"{MOUNT}, against {DSYNC}", dsyncs, by_mount, OF_DSYNC_BY_MOUNT),
                    *ratio(f"{MOUNT}, against rsync -a", rsyncs, by_mount),
                ],
            ),
        ),
        notes=("The copies by `cp` have neither owners nor times nor attributes.",),
        left_out=missing,
    )
