"""Which user trees are left alone, because their users work on the target, or are being brought there. Pure."""

from collections.abc import Mapping, Sequence

from migrator.domain.cutover import SETTLED_STATES, UNDER_WAY_STATES, CutoverRecord
from migrator.domain.entry import ACL_ACCESS, Entry, EntryType
from migrator.domain.freezing import FROZEN_UID
from migrator.domain.paths import show
from migrator.domain.tree import UserTree

_OTHERS = 0o077
_OWNER_WRITES = 0o200


def moved_trees(newest: Mapping[bytes, CutoverRecord]) -> frozenset[bytes]:
    """The trees of which nothing may be copied again, by the newest attempt to cut each over (of any plan)."""
    return frozenset(tree for tree, record in newest.items() if record.state in SETTLED_STATES | UNDER_WAY_STATES)


def settled_trees(newest: Mapping[bytes, CutoverRecord]) -> frozenset[bytes]:
    """The trees whose users work on the target for good: nothing is planned of them any more."""
    return frozenset(tree for tree, record in newest.items() if record.state in SETTLED_STATES)


def movable_trees(
    trees: Sequence[UserTree], newest: Mapping[bytes, CutoverRecord]
) -> tuple[tuple[UserTree, ...], tuple[UserTree, ...]]:
    """The trees that may be copied, and those that are left alone, each in the order given."""
    alone = moved_trees(newest)
    return tuple(tree for tree in trees if tree.path not in alone), tuple(tree for tree in trees if tree.path in alone)


def moved_unknown(tree: UserTree, source: Entry | None, target: Entry | None) -> str | None:
    """Why nothing may be copied of a tree whose user works on the target, although the ledger knows of no cutover: by its tops
    on both sides (None: there is none), closed by a freeze on the source and open on the target. None for any other.
    """
    if source is None or target is None or {source.type, target.type} != {EntryType.DIRECTORY}:
        return None
    if not _is_shut(source) or source.mode & _OWNER_WRITES or _is_shut(target):
        return None
    return (
        f"{show(tree.path)} is frozen on the source and open on the target, so {tree.user} works on the target, and the ledger knows "
        "nothing of it: find out whether the ledger is the latest one, and bring back the newest of its backups; if nobody was "
        "moved, give the tree on the source its owner and mode again"
    )


def _is_shut(top: Entry) -> bool:
    return top.uid == FROZEN_UID and not top.mode & _OTHERS and ACL_ACCESS not in top.xattrs
