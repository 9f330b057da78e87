"""Brick servers without the target: the same trees by streams to a host of the target, and directly.

Every host of the lab is this machine. A stream over two hosts has all its bytes copied by ssh, by this program, and by the
far ends besides, on the same processors.
"""

from collections.abc import Sequence

from bench.bulk import PROGRAM, whole_job
from bench.lab import VOLUME, BenchLab, bench_lab
from bench.options import Options
from bench.results import Section, Table
from bench.timing import Contestant, ContestantFailed, Series, alternate, ratio
from bench.trees import BIG, TREE, big_users, describe, small_users, tally
from migrator.core.units import GIB

NAME = "two-hosts"
TWO = "migrator, brick servers without the target"
WANTED = 0.7
FILES, BIG_BYTES = 20_000, GIB


def two_hosts(options: Options) -> Section:
    jobs = {
        "Small files": (TREE, small_users(options.count(FILES, 200), options.seed, users=4)),
        "Big files": (BIG, big_users(options.count(BIG_BYTES), options.seed)),
    }
    tables: list[Table] = []
    facts = {"volume": VOLUME, "connections": "ssh, to hosts in namespaces of this machine"}
    for title, (group, users) in jobs.items():
        with bench_lab(options, f"{NAME}-{group}", users) as lab:
            facts[title.lower()] = describe(lab.tally(group))
            series = alternate(_contestants(lab, options, group), options.rounds(2))
        by_name = {one.name: _runs(one) for one in series}
        ratios = ratio("`run` over two hosts against direct", by_name[PROGRAM], by_name[TWO], WANTED)
        tables.append(Table(title=title, series=series, ratios=ratios))
    return Section(name=NAME, title="Brick servers without the target", facts=facts, tables=tuple(tables))


def _contestants(lab: BenchLab, options: Options, group: str) -> Sequence[Contestant]:
    expected = lab.tally(group)

    def check() -> None:
        found = tally(lab.target / group)
        if (found.files, found.size_bytes) != (expected.files, expected.size_bytes):
            raise ContestantFailed(f"{describe(found)} arrived, not {describe(expected)}")

    return [
        whole_job(lab, options, group, check),
        whole_job(lab, options, group, check, name=TWO, two_hosts=True),
    ]


def _runs(series: Series) -> list[float]:
    return [run.parts_s.get("run_s", 0.0) for run in series.runs]
