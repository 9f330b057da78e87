"""Bulk: users' trees to an empty target, through the mount by what people use today, and by `migrator`."""

from collections.abc import Callable, Sequence

from bench.lab import VOLUME, BenchLab, bench_lab
from bench.options import Options
from bench.peers import left_out, sync_target, tars_from_the_bricks, through_the_mount
from bench.program import Program, new_site
from bench.results import Section, Table
from bench.timing import Contestant, ContestantFailed, Ratio, Series, alternate, best_of, ratio
from bench.trees import MIXED, SMALL, TREE, Tally, describe, mixed_users, small_users, tally
from migrator.core.units import MIB

PEERS_TO_BEAT = ("rsync -a", "rsync -aHAX", "fpsync -n 4", "msrsync3 -p 4", "tar to tar")
SLOWEST = ("rsync -aHAX", "cp -a")
PEERS = ("rsync", "fpsync", "parsyncfp2", "msrsync3", "tar", "cp")
TEN_TIMES, MIXED_TIMES = 10.0, 2.5
OF_TARS, RUN_OF_TARS = 0.75, 0.9
SMALL_FILES, MIXED_FILES, LARGE_BYTES = 50_000, 4_000, 128 * MIB
TARS = "a tar a brick, by hand"
PROGRAM = "migrator"
LARGE_BULK = "bulk-large"


def bulk(options: Options) -> Section:
    users = small_users(SMALL, options.count(SMALL_FILES, 100), options.seed)
    with bench_lab(options, "small", users) as lab:
        small = lab.tally(SMALL)
        small_series = alternate(contestants(lab, options, SMALL, small), options.rounds(2))
    unit_bytes = max(round(LARGE_BYTES * options.scale), MIB)
    with bench_lab(options, "mixed", mixed_users(options.count(MIXED_FILES, 40), unit_bytes, options.seed)) as lab:
        mixed = lab.tally(MIXED)
        mixed_series = alternate(contestants(lab, options, MIXED, mixed), options.rounds(2))
    return Section(
        name="bulk",
        title="Bulk: all files to an empty target",
        facts={"small files": describe(small), "mixed": describe(mixed), "volumes": VOLUME},
        tables=(
            Table(title="Small files", series=small_series, ratios=bulk_ratios(small_series, TEN_TIMES)),
            Table(title="Mixed", series=mixed_series, ratios=bulk_ratios(mixed_series, MIXED_TIMES)),
        ),
        notes=(
            "The tars by hand are a reference, not a way to migrate: they take times from the bricks, copy hard links "
            "that lie on several bricks as files, and check nothing.",
            "`migrator` is `scan`, `plan` and `run` one after the other; `init`, once a site, is not in it.",
        ),
        left_out=left_out(*PEERS),
    )


def large_bulk(lab: BenchLab, options: Options) -> Section:
    """The same with four times as many files, where what every call costs once counts for less."""
    expected = lab.tally(TREE)
    chosen = [one for one in contestants(lab, options, TREE, expected) if one.name in (*PEERS_TO_BEAT, TARS, PROGRAM)]
    series = alternate([one for one in chosen if one.name not in SLOWEST], options.rounds(1))
    return Section(
        name=LARGE_BULK,
        title="Bulk: many small files to an empty target",
        facts={"small files": describe(expected), "volume": VOLUME},
        tables=(Table(title="Many small files", series=series, ratios=bulk_ratios(series, TEN_TIMES, large=True)),),
        notes=("As above, with more files.",),
        left_out=left_out("rsync", "fpsync", "msrsync3", "tar"),
    )


def contestants(lab: BenchLab, options: Options, group: str, expected: Tally) -> list[Contestant]:
    missing = left_out(*PEERS)

    def prepare() -> None:
        lab.empty_target()
        (lab.target / group).mkdir(parents=True)
        lab.settle(cold=options.cold)

    def check() -> None:
        found = tally(lab.target / group)
        if (found.files, found.size_bytes) != (expected.files, expected.size_bytes):
            raise ContestantFailed(f"{describe(found)} arrived, not {describe(expected)}")

    peers = [
        Contestant(
            name=name,
            work=copy,
            prepare=prepare,
            check=check,
            rounds=1 if name in SLOWEST and options.repeat is None else None,
        )
        for name, (program, copy) in through_the_mount(lab, group).items()
        if program not in missing
    ]
    if "tar" not in missing:
        peers.append(Contestant(name=TARS, work=tars_from_the_bricks(lab, group), prepare=prepare, check=check))
    return [*peers, whole_job(lab, options, group, check)]


def whole_job(
    lab: BenchLab,
    options: Options,
    group: str,
    check: Callable[[], None],
    *,
    name: str = PROGRAM,
    before: Callable[[], None] | None = None,
    transfer: dict[str, object] | None = None,
) -> Contestant:
    """`migrator` from a new site to the end, each round anew."""
    programs: list[Program] = []

    def prepare() -> None:
        lab.empty_target()
        programs[:] = [new_site(lab, options, [f"{group}/*"], before=before, transfer=transfer)]
        lab.settle(cold=options.cold)

    def work() -> dict[str, float]:
        parts_s = programs[0].whole_job()
        sync_target(lab)
        return parts_s

    return Contestant(name=name, work=work, prepare=prepare, check=check)


def bulk_ratios(every: Sequence[Series], at_least: float, *, large: bool = False) -> list[Ratio]:
    """What is wanted of tars is wanted of many files, where the start of three commands counts for less."""
    by_name = {series.name: series for series in every}
    best = best_of([by_name[name] for name in PEERS_TO_BEAT if name in by_name])
    whole, tars = by_name[PROGRAM], by_name.get(TARS)
    runs = [run.parts_s.get("run_s", 0.0) for run in whole.runs]
    by_hand = tars.times_s if tars else []
    found = [
        *ratio("migrator, whole job, against the best of the peers", best, whole.times_s, at_least),
        *ratio("migrator, `run` alone, against the same", best, runs),
        *ratio("tars by hand against the same", best, by_hand),
        *ratio("migrator, whole job, against tars by hand", by_hand, whole.times_s, OF_TARS if large else None),
        *ratio("migrator, `run` alone, against tars by hand", by_hand, runs, RUN_OF_TARS if large else None),
    ]
    for name, series in by_name.items():
        if series is not whole and series is not tars:
            found.extend(ratio(f"migrator, whole job, against {name}", series.times_s, whole.times_s))
    return found
