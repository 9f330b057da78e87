"""What a plan reaps: the rules, the reap list beside the plan, and what that saves."""

from collections.abc import Collection
from dataclasses import dataclass

from migrator.config.site import Site
from migrator.decide.engine_choice import DRIVERS
from migrator.decide.reap import choose_rules, reaps, require_atime, savings
from migrator.domain.errors import Refused
from migrator.domain.plan import TransferCost
from migrator.domain.reap import PlanReap, ReapAction
from migrator.domain.scan import CatalogRecord
from migrator.ports.reap import ReapLists
from migrator.ports.usage import CatalogQueries


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReaping:
    """What reaping needs: where the lists go, and why the source does not tell when files were read (None: it does)."""

    lists: ReapLists
    atime_problem: str | None = None


def reap_for_plan(
    name: str,
    queries: CatalogQueries,
    reaping: PlanReaping,
    *,
    site: Site,
    trees: Collection[bytes],
    cost: TransferCost,
    now_s: float,
) -> PlanReap | None:
    """Choose what is reaped of these trees, and write the reap list; from then on the chunks are without it. None where
    no rule matches anything.

    Raises UsageError for rules that name nobody, Refused where a rule cannot be followed here.
    """
    policy = site.reap.policy
    every = choose_rules(policy, queries.record.trees)
    rules = [rule for rule in every if rule.tree.path in trees]
    if not rules:
        return None
    require_atime(rules, reaping.atime_problem)
    if reaps(rules):
        _require_possible(queries.record, site.transfer.engine)
    selection = queries.reap(rules, keep_file=policy.keep_file, now_s=now_s)
    found = tuple(selection.trees())
    written = reaping.lists.write(name, selection.rows()) if reaps(rules) else None
    return PlanReap(
        reap_list=written.reap_list if written else None,
        digest=written.digest if written else None,
        trees=found,
        saved=savings((tree for tree in found if tree.action is not ReapAction.LIST), cost),
        listed=savings((tree for tree in found if tree.action is ReapAction.LIST), cost),
    )


def _require_possible(catalog: CatalogRecord, engine: str) -> None:
    if not catalog.whole:
        raise Refused(
            f"nothing can be reaped by catalog {catalog.name!r}: it is not whole",
            cause="what could not be read may have been a file by which a user opts out",
            hint='run `migrator scan` when the source is healthy, or set [reap] action = "list"',
        )
    if engine in DRIVERS:
        raise Refused(
            f'nothing can be reaped with [transfer] engine = "{engine}"',
            cause="it copies whole trees, with what is to be archived or skipped",
            hint='choose another engine, or set [reap] action = "list"',
        )
