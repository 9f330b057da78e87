"""Whether directories on the target have the layout of site.toml, by the examples that a plan names."""

from collections.abc import Collection, Sequence

from migrator.beegfs.model import LayoutRule, StripeSettings
from migrator.beegfs.rules import stripe_words
from migrator.beegfs.rules_layout import has_settings, rule_words
from migrator.beegfs.tool import StorageTargets
from migrator.core.errors import ToolFailed
from migrator.core.paths import join, show
from migrator.core.values import replace
from migrator.plan.model import Plan, SurpriseKind


async def layout_problems(
    plan: Plan, trees: Collection[bytes], rules: Sequence[LayoutRule], storage: StorageTargets | None, root: bytes
) -> Sequence[str]:
    """Sentences about directories of these trees with another layout; `root` is the directory of the trees. A rule that
    was changed after the plan was made is not checked.
    """
    by_words = {rule_words(rule): rule.stripe for rule in rules}
    wanted: dict[bytes, StripeSettings] = {}
    for one in plan.surprises:
        if one.kind is SurpriseKind.LAYOUT and one.tree in trees and one.detail in by_words:
            # Rules for directories of large files come first: the top of a tree may be one.
            wanted |= {path: by_words[one.detail] for path in one.examples if path not in wanted}
    if storage is None or not wanted:
        return ()
    problems: list[str] = []
    try:
        pools = await storage.pools() if any(stripe.pool for stripe in wanted.values()) else {}
        for path, stripe in sorted(wanted.items()):
            found = await storage.directory(join(root, path))
            if not has_settings(found, stripe, pools):
                there = stripe_words(replace(found.stripe, pool=stripe.pool and str(found.storage_pool)))
                problems.append(
                    f"new files in {show(path)} are spread {there}, not {stripe_words(stripe)}: what was on the target "
                    "before keeps its settings"
                )
    except ToolFailed as error:
        problems.append(f"the layout of {plan.name} on the target is not known: {error.message}")
    return problems
