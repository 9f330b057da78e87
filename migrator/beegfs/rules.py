"""Room, states, quotas and sync of a BeeGFS target. Pure."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from migrator.beegfs import model
from migrator.core.events import Finding, failure, ok, warning
from migrator.core.paths import show
from migrator.core.units import GIB, TIB, first_of, format_count, format_duration, format_size, several
from migrator.fs.model import Capacity, Need

# The room for new files, for guards and schedules.
#
# BeeGFS puts a new file on random targets of the best capacity pool that is not empty (normal, low, emergency), so all
# targets of that pool fill alike. A target leaves the normal pool when its free space falls to the low limit; the
# others then take all new files. No tool reports that limit. Targets that are not online are in no pool (BeeGFS 7 and
# 8, sources of the management service).


DEFAULT_LOW_LIMITS = (TIB, 512 * GIB)
"""Of storage targets: BeeGFS 7 (`tuneStorageSpaceLowLimit`), BeeGFS 8 (`cap-pool-storage-limits`)."""

_GONE = frozenset({model.Reachability.OFFLINE, model.Reachability.PROBABLY_OFFLINE})


def client_host(name: str) -> str:
    """The host in the name that a client reports (`c5FC-6B006D0C-HOST`: process, time, host). Any other name is taken
    as the host's.
    """
    found = re.fullmatch(r"c?[0-9A-F]+-[0-9A-F]+-(.+)", name)
    return found[1] if found else name


def there(targets: Sequence[model.StorageTarget]) -> Sequence[model.StorageTarget]:
    """The writable targets; all targets if none is writable, because other checks refuse then."""
    return [one for one in targets if one.reachability not in _GONE] or targets


def best_pool(targets: Sequence[model.StorageTarget]) -> Sequence[model.StorageTarget]:
    """The targets that take new files now. A target whose pool is unknown counts as normal, with its room."""
    found = there(targets)
    best = min((_rank(one) for one in found), default=0)
    return [one for one in found if _rank(one) == best]


def _rank(target: model.StorageTarget) -> int:
    return list(model.CapacityPool).index(target.pool or model.CapacityPool.NORMAL)


def low_limit(targets: Sequence[model.StorageTarget]) -> int:
    """The free bytes at which a target leaves the normal pool; 0 if unknown.

    Derived from targets that have left it already; otherwise a default of BeeGFS, unless a normal target has less free.
    """
    found = there(targets)
    normal = [one.free_bytes for one in found if one.pool is model.CapacityPool.NORMAL]
    passed = [one.free_bytes for one in found if one.pool in (model.CapacityPool.LOW, model.CapacityPool.EMERGENCY)]
    known = [one for one in (*normal, *passed) if one is not None]
    if not normal or len(known) < len(found):
        return 0
    least = min(one for one in normal if one is not None)
    most_passed = max((one for one in passed if one is not None), default=0)
    if most_passed >= least:
        # Its bytes would suffice: BeeGFS counts inodes too.
        return 0
    return next((limit for limit in DEFAULT_LOW_LIMITS if most_passed <= limit < least), most_passed)


def even_room(free: Sequence[float], low_bytes: float) -> float:
    """The room for new files, in bytes, on targets with this much free. With a known low limit, all free bytes above it
    count. Otherwise (0) the first full target ends it: the room of the fullest, times the number of targets.
    """
    if not free:
        return 0
    evenly = max(min(free), 0) * len(free)
    if low_bytes <= 0:
        return evenly
    # Shortly before all of them are low, they still fill evenly.
    return max(evenly, sum(max(one - low_bytes, 0) for one in free))


# Problems of storage and metadata targets.


SILENT_AFTER_S = 40.0
"""A healthy server reports at least every 30 s (BeeGFS 8.3.1, as recorded). Its targets count as online for more than
another minute after it is lost."""


def target_problems(seen: model.StorageState) -> tuple[str, ...]:
    """Why files on the target may be unreadable; none if every storage and metadata target is online, good, and in
    contact.

    Unknown states count as problems, and so does an answer without targets of either kind.
    """
    problems = [
        f"{one.shown}: {describe_target_state(one)}"
        for one in seen.targets
        if is_lost(one) or one.consistency is not model.Consistency.GOOD
    ]
    return (*_missing(seen), *problems, *_describe_unanswered(seen))


def lost_targets(seen: model.StorageState) -> tuple[str, ...]:
    """The targets whose server does not answer, with the reason for that assumption. Streams that write to them stall."""
    found = (f"{one.shown}: {describe_target_state(one)}" for one in seen.targets if is_lost(one))
    return (*found, *_describe_unanswered(seen))


def is_lost(target: model.StorageTarget) -> bool:
    """True if its server is gone or has been silent for too long."""
    silent = target.last_contact_s is not None and target.last_contact_s > SILENT_AFTER_S
    return target.reachability is not model.Reachability.ONLINE or target.answers is False or silent


ROOM_LAGS_S = 80
"""How old the reported room of a target may be (8.3.1, as recorded)."""


def describe_target_state(target: model.StorageTarget) -> str:
    """Reachability, consistency, and the time since the last contact."""
    words = ["state unknown" if target.reachability is None else target.reachability.value]
    if target.consistency is not model.Consistency.GOOD:
        words.append("consistency unknown" if target.consistency is None else target.consistency.value)
    if target.answers is False:
        words.append("its server does not answer")
    if target.last_contact_s is not None and is_lost(target):
        words.append(f"last heard of {format_duration(target.last_contact_s)} ago")
    return ", ".join(words)


def describe_target_space(target: model.StorageTarget) -> str:
    """Room and pool of one target."""
    words = [] if target.free_bytes is None else [f"{format_size(target.free_bytes)} free"]
    if target.kind is model.TargetKind.METADATA and target.free_inodes is not None:
        words.append(f"{format_count(target.free_inodes)} inodes free")
    words.append("capacity pool unknown" if target.pool is None else f"capacity pool {target.pool.value}")
    return ", ".join(words)


def describe_fullest(targets: Sequence[model.StorageTarget]) -> str:
    """The targets to check after a write that found no room: those outside the normal pool; if all are in it, the
    fullest of either kind. Empty if there are no targets.
    """
    tight = [one for one in targets if one.pool in (model.CapacityPool.LOW, model.CapacityPool.EMERGENCY)]
    if not tight:
        storage = [one for one in targets if one.kind is model.TargetKind.STORAGE and one.free_bytes is not None]
        metadata = [one for one in targets if one.kind is model.TargetKind.METADATA and one.free_inodes is not None]
        tight = [
            *sorted(storage, key=lambda one: one.free_bytes or 0)[:1],
            *sorted(metadata, key=lambda one: one.free_inodes or 0)[:1],
        ]
    words = "; ".join(f"{one.shown}: {describe_target_space(one)}" for one in tight)
    return f"{words} (BeeGFS reports room and pools up to {ROOM_LAGS_S} s late: less may be free now)" if words else ""


def room_of(capacity: Capacity, seen: model.StorageState) -> Capacity:
    """The room that new files really have: never more than df shows.

    By `even_room` over the storage targets of the best pool. Inodes are the fewest free of any metadata target of the
    best pool, times their number. If no target reports inodes, the result of statfs is kept; on BeeGFS that is none.
    """
    storage = [
        one
        for one in seen.targets
        if one.kind is model.TargetKind.STORAGE and seen.storage_pool in (None, one.storage_pool)
    ]
    free = [one.free_bytes for one in best_pool(storage) if one.free_bytes is not None]
    metadata = best_pool([one for one in seen.targets if one.kind is model.TargetKind.METADATA])
    counted = [one.free_inodes for one in metadata if one.free_inodes is not None]
    inodes = min(counted) * len(counted) if counted and len(counted) == len(metadata) else None
    found = capacity
    if free:
        found = replace(found, free_bytes=min(int(even_room(free, low_limit(storage))), capacity.free_bytes))
    if inodes is not None and capacity.free_inodes is None:
        totals = [one.total_inodes for one in metadata]
        total = sum(one for one in totals if one is not None) if None not in totals else inodes
        found = replace(found, free_inodes=inodes, total_inodes=max(total, inodes))
    return found


INODES_OF_DIRECTORY = 4
"""Of a metadata target: the inode, its entry in the directory above, and two directories for its own entries
(`DirEntryStore.cpp` of BeeGFS 8.3.1). A file takes one."""


def metadata_problems(forecast: Sequence[model.MetadataForecast], largest: tuple[bytes, int] | None) -> Iterator[str]:
    """Sentences about metadata targets that may run out of inodes, by their share of all, or by the `largest` directory
    with its number of entries, which lie on one of them.
    """
    fix = "add metadata targets (hooks/pre-attach.d/60-beegfs-metadata-target)"
    for one in forecast:
        if one.expected_inodes > one.free_inodes:
            need = f"about {format_count(one.expected_inodes)} inodes, and {format_count(one.free_inodes)} are free"
            yield f"metadata target {one.name} (on {one.node}) will need {need}: {fix}"
    least = min((one.free_inodes for one in forecast), default=0)
    if forecast and largest is not None and largest[1] > least:
        yield (
            f"{show(largest[0])} has {format_count(largest[1])} entries, which lie on one metadata target, and one has "
            f"only {format_count(least)} inodes free: {fix}"
        )


def emergency_problems(seen: model.StorageState) -> tuple[str, ...]:
    """Reasons why no, or hardly any, file can be made: all targets of one kind that trees may use are in the emergency
    pool.
    """
    problems = []
    for kind in model.TargetKind:
        of_kind = [
            one
            for one in seen.targets
            if one.kind is kind and (kind is model.TargetKind.METADATA or seen.storage_pool in (None, one.storage_pool))
        ]
        if of_kind and all(one.pool is model.CapacityPool.EMERGENCY for one in of_kind):
            problems.append(f"every {kind.value} target that new files may lie on is in the emergency pool")
    return tuple(problems)


def describe_stripe(stripe: model.StripeSettings) -> str:
    """The settings as in events."""
    words = [] if stripe.targets is None else [f"over {stripe.targets} storage targets"]
    if stripe.chunk_bytes is not None:
        words.append(f"in chunks of {format_size(stripe.chunk_bytes)}")
    words += [] if stripe.pool is None else [f"in storage pool {stripe.pool}"]
    return " ".join(words)


def _missing(seen: model.StorageState) -> tuple[str, ...]:
    return tuple(
        f"BeeGFS names no {kind.value} target, so nothing is known of them"
        for kind in model.TargetKind
        if not any(one.kind is kind for one in seen.targets)
    )


def _describe_unanswered(seen: model.StorageState) -> tuple[str, ...]:
    return tuple(f"a {kind.value} server: does not answer, its name is unknown" for kind in seen.unanswered)


# Findings of `doctor` about storage and metadata targets.


_CHECK = "storage targets"
_SHORT_INODES = 0.1
_UNKNOWN = (
    "the states of the storage servers (one that is down shows only as stalled streams), the free space of each storage "
    "target (a full one stops all writes while df shows free space) and the free inodes are then unknown"
)


def check_storage_targets(seen: model.StorageState | None, failure_words: str = "", hint: str = "") -> list[Finding]:
    """The findings. `seen` is None if the tool failed, for the reason `failure_words`."""
    if seen is None:
        fix = hint or "install BeeGFS's command (beegfs-tools; beegfs-utils of BeeGFS 7), or name it in [target] beegfs"
        return [warning(_CHECK, f"{failure_words}: {_UNKNOWN}", fix)]
    findings = [finding for target in seen.targets if (finding := _check(target)) is not None]
    findings += [
        failure(
            _CHECK, words, "see whether BeeGFS's management service knows its servers, and ask each of them by hand"
        )
        for words in (*_missing(seen), *_describe_unanswered(seen))
    ]
    if findings:
        return findings
    storage = sum(one.kind is model.TargetKind.STORAGE for one in seen.targets)
    metadata = len(seen.targets) - storage
    return [ok(_CHECK, f"{several(storage, 'storage target')} and {several(metadata, 'metadata target')} are well")]


def check_quota(limits: int, problem: str | None, licence_problem: str | None = None) -> list[Finding]:
    """Check that the target can report the usage of users; checked only if the source has limits on directories.
    `licence_problem` is why BeeGFS reports no licence.
    """
    if not limits:
        return []
    summary = f"the source limits {several(limits, 'directory', 'directories')} (`migrator plan` lists them by user)"
    if problem is None:
        return [
            ok(
                "target quota",
                f"{summary}; BeeGFS counts the usage of users; `migrator plan --quotas` sets limits there",
            )
        ]
    fix = "turn on quota tracking in BeeGFS, and set limits per user, or go without"
    if licence_problem is not None:
        fix = "install a licence (`beegfs license`): quotas of BeeGFS 8 need one. Or go without"
    return [warning("target quota", f"{summary}; the target cannot limit users: {problem}", fix)]


def _check(target: model.StorageTarget) -> Finding | None:
    summary = f"{target.shown}: {describe_target_state(target)}"
    if is_lost(target):
        return failure(
            _CHECK, summary, f"start BeeGFS's server on {target.node} again, or repair the network to it; see its log"
        )
    if target.consistency is not model.Consistency.GOOD:
        return failure(_CHECK, summary, "check the resync of its mirror group; its data may be stale")
    room = f"{target.shown}: {describe_target_space(target)}"
    if target.pool is model.CapacityPool.EMERGENCY:
        fix = "free or add space there, or move files to other targets (`beegfs entry migrate`): BeeGFS avoids it"
        return failure(_CHECK, room, fix)
    if target.pool is model.CapacityPool.LOW:
        fix = "free or add space there, or move files to other targets (`beegfs entry migrate`) before it is full"
        return warning(_CHECK, room, fix)
    total, free = target.total_inodes, target.free_inodes
    if target.kind is model.TargetKind.METADATA and total and free is not None and free < _SHORT_INODES * total:
        return warning(
            _CHECK,
            f"{target.shown}: {format_count(free)} of {format_count(total)} inodes are free",
            "every file takes one there: add metadata targets, or make its file system anew with more inodes",
        )
    if target.pool is None:
        return warning(_CHECK, room, "ask the management service: `beegfs health capacity`, `beegfs-df`")
    return None


# Whether planned files fit within the users' limits on the target.
#
# Files are copied as root and then given to their owner. BeeGFS refuses to give a file to an owner beyond the hard limit,
# and writes to such a file, to root too (`SetAttrMsgEx.cpp`, `WriteLocalFileMsgEx.cpp` of its sources, 8.3.1).


NEARLY = 0.9
"""A user above this share of a limit gets a warning."""


class OwnerNeed(Struct, frozen=True, kw_only=True):
    """The planned files of one owner: bytes, and files with content (`inodes`). `users` are the users of their trees."""

    uid: int
    need: Need = Need()
    users: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The owner for people."""
        return f"uid {self.uid} (tree of {first_of(self.users, 3)})"


