"""Passes over a tree that was copied before: nothing changed, and one file of a hundred changed."""

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from bench.bulk import PROGRAM
from bench.lab import VOLUME, BenchLab
from bench.options import Options
from bench.peers import Copy, left_out, sync_target, through_the_mount
from bench.program import Program, new_site
from bench.results import Section, Table
from bench.timing import Contestant, ContestantFailed, Series, alternate, best_of, ratio
from bench.trees import TREE, churn, describe
from migrator.adapters.catalog.database import connect

FIFTY_TIMES = 50.0
FINDS = "migrator, finding what changed"
_PEERS = ("rsync -a", "fpsync -n 4")

# Rows of the later catalog that the earlier one does not have in the same state, and the paths that it has alone.
_CHANGED = """
    SELECT
        (SELECT count(*) FROM read_parquet($after) AS a ANTI JOIN read_parquet($before) AS b
            ON a.path = b.path AND a.size = b.size AND a.mtime_ns = b.mtime_ns AND a.ctime_ns = b.ctime_ns
            WHERE a.type <> 'directory'),
        (SELECT count(*) FROM read_parquet($before) AS b ANTI JOIN read_parquet($after) AS a ON a.path = b.path
            WHERE b.type <> 'directory')
"""


def passes(lab: BenchLab, options: Options) -> Section:
    expected = lab.tally(TREE)
    lab.empty_target()
    program = new_site(lab, options, [f"{TREE}/*"])
    work = Passes(lab, options, program)
    work.copy_all()
    rounds = options.rounds(2)
    unchanged = alternate(work.unchanged(), rounds)
    changed = alternate(work.changed(), rounds)
    return Section(
        name="passes",
        title="Passes over what was copied before",
        facts={
            "tree": describe(expected),
            "volume": VOLUME,
            "changed": "1 % of the files: four of five written anew, one of five new",
        },
        tables=(
            _table("Nothing changed", unchanged, FIFTY_TIMES),
            _table("1 % changed", changed, None),
        ),
        notes=(
            "Nothing changed: `migrator` is a scan, the comparison of its catalog with the one before, and a `run` that "
            "finds nothing to do. The comparison is a query of the benchmark, of the path, size, mtime and ctime of every "
            "row: a pass that takes its work from it is not part of the program yet.",
            "1 % changed: `migrator` is a scan, a new plan and its run over all files, each of which is compared on both "
            f"sides. `{FINDS}` is the scan and the comparison of catalogs, which find the changed files and copy none.",
            "No pass here deletes anything on the target.",
        ),
        left_out=left_out("rsync", "fpsync"),
    )


class Passes:
    """The contestants over one copied tree, which all of them keep equal to the source."""

    def __init__(self, lab: BenchLab, options: Options, program: Program) -> None:
        self._lab = lab
        self._options = options
        self._program = program
        self._numbers = count(time.time_ns())  # a lab that was kept has been changed by earlier calls: never the same
        self._catalog = Path()
        self._changes = 0

    def copy_all(self) -> None:
        """The first copy, and what rsync still finds to do after it."""
        record, _ = self._program.scan()
        self._catalog = self._program.catalog(record)
        self._program.plan()
        self._program.run()
        if "rsync" not in left_out("rsync"):
            through_the_mount(self._lab, TREE)["rsync -a"][1]()

    def unchanged(self) -> list[Contestant]:
        def prepare() -> None:
            self._lab.settle(cold=self._options.cold)

        def by_program() -> dict[str, float]:
            parts_s = self._find_changes(0)
            parts_s.update(self._program.run())
            sync_target(self._lab)
            return parts_s

        peers = [Contestant(name=name, work=copy, prepare=prepare) for name, copy in self._peers()]
        return [*peers, Contestant(name=PROGRAM, work=by_program, prepare=prepare)]

    def changed(self) -> list[Contestant]:
        rounds = 1 if self._options.repeat is None else None

        def prepare() -> None:
            self._changes = churn(self._lab.source, self._lab.users, number=next(self._numbers))
            self._lab.settle(cold=self._options.cold)

        def prepare_finding() -> None:
            record, _ = self._program.scan()
            self._catalog = self._program.catalog(record)
            prepare()

        def find() -> dict[str, float]:
            return self._find_changes(self._changes)

        def by_program() -> dict[str, float]:
            _, parts_s = self._program.scan()
            parts_s.update(self._program.plan())
            parts_s.update(self._program.run())
            sync_target(self._lab)
            return parts_s

        peers = [Contestant(name=name, work=copy, prepare=prepare, rounds=rounds) for name, copy in self._peers()]
        return [
            *peers,
            Contestant(name=FINDS, work=find, prepare=prepare_finding),
            Contestant(name=PROGRAM, work=by_program, prepare=prepare),
        ]

    def _peers(self) -> Iterator[tuple[str, Copy]]:
        missing = left_out("rsync", "fpsync")
        for name, (needed, copy) in through_the_mount(self._lab, TREE).items():
            if name in _PEERS and needed not in missing:
                yield name, copy

    def _find_changes(self, at_least: int) -> dict[str, float]:
        """Scan, and compare with the catalog before. Files of a changed link group count by their names."""
        record, parts_s = self._program.scan()
        begun_s = time.monotonic()
        changed, gone = compare(self._catalog, self._program.catalog(record))
        parts_s["compare_s"] = time.monotonic() - begun_s
        self._catalog = self._program.catalog(record)
        if (at_least == 0 and changed) or changed < at_least * 9 // 10 or gone:
            raise ContestantFailed(f"{changed} changed and {gone} gone were found, not {at_least} and none")
        return parts_s


def compare(before: Path, after: Path) -> tuple[int, int]:
    """How many files of the later catalog are new or changed, and how many of the earlier one are gone."""
    with connect() as connection:
        patterns = {"before": str(before / "part-*.parquet"), "after": str(after / "part-*.parquet")}
        row = connection.execute(_CHANGED, patterns).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def _table(title: str, every: list[Series], at_least: float | None) -> Table:
    by_name = {series.name: series for series in every}
    whole = by_name[PROGRAM].times_s
    ratios = [
        *ratio(
            "migrator against the best of rsync and fpsync", best_of(by_name[n] for n in _PEERS if n in by_name), whole
        )
    ]
    for name in _PEERS:
        if name in by_name:
            wanted = at_least if name == "rsync -a" else None
            ratios += ratio(f"migrator against {name}", by_name[name].times_s, whole, wanted)
            if FINDS in by_name:
                ratios += ratio(f"{FINDS}, against {name}", by_name[name].times_s, by_name[FINDS].times_s)
    return Table(title=title, series=every, ratios=ratios)
