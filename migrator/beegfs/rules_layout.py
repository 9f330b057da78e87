"""Which layout the directories of a user tree get on BeeGFS. Pure."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile

from migrator.beegfs.model import DirectorySettings, LayoutRule, StripeSettings
from migrator.beegfs.rules import describe_stripe
from migrator.core.events import Finding, failure, ok, warning
from migrator.core.units import format_size


def _fits(rule: LayoutRule, tree: bytes) -> bool:
    parts = tree.split(b"/")
    globs = [glob.encode("utf-8", "surrogateescape").split(b"/") for glob in rule.trees]
    return not globs or any(len(glob) == len(parts) and all(map(fnmatchcase, parts, glob)) for glob in globs)


def tree_settings(rules: Sequence[LayoutRule], tree: bytes) -> StripeSettings | None:
    """The settings of a tree's top directory, which all below inherit; None: what it inherits itself."""
    whole = (rule.stripe for rule in rules if rule.larger_than_bytes is None and _fits(rule, tree))
    return next(whole, None)


def size_rules(rules: Sequence[LayoutRule], tree: bytes) -> tuple[LayoutRule, ...]:
    """The rules for single directories of a tree; the first that fits a directory counts."""
    fitting = (rule for rule in rules if _fits(rule, tree))
    return tuple(takewhile(lambda rule: rule.larger_than_bytes is not None, fitting))


def unused_rules(rules: Sequence[LayoutRule], trees: Collection[bytes]) -> Iterator[str]:
    """Sentences about rules that no tree has."""
    for rule in rules:
        if not any(_fits(rule, tree) for tree in trees):
            yield f"[[target.layout]] trees = {list(rule.trees)} matches no user tree"


def completed(rule: LayoutRule | None, whole: StripeSettings) -> StripeSettings:
    """The settings of a directory; keys that its rule leaves out are those of its tree."""
    if rule is None:
        return whole
    own = rule.stripe
    return StripeSettings(
        targets=own.targets or whole.targets,
        chunk_bytes=own.chunk_bytes or whole.chunk_bytes,
        pool=own.pool or whole.pool,
    )


def describe_layout_rule(rule: LayoutRule) -> str:
    """The rule for people."""
    where = (
        "" if rule.larger_than_bytes is None else f"directories of files above {format_size(rule.larger_than_bytes)}: "
    )
    return f"{where}new files {describe_stripe(rule.stripe)}"


def has_settings(facts: DirectorySettings, stripe: StripeSettings, pools: Mapping[str, int]) -> bool:
    """True if a directory has all settings that are wanted."""
    return (
        stripe.targets in (None, facts.stripe.targets)
        and stripe.chunk_bytes in (None, facts.stripe.chunk_bytes)
        and (stripe.pool is None or pools.get(stripe.pool) == facts.storage_pool)
    )


DEFAULT_POOL = 1
"""The storage pool that every BeeGFS has. Others need a licence."""


def check_layout(
    rules: Sequence[LayoutRule], pools: Mapping[str, int] | None, licence_problem: str | None = None
) -> list[Finding]:
    """Check that new trees can get the layout of site.toml. `pools` None: BeeGFS's command cannot be asked.
    `licence_problem` is why BeeGFS reports no licence.
    """
    check = "target layout"
    if not rules:
        return []
    if pools is None:
        fix = "fix the reported storage targets, or remove layout, stripe_count and chunk_size from site.toml"
        return [
            failure(check, "new trees are to get a layout, and BeeGFS's command cannot be asked: `run` refuses", fix)
        ]
    named = tuple(dict.fromkeys(rule.stripe.pool for rule in rules if rule.stripe.pool is not None))
    unlicensed = "" if licence_problem is None else f"; storage pools need a licence: {licence_problem}"
    findings = [
        failure(
            check,
            f"BeeGFS has no storage pool {pool}{unlicensed}",
            f"name one of {', '.join(sorted(pools))} in [[target.layout]]",
        )
        for pool in named
        if pool not in pools
    ]
    if unlicensed and (licensed := [pool for pool in named if pools.get(pool, DEFAULT_POOL) != DEFAULT_POOL]):
        fix = "install a licence (`beegfs license`), or take pool out of [[target.layout]]"
        findings.append(warning(check, f"rules name storage pool {', '.join(licensed)}{unlicensed}", fix))
    return findings or [ok(check, "; ".join(map(describe_layout_rule, rules)))]
