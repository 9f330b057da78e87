"""Files that were put on bricks past Gluster, without a gfid: what is said of them, and what they speak against. Pure.

Gluster does not know them, so no drain moves them, and nobody can open them. With `cluster.lookup-optimize` off, as it is from a
drain or an addition on, clients ask every brick for a name, and one that meets such a file on another brick than its layout says
hangs for good (seen on GlusterFS 10.3; #3688 there).
"""

from collections.abc import Collection, Iterator, Sequence

from migrator.domain.paths import show
from migrator.domain.scan import StrangeFiles
from migrator.domain.units import several

_SHOWN = 3

REMEDY = "move them off the brick, and copy what is wanted in through the mount"
_HANGS = (
    "clients that ask for such a name while names are looked for on all bricks, as they are from a drain or an addition on, can "
    "hang (GlusterFS 10.3)"
)


def strange_sentences(found: Sequence[StrangeFiles]) -> Iterator[str]:
    """What a scan tells of them, by brick."""
    for one in found:
        yield f"{strange_words(one)}: they are not on the volume, and not in the catalog; {REMEDY}"


def strange_problems(found: Sequence[StrangeFiles]) -> Iterator[str]:
    """Why no drain and no addition begins while they lie there."""
    for one in found:
        yield f"{strange_words(one)}; {_HANGS}: {REMEDY}"


def strange_words(one: StrangeFiles) -> str:
    """How many on which brick, with the first names."""
    shown = ", ".join(show(path) for path in one.paths[:_SHOWN])
    more = f", and {one.files - _SHOWN:,} more" if one.files > _SHOWN else ""
    named = f" ({shown}{more})" if shown else ""
    return f"{several(one.files, 'file')} without a gfid {_were(one)} put on {one.brick} past Gluster{named}"


def still_strange(known: StrangeFiles, still: Collection[bytes]) -> StrangeFiles | None:
    """What is left of what a scan found, by a look at the paths that it kept: `still` are those without a gfid yet. None where
    nothing is. What it counted and did not keep counts as left.
    """
    paths = tuple(path for path in known.paths if path in still)
    files = len(paths) + known.files - len(known.paths)
    return StrangeFiles(brick=known.brick, files=files, paths=paths) if files else None


def _were(one: StrangeFiles) -> str:
    return "was" if one.files == 1 else "were"
