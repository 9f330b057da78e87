"""Which engine copies a chunk. Pure."""

from collections.abc import Collection

from migrator.domain.states import ChunkKind

AUTO = "auto"
RSYNC = "rsync"
DIRECT = "direct"
DRIVERS = ("fpsync", "parsyncfp2")
"""Copy whole trees through the mount, before the chunks."""


def copies_ranges(requested: str) -> bool:
    """Whether big files are worth being planned in ranges: only `direct` copies them so."""
    return requested in (AUTO, DIRECT)


def choose_engine(requested: str, kind: ChunkKind, available: Collection[str], *, from_brick: bool) -> str | None:
    """The engine for a chunk on a host that has the `available` ones; None: no stream, what the chunk would bring comes
    with another one (a file that no engine can copy in ranges is copied whole).

    `auto` takes `direct` where it was measured to be faster: everything that is read from a brick (there a stream is
    bound by its own system calls), and big files in ranges, which only it can copy. Through the mount a stream waits for
    the mount, and rsync copies what has changed only. Whatever is asked for, a host that lacks it uses rsync.
    """
    direct = DIRECT in available and requested in (AUTO, DIRECT)
    if kind is ChunkKind.RANGES:
        return DIRECT if direct else None
    if direct and (requested == DIRECT or from_brick or kind is ChunkKind.RANGED_FILES or RSYNC not in available):
        return DIRECT
    return RSYNC
