"""Odd files: one directory that holds every kind of path that has ever broken a copying program."""

import errno
import os
from contextlib import ExitStack
from datetime import UTC, datetime

from migrator.domain.lab import FIRST_UID, OddFiles, OddKind
from migrator.domain.paths import name as last_name
from migrator.domain.units import NS_PER_S
from migrator.stages.lab.odd_attributes import ATTRIBUTE_FUNCTIONS
from migrator.stages.lab.odd_links import LINK_FUNCTIONS
from migrator.stages.lab.odd_maker import CannotMake, Neighbour, OddFunctions, OddMaker
from migrator.stages.lab.odd_names import NAME_FUNCTIONS
from migrator.stages.lab.placing import Attributes, Owner, TreeWriter

ODD_FUNCTIONS: OddFunctions = {**NAME_FUNCTIONS, **LINK_FUNCTIONS, **ATTRIBUTE_FUNCTIONS}

_TIME_NS = int(datetime(2023, 3, 4, 5, 6, 7, tzinfo=UTC).timestamp()) * NS_PER_S + 123_456_789
_FOREIGN_UID_OFFSET = 900

# What a file system that lacks a feature, or a missing privilege, answers. Anything else is an error.
_REFUSALS = frozenset({errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.EINVAL, errno.ENAMETOOLONG, errno.EILSEQ})


def odd_files(
    tree: bytes,
    *,
    base: bytes = b"odd",
    seed: int = 1,
    uid: int = FIRST_UID,
    neighbour: bytes | None = None,
    source_mount: bytes | None = None,
    only: frozenset[OddKind] | None = None,
) -> OddFiles:
    """Make every kind of odd file in the directory `base` of an existing tree (`b""`: in the tree itself).

    `uid` owns them (its gid has the same number) and is left to the caller's own without root. `neighbour` is another
    tree on the same file system, for a hard link over trees. `source_mount` is where absolute symlinks point, by
    default the tree's parent directory. Equal seeds give equal trees, times and contents included. Kinds that this
    file system or user cannot have are listed as skipped. Raises OSError where the directory is there already, and
    for everything that is no lack of a feature.
    """
    made: dict[OddKind, tuple[bytes, ...]] = {}
    skipped: dict[OddKind, str] = {}
    plain = Attributes(owner=Owner(uid=uid, gid=uid), mode=0o644, mtime_ns=_TIME_NS, atime_ns=_TIME_NS + 3 * NS_PER_S)
    tree = tree.rstrip(b"/")
    with ExitStack() as stack:
        writer = stack.enter_context(TreeWriter(tree))
        beside = None
        if neighbour is not None:
            beside_writer = stack.enter_context(TreeWriter(neighbour))
            beside = Neighbour(name=last_name(neighbour.rstrip(b"/")), writer=beside_writer)
        maker = OddMaker(
            writer=writer,
            base=base,
            tree_name=last_name(tree),
            seed=seed,
            plain=plain,
            owner=Owner(uid=uid, gid=uid),
            foreign=Owner(uid=uid + _FOREIGN_UID_OFFSET, gid=uid + _FOREIGN_UID_OFFSET),
            neighbour=beside,
            source_mount=source_mount if source_mount is not None else os.path.dirname(tree),
            is_root=os.geteuid() == 0,
        )
        if base:
            writer.directory(base, maker.with_mode(0o755))
        for kind, make in ODD_FUNCTIONS.items():
            if only is not None and kind not in only:
                continue
            try:
                made[kind] = tuple(make(maker))
            except CannotMake as reason:
                skipped[kind] = str(reason)
            except OSError as error:
                if error.errno not in _REFUSALS:
                    raise
                skipped[kind] = f"the file system or a missing privilege refuses it: {error.strerror}"
    return OddFiles(paths=made, skipped=skipped)
