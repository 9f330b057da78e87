"""The part of `doctor` that looks at the links by which users reach their trees, where a cutover is to switch them."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from migrator.config.site import Site
from migrator.decide.switching import check_link_users, check_links, check_switch_hooks, user_problem
from migrator.domain.errors import MigratorError
from migrator.domain.finding import Finding, failure, ok
from migrator.domain.paths import join
from migrator.domain.plan import Plan
from migrator.domain.switching import LinkPlace
from migrator.domain.tree import UserTree
from migrator.ports.blocking import Blocking
from migrator.ports.hooks import Hooks
from migrator.ports.ledger import Ledger
from migrator.ports.plans import PlanDocuments
from migrator.ports.switching import Links

_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkWorld:
    """What the links are looked at with. `plans` gives the documents of one site, by its id."""

    links: Links
    place: LinkPlace
    plans: Callable[[str], PlanDocuments]


async def examine_links(
    world: LinkWorld | None, site: Site, ledger: Ledger | None, blocking: Blocking, hooks: Hooks | None
) -> list[Finding]:
    """A finding for every link of the latest plan that could not be switched now. Nothing where no cutover is set up."""
    if site.cutover.switch == "hook":
        return await _by_hook(hooks, blocking)
    if world is None:
        return []
    record = ledger.site.read() if ledger is not None else None
    latest = ledger.plans.latest() if ledger is not None else None
    if record is None or latest is None:
        return [ok("links", f"{world.place.link}: looked at when there is a plan")]
    try:
        plan, _ = world.plans(record.site_id).read(latest.name)
    except MigratorError as error:
        return [failure("links", error.message, error.hint or "make a plan: `migrator plan`")]
    trees = _trees(plan)
    try:
        return [*check_link_users(trees), *await blocking(lambda: _look(world, trees), timeout_s=_TIMEOUT_S)]
    except TimeoutError:
        return [failure("links", f"no answer within {_TIMEOUT_S:.0f} s", "see what they lead to: a mount may hang")]
    except OSError as error:
        fix = "mend the file system that holds them"
        return [failure("links", f"they cannot be looked at: {error.strerror or error}", fix)]


def _look(world: LinkWorld, trees: tuple[UserTree, ...]) -> list[Finding]:
    place = world.place
    source, target = os.path.realpath(place.source_root), os.path.realpath(place.target_root)
    real = {tree.path: (join(source, tree.path), join(target, tree.path)) for tree in trees}
    looks = [(tree, world.links.read_link(tree.user)) for tree in trees if user_problem(tree.user) is None]
    resolved = LinkPlace(link=place.link, source_root=source, target_root=target, volume=place.volume)
    return check_links(resolved, looks, real=real, euid=os.geteuid())


async def _by_hook(hooks: Hooks | None, blocking: Blocking) -> list[Finding]:
    if hooks is None:
        return []
    try:
        found = await blocking(hooks.find, timeout_s=_TIMEOUT_S)
    except (OSError, TimeoutError):
        return []  # the check of the hooks tells it
    return check_switch_hooks(found)


def _trees(plan: Plan) -> tuple[UserTree, ...]:
    return tuple(tree for batch in plan.batches for tree in batch.trees)
