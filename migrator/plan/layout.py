"""Whether directories on the target have the layout of site.toml, by the examples that a plan names."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from migrator.beegfs.model import LayoutRule, StripeSettings
from migrator.beegfs.rules import describe_stripe
from migrator.beegfs.rules_layout import describe_layout_rule, has_settings
from migrator.beegfs.tool import PATHS_AT_ONCE, StorageTargets
from migrator.core.errors import ToolFailed
from migrator.core.paths import join, show
from migrator.fs.model import SurpriseKind
from migrator.plan.model import Plan

_FAILURES = 5
"""So many directories may be unknown of those that one command asked about."""


async def layout_problems(
    plan: Plan, trees: Collection[bytes], rules: Sequence[LayoutRule], storage: StorageTargets | None, root: bytes
) -> Sequence[str]:
    """Sentences about directories of these trees with another layout; `root` is the directory of the trees. A rule that
    was changed after the plan was made is not checked.
    """
    by_words = {describe_layout_rule(rule): rule.stripe for rule in rules}
    wanted: dict[bytes, StripeSettings] = {}
    for one in plan.surprises:
        if one.kind is SurpriseKind.LAYOUT and one.tree in trees and one.detail in by_words:
            # Rules for directories of large files come first: the top of a tree may be one.
            wanted |= {path: by_words[one.detail] for path in one.examples if path not in wanted}
    if storage is None or not wanted:
        return ()
    problems: list[str] = []
    unknown: list[str] = []
    try:
        pools = await storage.pools() if any(stripe.pool for stripe in wanted.values()) else {}
        # A command for each of thousands of directories would take hours. Answers may come in any order.
        for stripe in set(wanted.values()):
            paths = sorted(path for path, own in wanted.items() if own == stripe)
            for start in range(0, len(paths), PATHS_AT_ONCE):
                some = paths[start : start + PATHS_AT_ONCE]
                with suppress(ToolFailed):
                    found = await storage.directories([join(root, path) for path in some])
                    if all(has_settings(one, stripe, pools) for one in found):
                        continue
                problems += await _one_by_one(some, stripe, storage, root, pools=pools, unknown=unknown)
    except ToolFailed as error:
        unknown.append(error.message)
    if unknown:
        problems.append(f"the layout of {plan.name} on the target is unknown: {unknown[0]}")
    return sorted(problems)


async def _one_by_one(
    paths: Sequence[bytes],
    stripe: StripeSettings,
    storage: StorageTargets,
    root: bytes,
    *,
    pools: Mapping[str, int],
    unknown: list[str],
) -> list[str]:
    """Sentences about some directories; `unknown` takes why one is unknown, since it may have gone after the plan was
    made. Raises ToolFailed if none is.
    """
    problems: list[str] = []
    failed = 0
    for path in paths:
        try:
            found = await storage.directory(join(root, path))
        except ToolFailed as error:
            unknown.append(f"{show(path)}: {error.message}")
            failed += 1
            if failed == min(len(paths), _FAILURES):
                raise
            continue
        if not has_settings(found, stripe, pools):
            there = describe_stripe(replace(found.stripe, pool=stripe.pool and str(found.storage_pool)))
            problems.append(
                f"new files in {show(path)} are spread {there}, not {describe_stripe(stripe)}: what was on the target "
                "before keeps its settings"
            )
    return problems