class QuotaFindings(Struct, frozen=True, kw_only=True):
    """Sentences: `problems` about limits that would be exceeded, `warnings` about limits that are nearly reached."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def quota_findings(needs: Iterable[OwnerNeed], quotas: Mapping[int, model.UserQuota], *, spread: int) -> QuotaFindings:
    """Check that the need of each owner fits within the limits. `spread` is the most storage targets of a new file: a file
    takes at least one chunk file, and at most that many. A user who is beyond a limit but needs nothing is no
    problem.
    """
    problems: list[str] = []
    warnings: list[str] = []
    for one in needs:
        quota, size_bytes, files = quotas.get(one.uid), one.need.size_bytes, one.need.inodes
        if quota is None or not size_bytes + files:
            continue
        coming = (
            (size_bytes, size_bytes, f"{format_size(size_bytes)} are to come"),
            (
                files,
                files * max(spread, 1),
                f"{format_count(files)} files are to come, of up to {max(spread, 1)} chunk files each",
            ),
        )
        for (used, limit, words), (least, most, more) in zip(_limits(quota), coming, strict=True):
            if limit is not None and used + least > limit:
                problems.append(f"{one.shown} would be beyond the user's hard limit on the target: {words}, and {more}")
            elif limit is not None and used + most > NEARLY * limit:
                warnings.append(f"{one.shown} will have little room on the target: {words}, and {more}")
    return QuotaFindings(problems=tuple(problems), warnings=tuple(warnings))


def room_to_work(owners: Collection[OwnerNeed], quotas: Mapping[int, model.UserQuota]) -> QuotaFindings:
    """Check that these owners can work on the target: a user at the limit cannot write."""
    problems: list[str] = []
    warnings: list[str] = []
    limits = [(one, known) for one in owners if one.uid in quotas for known in _limits(quotas[one.uid])]
    for one, (used, limit, words) in limits:
        if limit is not None and used >= limit:
            problems.append(f"{one.shown} could write nothing on the target: {words}; raise the limit there")
        elif limit is not None and used > NEARLY * limit:
            warnings.append(f"{one.shown} has little room on the target: {words}")
    return QuotaFindings(problems=tuple(problems), warnings=tuple(warnings))


def _limits(quota: model.UserQuota) -> tuple[tuple[int, int | None, str], tuple[int, int | None, str]]:
    """Of bytes, then of chunk files: the usage, the limit if there is one, and both in words."""
    limit_bytes, limit_files = quota.limit_bytes, quota.limit_chunk_files
    used_files = quota.used_chunk_files
    return (
        (
            quota.used_bytes,
            limit_bytes,
            f"{format_size(quota.used_bytes)} of {format_size(limit_bytes or 0)} are used",
        ),
        (
            used_files or 0,
            None if used_files is None else limit_files,
            f"{format_count(used_files or 0)} of {format_count(limit_files or 0)} chunk files are used",
        ),
    )
