"""Files that were put on bricks past Gluster: what is said of them, and when they are gone."""

import pytest

from migrator.catalog.model import StrangeFiles
from migrator.scan.rules import still_strange, strange_problems, strange_sentences

FOUND = StrangeFiles(brick="gl3:/b", files=5, paths=(b"a", b"b\n", b"c", b"d"))


def test_they_are_told_by_brick_with_the_first_names_and_what_to_do() -> None:
    (said,) = strange_sentences((FOUND,))
    assert r"5 files without a gfid were put on gl3:/b past Gluster (a, b\x0a, c, and 2 more)" in said
    assert "move them off the brick" in said
    (against,) = strange_problems((FOUND,))
    assert "can hang" in against


@pytest.mark.parametrize(
    ("known", "still", "left"),
    [
        (FOUND, {b"a", b"b\n", b"c", b"d"}, 5),
        # One was counted and not kept by name: only another scan tells.
        (FOUND, set(), 1),
        (StrangeFiles(brick="b", files=2, paths=(b"a", b"b")), {b"b"}, 1),
    ],
)
def test_what_was_taken_away_counts_no_more(known: StrangeFiles, still: set[bytes], left: int) -> None:
    found = still_strange(known, still)
    assert found is not None
    assert (found.files, set(found.paths)) == (left, still)


def test_nothing_is_left_when_all_were_taken_away() -> None:
    assert still_strange(StrangeFiles(brick="b", files=1, paths=(b"a",)), set()) is None
