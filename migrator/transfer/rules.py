"""Retries, stops, temporary names, ETA, and advice about files that did not arrive."""

import errno
import re
from collections.abc import Callable, Collection, Mapping, Sequence

import xxhash
from msgspec.structs import replace

from migrator.core.units import several
from migrator.fs.rules import TEMPORARY_PREFIX
from migrator.gluster.model import SPLIT_BRAIN
from migrator.plan.model import TransferCost
from migrator.transfer.model import FileProblem, SizeClass, Stopped, StopReason, StreamSum

# A failed chunk: retry it later, split it, or give it up.


TRIES = 3
"""Tries of a chunk."""
MOST_INTERRUPTIONS = 20
"""A chunk counts as failed when its streams were killed from outside more often."""
_LONGEST_DELAY_S = 60.0


def delay_s(failures: int) -> float:
    """The delay of a chunk after so many failures (1: the first): exponential, bounded."""
    return min(2.0 ** (failures - 1), _LONGEST_DELAY_S)


_BY_ERRNO: Mapping[int, StopReason] = {
    errno.ENOSPC: StopReason.TARGET_FULL,
    errno.EDQUOT: StopReason.TARGET_QUOTA,
    errno.EROFS: StopReason.TARGET_READ_ONLY,
    errno.EIO: StopReason.IO_ERROR,
    **dict.fromkeys((errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.ESHUTDOWN), StopReason.DISCONNECTED),
    **dict.fromkeys((errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN), StopReason.DISCONNECTED),
    errno.ETIMEDOUT: StopReason.TARGET_STUCK,
}

_ADVICE: Mapping[StopReason, tuple[str, str, str]] = {
    StopReason.TARGET_FULL: (
        "the target is full",
        "no bytes or no inodes are left (on BeeGFS one full storage or metadata target is enough, whatever df says)",
        "free or add space on the target (`df -h`, `df -i`; BeeGFS: `beegfs health capacity`), then run the same "
        "command again",
    ),
    StopReason.TARGET_QUOTA: (
        "a quota on the target is used up",
        "the target limits the owner or the group of the files that are copied",
        "raise the quota of the users of this batch on the target, then run the same command again",
    ),
    StopReason.TARGET_READ_ONLY: (
        "the target is mounted read-only",
        "the kernel remounts a file system read-only after errors; or it was mounted so",
        "see `dmesg`, mount it for writing, then run the same command again",
    ),
    StopReason.IO_ERROR: (
        "an input/output error",
        "a disk, a RAID or a server fails",
        "see `dmesg` and the servers' logs; when the fault is repaired, run the same command again",
    ),
    StopReason.DISCONNECTED: (
        "a file system is not connected any more",
        "its client process or its servers have gone, or do not answer",
        "check both mounts (`migrator doctor`), mount again what is gone, then run the same command again",
    ),
    StopReason.TARGET_STUCK: (
        "a stream has stood still",
        "a storage server of the target (or of the source) is down or frozen: writes to it wait for ever",
        "check the servers of both file systems; when they answer, run the same command again",
    ),
    StopReason.TARGET_MOVES: (
        "a path cannot be renamed or removed on the target",
        "a file is immutable (`lsattr`), something is mounted within a user tree, or the target's servers or a security "
        "policy forbid it",
        "check the path on the target; nothing is lost: what was renamed or removed so far is in the trash or has its new "
        "name. Then run the same command again",
    ),
    StopReason.SOURCE_UNHEALTHY: (
        "the source may not show all of its files",
        "a brick or a server of the volume is down, or the volume was changed during the pass",
        "see `gluster volume status`; when all bricks are online, run the same command again",
    ),
    StopReason.MOUNT_CHANGED: (
        "something else is mounted than at `migrator init`",
        "a file system was unmounted or mounted anew over the course of the run",
        "check both mounts with `migrator doctor`, then run the same command again",
    ),
    StopReason.TOOL_MISSING: (
        "a stream cannot be started",
        "the program that copies is missing or cannot be confined here (mount namespaces need root)",
        "see `migrator doctor`, then run the same command again",
    ),
}


def stop_reason(code: int | None) -> StopReason | None:
    """The stop of the pool that an error of a system call causes; None if it concerns one file."""
    return None if code is None else _BY_ERRNO.get(code)


