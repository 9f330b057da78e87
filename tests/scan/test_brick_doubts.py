"""What the rows of all bricks together say of a scan."""

from typing import Any

import pytest

from migrator.catalog.model import BrickFindings, PathFinding
from migrator.scan.rules import BrickDoubts, judge_bricks

NOTHING = BrickFindings()
SOME = PathFinding(count=5, paths=(b"home/a", b"home/\xff", b"home/c", b"home/d"))


def judged(found: BrickFindings = NOTHING, **changes: Any) -> BrickDoubts:
    facts: dict[str, Any] = {
        "migrating": 0,
        "filling": 0,
        "vanished": 0,
        "hidden_marks": 0,
        "strange": (),
        "limit": 100,
    }
    return judge_bricks(found, **{**facts, **changes})


@pytest.mark.parametrize("fact", ["doubled_paths", "doubled_inodes", "conflicting"])
def test_what_cannot_be_at_rest_makes_the_scan_not_whole(fact: str) -> None:
    (doubt,) = judged(BrickFindings(**{fact: SOME})).doubts
    assert doubt.startswith("5 ")
    assert r"home/a, home/\xff, home/c, ..." in doubt
    named = judged(BrickFindings(**{fact: PathFinding(count=1, paths=(b"home/a",))}))
    assert ([one.path for one in named.unread], named.doubts) == ([b"home/a"], ())


@pytest.mark.parametrize("fact", ["migrating", "filling"])
def test_a_file_in_motion_makes_it_not_whole(fact: str) -> None:
    assert judged(NOTHING, **{fact: 1}).doubts[0].startswith("1 file was")


@pytest.mark.parametrize("fact", ["differing", "incomplete"])
def test_copies_of_directories_that_differ_are_told_and_no_doubt(fact: str) -> None:
    result = judged(BrickFindings(**{fact: SOME}))
    assert result.doubts == ()
    assert result.findings[0].startswith("5 directories")


def test_more_than_the_mount_is_asked_for_is_a_doubt() -> None:
    assert judged(BrickFindings(differing=PathFinding(count=101))).doubts
    assert not judged(BrickFindings(differing=PathFinding(count=100))).doubts


def test_bits_that_the_mount_hides_are_told() -> None:
    assert judged(hidden_marks=2).findings[0].startswith("2 files have both the setgid and the sticky bit")


def test_what_vanished_is_told() -> None:
    assert "3 paths vanished" in judged(vanished=3).findings[0]
