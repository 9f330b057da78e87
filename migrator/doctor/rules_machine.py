"""Findings about this machine: state directory, clock, kernel, programs. Pure."""

import re
from collections.abc import Iterable

from migrator.core.events import Finding, failure, ok, warning
from migrator.core.paths import show
from migrator.core.units import GIB, format_duration, format_size
from migrator.site.model import needs_rsync
from migrator.site.rules_guards import misplaced
from migrator.transfer.engines.rules_rsync import FSYNC_VERSION, MINIMUM_VERSION, dotted, parse_features

NETWORK_FILESYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "afs", "9p", "glusterfs", "ocfs2", "gfs2"}
)
"""SQLite requires locks and flushes that these do not provide, or not always (sqlite.org/howtocorrupt.html). All FUSE
file systems count too.
"""

_STATE_LEAST_BYTES = GIB
_CLOCK_LEAST_S = 1_735_689_600
"""2025-01-01: an earlier time means that the clock was reset."""
_BACKWARDS_S = 60


_KERNEL_HERE = (5, 3)
"""The first with pidfd_open."""


def check_state_directory(
    directory: bytes,
    *,
    filesystem: str | None,
    free_bytes: int | None,
    roots: Iterable[tuple[str, bytes]],
) -> list[Finding]:
    """Check that the state directory is on a local disk with room, and outside both file systems (`roots`, by side)."""
    check, fix = "state directory", "set [site] state_dir to a directory on a local disk, and move its content there"
    shown = show(directory)
    if problem := misplaced([("state_dir", directory)], roots):
        return [failure(check, problem, fix)]
    if filesystem is None:
        return [failure(check, f"{shown}: its file system is unknown", fix)]
    if filesystem in NETWORK_FILESYSTEMS or filesystem.startswith("fuse"):
        return [failure(check, f"{shown} is on {filesystem}, which is not a local disk: the ledger requires one", fix)]
    if filesystem in ("tmpfs", "ramfs"):
        return [warning(check, f"{shown} is in memory ({filesystem}): a reboot loses the ledger", fix)]
    if free_bytes is None or free_bytes < _STATE_LEAST_BYTES:
        known = "an unknown room" if free_bytes is None else format_size(free_bytes)
        fix = "free disk space: catalogs and manifests need about 100 bytes per file each"
        return [warning(check, f"{shown} has {known} free", fix)]
    return [ok(check, f"{shown} on {filesystem}, {format_size(free_bytes)} free")]


def check_clock(now_s: float, last_event_s: float | None) -> Finding:
    """Check that the clock is set, and has not gone backwards."""
    if now_s < _CLOCK_LEAST_S:
        return failure(
            "clock", "this machine's clock is not synchronized", "synchronize it: `timedatectl set-ntp true`"
        )
    if last_event_s is not None and now_s < last_event_s - _BACKWARDS_S:
        behind = format_duration(last_event_s - now_s)
        fix = "synchronize it (`timedatectl set-ntp true`): rates, ages and the order of events depend on it"
        return failure("clock", f"this machine's clock is {behind} behind the last entry of the ledger", fix)
    return ok("clock", "set")


def rsync_problem(program: str | None, output: bytes | None) -> str | None:
    """The reason why an rsync is unsuitable; None if it is suitable. `program` is its path, None if it is missing;
    `output` is that of `--version`, None if it could not be run.
    """
    if program is None:
        return "rsync is missing"
    features = None if output is None else parse_features(output)
    if features is None:
        return f"{program} does not report its version: it is not rsync, or does not run"
    return features.problem()


def check_rsync(program: str | None, output: bytes | None, *, engine: str) -> Finding:
    """Check that the rsync of this machine is suitable, if the configured engine needs one; see `rsync_problem`."""
    problem = rsync_problem(program, output)
    if not needs_rsync(engine):
        return ok("rsync", f"{problem or _version_of(output)}; engine `{engine}` needs none")
    if problem:
        return failure("rsync", problem, f"{_install_rsync(MINIMUM_VERSION)} (Debian: `apt install rsync`)")
    return ok("rsync", f"{_version_of(output)} ({program})")


def check_syncing(filesystem: str, output: bytes | None) -> list[Finding]:
    """Check that rsync can sync its copies on a target of this type."""
    features = None if output is None else parse_features(output)
    problem = None if features is None else features.syncing_problem(filesystem)
    return [warning("rsync", problem, _install_rsync(FSYNC_VERSION))] if problem else []


def _install_rsync(version: tuple[int, int, int]) -> str:
    return f"install rsync {dotted(version)} or later"


def _version_of(output: bytes | None) -> str:
    features = None if output is None else parse_features(output)
    return "no rsync" if features is None else f"rsync {features.version_text}"


def check_gluster(command: str, program: str | None) -> Finding:
    """Check that the command that queries the volume is installed."""
    if program is None:
        return failure(
            "gluster",
            f"the command {command} is missing, so the state of the bricks is unknown",
            "install glusterfs-cli on a peer of the pool, or set [source] gluster to a script that queries one",
        )
    return ok("gluster", program)


def is_older(release: str, least: tuple[int, int]) -> bool:
    """True if a release of Linux is older than this version; False for one that names no version."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return found is not None and (int(found[1]), int(found[2])) < least


def check_kernel(release: str) -> Finding:
    """Check that this machine can start and end programs as `hosts/process.py` does."""
    if is_older(release, _KERNEL_HERE):
        message = f"Linux {release} is older than {dotted(_KERNEL_HERE)}, so no program can be started"
        return failure("kernel", message, "run migrator on a machine with a newer kernel; hosts may have older ones")
    return ok("kernel", f"Linux {release}")


def check_user(euid: int) -> Finding:
    """Check that the user is root: others cannot copy all metadata."""
    if euid == 0:
        return ok("user", "root")
    return warning(
        "user",
        f"not root (uid {euid}): owners, other users' files and device nodes cannot be copied, streams not confined",
        "run migrator as root; as another user only a rehearsal with your own files works",
    )


def check_confinement(euid: int, problem: str | None) -> Finding:
    """`problem` is why a stream cannot be confined to its tree, None if it can."""
    if euid != 0:
        return ok("confinement", "streams have only the permissions of this user")
    if problem is None:
        return ok("confinement", "each stream can access only its own tree")
    return failure(
        "confinement",
        f"streams cannot be confined to their trees: {problem}",
        "run migrator with CAP_SYS_ADMIN, for mount namespaces: not in an unprivileged container",
    )
