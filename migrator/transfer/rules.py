"""The consequences of a failure: delays, tries, stops of the pool, and advice about files that did not arrive. Pure."""

import errno
from collections.abc import Mapping

from migrator.core.states import ChunkKind
from migrator.core.units import several
from migrator.gluster.model import SPLIT_BRAIN
from migrator.plan.model import TransferCost
from migrator.site.model import DIRECT, RSYNC, needs_rsync
from migrator.transfer.model import FileProblem, StopReason
from migrator.transfer.model_runs import Stopped

TRIES = 3
"""Tries of a chunk."""
MOST_INTERRUPTIONS = 20
"""A chunk counts as failed when its streams were killed from outside more often."""
_LONGEST_DELAY_S = 60.0


def delay_s(failures: int) -> float:
    """The delay of a chunk after so many failures (1: the first): exponential, bounded."""
    return min(2.0 ** (failures - 1), _LONGEST_DELAY_S)


def two_hosts(reader: str, writer: str) -> str:
    """The name of a stream's place that is two hosts."""
    return f"{reader}>{writer}"


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


# The choice of the engine for a chunk.


def choose_engine(requested: str, kind: ChunkKind, *, from_brick: bool, beyond_rsync: bool) -> str | None:
    """The engine for a chunk. None: no stream, because another chunk copies the content. (rsync copies no ranges: it
    copies such a file whole.)

    `direct` always reads a brick: the others do not handle link-to files, nor the times that the volume shows. It also
    copies the chunks that are `beyond_rsync`: rsync failed at them, or they have paths that are too long for it.
    """
    if from_brick or not needs_rsync(requested):
        return DIRECT
    if kind is ChunkKind.RANGES:
        return None
    return DIRECT if beyond_rsync or kind is ChunkKind.LINKS else RSYNC


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
