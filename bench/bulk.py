"""Bulk: users' trees to an empty target, through the mount by what people use today, and by `migrator`."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from bench.lab import VOLUME, BenchLab, bench_lab
from bench.options import Options
from bench.peers import DSYNC, left_out, sync_target, tars_from_the_bricks, through_the_mount
from bench.program import Program, new_site
from bench.results import Section, Table
from bench.timing import Contestant, ContestantFailed, Ratio, Series, alternate, best_of, ratio
from bench.trees import MIXED, TREE, describe, mixed_users, small_users, tally
from migrator.catalog.model import SETTLED_BEFORE_SCAN_S
from migrator.core.units import MIB

PEERS = ("rsync", "fpsync", "parsyncfp2", "msrsync3", "tar", "dsync")
AS_MUCH = "rsync -aHAX"
"""What keeps as much as `migrator` does: it takes a tenth longer than `rsync -a`, and is measured on the mixed files alone."""
TEN_TIMES, MIXED_TIMES = 10.0, 2.5
OF_TARS, RUN_OF_TARS = 0.75, 0.9
MIXED_FILES, LARGE_BYTES = 4_000, 128 * MIB
MILLION = 1_000_000
TARS = "a tar a brick, by hand"
PROGRAM = "migrator"
MOUNT = "migrator, through the mount"
"""As on volumes whose bricks cannot be read: with what the peers have."""
OF_DSYNC_BY_MOUNT, OF_RSYNC_BY_MOUNT = 1.3, 2.0


def bulk(lab: BenchLab, options: Options) -> Section:
    """What is wanted of tars is wanted of many files (`--large`), where the start of three commands counts for less."""
    small, small_facts = _measured(lab, options, TREE)
    unit_bytes = max(round(LARGE_BYTES * options.scale), MIB)
    with bench_lab(options, MIXED, mixed_users(options.count(MIXED_FILES, 40), unit_bytes, options.seed)) as mixed_lab:
        mixed, mixed_facts = _measured(mixed_lab, options, MIXED)
    facts = {"small files": small_facts, "mixed": mixed_facts, "volumes": VOLUME}
    tables = [
        Table(title="Small files", series=small, ratios=_ratios(small, TEN_TIMES, of_tars=options.large)),
        Table(title="Mixed", series=mixed, ratios=_ratios(mixed, MIXED_TIMES, of_tars=False)),
    ]
    if options.large:
        users = small_users(options.count(MILLION), options.seed, users=20)
        with bench_lab(options, "million", users) as million_lab:
            million, facts["a million small files"] = _measured(million_lab, options, TREE, peers=False)
        tables.append(
            Table(title="A million small files", series=million, ratios=_ratios(million, TEN_TIMES, of_tars=True))
        )
    return Section(
        name="bulk",
        title="Bulk: all files to an empty target",
        facts=facts,
        tables=tables,
        notes=(
            "The tars by hand are a reference, not a way to migrate: they take times from the bricks, copy hard links "
            "that lie on several bricks as files, and check nothing.",
            "`migrator` is `scan`, `plan` and `run` one after the other; `init`, once a site, is not in it.",
        ),
        left_out=left_out(*PEERS),
    )


def _measured(lab: BenchLab, options: Options, group: str, *, peers: bool = True) -> tuple[list[Series], str]:
    """`peers`: also through the mount, which takes ten times as long."""
    expected, missing = lab.tally(group), left_out(*PEERS)

    def prepare() -> None:
        lab.empty_target()
        (lab.target / group).mkdir(parents=True)
        lab.settle(cold=options.cold)

    def check() -> None:
        found = tally(lab.target / group)
        if (found.files, found.size_bytes) != (expected.files, expected.size_bytes):
            raise ContestantFailed(f"{describe(found)} arrived, not {describe(expected)}")

    contestants = [
        Contestant(name=name, work=copy, prepare=prepare, check=check, rounds=options.rounds(1))
        for name, (program, copy) in through_the_mount(lab, group).items()
        if peers and program not in missing and (name != AS_MUCH or group == MIXED)
    ]
    if "tar" not in missing:
        contestants.append(Contestant(name=TARS, work=tars_from_the_bricks(lab, group), prepare=prepare, check=check))
    if peers:
        contestants.append(whole_job(lab, replace(options, via="mount"), group, check, name=MOUNT))
    contestants.append(whole_job(lab, options, group, check))
    return alternate(contestants, options.rounds(2 if peers else 1)), describe(expected)


def whole_job(
    lab: BenchLab,
    options: Options,
    group: str,
    check: Callable[[], None],
    *,
    name: str = PROGRAM,
    before: Callable[[], None] | None = None,
    transfer: dict[str, object] | None = None,
    two_hosts: bool = False,
) -> Contestant:
    """`migrator` from a new site to the end, each round anew."""
    programs: list[Program] = []

    def prepare() -> None:
        lab.empty_target()
        programs[:] = [new_site(lab, options, [f"{group}/*"], before=before, transfer=transfer, two_hosts=two_hosts)]
        lab.settle(cold=options.cold)

    def work() -> dict[str, float]:
        parts_s = programs[0].whole_job()
        sync_target(lab)
        return parts_s

    def finish() -> None:
        check()
        lab.copied[group] = programs[0].site_file

    return Contestant(name=name, work=work, prepare=prepare, check=finish)


def copied(lab: BenchLab, options: Options, group: str) -> Program:
    """The site of a finished copy: what is on the target, or a new one."""
    if group not in lab.copied:
        time.sleep(SETTLED_BEFORE_SCAN_S)  # what is younger than a scan trusts would be sent twice
        lab.empty_target()
        program = new_site(lab, options, [f"{group}/*"])
        program.whole_job()
        lab.copied[group] = program.site_file
    return Program(site_file=lab.copied[group])


def _ratios(every: Sequence[Series], at_least: float, *, of_tars: bool) -> list[Ratio]:
    *others, whole = every
    by_mount = next((series.times_s for series in others if series.name == MOUNT), [])
    peers = [series for series in others if series.name not in (TARS, MOUNT)]
    best = best_of(peers)
    runs = [run.parts_s.get("run_s", 0.0) for run in whole.runs]
    by_hand = next((series.times_s for series in others if series.name == TARS), [])
    found = [
        *ratio("migrator, whole job, against the best of the peers", best, whole.times_s, at_least),
        *ratio("migrator, `run` alone, against the same", best, runs),
        *ratio("tars by hand against the same", best, by_hand),
        *ratio("migrator, whole job, against tars by hand", by_hand, whole.times_s, OF_TARS if of_tars else None),
        *ratio("migrator, `run` alone, against tars by hand", by_hand, runs, RUN_OF_TARS if of_tars else None),
    ]
    for series in peers:
        found.extend(ratio(f"migrator, whole job, against {series.name}", series.times_s, whole.times_s))
        wanted = (
            OF_DSYNC_BY_MOUNT
            if series.name == DSYNC
            else OF_RSYNC_BY_MOUNT
            if series.name.startswith("rsync")
            else None
        )
        found.extend(ratio(f"{MOUNT}, against {series.name}", series.times_s, by_mount, wanted))
    return found
