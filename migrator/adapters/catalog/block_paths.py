"""The paths in a block that a walk of a brick sends, for whoever makes no catalog of it."""

from migrator.adapters.catalog.blocks import decode_rows


def paths_of(payload: memoryview, most: int) -> tuple[int, tuple[bytes, ...]]:
    """How many entries a block has, and the paths of the first ones. Raises MigratorError."""
    batch = decode_rows(payload, trees=(), brick="", dev=0)
    paths = batch.column("path").slice(0, max(most, 0)).to_pylist()
    return batch.num_rows, tuple(path for path in paths if path is not None)
