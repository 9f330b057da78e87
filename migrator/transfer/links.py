"""Hard links between trees: a stream is confined to one tree, so this process makes them."""

import errno
from collections.abc import Iterable
from functools import partial

from migrator.catalog.model import ListedPath
from migrator.core.entry import Entry, EntryType
from migrator.core.paths import is_beneath, show
from migrator.transfer import model
from migrator.transfer.context import PassUnderWay
from migrator.transfer.judging import Result, bad_file, look_up, stop_of

_COPY_INSTEAD = frozenset({errno.ENOENT, errno.EMLINK, errno.EXDEV, errno.EPERM})
"""The existing name is missing, or cannot get another name."""


async def make_links(under_way: PassUnderWay, paths: Iterable[ListedPath]) -> tuple[Result, int, list[ListedPath]]:
    """Make each path a hard link to its `link_to`, if both are one file on the source. Returns the bad paths, the number
    of links, and the paths that have to be copied instead.
    """
    result, made = Result(), 0
    instead: list[ListedPath] = []
    for listed in paths:
        link = partial(_link, under_way, listed)
        try:
            linked = await under_way.world.blocking(link, timeout_s=under_way.request.stall_timeout_s)
        except TimeoutError:
            return (
                result.stop_for(model.StopReason.TARGET_STUCK, f"{show(listed.path)} cannot be linked"),
                made,
                instead,
            )
        except OSError as error:
            result.bad.append(problem := bad_file(listed.path, error))
            if (stop := stop_of(problem)) is not None:
                return result.stop_for(*stop), made, instead
            continue
        if linked:
            made += 1
        else:
            instead.append(listed)
    return result, made, instead


def _link(under_way: PassUnderWay, listed: ListedPath) -> bool:
    """Make one link; False if the path has to be copied. Raises OSError."""
    existing, world = listed.link_to, under_way.world
    # The user of a tree that is left alone may have written to it on the target: a link would expose that in another
    # tree.
    if existing is None or any(is_beneath(existing, tree) for tree in under_way.left_alone):
        return False
    if not under_way.capabilities.keeps_hard_links:
        return False
    here, there = look_up(world.source, listed.path), look_up(world.source, existing)
    if not (isinstance(here, Entry) and isinstance(there, Entry) and _same_file(here, there)):
        return False
    try:
        world.target.link(existing, listed.path)
    except OSError as error:
        if error.errno in _COPY_INSTEAD:
            return False
        raise
    return True


def _same_file(one: Entry, other: Entry) -> bool:
    return (
        one.type is other.type and one.type is not EntryType.DIRECTORY and (one.dev, one.ino) == (other.dev, other.ino)
    )
