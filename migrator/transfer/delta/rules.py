"""Problems that forbid renames and deletions on the target: those of the source and the mounts for the whole pass, and
those of a tree for this tree alone.

A path that is missing from a catalog may only have been missed by its scan, so anything that cannot be evaluated counts
as a problem.
"""

from collections.abc import Iterable, Mapping, Sequence

from migrator.core.paths import show
from migrator.core.units import format_count, format_size
from migrator.site.rules_guards import shrink_losses, shrink_remedy
from migrator.transfer.delta.model import ChangeKind, Changes, TreeChanges

_LOOK = "check it on the source"
_RIGHT_ALL_THE_SAME = (
    "if it is right, make a new plan with `migrator plan --activate`, whose passes begin from the source as it is now"
)


def deletion_problems(
    changes: Changes,
    *,
    base_whole: bool | None,
    base_fingerprint: str | None,
    now_fingerprint: str | None,
    source_fingerprint: str | None,
    source_problems: Sequence[str],
    mount_problems: Sequence[str],
) -> tuple[str, ...]:
    """Every problem of the whole pass, each with the next step; empty if renames and deletions may be applied in trees
    without a problem of their own (`shrunk_trees`).

    `base_whole`: whether the catalog of the base is complete; an incomplete one is never compared with the new one. The
    fingerprints are those of the source's health at the start of each scan, and now. `source_problems` are problems and
    doubts (a rebalance process) of the source, `mount_problems` those of both mounts. None means unknown.
    """
    return (
        *_catalog_problems(changes.base, base_whole),
        *_brick_problems(changes, base_fingerprint, now_fingerprint, source_fingerprint),
        *source_problems,
        *mount_problems,
    )


def shrunk_trees(changes: Changes, max_shrink: float) -> Mapping[bytes, str]:
    """The trees that lost too much since the base, each with the reason and the next step. A tree may lose at most the
    share `max_shrink` of its names and of its bytes (see `shrink_losses`); renamed paths do not count as lost.
    """
    return {tree.tree: problem for tree in changes.trees if (problem := _tree_problem(tree, max_shrink)) is not None}


def _catalog_problems(name: str, whole: bool | None) -> Iterable[str]:
    if whole is None:
        yield f"the catalog {name} may not be whole: the ledger has no record of its scan. Restore it, or scan again"
    elif not whole:
        yield f"the catalog {name} is not whole, so what it lacks may be there: see `migrator scan`, and scan again"


def _brick_problems(changes: Changes, base: str | None, now: str | None, source: str | None) -> Iterable[str]:
    if not base or not now:
        yield "the bricks that the source had when it was scanned are unknown: make a new plan with `migrator plan --activate`"
    elif base != now:
        yield (
            f"the source's bricks or options were changed between the catalogs {changes.base} and {changes.now}, so what "
            f"vanished may have been on a brick that was removed: see `gluster volume info`; {_RIGHT_ALL_THE_SAME}"
        )
    if not source:
        yield "the bricks that the source has now are unknown: see `migrator doctor`"
    elif now and now != source:
        yield f"the source's bricks or options were changed since the catalog {changes.now}: scan again"


def _tree_problem(tree: TreeChanges, max_shrink: float) -> str | None:
    gone, new = tree.tally(ChangeKind.VANISHED), tree.tally(ChangeKind.NEW)
    name = f"the user tree {show(tree.tree)}"
    if not gone.paths and not gone.size_bytes:
        return None
    if gone.paths > tree.names_before or gone.size_bytes > tree.bytes_before:
        return (
            f"{name} cannot be judged: {format_count(gone.paths)} names of {format_count(tree.names_before)} and "
            f"{format_size(gone.size_bytes)} of {format_size(tree.bytes_before)} vanished: scan again"
        )
    if not new.paths and gone.paths == tree.names_before:
        return f"{name} is empty now, or gone: {_LOOK}; {_RIGHT_ALL_THE_SAME}"
    lost = shrink_losses(
        names=gone.paths,
        of_names=tree.names_before,
        size_bytes=gone.size_bytes,
        of_bytes=tree.bytes_before,
        max_shrink=max_shrink,
        floor=True,
    )
    if not lost:
        return None
    return f"{name} has lost {' and '.join(lost)} since the pass before: {_LOOK}; {shrink_remedy(max_shrink)}"