def explain(reason: StopReason, detail: str, unended: tuple[str, ...] = ()) -> Stopped:
    """The message, the usual cause and the next step; `unended` names streams that hang in the kernel."""
    what, cause, hint = _ADVICE[reason]
    message = f"{what}: {detail}" if detail else what
    if unended:
        message += (
            f"; {several(len(unended), 'stream')} could not be ended ({', '.join(unended)}). Their chunks are not given out "
            "again before they are gone"
        )
    return Stopped(reason=reason, message=message, cause=cause, hint=hint, unended=unended)


# The expected duration of a chunk. A running chunk does not follow changed limits, so none may run for long.


LONGEST_S = 600.0
"""After this time a change of limits applies to every stream."""


def expected_s(files: int, size_bytes: int, *, cost: TransferCost | None, bwlimit_bytes_per_s: int | None) -> float:
    """The expected duration of a stream: by the measured cost (None: unknown), or by its share of the limit, whichever
    is longer.
    """
    by_cost = 0.0 if cost is None else files * cost.s_per_file + size_bytes * cost.s_per_byte
    return max(by_cost, 0.0 if not bwlimit_bytes_per_s else size_bytes / bwlimit_bytes_per_s)


# Advice about a file that did not arrive.


_ATTENTION_ADVICE: Mapping[int, str] = {
    errno.EIO: "a disk or a server fails: see `dmesg` and the servers' logs; restore the file, or notify its user",
    errno.EACCES: "see whether root may do that on both sides (root squashing, `lsattr`, `getfacl`)",
    errno.EPERM: "see whether root may do that on both sides (root squashing, `lsattr`, `getfacl`)",
    errno.ENAMETOOLONG: "the target cannot hold so long a name: let its user rename it",
    errno.EILSEQ: "the target cannot hold such a name: let its user rename it",
    errno.EINVAL: "the target cannot hold such a name or attribute: let its user change it",
    errno.EFBIG: "the target cannot hold so big a file: see its limits",
    errno.EOPNOTSUPP: "the target cannot keep that: see `migrator doctor`",
    errno.ENOSPC: "an attribute that is too big for the target, or a full one: see `df -h` and `df -i`",
    errno.EEXIST: "something else is in its place on the target: look, and take it away",
    errno.ENOTEMPTY: "something else is in its place on the target: look, and take it away",
    errno.ENOTDIR: "something else is in its place on the target, or above it: check",
    errno.ELOOP: "a symlink is in its place, or above it: check",
    errno.ESTALE: "it was being moved or replaced meanwhile",
    errno.ETXTBSY: "it is being executed: end that program",
}
_SPLIT_BRAIN_ADVICE = (
    "choose the good copy: `gluster volume heal VOLUME split-brain source-brick HOST:BRICK FILE` (or `latest-mtime FILE`, "
    "`bigger-file FILE`), with the path in the volume"
)
_OTHER = "it changed meanwhile, or what is the matter is in the log of the run"


def advice(problem: FileProblem) -> str:
    """The next step for one file, in a few words. `migrator verify` lists missing files in any case."""
    if SPLIT_BRAIN in problem.reason:
        return _SPLIT_BRAIN_ADVICE
    return _ATTENTION_ADVICE.get(problem.errno or 0, _OTHER)


AFTERWARDS = (
    "Once they are fixed, `migrator run` of the same batch makes a delta pass, which sends them again, whether they "
    "changed or not."
)
"""The next step after the files are repaired."""


# Distinguishing the temporary files of an ended stream from users' files.
#
# rsync creates a file under `.NAME.XXXXXX` in the directory of NAME (receiver.c, get_tmpname). It drops one leading dot
# of NAME, cuts a long NAME to 246 bytes (and drops whole multi-byte characters at the cut), and drops a dot at the end.
# XXXXXX is mkstemp's for files; links, devices and symlinks have up to six digits there.
#
# `migrator-native copy` creates a file under `.migrator-copy-HEX` and puts the ranges of a big one into
# `.migrator-part-HEX`, both in the directory of NAME. HEX is the XXH3_128 digest of NAME with the seed of the site, so no
# user has a file of such a name (`copy_places.c`).
# `.migrator-marks-HEX` marks the ranges that have arrived. A part file and its marks are no leftovers while they may
# still complete their file: the chunk of that file renames or removes them.


_STEM_LIMIT_BYTES = 246
_SUFFIX = re.compile(rb"\.([A-Za-z0-9]{6}|[0-9]{1,6})\Z")
_COPY_PREFIX = b".migrator-copy-"
_PART_PREFIX = b".migrator-part-"
_MARKS_PREFIX = b".migrator-marks-"
_DESCRIPTOR_COPY = re.compile(re.escape(TEMPORARY_PREFIX) + rb"[0-9a-f]{16}\Z")


