"""What speaks against renaming and taking away on the target."""

import math
from typing import Any

import pytest

from migrator.delta.delta import deletion_problems
from migrator.delta.model import ChangeKind, Changes, ChangeTally, TreeChanges


def tree(
    *, names: int = 101, size: int = 1000, gone: int = 0, lost: int = 0, name: bytes = b"home/a", **others: int
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
        "max_shrink": 0.5,
    }
    return deletion_problems(Changes(base="scan-1", now="scan-2", trees=trees), **(facts | changes))


@pytest.mark.parametrize(
    "one",
    [
        tree(),
        tree(gone=50, lost=500),
        tree(renamed=100),
        tree(new=1000, grown=50),
        tree(names=2, gone=0, rewritten=1),
        # Everything was replaced by something else: the tree is not empty, and within a larger share.
        tree(names=5, size=0, gone=2, new=7),
    ],
)
def test_nothing_speaks_against_ordinary_changes(one: TreeChanges) -> None:
    assert problems(one) == ()
    assert problems() == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"base_whole": False}, "the catalog scan-1 is not whole"),
        ({"base_whole": None}, "whether the catalog scan-1 is whole is not known"),
        ({"base_fingerprint": "e"}, "changed between the catalogs scan-1 and scan-2"),
        ({"base_fingerprint": ""}, "when it was scanned is not known"),
        ({"now_fingerprint": None}, "when it was scanned is not known"),
        ({"source_fingerprint": "g"}, "changed since the catalog scan-2"),
        ({"source_fingerprint": None}, "which bricks the source has now is not known"),
        ({"source_problems": ("brick 1 is down",)}, "brick 1 is down"),
        ({"source_problems": ("a task is under way",)}, "a task is under way"),
        ({"mount_problems": ("the target is not mounted",)}, "the target is not mounted"),
    ],
)
def test_each_guard_trips_alone(changes: dict[str, Any], said: str) -> None:
    (problem,) = problems(tree(), **changes)
    assert said in problem


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (tree(gone=51), "has lost 51 of 101 names since"),
        (tree(gone=1, lost=501), "has lost 501 B of 1000 B since"),
        (tree(gone=90, lost=900), "has lost 90 of 101 names and 900 B of 1000 B"),
        (tree(gone=90, lost=900, new=90), "has lost 90 of 101 names and 900 B of 1000 B"),
        (tree(gone=60, lost=1, renamed=40), "has lost 60 of 101 names since"),
        (tree(gone=101, lost=1000), "is empty now, or gone"),
        (tree(gone=100, lost=1000), "has lost 100 of 101 names and 1000 B of 1000 B"),
        (tree(names=3, size=0, gone=2), "has lost 2 of 3 names since"),
        (tree(names=1, size=0, gone=1), "is empty now, or gone"),
        (tree(gone=102), "cannot be judged"),
        (tree(gone=1, lost=1001), "cannot be judged"),
        (tree(names=0, size=0, gone=1), "cannot be judged"),
    ],
)
def test_a_tree_that_shrank_too_much(one: TreeChanges, said: str) -> None:
    (problem,) = problems(tree(name=b"home/b"), one)
    assert problem.startswith("the user tree home/a ")
    assert said in problem
    assert len(problems(tree(gone=1), max_shrink=math.nan)) == 1
