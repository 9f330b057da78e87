"""Passes over a tree that was copied before: nothing changed, and one file of a hundred changed."""

import time
from collections.abc import Sequence
from itertools import count
from typing import Any

from bench.bulk import PROGRAM, copied
from bench.lab import VOLUME, BenchLab
from bench.options import Options
from bench.peers import DSYNC, dsync, fpsync, left_out, rsync, sync_target
from bench.results import Section, Table
from bench.timing import Contestant, ContestantFailed, Series, alternate, ratio
from bench.trees import TREE, churn, describe
from migrator.catalog.model import SETTLED_BEFORE_SCAN_S

EIGHTEEN_TIMES, TWELVE_TIMES = 18.0, 12.0
"""Wanted for 200,000 files."""
RSYNC, FPSYNC = "rsync -a", "fpsync -n 4"
_NEVER_MOVED = ("renamed", "vanished")


def passes(lab: BenchLab, options: Options) -> Section:
    """The contestants keep one copied tree equal to the source."""
    expected = lab.tally(TREE)
    program = copied(lab, options, TREE)
    numbers = count(time.time_ns())  # a lab that was kept has been changed by earlier calls: never the same
    changes = 0

    def settle() -> None:
        lab.settle(cold=options.cold)

    def change() -> None:
        nonlocal changes
        changes = churn(lab.source, lab.users, number=next(numbers))
        settle()

    def catch_up() -> None:
        """A pass for what has changed so far. What is younger than a scan trusts would be sent twice."""
        time.sleep(SETTLED_BEFORE_SCAN_S)
        program.delta()
        change()

    def delta() -> dict[str, float]:
        """One delta pass, which has to find so many changed files and no others."""
        deltas, parts_s = program.delta()
        sync_target(lab)
        sent, moved = sum(found["files"] for found in deltas), sum(_moved(found) for found in deltas)
        if (changes == 0 and sent) or sent < changes * 9 // 10 or moved:
            raise ContestantFailed(f"{sent} files were sent and {moved} names moved, not {changes} and none")
        return parts_s

    missing, once = left_out("rsync", "fpsync", "dsync"), options.rounds(1)
    unchanged = [Contestant(name=PROGRAM, work=delta, prepare=settle)]
    changed = [Contestant(name=PROGRAM, work=delta, prepare=catch_up)]
    if "fpsync" not in missing:
        unchanged.insert(0, Contestant(name=FPSYNC, work=fpsync(lab, TREE), prepare=settle, rounds=once))
    if "dsync" not in missing:
        by_dsync = dsync(lab, TREE)
        unchanged.insert(0, Contestant(name=DSYNC, work=by_dsync, prepare=settle, rounds=once))
        changed.insert(0, Contestant(name=DSYNC, work=by_dsync, prepare=change, rounds=once))
    if "rsync" not in missing:
        by_rsync = rsync(lab, TREE, "-a")
        unchanged.insert(0, Contestant(name=RSYNC, work=by_rsync, prepare=settle, rounds=once))
        changed.insert(0, Contestant(name=RSYNC, work=by_rsync, prepare=change, rounds=once))
    return Section(
        name="passes",
        title="Passes over what was copied before",
        facts={
            "tree": describe(expected),
            "volume": VOLUME,
            "changed": "1 % of the files: four of five written anew, one of five new",
        },
        tables=(
            _table(
                "Nothing changed", alternate(unchanged, options.rounds(2)), EIGHTEEN_TIMES if options.large else None
            ),
            _table("1 % changed", alternate(changed, options.rounds(2)), TWELVE_TIMES if options.large else None),
        ),
        notes=(
            "`migrator` is a delta pass, `migrator run --all --deltas 1`: a scan, the comparison of its catalog with the one "
            "before, and what is to be sent. A delta pass takes away what was deleted on the source, as `rsync -a --delete` "
            f"does; `{RSYNC}` and `{FPSYNC}` leave it.",
            "Before a round of `migrator` with changes it makes a pass that is not timed, so that what changed for the rounds "
            "before is not sent in its own.",
        ),
        left_out=missing,
    )


def _moved(delta: dict[str, Any]) -> int:
    """Names that a pass found renamed or gone; here there are none."""
    trees = delta["changes"]["trees"]
    return sum(tree["by_kind"].get(kind, {"paths": 0})["paths"] for tree in trees for kind in _NEVER_MOVED)


def _table(title: str, every: Sequence[Series], at_least: float | None) -> Table:
    *peers, program = every
    ratios = [
        one
        for peer in peers
        for one in ratio(
            f"migrator against {peer.name}",
            peer.times_s,
            program.times_s,
            at_least if peer.name == RSYNC else None,
        )
    ]
    return Table(title=title, series=every, ratios=ratios)
