"""What bricks hold that are to be drained, out of a catalog."""

from collections.abc import Sequence
from pathlib import Path

from migrator.adapters.catalog.brick_usage import BRICK_USES
from migrator.adapters.catalog.database import connect
from migrator.adapters.catalog.listings import create_entries
from migrator.adapters.catalog.reader import open_closed
from migrator.domain.drain_preflight import BrickContent, TreeOnBricks

_MOST_SYMLINKS = 1000

# All names of a hard-linked file lie on one brick, and count once there.
_SUMS = """
    WITH counted AS (
        SELECT 1 AS names, bytes, blocks FROM entries
        WHERE type <> 'directory' AND link_group IS NULL AND list_contains($bricks, brick)
        UNION ALL
        SELECT count(*), max(bytes), max(blocks) FROM entries
        WHERE type <> 'directory' AND link_group IS NOT NULL AND list_contains($bricks, brick)
        GROUP BY brick, link_group
    )
    SELECT coalesce(sum(names), 0)::BIGINT, coalesce(sum(bytes), 0)::BIGINT,
           (coalesce(sum(blocks), 0) * 512)::BIGINT, (coalesce(max(blocks), 0) * 512)::BIGINT
    FROM counted
"""
_SYMLINKS = """
    SELECT path FROM entries WHERE type = 'symlink' AND nlink > 1 AND list_contains($bricks, brick)
    ORDER BY path LIMIT $most
"""
_TREES = f"""
    SELECT tree, sum(names)::BIGINT, sum(bytes)::BIGINT FROM ({BRICK_USES}) AS uses(brick, tree, names, bytes, allocated)
    WHERE tree IS NOT NULL AND list_contains($bricks, brick) GROUP BY tree ORDER BY tree
"""  # noqa: S608 (constant text)


class BrickContentFiles:
    """The `BrickContents` port over a directory of catalogs; `temp_dir` takes what DuckDB spills."""

    def __init__(self, directory: Path, *, temp_dir: Path) -> None:
        self._directory = directory
        self._temp_dir = temp_dir

    def content(self, catalog: str, bricks: Sequence[str]) -> BrickContent | None:
        """What these bricks held when they were scanned; None where the catalog was not made from any of them."""
        closed = open_closed(self._directory / catalog)
        if not {walk.brick for walk in closed.record.bricks}.intersection(bricks):
            return None
        with connect(temp_dir=self._temp_dir) as connection:
            create_entries(connection, closed.part_files)
            sums = connection.execute(_SUMS, {"bricks": list(bricks)}).fetchone() or (0, 0, 0, 0)
            rows = connection.execute(_SYMLINKS, {"bricks": list(bricks), "most": _MOST_SYMLINKS}).fetchall()
            trees = connection.execute(_TREES, {"bricks": list(bricks)}).fetchall()
        return BrickContent(
            files=sums[0],
            size_bytes=sums[1],
            allocated_bytes=sums[2],
            largest_bytes=sums[3],
            linked_symlinks=tuple(path for (path,) in rows),
            trees=tuple(TreeOnBricks(tree=tree, files=files, size_bytes=size) for tree, files, size in trees),
        )
