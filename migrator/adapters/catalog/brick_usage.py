"""What each user has on each brick, out of a catalog."""

from collections.abc import Mapping
from pathlib import Path

from migrator.adapters.catalog.database import connect
from migrator.adapters.catalog.listings import create_entries
from migrator.adapters.catalog.reader import open_closed
from migrator.domain.brick_list import BrickUse

# All names of a hard-linked file lie on one brick, and count once there: to the first user in order of his tree. Directories
# lie on every brick, and are none's.
BRICK_USES = """
    WITH counted AS (
        SELECT brick, tree, 1 AS names, bytes, blocks FROM entries
        WHERE type <> 'directory' AND link_group IS NULL
        UNION ALL
        SELECT brick, tree, count(*), 0, 0 FROM entries
        WHERE type <> 'directory' AND link_group IS NOT NULL GROUP BY brick, tree
        UNION ALL
        SELECT brick, min(tree), 0, max(bytes), max(blocks) FROM entries
        WHERE type <> 'directory' AND link_group IS NOT NULL GROUP BY brick, link_group
    )
    SELECT brick, tree, sum(names)::BIGINT, sum(bytes)::BIGINT, (sum(blocks) * 512)::BIGINT
    FROM counted GROUP BY brick, tree
"""
"""Rows of brick, tree, names, bytes and allocated bytes."""


class BrickUsageFiles:
    """The `BrickUsage` port over a directory of catalogs; `temp_dir` takes what DuckDB spills."""

    def __init__(self, directory: Path, *, temp_dir: Path) -> None:
        self._directory = directory
        self._temp_dir = temp_dir

    def uses(self, catalog: str) -> Mapping[str | None, tuple[BrickUse, ...]]:
        """By brick what each user has there, with most bytes first."""
        closed = open_closed(self._directory / catalog)
        users = {tree.path: tree.user for tree in closed.record.trees}
        with connect(temp_dir=self._temp_dir) as connection:
            create_entries(connection, closed.part_files)
            rows = connection.execute(BRICK_USES).fetchall()
        # A user can have several trees.
        sums: dict[str | None, dict[str | None, list[int]]] = {walk.brick: {} for walk in closed.record.bricks}
        for brick, tree, files, size_bytes, allocated_bytes in rows:
            of_user = sums.setdefault(brick, {}).setdefault(None if tree is None else users[tree], [0, 0, 0])
            for place, count in enumerate((files, size_bytes, allocated_bytes)):
                of_user[place] += count
        return {brick: _sorted(found) for brick, found in sums.items()}


def _sorted(found: Mapping[str | None, list[int]]) -> tuple[BrickUse, ...]:
    uses = (
        BrickUse(user=user, files=files, size_bytes=size_bytes, allocated_bytes=allocated_bytes)
        for user, (files, size_bytes, allocated_bytes) in found.items()
    )
    return tuple(sorted(uses, key=lambda use: (-use.size_bytes, -use.files, use.user or "")))
