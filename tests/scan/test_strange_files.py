"""Files that were put on bricks past Gluster: what is said of them, and when they are gone."""

import pytest

from migrator.catalog.model import StrangeFiles
from migrator.scan.rules import still_strange

FOUND = StrangeFiles(brick="gl3:/b", files=5, paths=(b"a", b"b\n", b"c", b"d"))


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
