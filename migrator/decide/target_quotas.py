"""Whether what is to come fits within the users' limits on the target. Pure.

Files are copied as root, so that no limit stops them; but what has arrived is its owner's. One who is then beyond his hard
limit can write nothing any more, on the day on which he is moved.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from migrator.domain.plan import TreeUsage
from migrator.domain.quota import TreeOwner, UserQuota
from migrator.domain.reap import PlanReap, ReapAction
from migrator.domain.site import Need
from migrator.domain.units import format_count, format_size

NEARLY = 0.9
"""Of a limit: with more than this share of it he has little room to work."""
_NAMED_USERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerNeed:
    """What is to come of one user's: bytes, and files with content (`inodes`); `users` are those whose trees it is in."""

    uid: int
    need: Need = field(default_factory=Need)
    users: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """As people are told of him."""
        named = ", ".join(self.users[:_NAMED_USERS])
        more = f" and {len(self.users) - _NAMED_USERS} others" if len(self.users) > _NAMED_USERS else ""
        return f"uid {self.uid} (tree of {named}{more})"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaWords:
    """What does not fit, and what hardly does; sentences."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def owner_needs(
    owners: Iterable[TreeOwner], usages: Iterable[TreeUsage], left: Mapping[bytes, Need], *, reap: PlanReap | None
) -> tuple[OwnerNeed, ...]:
    """By owner what is to come, of trees of which so much is `left` to be copied (bytes, and all paths but directories): of
    each owner of a tree the same share. What a plan reaps is taken off every owner of the tree, since nobody knows whose it
    is: so it is never too much.
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
        files = max(owner.files - (gone.inodes if gone else 0), 0)
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


def quota_words(needs: Iterable[OwnerNeed], quotas: Mapping[int, UserQuota], *, spread: int) -> QuotaWords:
    """By user whether it fits. `spread` is over how many storage targets new files lie at most: a file takes one chunk file
    at least, and so many at most. One who is beyond a limit already, of whom nothing is to come, is no problem of a copy.
    """
    problems: list[str] = []
    warnings: list[str] = []
    for one in needs:
        quota = quotas.get(one.uid)
        if quota is None or not one.need.size_bytes + one.need.inodes:
            continue
        _bytes(one, quota, problems, warnings)
        _chunk_files(one, quota, max(spread, 1), problems, warnings)
    return QuotaWords(problems=tuple(problems), warnings=tuple(warnings))


def room_to_work(owners: Collection[OwnerNeed], quotas: Mapping[int, UserQuota]) -> QuotaWords:
    """Whether users who are to work on the target can: one at his limit cannot write."""
    problems: list[str] = []
    warnings: list[str] = []
    for one in owners:
        quota = quotas.get(one.uid)
        if quota is None:
            continue
        for used, limit, words in (
            (quota.used_bytes, quota.limit_bytes, _size_words(quota)),
            (quota.used_chunk_files, quota.limit_chunk_files, _count_words(quota)),
        ):
            if limit is None or used is None:
                continue
            if used >= limit:
                problems.append(f"{one.shown} could write nothing on the target: {words}; raise the limit there")
            elif used > NEARLY * limit:
                warnings.append(f"{one.shown} has little room on the target: {words}")
    return QuotaWords(problems=tuple(problems), warnings=tuple(warnings))


def _bytes(one: OwnerNeed, quota: UserQuota, problems: list[str], warnings: list[str]) -> None:
    limit = quota.limit_bytes
    if limit is None:
        return
    after = quota.used_bytes + one.need.size_bytes
    words = f"{_size_words(quota)}, and {format_size(one.need.size_bytes)} are to come"
    if after > limit:
        problems.append(f"{one.shown} would be beyond his hard limit on the target: {words}")
    elif after > NEARLY * limit:
        warnings.append(f"{one.shown} will have little room on the target: {words}")


def _chunk_files(one: OwnerNeed, quota: UserQuota, spread: int, problems: list[str], warnings: list[str]) -> None:
    limit, used = quota.limit_chunk_files, quota.used_chunk_files
    if limit is None or used is None:
        return
    words = f"{_count_words(quota)}, and {format_count(one.need.inodes)} files are to come"
    if used + one.need.inodes > limit:
        problems.append(f"{one.shown} would be beyond his hard limit on the target: {words}")
    elif used + one.need.inodes * spread > NEARLY * limit:
        warnings.append(
            f"{one.shown} may come to his hard limit on the target: {words}, of up to {spread} chunk files each"
        )


def _size_words(quota: UserQuota) -> str:
    return f"{format_size(quota.used_bytes)} of {format_size(quota.limit_bytes or 0)} are used"


def _count_words(quota: UserQuota) -> str:
    used, limit = quota.used_chunk_files or 0, quota.limit_chunk_files or 0
    return f"{format_count(used)} of {format_count(limit)} chunk files are used"


def _share(amount: int, left: int, whole: int) -> int:
    return amount * min(left, whole) // whole if whole else 0
