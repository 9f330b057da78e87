"""Limits of the source's directories as limits of owners on the target: shown, confirmed, set, and compared.

BeeGFS refuses to give a file to an owner beyond a limit, and to write to one that such an owner has, to root as well. So a
limit is set when the users of the owner's trees work on the target, not while their trees are filled.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from migrator.beegfs.model import LimitState, LostLimit, OwnerLimit, TreeOwner, UserQuota
from migrator.beegfs.rules_limits import describe_limit, owner_limits, state_of
from migrator.beegfs.tool import StorageTargets
from migrator.core.errors import ExitCode, Refused, ToolFailed
from migrator.core.events import Severity
from migrator.fs.model import SurpriseKind
from migrator.plan.model import Plan
from migrator.plan.rules import settled_trees

if TYPE_CHECKING:
    from migrator.plan.records import PlanLedger


class LimitReading(Struct, frozen=True, kw_only=True):
    """A limit of one owner, with what the target has."""

    limit: OwnerLimit
    """The limit by the source."""
    users: tuple[str, ...]
    """Users of the trees."""
    state: LimitState
    """Whether the target has it."""
    confirmed: bool
    """The operator has confirmed it, so the cutover sets it."""
    there_bytes: int | None
    """The limit that the target has."""
    used_bytes: int | None
    """Bytes that the owner uses on the target."""


class LimitReadings(Struct, frozen=True, kw_only=True):
    """The limits of a plan: `plan --limits`."""

    plan: str
    limits: tuple[LimitReading, ...]
    """Limits of owners."""
    lost: tuple[LostLimit, ...]
    """Limits of directories that no owner's limit can stand for."""
    problem: str = ""
    """Why those of the target are unknown; empty if they are known."""

    @property
    def exit_code(self) -> ExitCode:
        """3 (attention) if the target has other limits, or none where one was confirmed and is not set."""
        bad = {LimitState.DIFFERS, LimitState.USED_UP}
        return ExitCode.ATTENTION if any(one.state in bad for one in self.limits) else ExitCode.DONE


def limits_of(plans: Sequence[Plan]) -> tuple[tuple[OwnerLimit, ...], tuple[LostLimit, ...], Mapping[bytes, str]]:
    """The limits to set, by the newest of these plans, those that cannot be set, and the user of every tree. Who owns a
    tree that the newest plan leaves out, because its user was moved, is in an earlier one.
    """
    users: dict[bytes, str] = {}
    owners: dict[bytes, list[TreeOwner]] = {}
    for plan in plans:
        users |= {usage.tree.path: usage.tree.user for usage in plan.ranking}
        owners |= {usage.tree.path: [] for usage in plan.ranking}
        for one in plan.owners:
            owners.setdefault(one.tree, []).append(one)
    quotas = [(one.examples[0], one.size_bytes) for one in plans[-1].surprises if one.kind is SurpriseKind.QUOTA]
    every = [one for of_tree in owners.values() for one in of_tree]
    return *owner_limits(quotas, every, frozenset(users)), users


async def recreate_limits(
    ledger: "PlanLedger", plans: Sequence[Plan], storage: StorageTargets, *, confirm: bool
) -> LimitReadings:
    """Show the limits of the newest of these plans. `confirm` records them first, for the cutovers to come, and sets
    those of owners whose users have been moved. May be called again. Raises Refused if the target has no quotas to set.
    """
    limits, lost, users = limits_of(plans)
    problem = await storage.quota_problem() or ""
    if confirm and problem:
        raise Refused(
            f"no limit is set: {problem}",
            cause="BeeGFS has quotas only with a licence, and after they were turned on (quota_enable; on clients quotaEnabled)",
            hint="see `beegfs license` and BeeGFS's documentation on quotas, then run the same command again",
        )
    if confirm:
        known = {one.uid for one in limits}
        stale = [one for one in ledger.limits.all() if one.uid not in known and not _moved(ledger, one)]
        ledger.limits.confirm(limits, withdrawn=[one.uid for one in stale])
    seen = await _look(ledger, limits, None if problem else storage)
    if confirm:
        seen = await _set_due(seen, storage)
    confirmed = set(ledger.limits.all())
    shown = tuple(
        LimitReading(
            limit=limit,
            users=tuple(dict.fromkeys(users[tree] for tree in limit.trees)),
            state=state,
            confirmed=limit in confirmed,
            there_bytes=quota.limit_bytes if quota else None,
            used_bytes=quota.used_bytes if quota else None,
        )
        for limit, quota, state in seen
    )
    return LimitReadings(plan=plans[-1].name, limits=shown, lost=lost, problem=problem)


async def set_confirmed(
    ledger: "PlanLedger", storage: StorageTargets | None, tree: bytes
) -> Sequence[tuple[Severity, str]]:
    """Set the confirmed limit of a tree's owner if the users of all of the owner's trees work on the target; sentences
    about it. A failure is among them. May be called again.
    """
    wanted = [one for one in ledger.limits.all() if tree in one.trees]
    if storage is None or not wanted:
        return ()
    try:
        seen = await _set_due(await _look(ledger, wanted, storage), storage)
    except ToolFailed as error:
        hint = "`migrator plan --quotas --confirm` sets it"
        return [(Severity.WARNING, f"the user's limit on the target is not set: {error.message}; {hint}")]
    good = (LimitState.SET, LimitState.LATER)
    return [
        (Severity.INFO if state in good else Severity.WARNING, describe_limit(limit, quota, state))
        for limit, quota, state in seen
    ]


async def limit_problems(ledger: "PlanLedger", storage: StorageTargets | None) -> Sequence[str]:
    """Sentences about confirmed limits that the target does not have, of owners whose users work there."""
    wanted = [one for one in ledger.limits.all() if _moved(ledger, one)]
    if storage is None or not wanted:
        return ()
    try:
        seen = await _look(ledger, wanted, storage)
    except ToolFailed as error:
        return (f"the users' limits on the target are unknown: {error.message}",)
    return [describe_limit(limit, quota, state) for limit, quota, state in seen if state is not LimitState.SET]


_Seen = tuple[OwnerLimit, UserQuota | None, LimitState]


async def _look(ledger: "PlanLedger", limits: Sequence[OwnerLimit], storage: StorageTargets | None) -> list[_Seen]:
    there = await storage.quotas([one.uid for one in limits]) if storage and limits else {}
    quotas = [(one, there.get(one.uid)) for one in limits]
    return [(one, quota, state_of(one, quota, moved=_moved(ledger, one))) for one, quota in quotas]


async def _set_due(seen: list[_Seen], storage: StorageTargets) -> list[_Seen]:
    due = {limit.uid: limit.size_bytes for limit, _, state in seen if state is LimitState.DUE}
    if not due:
        return seen
    await storage.set_limits(due)
    return [
        (limit, replace(quota, limit_bytes=limit.size_bytes), LimitState.SET)
        if quota is not None and limit.uid in due
        else (limit, quota, state)
        for limit, quota, state in seen
    ]


def _moved(ledger: "PlanLedger", limit: OwnerLimit) -> bool:
    newest = {tree: record for tree in limit.trees if (record := ledger.cutovers.latest(tree)) is not None}
    return settled_trees(newest).issuperset(limit.trees)
