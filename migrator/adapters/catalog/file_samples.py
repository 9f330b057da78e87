"""Files of a user tree, drawn from a catalog."""

from collections.abc import Sequence
from pathlib import Path

from migrator.adapters.catalog.database import connect
from migrator.adapters.catalog.reader import open_closed

_DRAW = """
    WITH drawn AS (
        SELECT class, arg_min(path, place, $count) AS paths FROM (
            SELECT path, hash(path, $seed::BIGINT) AS place,
                CASE WHEN size <= 4096 THEN 0 WHEN size <= 65536 THEN 1 WHEN size <= 1048576 THEN 2
                     WHEN size <= 16777216 THEN 3 ELSE 4 END AS class
            FROM read_parquet($files) WHERE tree = $tree AND type = 'file' AND size > 0
        ) GROUP BY class
    )
    SELECT path FROM (SELECT class, unnest(paths) AS path, generate_subscripts(paths, 1) AS turn FROM drawn)
    ORDER BY turn, class LIMIT $count
"""
"""One of each class of size after the other, so that wherever a reader stops he has had of all of them. Nothing is sorted but
what was drawn: 0.5 s over 3 million files, where a window over all of them takes ten times as long."""


class CatalogFileSamples:
    """The `FileSamples` port over the directory of catalogs; `temp_dir` takes what DuckDB spills."""

    def __init__(self, directory: Path, *, temp_dir: Path) -> None:
        self._directory = directory
        self._temp_dir = temp_dir

    def draw(self, catalog: str, tree: bytes, *, count: int, seed: int) -> Sequence[bytes]:
        """As the port says. Blocking: a second or two, over millions of rows."""
        files = [str(file) for file in open_closed(self._directory / catalog).part_files]
        if not files:
            return []
        with connect(temp_dir=self._temp_dir) as connection:
            rows = connection.execute(_DRAW, {"seed": seed, "files": files, "tree": tree, "count": count}).fetchall()
        return [path[len(tree) + 1 :] for (path,) in rows]
