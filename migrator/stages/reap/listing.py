"""What the rules match, user by user: before anything is planned or moved. Nothing changes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from migrator.config.site import Site
from migrator.decide.forecast import choose_cost
from migrator.decide.reap import choose_rules, require_atime, savings
from migrator.domain.errors import UsageError
from migrator.domain.plan import TransferCost, TreeUsage
from migrator.domain.reap import ReapDirectory, ReapedTree, ReapReport, ReapRow, TreeRule, UserReap
from migrator.domain.tree import UserTree
from migrator.ports.ledger import Ledger
from migrator.ports.usage import CatalogReader

DIRECTORIES_SHOWN = 20
"""Of every user as many directories, those that hold the most of what is matched."""

Rows = Callable[[UserTree, Sequence[ReapRow]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRequest:
    """Whose files: `users` by name, `trees` by path; None: everybody's."""

    users: tuple[str, ...] | None = None
    trees: frozenset[bytes] | None = None


def list_reaped(
    request: ListRequest,
    *,
    site: Site,
    catalogs: CatalogReader,
    ledger: Ledger,
    atime_problem: str | None,
    now_s: float,
    rows: Rows | None = None,
) -> ReapReport:
    """Count what the rules of site.toml match in the latest catalog; `rows` is given every file, tree by tree.

    Raises UsageError where there is no catalog, no rule, or nobody of that name; Refused where the source does not keep
    what a rule goes by.
    """
    latest = ledger.scans.latest()
    if latest is None:
        raise UsageError(
            "there is no catalog to look into", cause="nothing was scanned yet", hint="run `migrator scan`"
        )
    policy = site.reap.policy
    with catalogs.open(latest.name) as queries:
        trees = queries.record.trees
        _require_known(request, trees)
        chosen = choose_rules(policy, trees)
        if not chosen:
            raise UsageError(
                "no rule of [reap] matches anything",
                cause="it has neither older_than nor smaller_than",
                hint='set them in site.toml, as in older_than = "2y" (docs/reap.md)',
            )
        rules = [one for one in chosen if _is_meant(request, one)]
        require_atime(rules, atime_problem)
        selection = queries.reap(rules, keep_file=policy.keep_file, now_s=now_s)
        found = selection.trees()
        directories = selection.directories(DIRECTORIES_SHOWN)
        usages = queries.usages(now_s=now_s)
        if rows is not None:
            by_path = {tree.path: tree for tree in trees}
            for block in selection.rows(listed=True):
                for tree, some in _by_tree(block):
                    rows(by_path[tree], some)
    cost = choose_cost(ledger.samples.measured_cost(), site.transfer.jobs)
    held = {usage.tree.path: usage for usage in usages.trees}
    return ReapReport(
        catalog=latest.name,
        at_s=now_s,
        keep_file=policy.keep_file,
        basis=cost.basis,
        users=_users(found, directories, held, cost),
    )


def _require_known(request: ListRequest, trees: Sequence[UserTree]) -> None:
    known = {tree.user for tree in trees}
    for user in request.users or ():
        if user not in known:
            raise UsageError(
                f"the catalog has no tree of {user!r}", hint="see whom it has: `migrator plan`, or a new scan"
            )


def _is_meant(request: ListRequest, one: TreeRule) -> bool:
    return (request.users is None or one.tree.user in request.users) and (
        request.trees is None or one.tree.path in request.trees
    )


def _by_tree(block: Sequence[ReapRow]) -> Iterator[tuple[bytes, Sequence[ReapRow]]]:
    start = 0
    for place in range(1, len(block) + 1):
        if place == len(block) or block[place].tree != block[start].tree:
            yield block[start].tree, block[start:place]
            start = place


def _users(
    found: Sequence[ReapedTree],
    directories: dict[bytes, Sequence[ReapDirectory]],
    held: dict[bytes, TreeUsage],
    cost: TransferCost,
) -> tuple[UserReap, ...]:
    by_user: dict[str, list[ReapedTree]] = {}
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
            UserReap(
                user=user,
                trees=tuple(trees),
                directories=tuple(biggest[:DIRECTORIES_SHOWN]),
                all_files=sum(usage.files for usage in usages),
                all_bytes=sum(usage.size_bytes for usage in usages),
                saves=savings(trees, cost),
            )
        )
    return tuple(sorted(users, key=lambda one: (-sum(tree.size_bytes for tree in one.trees), one.user)))
