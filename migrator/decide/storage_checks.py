"""What `doctor` says of the target's storage and metadata targets. Pure: from one look to findings."""

from migrator.decide.storage_targets import is_lost, room_words, state_words, stripe_words
from migrator.domain.finding import Finding, failure, ok, warning
from migrator.domain.storage_targets import (
    CapacityPool,
    Consistency,
    StorageSeen,
    StorageTarget,
    StripeSettings,
    TargetKind,
)
from migrator.domain.units import format_count, several

_CHECK = "storage targets"
_SHORT_INODES = 0.1
_NOT_KNOWN = (
    "not known are then the states of the storage servers (one that is down is seen only as streams that stand still), the "
    "room of each storage target (one that is full stops everything while df shows room), and the free inodes"
)


def check_storage_targets(seen: StorageSeen | None, failure_words: str = "", hint: str = "") -> list[Finding]:
    """`seen` is None where the tool could not be asked, for the reason `failure_words`."""
    if seen is None:
        fix = hint or "install BeeGFS's command (beegfs-tools; beegfs-utils of BeeGFS 7), or name it in [target] beegfs"
        return [warning(_CHECK, f"{failure_words}: {_NOT_KNOWN}", fix)]
    findings = [finding for target in seen.targets if (finding := _check(target)) is not None]
    missing = [kind for kind in TargetKind if not any(one.kind is kind for one in seen.targets)]
    findings += [
        failure(_CHECK, f"BeeGFS names no {kind.value} target", "see whether its management service knows its servers")
        for kind in missing
    ]
    findings += [
        failure(
            _CHECK,
            f"a {kind.value} server does not answer, and which one is not known",
            f"ask each: `beegfs-ctl --listtargets --nodetype={'meta' if kind is TargetKind.METADATA else 'storage'} --spaceinfo`",
        )
        for kind in seen.unanswered
    ]
    if findings:
        return findings
    storage = sum(one.kind is TargetKind.STORAGE for one in seen.targets)
    metadata = len(seen.targets) - storage
    return [ok(_CHECK, f"{several(storage, 'storage target')} and {several(metadata, 'metadata target')} are well")]


def check_stripe(stripe: StripeSettings | None, seen: StorageSeen | None) -> list[Finding]:
    """Whether the stripe settings of site.toml can be given to new trees."""
    check = "stripe settings"
    if stripe is None:
        return []
    if seen is None:
        return [
            failure(
                check,
                f"new trees are to be spread {stripe_words(stripe)}, and BeeGFS's command cannot be asked: `run` refuses",
                "mend what is told of the storage targets, or take stripe_count and chunk_size out of site.toml",
            )
        ]
    there = sum(
        one.kind is TargetKind.STORAGE and seen.storage_pool in (None, one.storage_pool) for one in seen.targets
    )
    if stripe.targets is not None and stripe.targets > there:
        return [
            warning(
                check,
                f"[target] stripe_count is {stripe.targets}, and there are {several(there, 'storage target')}",
                "BeeGFS takes as many as there are; set it to what is meant",
            )
        ]
    return [ok(check, f"new trees are spread {stripe_words(stripe)}")]


def check_quota(limits: int, problem: str | None) -> list[Finding]:
    """Where the source limits directories: can what users take up be asked on the target?"""
    if not limits:
        return []
    told = f"the source limits {several(limits, 'directory', 'directories')} (`migrator plan` lists them by user)"
    if problem is None:
        return [ok("target quota", f"{told}; BeeGFS counts what users take up, limits are yours to set there")]
    return [
        warning(
            "target quota",
            f"{told}; on the target nothing limits users: {problem}",
            "turn on quota tracking in BeeGFS (it may need a licence) and set limits per user, or go without",
        )
    ]


def _check(target: StorageTarget) -> Finding | None:
    told = f"{target.shown}: {state_words(target)}"
    if is_lost(target):
        return failure(
            _CHECK, told, f"start BeeGFS's server on {target.node} again, or mend the network to it; its log tells more"
        )
    if target.consistency is not Consistency.GOOD:
        return failure(_CHECK, told, "see to the resync of its mirror group; what lies on it may be older")
    room = f"{target.shown}: {room_words(target)}"
    if target.pool is CapacityPool.EMERGENCY:
        fix = "free or add space there, or move files to other targets (`beegfs entry migrate`): BeeGFS avoids it"
        return failure(_CHECK, room, fix)
    if target.pool is CapacityPool.LOW:
        fix = "free or add space there, or move files to other targets (`beegfs entry migrate`) before it is full"
        return warning(_CHECK, room, fix)
    total, free = target.total_inodes, target.free_inodes
    if target.kind is TargetKind.METADATA and total and free is not None and free < _SHORT_INODES * total:
        return warning(
            _CHECK,
            f"{target.shown}: {format_count(free)} of {format_count(total)} inodes are free",
            "every file takes one there: add metadata targets, or make its file system anew with more inodes",
        )
    if target.pool is None:
        return warning(_CHECK, room, "ask the management service: `beegfs health capacity`, `beegfs-df`")
    return None
