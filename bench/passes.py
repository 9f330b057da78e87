"""Passes over a tree that was copied before: nothing changed, and one file of a hundred changed."""

import time
from collections.abc import Iterator
from itertools import count
from typing import Any

from bench.bulk import PROGRAM
from bench.lab import VOLUME, BenchLab
from bench.options import Options
from bench.peers import Copy, fpsync, left_out, rsync, sync_target
from bench.program import Program, new_site
from bench.results import Section, Table
from bench.timing import Contestant, ContestantFailed, Series, alternate, best_of, ratio
from bench.trees import TREE, churn, describe
from migrator.catalog.model import SETTLED_BEFORE_SCAN_S

EIGHTEEN_TIMES, TWELVE_TIMES = 18.0, 12.0
"""Wanted for 200,000 files (`--large`)."""
RSYNC, DELETING, FPSYNC = "rsync -a", "rsync -a --delete", "fpsync -n 4"
_PEERS = (RSYNC, DELETING, FPSYNC)
_NEVER_MOVED = ("renamed", "vanished")


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
            _table("Nothing changed", unchanged, EIGHTEEN_TIMES),
            _table("1 % changed", changed, TWELVE_TIMES),
        ),
        notes=(
            f"`migrator` is a delta pass, `migrator run --all --deltas 1`: a scan, the comparison of its catalog with the one "
            "before, and what is to be sent. A delta pass takes away what was deleted on the source, as "
            f"`{DELETING}` does; `{RSYNC}` and `{FPSYNC}` leave it.",
            "Before a round of `migrator` it makes a pass that is not timed, so that what changed for the others' rounds is "
            "not sent in its own.",
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
        self._changes = 0

    def copy_all(self) -> None:
        """The first copy, and what rsync still finds to do after it."""
        self._program.scan()
        self._program.plan()
        self._program.run()
        if "rsync" not in left_out("rsync"):
            rsync(self._lab, TREE, "-a")()

    def unchanged(self) -> list[Contestant]:
        peers = [Contestant(name=name, work=copy, prepare=self._settle) for name, copy in self._peers()]
        return [*peers, Contestant(name=PROGRAM, work=lambda: self._delta(0), prepare=self._prepare_unchanged)]

    def changed(self) -> list[Contestant]:
        rounds = 1 if self._options.repeat is None else None

        def prepare() -> None:
            self._changes = churn(self._lab.source, self._lab.users, number=next(self._numbers))
            self._settle()

        def prepare_program() -> None:
            self._catch_up()
            prepare()

        peers = [Contestant(name=name, work=copy, prepare=prepare, rounds=rounds) for name, copy in self._peers()]
        return [
            *peers,
            Contestant(name=PROGRAM, work=lambda: self._delta(self._changes), prepare=prepare_program),
        ]

    def _settle(self) -> None:
        self._lab.settle(cold=self._options.cold)

    def _prepare_unchanged(self) -> None:
        self._catch_up()
        self._settle()

    def _catch_up(self) -> None:
        """A pass of the program for what has changed so far. What is younger than a scan trusts would be sent twice."""
        time.sleep(SETTLED_BEFORE_SCAN_S)
        self._program.delta()

    def _peers(self) -> Iterator[tuple[str, Copy]]:
        missing = left_out("rsync", "fpsync")
        if "rsync" not in missing:
            yield RSYNC, rsync(self._lab, TREE, "-a")
            yield DELETING, rsync(self._lab, TREE, "-a", "--delete")
        if "fpsync" not in missing:
            yield FPSYNC, fpsync(self._lab, TREE)

    def _delta(self, files: int) -> dict[str, float]:
        """One delta pass, which has to find so many changed files and no others."""
        deltas, parts_s = self._program.delta()
        sync_target(self._lab)
        sent, moved = sum(delta["files"] for delta in deltas), sum(_moved(delta) for delta in deltas)
        if (files == 0 and sent) or sent < files * 9 // 10 or moved:
            raise ContestantFailed(f"{sent} files were sent and {moved} names moved, not {files} and none")
        return parts_s


def _moved(delta: dict[str, Any]) -> int:
    """Names that a pass found renamed or gone; here there are none."""
    trees = delta["changes"]["trees"]
    return sum(tree["by_kind"].get(kind, {"paths": 0})["paths"] for tree in trees for kind in _NEVER_MOVED)


def _table(title: str, every: list[Series], at_least: float) -> Table:
    by_name = {series.name: series for series in every}
    whole = by_name[PROGRAM].times_s
    ratios = [
        *ratio(
            "migrator against the best of rsync and fpsync", best_of(by_name[n] for n in _PEERS if n in by_name), whole
        )
    ]
    for name in _PEERS:
        if name in by_name:
            wanted = at_least if name == RSYNC else None
            ratios += ratio(f"migrator against {name}", by_name[name].times_s, whole, wanted)
    return Table(title=title, series=every, ratios=ratios)
