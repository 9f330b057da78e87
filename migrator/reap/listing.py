"""`reap list` and `reap release`."""

from collections.abc import Callable, Collection, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from migrator.core.entry import UserTree
from migrator.core.errors import Refused, UsageError
from migrator.core.units import format_size, several
from migrator.plan.model import Plan, TransferCost, TreeUsage
from migrator.plan.rules_forecast import choose_cost
from migrator.reap import model
from migrator.reap.robinhood import policy_text
from migrator.reap.rules import Releases, choose_rules, release_patterns, require_atime, savings
from migrator.site.config import Site
from migrator.site.model import ReapAction, ReapPolicy

if TYPE_CHECKING:
    from migrator.plan.store import CatalogQueryFiles
    from migrator.reap.records import ReapLedger
    from migrator.reap.store import ReapListFiles

# --- `reap list`: read only


DIRECTORIES_SHOWN = 20
"""Directories listed per user: those with the most matched bytes."""

Rows = Callable[[UserTree, Sequence[model.ReapRow]], None]


def list_reaped(
    *,
    users: Collection[str],
    site: Site,
    catalogs: "CatalogQueryFiles",
    ledger: "ReapLedger",
    atime_problem: str | None,
    now_s: float,
    rows: Rows | None = None,
) -> model.ReapReport:
    """Count the files that the rules of site.toml match in the latest catalog; `rows` receives every file, tree by
    tree. `users` are those to list (empty: all).

    Raises UsageError if there is no catalog, no rule, or no such user; Refused if the source does not keep the times
    that a rule needs.
    """
    name, policy = _latest(ledger), site.reap.policy
    with catalogs.open(name) as queries:
        trees = queries.record.trees
        if unknown := [user for user in users if user not in {tree.user for tree in trees}]:
            raise UsageError(
                f"the catalog has no tree of {unknown[0]!r}", hint="see whom it has: `migrator plan`, or a new scan"
            )
        chosen = _chosen(policy, trees)
        rules = [one for one in chosen if not users or one.tree.user in users]
        require_atime(rules, atime_problem)
        selection = queries.reap(rules, now_s=now_s)
        found = selection.trees()
        directories = selection.directories(DIRECTORIES_SHOWN)
        usages = queries.usages(now_s=now_s)
        if rows is not None:
            by_path = {tree.path: tree for tree in trees}
            for block in selection.rows(listed=True):
                for tree, some in groupby(block, key=lambda row: row.tree):
                    rows(by_path[tree], list(some))
    cost = choose_cost(ledger.samples.measured_cost(), site.transfer.jobs)
    held = {usage.tree.path: usage for usage in usages.trees}
    return model.ReapReport(
        catalog=name,
        at_s=now_s,
        basis=cost.basis,
        users=_users(found, directories, held, cost),
    )


def _latest(ledger: "ReapLedger") -> str:
    latest = ledger.scans.latest()
    if latest is None:
        raise UsageError(
            "there is no catalog to look into", cause="nothing was scanned yet", hint="run `migrator scan`"
        )
    return latest.name


def _chosen(policy: ReapPolicy, trees: Sequence[UserTree]) -> Sequence[model.TreeRule]:
    chosen = choose_rules(policy, trees)
    if not chosen:
        raise UsageError(
            "no rule of [reap] matches anything",
            cause="it has neither older_than nor smaller_than",
            hint='set them in site.toml, as in older_than = "2y" (docs/reap.md)',
        )
    return chosen


def write_policy(*, site: Site, catalogs: "CatalogQueryFiles", ledger: "ReapLedger", root: bytes, now_s: float) -> str:
    """The rules of site.toml for the trees of the latest catalog as a policy of Robinhood: of several actions without
    `list`, by which users are excepted. Raises UsageError, Refused.
    """
    name, policy = _latest(ledger), site.reap.policy
    with catalogs.open(name) as queries:
        every = _chosen(policy, queries.record.trees)
        rules = [one for one in every if one.rule.action is not ReapAction.LIST] or every
        kept = queries.reap(rules, now_s=now_s).kept()
    return policy_text(rules, kept, root, name)


def _users(
    found: Sequence[model.ReapedTree],
    directories: dict[bytes, Sequence[model.ReapDirectory]],
    held: dict[bytes, TreeUsage],
    cost: TransferCost,
) -> tuple[model.UserReap, ...]:
    by_user: dict[str, list[model.ReapedTree]] = {}
    for tree in found:
        by_user.setdefault(tree.tree.user, []).append(tree)
    users = []
    for user, trees in by_user.items():
        biggest = sorted(
            (one for tree in trees for one in directories.get(tree.tree.path, ())),
            key=lambda one: (-one.size_bytes, one.path),
        )
        usages = [usage for usage in held.values() if usage.tree.user == user]
        users.append(
            model.UserReap(
                user=user,
                trees=tuple(trees),
                directories=tuple(biggest[:DIRECTORIES_SHOWN]),
                all_files=sum(usage.files for usage in usages),
                all_bytes=sum(usage.size_bytes for usage in usages),
                saves=savings(trees, cost),
            )
        )
    return tuple(sorted(users, key=lambda one: (-sum(tree.size_bytes for tree in one.trees), one.user)))


# --- `reap release`: give up skipped files, by name, for deletion with the source


_EXAMPLES = 10


def release(
    user: str,
    *,
    paths: Sequence[bytes],
    globs: Sequence[bytes],
    by: str,
    confirmed: bool,
    trees: Sequence[tuple[Plan, Sequence[bytes]]],
    lists: "ReapListFiles",
    ledger: "ReapLedger",
    now_s: float,
) -> model.Released:
    """Give up skipped files of a user: `paths` with everything below them, and `globs`, in the user's `trees`, each by
    the plan that moves or moved it. Records that in the ledger, with the operator (`by`). May be called again.

    Raises UsageError for a path outside the user's trees, and without the confirmation; Refused if no skipped file
    matches.
    """
    if not paths and not globs:
        raise UsageError("no file is named", hint="name paths, or give --glob PATTERN")
    names = ", ".join(plan.name for plan, _ in trees)
    reaping = [(plan.reap, plan.reap.reap_list, some) for plan, some in trees if plan.reap and plan.reap.reap_list]
    if not reaping:
        raise Refused(f"plan {names} skips nothing", hint="release what a plan with action `skip` leaves behind")
    releases = tuple(
        model.ReapRelease(tree=tree, pattern=pattern, is_glob=is_glob, by=by, at_s=now_s)
        for tree, pattern, is_glob in release_patterns([tree for _, some in trees for tree in some], paths, globs)
    )
    asked = Releases(releases)
    files = size_bytes = 0
    examples: list[bytes] = []
    for reap, reap_list, some in reaping:
        lists.checked(reap)
        for block in lists.paths(reap_list, trees=some, action=ReapAction.SKIP):
            for row in block:
                if asked.has(row.tree, row.path):
                    files += 1
                    size_bytes += row.size_bytes
                    if len(examples) < _EXAMPLES:
                        examples.append(row.path)
    if not files:
        raise Refused(
            f"nothing of {user} that plan {names} skips has such a name",
            hint="see what it skips: `migrator reap list --user NAME --csv FILE`",
        )
    if not confirmed:
        raise UsageError(
            f"nothing was released: {several(files, 'file')} with {format_size(size_bytes)} would be lost with the source",
            hint="give --confirm-loss where that is meant",
        )
    ledger.releases.add(releases)
    return model.Released(
        user=user,
        plan=names,
        releases=releases,
        files=files,
        size_bytes=size_bytes,
        examples=tuple(examples),
    )
