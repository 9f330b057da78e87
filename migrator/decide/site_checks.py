"""Whether the two file systems and the state directory are fit for the migration. Pure: from facts to findings."""

from collections.abc import Iterable, Sequence

from migrator.decide.losses import loss_details
from migrator.decide.site_guards import health_problems, kind_problem, mount_problems
from migrator.decide.strange_files import REMEDY, strange_words
from migrator.decide.volume_options import LOOKUP_OPTION, is_on
from migrator.domain.brick import SourceHealth, VolumeState
from migrator.domain.finding import Finding, failure, ok, warning
from migrator.domain.paths import is_beneath, show
from migrator.domain.scan import StrangeFiles
from migrator.domain.site import Capacity, MountIdentity, TargetCapabilities
from migrator.domain.units import GIB, format_count, format_duration, format_size

NETWORK_FILESYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "afs", "9p", "glusterfs", "ocfs2", "gfs2"}
)
"""SQLite's promises need locks and flushes that these do not keep, or not always (sqlite.org/howtocorrupt.html). Every
FUSE file system counts too."""

_STATE_LEAST_BYTES = GIB
_CLOCK_LEAST_S = 1_735_689_600
"""2025-01-01: a clock that shows less has lost its battery."""
_BACKWARDS_S = 60
_NEARLY_FULL = 0.9
_XFS_SYMLINK_BYTES = 1023
_XFS_ACL_ENTRIES = 5461
"""As probed on XFS, Linux 6.1."""
_EACH_SYNCED = ok(
    "target sync",
    "its clients do not have the servers write everything to their disks at once: each file is synced by itself (rsync before "
    "3.2.4 cannot do that)",
)


def check_mount(
    where: str, kind: str, recorded: MountIdentity | None, current: MountIdentity | None, error: str = ""
) -> Finding:
    """Is mounted what `init` recorded? `current` is None where the look failed, for the reason `error`."""
    check, side = f"{where} mount", f"the {where}"
    if current is None:
        return failure(check, f"{side} cannot be read: {error}", "mount it, or put site.toml right")
    if problem := kind_problem(current, kind, where=side):
        return failure(check, problem, "mount it, or put site.toml right")
    shown = f"{current.filesystem} from {current.mounted_from}"
    if recorded is None:
        return failure(check, f"{side} ({shown}) was never recorded", "run `migrator init`")
    if problems := mount_problems(recorded, current, where=side):
        return failure(
            check,
            "; ".join(problems),
            "mount the right one; where this is the right one, `migrator init` records it anew",
        )
    if current.sentinel is None:
        return warning(
            check,
            f"{side} ({shown}) has no sentinel, because it could not be written",
            "mount it for writing once and run `migrator init`; without it, only device and root tell it from others",
        )
    return ok(check, shown)


def check_health(health: SourceHealth | None, error: str = "") -> list[Finding]:
    """Does the source show everything? `health` is None where the look failed, for the reason `error`."""
    check = "source health"
    if health is None:
        return [failure(check, f"not known: {error}", "look at the volume: `gluster volume status`")]
    fix = (
        "bring it up; `gluster volume status` and the brick's log tell more"
        if health.state
        else "find out why it does not answer: `gluster volume info` on a host of the pool"
    )
    findings = [failure(check, problem, fix) for problem in health_problems(health, health, tasks_count=False)]
    tasks = health.state.tasks if health.state else ()
    findings += [
        warning(
            check,
            f"a task moves files on the volume: {task}",
            "copying may go on; a scan of this time is not whole, so wait for its end, or stop it",
        )
        for task in tasks
    ]
    if findings:
        return findings
    bricks = len(health.state.bricks) if health.state else 0
    return [ok(check, f"all {bricks} bricks are up" if bricks else "it can be read")]


