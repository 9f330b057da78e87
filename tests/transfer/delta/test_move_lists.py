"""Move lists on disk, what forbids deletions, and the trees that a delta pass scans."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from migrator.app.ledger import MigrationLedger
from migrator.core.entry import EntryType
from migrator.core.errors import LedgerCorrupt, Refused, UsageError
from migrator.core.states import PassKind, PassState
from migrator.core.units import GIB
from migrator.site.rules_guards import SHRINK_FLOOR_BYTES, SHRINK_FLOOR_NAMES
from migrator.transfer.bases import base_catalog
from migrator.transfer.delta.extras import against_trees
from migrator.transfer.delta.model import ChangeKind, Changes, ChangeTally, Gone, Rename, TreeChanges
from migrator.transfer.delta.rules import deletion_problems, shrunk_trees
from migrator.transfer.delta.store import MoveListFiles
from migrator.transfer.delta.trash import unfinished_places
from tests.support.plans import small_plan
from tests.support.records import SITE

HOSTILE = (b"-rf", b"new\nline", b"\xff\xfe", b"a" * 255, b"quo'te", b"/".join([b"d" * 250] * 30))
NAME = "batch-0001-delta-0001"


@pytest.fixture
def lists(tmp_path: Path) -> MoveListFiles:
    return MoveListFiles(tmp_path / "state" / "moves")


@pytest.fixture(autouse=True)
def state(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


def rename(number: int, name: bytes = b"x") -> Rename:
    return Rename(
        tree=b"t\xff",
        old=b"t\xff/%d" % number + name,
        new=b"t\xff/new/%d" % number + name,
        type=list(EntryType)[number % len(EntryType)],
        size_bytes=number * 2**40,
        mtime_ns=number - 2**62,
    )


def gone(number: int, name: bytes = b"x") -> Gone:
    return Gone(tree=b"t\xff", path=b"t\xff/%d" % number + name)


def test_a_written_list_is_read_back_in_order(lists: MoveListFiles) -> None:
    renames = [rename(number, name) for number, name in enumerate(HOSTILE)]
    vanished = [gone(number, name) for number, name in enumerate(HOSTILE)]
    written = lists.write(NAME, iter(renames), iter(vanished))
    assert (written.renames, written.gone) == (len(HOSTILE), len(HOSTILE))
    assert list(lists.renames(written.move_list)) == renames
    assert list(lists.gone(written.move_list)) == vanished
    assert lists.digest(written.move_list) == written.digest


@pytest.mark.parametrize("damage", ["missing", "cut", "bytes", "other columns"])
def test_a_damaged_list_is_refused(lists: MoveListFiles, state: Path, damage: str) -> None:
    written = lists.write(NAME, map(rename, range(5000)), map(gone, range(5000)))
    file = state / "moves" / written.move_list
    content = file.read_bytes()
    place = len(content) // 4
    if damage == "missing":
        file.unlink()
    elif damage == "other columns":
        pq.write_table(pq.read_table(file).drop_columns(["mtime_ns"]), file)
    else:
        file.write_bytes(content[:place] + (b"" if damage == "cut" else b"\x55" * 400 + content[place + 400 :]))
    with pytest.raises(Refused):
        list(lists.gone(written.move_list))
    if damage != "missing":
        assert lists.digest(written.move_list) != written.digest


@pytest.mark.parametrize("name", ["", "../x", "a/b", "/etc/x", ".hidden", "a" * 200])
def test_names_that_lead_elsewhere_are_refused(lists: MoveListFiles, name: str) -> None:
    with pytest.raises(UsageError):
        lists.write(name, [], [])
    with pytest.raises(Refused, match="cannot be a move list"):
        list(lists.renames(name))


def tree(
    *, names: int = 1001, size: int = 10 * GIB, gone: int = 0, lost: int = 0, name: bytes = b"home/a", **others: int
) -> TreeChanges:
    by_kind = {ChangeKind(kind): ChangeTally(paths=count, size_bytes=count * 10) for kind, count in others.items()}
    by_kind[ChangeKind.VANISHED] = ChangeTally(paths=gone, size_bytes=lost)
    return TreeChanges(tree=name, names_before=names, bytes_before=size, by_kind=by_kind)


def problems(*trees: TreeChanges, **changes: Any) -> tuple[str, ...]:
    facts: dict[str, Any] = {
        "base_whole": True,
        "base_fingerprint": "f",
        "now_fingerprint": "f",
        "source_fingerprint": "f",
        "source_problems": (),
        "mount_problems": (),
    }
    return deletion_problems(Changes(base="scan-1", now="scan-2", trees=trees), **(facts | changes))


def shrunk(*trees: TreeChanges, max_shrink: float = 0.5) -> Mapping[bytes, str]:
    return shrunk_trees(Changes(base="scan-1", now="scan-2", trees=trees), max_shrink)


@pytest.mark.parametrize(
    "one",
    [
        tree(),
        tree(gone=500, lost=5 * GIB),
        tree(renamed=1000),
        tree(new=1000, grown=50),
        tree(names=2, gone=0, rewritten=1),
        # Everything was replaced by something else: the tree is not empty, and within a larger share.
        tree(names=500, size=0, gone=200, new=700),
        # Of a small tree, the most may go.
        tree(names=3, size=100, gone=2, lost=90),
        tree(names=SHRINK_FLOOR_NAMES + 1, size=SHRINK_FLOOR_BYTES, gone=SHRINK_FLOOR_NAMES, lost=SHRINK_FLOOR_BYTES),
    ],
)
def test_ordinary_changes_are_no_problem(one: TreeChanges) -> None:
    assert problems(one) == problems() == ()
    assert shrunk(one) == {}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"base_whole": False}, "the catalog scan-1 is not whole"),
        ({"base_whole": None}, "the catalog scan-1 may not be whole"),
        ({"base_fingerprint": "e"}, "changed between the catalogs scan-1 and scan-2"),
        ({"base_fingerprint": ""}, "when it was scanned are unknown"),
        ({"now_fingerprint": None}, "when it was scanned are unknown"),
        ({"source_fingerprint": "g"}, "changed since the catalog scan-2"),
        ({"source_fingerprint": None}, "the bricks that the source has now are unknown"),
        ({"source_problems": ("brick 1 is down",)}, "brick 1 is down"),
        ({"source_problems": ("a task is under way",)}, "a task is under way"),
        ({"mount_problems": ("the target is not mounted",)}, "the target is not mounted"),
    ],
)
def test_each_guard_trips_alone(changes: dict[str, Any], said: str) -> None:
    (problem,) = problems(tree(), **changes)
    assert said in problem


@pytest.mark.parametrize(
    "one",
    [
        tree(gone=501),
        tree(gone=1, lost=5 * GIB + 1),
        tree(gone=900, lost=9 * GIB),
        tree(gone=900, lost=9 * GIB, new=900),
        tree(gone=600, lost=1, renamed=400),
        tree(gone=1001, lost=10 * GIB),
        tree(gone=1000, lost=10 * GIB),
        # An empty tree is never small.
        tree(names=1, size=0, gone=1),
        # More is gone than there was.
        tree(gone=1002),
        tree(gone=1, lost=10 * GIB + 1),
        tree(names=0, size=0, gone=1),
    ],
)
def test_a_tree_that_shrank_too_much_is_named_alone(one: TreeChanges) -> None:
    assert problems(one) == ()
    assert list(shrunk(tree(name=b"home/b"), one)) == [b"home/a"]


def test_a_problem_of_one_tree_keeps_the_extras_of_no_other() -> None:
    """The catalog of an earlier plan is not whole of one tree: those of the other trees are judged by it."""
    asked: list[list[bytes]] = []

    async def judge(changes: Changes, base: str) -> tuple[str, ...]:
        trees = [one.tree for one in changes.trees]
        asked.append(trees)
        return deletion_problems(
            changes,
            base_whole=b"home/b" not in trees,
            base_fingerprint="f",
            now_fingerprint="f",
            source_fingerprint="f" if base == "scan-1" else None,
            source_problems=(),
            mount_problems=(),
        )

    trees = [tree(name=name) for name in (b"home/a", b"home/b", b"home/c")]
    against = asyncio.run(against_trees(judge, "scan-1", "scan-2", trees))
    assert list(against) == [b"home/b"]
    assert "not whole" in against[b"home/b"][0]
    assert list(asyncio.run(against_trees(judge, "scan-0", "scan-2", trees))) == [b"home/a", b"home/b", b"home/c"]
    asked.clear()
    assert asyncio.run(against_trees(judge, "scan-1", "scan-2", trees[::2])) == {}
    assert asked == [[b"home/a", b"home/c"]]
    assert asyncio.run(against_trees(judge, "scan-1", "scan-2", ())) == {}


def test_a_share_that_is_no_number_allows_no_loss_above_the_floor() -> None:
    assert list(shrunk(tree(gone=SHRINK_FLOOR_NAMES + 1), max_shrink=math.nan)) == [b"home/a"]


ANN, BOB = b"home/ann", b"home/bob"


def passed(ledger: MigrationLedger, kind: PassKind, number: int, trees: Sequence[bytes]) -> None:
    """A pass over some trees; the seed has no base."""
    name, seed = f"{kind.value}-{number}", kind is PassKind.SEED
    found = tuple(TreeChanges(tree=tree, names_before=1, bytes_before=1, by_kind={}) for tree in trees)
    ledger.passes.start(
        plan="p",
        batch=1,
        kind=kind,
        number=number,
        catalog=name,
        base_catalog=None if seed else "base",
        chunk_list=name,
        changes=None if seed else Changes(base="base", now=name, trees=found),
        chunks=(),
        at_s=1.0,
    )


def test_the_base_of_a_tree_is_the_catalog_of_the_latest_pass_over_it(ledger: MigrationLedger) -> None:
    def base(*trees: bytes) -> str:
        return base_catalog(ledger.passes, "p", 1, trees)

    with pytest.raises(LedgerCorrupt, match="no pass"):
        base(ANN)
    passed(ledger, PassKind.SEED, 0, ())
    assert base(ANN, BOB) == "seed-0"
    passed(ledger, PassKind.DELTA, 1, (ANN, BOB))
    passed(ledger, PassKind.FINAL, 1, (ANN,))
    assert (base(ANN), base(BOB)) == ("final-1", "delta-1")
    with pytest.raises(LedgerCorrupt, match="different passes"):
        base(ANN, BOB)
    passed(ledger, PassKind.FINAL, 2, (BOB,))
    assert (base(ANN), base(BOB)) == ("final-1", "final-2")
    passed(ledger, PassKind.DELTA, 2, (ANN, BOB))
    assert base(ANN) == base(BOB) == base(BOB, ANN) == "delta-2"


def test_the_trash_of_a_pass_that_was_killed_is_kept_until_it_has_ended(ledger: MigrationLedger) -> None:
    """Renamed files lie in it and nowhere else, however old it is."""
    ledger.site.create(SITE)
    ledger.plans.record(small_plan(), path="plan.json", checksum="c")
    begun = ledger.passes.start(
        plan="plan",
        batch=1,
        kind=PassKind.DELTA,
        number=3,
        catalog="now",
        base_catalog="base",
        chunk_list="c",
        move_list="m",
        move_list_digest="d",
        changes=Changes(base="base", now="now", trees=()),
        chunks=(),
        at_s=1577836800.0,
    )
    assert unfinished_places(ledger) == {"20200101T000000Z-batch-0001-delta-0003"}
    ledger.passes.set_state(begun.id, PassState.STOPPED, 1.0)
    assert unfinished_places(ledger)
    ledger.passes.set_state(begun.id, PassState.RUNNING, 1.0)
    ledger.passes.set_state(begun.id, PassState.DONE, 2.0)
    assert not unfinished_places(ledger)
