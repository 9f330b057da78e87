"""Whether what a seed pass brings fits within the limits of the users whose it is."""

from collections.abc import Sequence

from migrator.decide.target_quotas import QuotaWords, owner_needs, quota_words
from migrator.domain.plan import Plan, SurpriseKind
from migrator.domain.run import GuardFinding, TreeWork
from migrator.domain.site import Need
from migrator.stages.run.context import World
from migrator.stages.target_quotas import look_at_quotas

TARGET_QUOTAS = "target quotas"


async def look_at_limits(world: World, plan: Plan, left: Sequence[TreeWork]) -> QuotaWords:
    """What speaks against bringing what is left of these trees; what earlier plans have brought is replaced, not added to.

    Nothing where the target has no quotas. Where they cannot be asked that is a warning, if the source limits directories:
    then somebody means users to have limits.
    """
    arrived, nothing = world.ledger.passes.arrived(before_plan=plan.name), Need()
    needs = owner_needs(
        plan.owners,
        plan.ranking,
        {
            one.tree: Need(
                size_bytes=max(one.size_bytes - arrived.get(one.tree, nothing).size_bytes, 0),
                inodes=max(one.files - arrived.get(one.tree, nothing).inodes, 0),
            )
            for one in left
        },
        reap=plan.reap,
    )
    look = await look_at_quotas(world.storage, world.target.root, [one.uid for one in needs])
    if look.failure:
        meant = any(one.kind is SurpriseKind.QUOTA for one in plan.surprises)
        return QuotaWords(warnings=(f"the users' limits on the target are not known: {look.failure}",) if meant else ())
    return quota_words(needs, look.quotas, spread=look.spread)


def quota_finding(words: QuotaWords) -> tuple[GuardFinding, ...]:
    """The guard, where there is something to say."""
    return (GuardFinding(guard=TARGET_QUOTAS, problems=words.problems),) if words.problems else ()
