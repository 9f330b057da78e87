"""Limits of the source's directories as limits of owners on BeeGFS, which limits no directories. Pure."""

from collections.abc import Iterable, Sequence

from migrator.beegfs.model import LimitState, LostLimit, OwnerLimit, TreeOwner, UserQuota
from migrator.core.paths import show
from migrator.core.units import format_size, several

ALONE = 0.95
"""An owner's limit stands for a tree's if the owner has this share of the tree's bytes, and if this share of the owner's
bytes is in such trees."""


def owner_limits(
    quotas: Iterable[tuple[bytes, int]], owners: Sequence[TreeOwner], trees: frozenset[bytes]
) -> tuple[tuple[OwnerLimit, ...], tuple[LostLimit, ...]]:
    """The limits to set, in order of uid, and those that cannot be set. Limits of several trees of one owner are summed."""
    found: dict[int, dict[bytes, int]] = {}
    lost: list[LostLimit] = []
    for directory, size_bytes in sorted(quotas):
        main = max(
            (one for one in owners if one.tree == directory), key=lambda one: (one.size_bytes, -one.uid), default=None
        )
        reason = _reason(directory, main, owners, trees)
        if main is None or reason:
            lost.append(LostLimit(directory=directory, size_bytes=size_bytes, reason=reason))
        else:
            found.setdefault(main.uid, {})[directory] = size_bytes
    for uid, limits in list(found.items()):
        own = [one for one in owners if one.uid == uid]
        whole = sum(one.size_bytes for one in own)
        elsewhere = sum(one.size_bytes for one in own if one.tree not in limits)
        reason = ""
        if elsewhere > (1 - ALONE) * whole:
            reason = f"the limit would also count {format_size(elsewhere)} of uid {uid} in other trees"
        elif elsewhere and whole >= sum(limits.values()):
            # The user could write nothing, or the other trees could not be filled any more.
            reason = f"with {format_size(elsewhere)} of uid {uid} in other trees nothing of it would be left"
        if reason:
            lost += [LostLimit(directory=one, size_bytes=limits[one], reason=reason) for one in limits]
            del found[uid]
    return (
        tuple(
            OwnerLimit(uid=uid, size_bytes=sum(limits.values()), trees=tuple(limits))
            for uid, limits in sorted(found.items())
        ),
        tuple(sorted(lost, key=lambda one: one.directory)),
    )


def _reason(directory: bytes, main: TreeOwner | None, owners: Sequence[TreeOwner], trees: frozenset[bytes]) -> str:
    if directory not in trees:
        beneath = sum(not directory or tree.startswith(directory + b"/") for tree in trees)
        return f"it holds {several(beneath, 'user tree')}" if beneath else "it is no user tree of a plan"
    if main is None:
        return "no file in it has content, so the owner is unknown"
    if main.uid == 0:
        return "its files are root's"
    share = main.size_bytes / (sum(one.size_bytes for one in owners if one.tree == directory) or 1)
    return "" if share >= ALONE else f"several owners: uid {main.uid} has {share:.0%} of its bytes"


def state_of(limit: OwnerLimit, quota: UserQuota | None, *, moved: bool) -> LimitState:
    """What to do about one limit. `quota` None: what the target has is unknown. `moved`: the users of all of the
    owner's trees work on the target. A limit that is there is never replaced.
    """
    if quota is None:
        return LimitState.UNKNOWN
    if quota.limit_bytes is not None:
        return LimitState.SET if quota.limit_bytes == limit.size_bytes else LimitState.DIFFERS
    if quota.exempt:
        return LimitState.DIFFERS
    if not moved:
        return LimitState.LATER
    if not quota.counted:
        return LimitState.UNKNOWN
    return LimitState.USED_UP if quota.used_bytes >= limit.size_bytes else LimitState.DUE


def describe_limit(limit: OwnerLimit, quota: UserQuota | None, state: LimitState) -> str:
    """A limit and its state, as a sentence."""
    words = f"uid {limit.uid} ({', '.join(map(show, limit.trees))}): the limit of {format_size(limit.size_bytes)} "
    match state:
        case LimitState.SET:
            return words + "is set on the target"
        case LimitState.DUE:
            return words + "is not set on the target: `migrator plan --quotas --confirm` sets it"
        case LimitState.LATER:
            return words + "is set when the users of all these trees work on the target"
        case LimitState.DIFFERS if quota is not None and quota.exempt:
            return words + "is not set: on the target the user was exempted from limits, which you may change there"
        case LimitState.DIFFERS:
            there = format_size((quota.limit_bytes if quota else None) or 0)
            return words + f"is not set: the target has one of {there}, which you may change there"
        case LimitState.USED_UP:
            used = format_size(quota.used_bytes if quota else 0)
            return words + f"is not set: {used} are used, so that the user could write nothing"
        case LimitState.UNKNOWN:
            return words + "is not set: BeeGFS does not count this user's files"
