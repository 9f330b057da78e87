"""Which user trees are left alone, because their users work on the target, or are being brought there. Pure."""

from collections.abc import Mapping, Sequence

from migrator.domain.cutover import SETTLED_STATES, UNDER_WAY_STATES, CutoverRecord
from migrator.domain.tree import UserTree


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
