"""The room that plans need: inodes of metadata targets, and the quotas of owners. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from migrator.beegfs import model
from migrator.beegfs.rules import INODES_OF_DIRECTORY, OwnerNeed, best_pool
from migrator.fs.model import Need
from migrator.plan.model import TreeUsage
from migrator.reap.model import PlanReap
from migrator.site.model import ReapAction


def metadata_forecast(
    targets: Sequence[model.StorageTarget], usages: Iterable[TreeUsage], arrived: Mapping[bytes, Need]
) -> tuple[model.MetadataForecast, ...]:
    """What the rest of these trees takes on each metadata target: BeeGFS puts a new directory on one of the best pool at
    random, with all its entries. None if the free inodes of one are unknown. `arrived` is what was copied, by tree.
    """
    metadata = best_pool([one for one in targets if one.kind is model.TargetKind.METADATA])
    total = 0
    for usage in usages:
        names = usage.files + usage.directories
        left = max(names - (arrived[usage.tree.path].inodes if usage.tree.path in arrived else 0), 0)
        total += _share(usage.files + INODES_OF_DIRECTORY * usage.directories, left, names)
    known = [(one, one.free_inodes) for one in metadata if one.free_inodes is not None]
    return tuple(
        model.MetadataForecast(name=one.name, node=one.node, free_inodes=free, expected_inodes=-(-total // len(known)))
        for one, free in known
        if len(known) == len(metadata)
    )


def owner_needs(
    owners: Iterable[model.TreeOwner], usages: Iterable[TreeUsage], left: Mapping[bytes, Need], *, reap: PlanReap | None
) -> tuple[OwnerNeed, ...]:
    """The remaining need by owner. `left` is the rest to copy of each tree (bytes, and all paths but directories);
    every owner of a tree needs the same share of it. Paths that a plan reaps have unknown owners, so they are
    subtracted from every owner of the tree: the result may be too small, never too large.
    """
    whole = {usage.tree.path: usage for usage in usages}
    reaped = {one.tree.path: one for one in reap.trees if one.action is not ReapAction.LIST} if reap else {}
    found: dict[int, OwnerNeed] = {}
    for owner in owners:
        usage, rest = whole.get(owner.tree), left.get(owner.tree)
        if usage is None or rest is None:
            continue
        gone = reaped.get(owner.tree)
        size_bytes = max(owner.size_bytes - (gone.size_bytes if gone else 0), 0)
        files = max(owner.files - (gone.files if gone else 0), 0)
        before = found.get(owner.uid, OwnerNeed(uid=owner.uid))
        found[owner.uid] = replace(
            before,
            need=Need(
                size_bytes=before.need.size_bytes + _share(size_bytes, rest.size_bytes, usage.size_bytes),
                inodes=before.need.inodes + _share(files, rest.inodes, usage.files),
            ),
            users=tuple(dict.fromkeys((*before.users, usage.tree.user))),
        )
    return tuple(found[uid] for uid in sorted(found))


def _share(amount: int, left: int, whole: int) -> int:
    return amount * min(left, whole) // whole if whole else 0