def check_lookups(state: VolumeState, *, moved: bool) -> list[Finding]:
    """Do clients find every file by its name? `moved`: the ledger knows a drain of the volume, or bricks that were added. Where
    somebody drained or rebalanced by hand before, nothing tells so but a task that is listed.
    """
    on = is_on(dict(state.options), LOOKUP_OPTION, default=True)
    if on is False:
        return [ok("lookups", f"{LOOKUP_OPTION} is off: clients look for a name on every brick")]
    if not moved and not state.tasks:
        return []
    return [
        warning(
            "lookups",
            f"{LOOKUP_OPTION} is on, and bricks were drained or added: files can be listed and yet not be found by their name",
            f"gluster volume set {state.volume} {LOOKUP_OPTION} off; it stays off, also where bricks were drained by hand",
        )
    ]


def check_strange_files(found: Sequence[StrangeFiles]) -> list[Finding]:
    """Does anything lie on the bricks that was put there past Gluster? By the newest scan of the bricks."""
    return [
        warning(
            "files without a gfid",
            f"{strange_words(one)}: clients that ask for such a name can hang while {LOOKUP_OPTION} is off",
            f"{REMEDY}; then `migrator scan --via bricks`",
        )
        for one in found
    ]


def check_source_acls(*, shown: bool | None) -> Finding:
    """Does the mount show ACLs? None where that is not known."""
    if shown:
        return ok("source ACLs", "the mount shows ACLs")
    return warning(
        "source ACLs",
        "the mount shows no ACLs: none would be carried over"
        if shown is False
        else "whether the mount shows ACLs is not known",
        "if users have ACLs, mount it with `-o acl` (GlusterFS), then run this again",
    )


def check_target_room(
    target: Capacity | None,
    source: Capacity | None,
    *,
    inodes_free: int | None,
    reserve_bytes: int,
    error: str = "",
) -> list[Finding]:
    """Bytes, inodes and whether it can be written; `inodes_free` is what site.toml gives."""
    if target is None:
        return [failure("target room", f"not known: {error}", "mount the target")]
    findings = []
    if target.read_only:
        findings.append(
            failure("target mount", "the target is mounted read-only", "mount it for writing: `mount -o remount,rw`")
        )
    findings.append(_check_bytes(target, source, reserve_bytes))
    findings.append(_check_inodes(target, inodes_free))
    return findings


def check_capabilities(
    probed: TargetCapabilities | None, recorded: TargetCapabilities | None, error: str
) -> list[Finding]:
    """What the target keeps of a file. `probed` is None where it could not be found out, for the reason `error`."""
    check = "target keeps"
    if probed is None:
        return [failure(check, f"not known: {error}", "mend what is told above, then run this again")]
    ordinary = loss_details(_with_limits_of(probed))
    losses = [words for kind, words in loss_details(probed).items() if ordinary.get(kind) != words]
    findings = []
    if not probed.keeps_acls or not probed.keeps_user_xattrs:
        findings.append(
            warning(
                check,
                "the target keeps no ACLs or no extended attributes",
                "BeeGFS: sysXAttrsEnabled and sysACLsEnabled in beegfs-client.conf and storeClientXAttrs on the "
                "metadata servers are off by default; turn them on, mount anew, run this again",
            )
        )
    if losses:
        findings.append(
            warning(
                check,
                f"not everything: {'; '.join(losses)}",
                "`migrator plan` lists per user what this concerns, before anything moves",
            )
        )
    if recorded is not None and recorded != probed:
        findings.append(
            warning(
                check,
                "something else than when it was last probed: batches that were verified before were compared by that",
                "find out what changed on the target; verify those batches again",
            )
        )
    if not findings:
        findings.append(
            ok(
                check,
                f"everything of a file; symlinks up to {format_count(probed.max_symlink_target_bytes)} bytes, "
                f"attributes up to {format_size(probed.max_xattr_value_bytes)}, "
                f"ACLs up to {format_count(probed.max_acl_entries)} entries",
            )
        )
    return findings if probed.syncfs_reaches_disks else [_EACH_SYNCED, *findings]


