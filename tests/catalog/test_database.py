"""Queries out of core: what is sorted in parts, and room that is not there."""

from pathlib import Path

import pytest

from migrator.catalog.database import connect, sorted_parts
from migrator.catalog.ports import Scratch
from migrator.core.errors import Refused


@pytest.mark.parametrize("parts", [0, 1, 2, 7])
def test_each_part_is_sorted_after_the_one_before(tmp_path: Path, parts: int) -> None:
    """A part without rows is passed over, and nothing is left of the parts."""
    query = "SELECT i, 1 + i * $factor % $parts // 2 * 2 AS part FROM range($count) AS numbers(i)"
    parameters = {"factor": 7919, "parts": max(parts, 1), "count": 1000 if parts else 0}
    with connect(Scratch(tmp_path)) as connection:
        blocks = sorted_parts(connection, query, parameters, parts=parts, order="i DESC", rows_at_once=100)
        found = [row["i"] for block in blocks for row in block.to_pylist()]
    if parts:
        assert found == sorted(range(1000), key=lambda i: (i * 7919 % parts // 2 * 2, -i))
    assert list(tmp_path.glob("parts-*")) == []


def test_what_no_disk_can_hold_is_refused_before_the_query(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"1,000,000,000,000 paths may need .* more room"):
        connect(Scratch(tmp_path), rows=10**12)
