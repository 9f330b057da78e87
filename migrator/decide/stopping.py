"""Errors that no chunk is to blame for: which they are, and what to tell people."""

import errno
from collections.abc import Mapping

from migrator.domain.run import Stopped
from migrator.domain.transfer import StopReason
from migrator.domain.units import several

_BY_ERRNO: Mapping[int, StopReason] = {
    errno.ENOSPC: StopReason.TARGET_FULL,
    errno.EDQUOT: StopReason.TARGET_QUOTA,
    errno.EROFS: StopReason.TARGET_READ_ONLY,
    errno.EIO: StopReason.IO_ERROR,
    errno.ENOTCONN: StopReason.DISCONNECTED,
    errno.ECONNABORTED: StopReason.DISCONNECTED,
    errno.EHOSTDOWN: StopReason.DISCONNECTED,
    errno.EHOSTUNREACH: StopReason.DISCONNECTED,
    errno.ENETDOWN: StopReason.DISCONNECTED,
    errno.ENODEV: StopReason.DISCONNECTED,
    errno.ESHUTDOWN: StopReason.DISCONNECTED,
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
        "a disk, a RAID or a server of the source or of the target fails",
        "see `dmesg` and the servers' logs. A source file that cannot be read any more is listed; with the next run "
        "of the same command it is left out as a bad file, and the others go on",
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
        "a path cannot be renamed or taken away on the target",
        "a file is immutable (`lsattr`), something is mounted within a user tree, or the target's servers or a security "
        "policy forbid it",
        "look at the path on the target; nothing of it is lost, what was renamed or taken away so far lies in its place or "
        "in the trash. Then run the same command again",
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
    StopReason.HOST_LOST: (
        "a host that reads its bricks is lost, and [source] via is `bricks`",
        "it is down, or the network to it",
        "see `migrator doctor`; bring the host back, or set [source] via to `auto`, then run the same command again",
    ),
    StopReason.BRICKS_UNFIT: (
        "the bricks cannot be read instead of the mount now, and [source] via is `bricks`",
        "files are being moved between bricks, a brick is down, or the volume was changed since the scan",
        "wait until the volume is quiet, or set [source] via to `auto`, which reads the mount meanwhile; then run the same "
        "command again. Where bricks or options were changed: scan and plan again",
    ),
}


def stop_reason(code: int | None) -> StopReason | None:
    """Why an error of a system call stops everything; None where it concerns one file."""
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