def temporary_stem(name: bytes) -> bytes:
    """The part of the temporary name between the leading dot and the suffix."""
    kept = name[1:] if name.startswith(b".") else name
    stem = kept[:_STEM_LIMIT_BYTES]
    if len(kept) > _STEM_LIMIT_BYTES and kept[_STEM_LIMIT_BYTES] & 0x80:
        stem = stem.rstrip(bytes(range(0x80, 0x100)))
    return stem[:-1] if stem.endswith(b".") else stem


def copy_name(name: bytes, seed: int) -> bytes:
    """The temporary name of `migrator-native copy` for a file of this name."""
    return _COPY_PREFIX + _hash(name, seed)


def part_name(name: bytes, seed: int) -> bytes:
    """The name under which the ranges of a file of this name are assembled."""
    return _PART_PREFIX + _hash(name, seed)


def marks_name(name: bytes, seed: int) -> bytes:
    """The name of the file that marks the arrived ranges of a file of this name."""
    return _MARKS_PREFIX + _hash(name, seed)


def temporary_marks(name: bytes, seed: int) -> tuple[bytes, ...]:
    """The marks that identify the temporary files of a name, by any engine, for `is_leftover`."""
    return temporary_stem(name), copy_name(name, seed)


def is_leftover(candidate: bytes, marks: Collection[bytes]) -> bool:
    """Whether a name looks like the temporary file of one of the names that have these marks, or of a copy by
    descriptor. Only a look-up on the source proves that it is not a user's file.
    """
    return bool(_DESCRIPTOR_COPY.match(candidate)) or is_stream_leftover(candidate, marks)


def is_stream_leftover(candidate: bytes, marks: Collection[bytes]) -> bool:
    """As `is_leftover`, for streams only: copies by descriptor may be in flight in the same directory."""
    if candidate.startswith(_COPY_PREFIX) and candidate in marks:
        return True
    suffix = _SUFFIX.search(candidate)
    return candidate.startswith(b".") and suffix is not None and candidate[1 : suffix.start()] in marks


def _hash(name: bytes, seed: int) -> bytes:
    return xxhash.xxh3_128_hexdigest(name, seed=seed).encode("ascii")


# The expected end of a copy, from the remaining work and the recent rate.


def rates(before: tuple[float, int, int], now: tuple[float, int, int]) -> tuple[float, float]:
    """Files and bytes per second between two points, each a time in seconds, files and bytes. 0 if no time has passed."""
    over_s = now[0] - before[0]
    if over_s <= 0:
        return 0.0, 0.0
    return max(now[1] - before[1], 0) / over_s, max(now[2] - before[2], 0) / over_s


def seconds_left(files: int, size_bytes: int, *, files_per_s: float, bytes_per_s: float) -> float | None:
    """The remaining time at this rate; None if the rate does not cover the remaining work. The slower of files and
    bytes counts, since files per second bound many small files.
    """
    left = [(one, per_s) for one, per_s in ((files, files_per_s), (size_bytes, bytes_per_s)) if one > 0]
    if any(per_s <= 0 for _, per_s in left):
        return None
    return max((one / per_s for one, per_s in left), default=0.0)


# Sums of copies by streams, grouped by one property at a time.


BY: Mapping[str, Callable[[StreamSum], str]] = {
    "size of files": lambda one: one.size_class.value,
    "host": lambda one: one.host,
    "brick": lambda one: one.brick or "the mount",
    "engine": lambda one: one.engine,
}
"""The properties that sums can be grouped by."""


def added_up(sums: Sequence[StreamSum], by: str) -> Sequence[tuple[str, StreamSum]]:
    """The sums for each value of one property; sizes in ascending order, everything else by name."""
    name_of, found = BY[by], dict[str, StreamSum]()
    for one in sums:
        name = name_of(one)
        so_far = found.get(name)
        found[name] = one if so_far is None else _together(so_far, one)
    order = [size_class.value for size_class in SizeClass]
    return sorted(found.items(), key=lambda item: (order.index(item[0]) if item[0] in order else 0, item[0]))


def _together(one: StreamSum, other: StreamSum) -> StreamSum:
    return replace(
        one,
        attempts=one.attempts + other.attempts,
        files=one.files + other.files,
        size_bytes=one.size_bytes + other.size_bytes,
        stream_s=one.stream_s + other.stream_s,
    )
