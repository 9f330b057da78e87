"""What a plan says of the users' limits on the target."""

from collections.abc import Callable, Collection, Mapping, Sequence

from migrator.decide.target_quotas import owner_needs, quota_words
from migrator.domain.plan import TreeUsage
from migrator.domain.quota import TreeOwner
from migrator.domain.reap import PlanReap
from migrator.domain.site import Need
from migrator.stages.target_quotas import QuotaLook

AskLimits = Callable[[Collection[int]], QuotaLook]
"""Tells the limits of users, by their numbers."""


def no_limits(_uids: Collection[int]) -> QuotaLook:
    """Of a target without quotas."""
    return QuotaLook()


def quota_problems(
    ask: AskLimits,
    owners: Sequence[TreeOwner],
    ranking: Sequence[TreeUsage],
    *,
    arrived: Mapping[bytes, Need],
    reap: PlanReap | None,
    meant: bool,
) -> tuple[str, ...]:
    """Who would be beyond his limit on the target, and who near it. `arrived` is what earlier plans brought, by tree; `meant`: the
    source limits directories, so that it is worth a word where the target's limits are not known.
    """
    left: dict[bytes, Need] = {}
    for usage in ranking:
        there = arrived.get(usage.tree.path, Need())
        left[usage.tree.path] = Need(
            size_bytes=max(usage.size_bytes - there.size_bytes, 0), inodes=max(usage.files - there.inodes, 0)
        )
    needs = owner_needs(owners, ranking, left, reap=reap)
    look = ask([one.uid for one in needs])
    if look.failure:
        return (f"the users' limits on the target are not known: {look.failure}",) if meant else ()
    words = quota_words(needs, look.quotas, spread=look.spread)
    return (*words.problems, *words.warnings)
