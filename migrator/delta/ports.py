"""Move lists and extras as stages see them."""

from dataclasses import dataclass

# Move lists.


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenMoves:
    """A move list on disk. `gone` counts the outermost vanished paths."""

    move_list: str
    digest: str
    renames: int
    gone: int


# Extras: paths that the target has, the source has not, and no list of vanished paths names. An earlier plan copied them, and
# they were gone by the scan of the present plan; or the newest verification found them only on the target.


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtrasOfTree:
    """Where to search for extras of one tree. `brought` are the catalogs of all passes over it: this program did not copy a
    path that none of them lists, so it is no extra. `earlier` are those of them since the last pass that removed extras.
    `manifest` is that of the verification whose findings count.
    """

    tree: bytes
    brought: tuple[str, ...]
    earlier: tuple[str, ...] = ()
    manifest: str | None = None