def check_state_directory(
    directory: bytes,
    *,
    filesystem: str | None,
    free_bytes: int | None,
    roots: Iterable[tuple[str, bytes]],
) -> list[Finding]:
    """Is the state directory on a local disk with room, and outside both file systems (`roots`, by side)?"""
    check, fix = (
        "state directory",
        "let [site] state_dir name a directory on a local disk, and move what is in it there",
    )
    shown = show(directory)
    for side, root in roots:
        if is_beneath(directory, root):
            return [failure(check, f"{shown} lies on the {side}", fix)]
    if filesystem is None:
        return [failure(check, f"{shown}: its file system is not known", fix)]
    if filesystem in NETWORK_FILESYSTEMS or filesystem.startswith("fuse"):
        return [failure(check, f"{shown} lies on {filesystem}, which is no local disk: the ledger needs one", fix)]
    if filesystem in ("tmpfs", "ramfs"):
        return [warning(check, f"{shown} lies in memory ({filesystem}): a reboot loses the ledger", fix)]
    if free_bytes is None or free_bytes < _STATE_LEAST_BYTES:
        known = "an unknown room" if free_bytes is None else format_size(free_bytes)
        return [
            warning(
                check,
                f"{shown} has {known} free",
                "make room: catalogs and manifests take about 100 bytes a file each",
            )
        ]
    return [ok(check, f"{shown} on {filesystem}, {format_size(free_bytes)} free")]


def check_clock(now_s: float, last_event_s: float | None) -> Finding:
    """Is the clock set, and does it go forwards?"""
    if now_s < _CLOCK_LEAST_S:
        return failure("clock", "this machine's clock is not set", "set it: `timedatectl set-ntp true`")
    if last_event_s is not None and now_s < last_event_s - _BACKWARDS_S:
        behind = format_duration(last_event_s - now_s)
        return failure(
            "clock",
            f"this machine's clock is {behind} behind the last entry of the ledger",
            "set it (`timedatectl set-ntp true`): rates, ages and the order of events depend on it",
        )
    return ok("clock", "set")


def _with_limits_of(probed: TargetCapabilities) -> TargetCapabilities:
    """A local file system that keeps everything, with the probed limits where they are no less than XFS's: those bind
    files on the source too, or next to none.
    """
    return TargetCapabilities(
        max_symlink_target_bytes=max(probed.max_symlink_target_bytes, _XFS_SYMLINK_BYTES),
        max_acl_entries=max(probed.max_acl_entries, _XFS_ACL_ENTRIES),
    )


def _check_bytes(target: Capacity, source: Capacity | None, reserve_bytes: int) -> Finding:
    check = "target bytes"
    free = f"{format_size(target.free_bytes)} of {format_size(target.total_bytes)} are free"
    if target.free_bytes <= reserve_bytes:
        return failure(
            check, f"{free}; {format_size(reserve_bytes)} are kept in reserve", "make room on the target, or enlarge it"
        )
    used_bytes = source.total_bytes - source.free_bytes if source is not None else 0
    if used_bytes > target.free_bytes - reserve_bytes:
        return warning(
            check,
            f"{free}; the source uses {format_size(used_bytes)}",
            "not everything fits at once: `migrator plan` says which batches do",
        )
    if target.total_bytes and target.free_bytes < (1 - _NEARLY_FULL) * target.total_bytes:
        return warning(
            check, f"{free}: it is nearly full", "one full storage target gives ENOSPC before the whole is full"
        )
    return ok(check, free)


def _check_inodes(target: Capacity, given: int | None) -> Finding:
    check = "target inodes"
    if target.free_inodes is None:
        if given is None:
            return warning(
                check,
                "the file system does not tell how many inodes are free (unknown, not full)",
                "read it with the file system's own tool (BeeGFS: `beegfs health capacity`, `beegfs-df`) and put it "
                "into [target] inodes_free",
            )
        return ok(check, f"{format_count(given)} free, as site.toml says")
    free = f"{format_count(target.free_inodes)} of {format_count(target.total_inodes or 0)} are free"
    if target.free_inodes == 0:
        return failure(check, free, "make room for inodes on the target's metadata")
    if target.total_inodes and target.free_inodes < (1 - _NEARLY_FULL) * target.total_inodes:
        return warning(check, f"{free}: it is nearly full", "make room for inodes on the target's metadata")
    return ok(check, free)
