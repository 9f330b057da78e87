"""Whether a delta pass may rename or delete."""

from collections.abc import Iterable, Sequence

from migrator.core.paths import show
from migrator.core.units import format_count, format_size
from migrator.delta.model import ChangeKind, Changes, TreeChanges

# Problems that forbid renames and deletions on the target. A path that is missing from a catalog may only have been
# missed by its scan, so anything that cannot be evaluated counts as a problem.


_LOOK = "look at it on the source"
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
    max_shrink: float,
) -> tuple[str, ...]:
    """Every problem, each with the next step; empty if renames and deletions may be applied.

    `base_whole`: whether the catalog of the base is complete; an incomplete one is never compared with the new one. The
    fingerprints are those of the source's health at the start of each scan, and now. `source_problems` are problems and
    doubts (a rebalance process) of the source, `mount_problems` those of both mounts. None means unknown. A tree may
    lose at most the share `max_shrink` of its names and of its bytes since the base; renamed paths do not count as
    lost.
    """
    return (
        *_catalog_problems(changes.base, base_whole),
        *_brick_problems(changes, base_fingerprint, now_fingerprint, source_fingerprint),
        *source_problems,
        *mount_problems,
        *(problem for tree in changes.trees for problem in _tree_problems(tree, max_shrink)),
    )


def _catalog_problems(name: str, whole: bool | None) -> Iterable[str]:
    if whole is None:
        yield f"whether the catalog {name} is whole is not known: bring it back, or scan again"
    elif not whole:
        yield f"the catalog {name} is not whole, so what it lacks may be there: see `migrator scan`, and scan again"


def _brick_problems(changes: Changes, base: str | None, now: str | None, source: str | None) -> Iterable[str]:
    if not base or not now:
        yield "which bricks the source had when it was scanned is not known: make a new plan with `migrator plan --activate`"
    elif base != now:
        yield (
            f"the source's bricks or options were changed between the catalogs {changes.base} and {changes.now}, so what "
            f"vanished may have been on a brick that was taken away: look at `gluster volume info`; {_RIGHT_ALL_THE_SAME}"
        )
    if not source:
        yield "which bricks the source has now is not known: see `migrator doctor`"
    elif now and now != source:
        yield f"the source's bricks or options were changed since the catalog {changes.now}: scan again"


def _tree_problems(tree: TreeChanges, max_shrink: float) -> Iterable[str]:
    gone, new = tree.tally(ChangeKind.VANISHED), tree.tally(ChangeKind.NEW)
    name = f"the user tree {show(tree.tree)}"
    if not gone.paths and not gone.size_bytes:
        return
    if gone.paths > tree.names_before or gone.size_bytes > tree.bytes_before:
        yield (
            f"{name} cannot be judged: {format_count(gone.paths)} names of {format_count(tree.names_before)} and "
            f"{format_size(gone.size_bytes)} of {format_size(tree.bytes_before)} vanished: scan again"
        )
    elif not new.paths and gone.paths == tree.names_before:
        yield f"{name} is empty now, or gone: {_LOOK}; {_RIGHT_ALL_THE_SAME}"
    else:
        lost = []
        if not gone.paths <= max_shrink * tree.names_before:
            lost.append(f"{format_count(gone.paths)} of {format_count(tree.names_before)} names")
        if not gone.size_bytes <= max_shrink * tree.bytes_before:
            lost.append(f"{format_size(gone.size_bytes)} of {format_size(tree.bytes_before)}")
        if lost:
            yield (
                f"{name} has lost {' and '.join(lost)} since the pass before: {_LOOK}; if it is right, allow it once with a "
                f"larger [transfer] max_shrink (now {max_shrink:.0%})"
            )
