"""Findings of `doctor` from collected facts: programs, hosts, both file systems, places. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from migrator.catalog.model import StrangeFiles
from migrator.core.events import Finding, failure, ok, warning
from migrator.core.paths import is_beneath, show
from migrator.core.units import GIB, format_count, format_duration, format_size, several
from migrator.fs.kinds.model import FileSystemKind, FileSystemReport
from migrator.fs.model import (
    LOCAL_FILESYSTEMS,
    Capacity,
    MountIdentity,
    SourceHealth,
    TargetCapabilities,
    syncfs_reaches_disks,
)
from migrator.gluster.model import VolumeState, volume_state
from migrator.gluster.rules import LOOKUP_OPTION, is_on
from migrator.hosts.model import HostRoom
from migrator.hosts.ports import HostFacts
from migrator.plan.losses import loss_details
from migrator.scan.rules import REMEDY, BrickChoice, describe_strange_files
from migrator.site.model import needs_rsync
from migrator.site.rules_guards import health_problems, kind_problem, mount_problems
from migrator.transfer.engines.rules_rsync import FSYNC_VERSION, MINIMUM_VERSION, dotted, parse_features

# File systems, state directory and clock


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
_XFS_SYMLINK_BYTES = 1023
_XFS_ACL_ENTRIES = 5461
"""Probed on XFS, Linux 6.1."""
_EACH_SYNCED = ok(
    "target sync",
    "its syncfs does not reach the disks of the servers: each file is synced by itself (rsync before "
    "3.2.4 cannot do that)",
)


def check_mount(
    where: str, kind: str, recorded: MountIdentity | None, current: MountIdentity | None, error: str = ""
) -> Finding:
    """Whether the mounted file system is the one that `init` recorded. `current` is None if reading failed with
    `error`.
    """
    check, side = f"{where} mount", f"the {where}"
    if current is None:
        return failure(check, f"{side} cannot be read: {error}", "mount it, or correct site.toml")
    if problem := kind_problem(current.filesystem, current.mounted_from, kind, where=side):
        return failure(check, problem, "mount it, or correct site.toml")
    shown = f"{current.filesystem} from {current.mounted_from}"
    if recorded is None:
        return failure(check, f"{side} ({shown}) was never recorded", "run `migrator init`")
    if problems := mount_problems(recorded, current, where=side):
        fix = "mount the recorded one; if this one is correct, run `migrator init` to record it"
        return failure(check, "; ".join(problems), fix)
    if current.sentinel is None:
        return warning(
            check,
            f"{side} ({shown}) has no sentinel, because it could not be written",
            "mount it for writing once and run `migrator init`; without a sentinel only device and root identify it",
        )
    return ok(check, shown)


def check_health(health: SourceHealth | None, error: str = "") -> list[Finding]:
    """Whether the source is complete. `health` is None if reading failed with `error`."""
    check = "source health"
    if health is None:
        return [failure(check, f"unknown: {error}", "check the volume: `gluster volume status`")]
    state = volume_state(health)
    fix = (
        "start it; see `gluster volume status` and the brick's log"
        if state
        else "find out why: ask the file system's own command, on a host of it"
    )
    findings = [failure(check, problem, fix) for problem in health_problems(health, health, tasks_count=False)]
    tasks = state.tasks if state else ()
    fix = "wait until the task ends, or stop it: copying may continue, but a scan is not whole meanwhile"
    findings += [warning(check, f"a task moves files on the volume: {task}", fix) for task in tasks]
    fix = "copying may continue; until then scans are not whole, and delete, purge and switch are refused"
    findings += [warning(check, doubt, fix) for doubt in health.doubts]
    if findings:
        return findings
    bricks = len(state.bricks) if state else 0
    return [ok(check, f"all {bricks} bricks are up" if bricks else "it can be read")]


def check_kind(where: str, kind: FileSystemKind, filesystem: str) -> list[Finding]:
    """What is special about a side, what cannot be trusted, and what follows from it; nothing for a local file system.
    `filesystem` is the type in mountinfo.
    """
    if filesystem in LOCAL_FILESYSTEMS:
        return []
    check, special = f"{where} kind", [kind.partial]
    if where == "target":
        synced = syncfs_reaches_disks(filesystem)
        special = [kind.layouts, "" if synced else "syncfs does not reach the disks, so files are synced one by one"]
    findings = [ok(check, f"{kind.title}: {'; '.join(filter(None, special))}")] if any(special) else []
    if broken := [fact.why for fact in (kind.inodes, kind.ctimes, kind.links) if not fact.holds]:
        costs = [] if kind.trusted_inodes or where == "target" else ["moved files are copied again"]
        costs += [] if kind.links.holds else ["each name of a file is a file of its own"]
        costs += [] if kind.ctimes.holds else ["every verification reads all content"]
        findings.append(warning(check, f"{kind.title}: {'; '.join(broken)}", f"no action needed: {'; '.join(costs)}"))
    return findings


def check_answer(check: str, answer: FileSystemReport | None, error: str = "", hint: str = "") -> list[Finding]:
    """The output of the file system's own command; None if it failed with `error`."""
    if answer is None:
        return [warning(check, error, hint or "see docs/filesystems.md")]
    fix = "restore it, then run `migrator doctor` again"
    findings = [failure(check, problem, fix) for problem in answer.problems]
    findings += [
        warning(check, doubt, "delete, purge and switch are refused until the state is known")
        for doubt in answer.doubts
    ]
    return findings + [ok(check, note) for note in answer.notes]


def check_lookups(state: VolumeState, *, moved: bool) -> list[Finding]:
    """Whether clients find every file by its name. `moved`: the ledger has a drain of the volume or an addition of
    bricks. Manual drains and rebalances are only known while their task is listed.
    """
    on = is_on(dict(state.options), LOOKUP_OPTION, default=True)
    if on is False:
        return [ok("lookups", f"{LOOKUP_OPTION} is off: clients look up a name on every brick")]
    if not moved and not state.tasks:
        return []
    return [
        warning(
            "lookups",
            f"{LOOKUP_OPTION} is on, and bricks were drained or added: files can be listed but not opened by name",
            f"gluster volume set {state.volume} {LOOKUP_OPTION} off; leave it off, also after bricks were drained by hand",
        )
    ]


def check_strange_files(found: Sequence[StrangeFiles]) -> list[Finding]:
    """Whether files on the bricks were created outside Gluster, by the newest scan of the bricks."""
    return [
        warning(
            "files without a gfid",
            f"{describe_strange_files(one)}: clients that look up such a name can hang while {LOOKUP_OPTION} is off",
            f"{REMEDY}; then `migrator scan --via bricks`",
        )
        for one in found
    ]


def check_source_acls(*, shown: bool | None) -> Finding:
    """Whether the mount shows ACLs; None if unknown."""
    if shown:
        return ok("source ACLs", "the mount shows ACLs")
    return warning(
        "source ACLs",
        "the mount shows no ACLs: they would not be copied"
        if shown is False
        else "ACL support of the mount is unknown",
        "if users have ACLs, mount it with `-o acl` (GlusterFS), then run `migrator doctor` again",
    )


def check_target_room(
    target: Capacity | None,
    source: Capacity | None,
    *,
    inodes_free: int | None,
    reserve_bytes: int,
    error: str = "",
) -> list[Finding]:
    """Bytes, inodes, and whether the target is writable; `inodes_free` is from site.toml."""
    if target is None:
        return [failure("target room", f"unknown: {error}", "mount the target")]
    findings = [_check_bytes(target, source, reserve_bytes), _check_inodes(target, inodes_free)]
    if target.read_only:
        fix = "mount it for writing: `mount -o remount,rw`"
        findings.insert(0, failure("target mount", "the target is mounted read-only", fix))
    return findings


def check_capabilities(
    probed: TargetCapabilities | None, recorded: TargetCapabilities | None, error: str
) -> list[Finding]:
    """The attributes of a file that the target keeps. `probed` is None if the probe failed with `error`."""
    check = "target keeps"
    if probed is None:
        return [failure(check, f"unknown: {error}", "fix the findings above, then run `migrator doctor` again")]
    ordinary = loss_details(_with_limits_of(probed))
    losses = [words for kind, words in loss_details(probed).items() if ordinary.get(kind) != words]
    findings = []
    if not probed.keeps_acls or not probed.keeps_user_xattrs:
        findings.append(
            warning(
                check,
                "the target keeps no extended attributes, or no ACLs, or cannot remove ACLs again",
                "BeeGFS: sysXAttrsEnabled and sysACLsEnabled in beegfs-client.conf and storeClientXAttrs on the "
                "metadata servers are off by default; turn them on, mount again, then run `migrator doctor` again",
            )
        )
    elif not probed.inherits_default_acls:
        findings.append(
            warning(
                check,
                "new files on the target do not inherit the default ACL of their directory",
                "BeeGFS: set storeClientACLs = true on the metadata servers, restart them, then run `migrator doctor` again; otherwise `cutover` "
                "refuses users with default ACLs ([cutover] require_acl_inheritance)",
            )
        )
    if losses:
        fix = "`migrator plan` lists the affected files by user before the first copy"
        findings.append(warning(check, f"not everything: {'; '.join(losses)}", fix))
    if recorded is not None and recorded != probed:
        findings.append(
            warning(
                check,
                "the capabilities of the target changed since the last probe; earlier verifications compared by the old ones",
                "find the change on the target, then verify those batches again",
            )
        )
    if not findings:
        findings.append(
            ok(
                check,
                f"all attributes of a file; symlinks up to {format_count(probed.max_symlink_target_bytes)} bytes, "
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
    """Whether the state directory is on a local disk with room, and outside both file systems (`roots`, by side)."""
    check, fix = "state directory", "set [site] state_dir to a directory on a local disk, and move its content there"
    shown = show(directory)
    for side, root in roots:
        if is_beneath(directory, root):
            return [failure(check, f"{shown} is on the {side}", fix)]
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
    """Whether the clock is set, and has not gone backwards."""
    if now_s < _CLOCK_LEAST_S:
        return failure(
            "clock", "this machine's clock is not synchronized", "synchronize it: `timedatectl set-ntp true`"
        )
    if last_event_s is not None and now_s < last_event_s - _BACKWARDS_S:
        behind = format_duration(last_event_s - now_s)
        fix = "synchronize it (`timedatectl set-ntp true`): rates, ages and the order of events depend on it"
        return failure("clock", f"this machine's clock is {behind} behind the last entry of the ledger", fix)
    return ok("clock", "set")


def _with_limits_of(probed: TargetCapabilities) -> TargetCapabilities:
    """A local file system that keeps all attributes. It has the probed limits if they are at least those of XFS: such
    limits apply to source files too, or to hardly any file.
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
            check, f"{free}; {format_size(reserve_bytes)} stay in reserve", "free space on the target, or enlarge it"
        )
    used_bytes = source.total_bytes - source.free_bytes if source is not None else 0
    if used_bytes > target.free_bytes - reserve_bytes:
        return warning(
            check,
            f"{free}; the source uses {format_size(used_bytes)}",
            "the target cannot hold everything yet: `migrator plan` lists the batches that fit",
        )
    return ok(check, free)


def _check_inodes(target: Capacity, given: int | None) -> Finding:
    check = "target inodes"
    if target.free_inodes is None:
        if given is None:
            return warning(
                check,
                "the file system does not report its free inodes (unknown, not full)",
                "read it with the file system's own tool (BeeGFS: `beegfs health capacity`, `beegfs-df`) and put it "
                "into [target] inodes_free",
            )
        return ok(check, f"{format_count(given)} free, by site.toml")
    free = f"{format_count(target.free_inodes)} of {format_count(target.total_inodes or 0)} are free"
    if target.free_inodes == 0:
        return failure(check, free, "free inodes on the target's metadata targets")
    return ok(check, free)


# Programs


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
    """Whether the rsync of this machine is suitable, if the configured engine needs one; see `rsync_problem`."""
    problem = rsync_problem(program, output)
    if not needs_rsync(engine):
        return ok("rsync", f"{problem or _version_of(output)}; engine `{engine}` needs none")
    if problem:
        return failure("rsync", problem, f"{_install_rsync(MINIMUM_VERSION)} (Debian: `apt install rsync`)")
    return ok("rsync", f"{_version_of(output)} ({program})")


def check_syncing(filesystem: str, output: bytes | None) -> list[Finding]:
    """Whether rsync cannot sync its copies on a target of this type."""
    features = None if output is None else parse_features(output)
    problem = None if features is None else features.syncing_problem(filesystem)
    return [warning("rsync", problem, _install_rsync(FSYNC_VERSION))] if problem else []


def _install_rsync(version: tuple[int, int, int]) -> str:
    return f"install rsync {dotted(version)} or later"


def _version_of(output: bytes | None) -> str:
    features = None if output is None else parse_features(output)
    return "no rsync" if features is None else f"rsync {features.version_text}"


def check_gluster(command: str, program: str | None) -> Finding:
    """Whether the command that queries the volume is installed."""
    if program is None:
        return failure(
            "gluster",
            f"the command {command} is missing, so the state of the bricks is unknown",
            "install glusterfs-cli on a peer of the pool, or set [source] gluster to a script that queries one",
        )
    return ok("gluster", program)


def is_older(release: str, least: tuple[int, int]) -> bool:
    """Whether a release of Linux is older than this version; False for one that names no version."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return found is not None and (int(found[1]), int(found[2])) < least


def check_kernel(release: str) -> Finding:
    """Whether this machine can start and end programs as `hosts/process.py` does."""
    if is_older(release, _KERNEL_HERE):
        message = f"Linux {release} is older than {dotted(_KERNEL_HERE)}, so no program can be started"
        return failure("kernel", message, "run migrator on a machine with a newer kernel; hosts may have older ones")
    return ok("kernel", f"Linux {release}")


def check_user(euid: int) -> Finding:
    """Whether the user is root: others cannot copy all metadata."""
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


def check_slurm_nodes(listed: str, wanted: int) -> Finding:
    """Whether there are as many nodes as [slurm] nodes requires. `listed` is the output of `sinfo --Node
    --format=%N|%t`.
    """
    states = dict(line.strip().split("|", 1) for line in listed.split("\n") if "|" in line)
    # A suffix means that the node does not respond (`*`) or is unavailable (`$`, `@`, ...), except `~`, `#` and `-`:
    # powered down and available, powering up, or planned for another job.
    usable = [name for name, state in states.items() if state.strip().rstrip("~#-") in _TAKES_JOBS]
    if len(usable) >= wanted:
        return ok("slurm", f"{len(usable)} of {len(states)} nodes accept jobs, {wanted} at once are configured")
    others = ", ".join(f"{name} {state}" for name, state in sorted(states.items()) if name not in usable) or "no others"
    message = f"{len(usable)} of {len(states)} nodes accept jobs, but [slurm] nodes is {wanted}: {others}"
    fix = "see `sinfo -R`; bring nodes back (`scontrol update NodeName=... State=RESUME`), or lower [slurm] nodes"
    return failure("slurm", message, fix) if not usable else warning("slurm", message, fix)


_KERNEL_HERE = (5, 3)
"""The first with pidfd_open."""
_KERNEL_OF_HOSTS = (4, 18)
"""That of RHEL 8. Calls that it lacks (openat2, pidfd_open) have another way on hosts."""
_TAKES_JOBS = frozenset({"idle", "mix", "alloc", "comp", "plnd"})


# Hosts that read their own bricks


_CLOCK_WARN_S = 1.0
_CLOCK_FIX = (
    "set it there (chrony, `timedatectl set-ntp true`). Reading the bricks is not harmed: times of files are compared as "
    "Gluster keeps them, and those come from its clients. Harmed are times that a brick's own file system gives "
    "(features.ctime off) and the order of events in the logs of several hosts"
)


class HostState(Struct, frozen=True, kw_only=True):
    """The facts of a reached host. `bricks` maps each brick of the host in the volume to its problem, or None.
    `target` is None if site.toml gives the host none; `target_problem` is None if it is the recorded one and its room is
    known.
    """

    facts: HostFacts
    bricks: Mapping[str, str | None] = {}
    target: str | None = None
    target_problem: str | None = None
    room: HostRoom | None = None
    native_problem: str | None = None
    confinement_problem: str | None = None


def host_lost(name: str, message: str, cause: str, hint: str) -> Finding:
    """A host that could not be reached, with the error."""
    text = f"{message} ({cause})" if cause else message
    fix = hint or f"fix it, or remove [source.hosts] {name} from site.toml: its bricks are then read through the mount"
    return failure(_check(name), text, fix)


def check_host(sight: HostState, *, target_filesystem: str | None, reserve_bytes: int) -> list[Finding]:
    """All problems of a host, or one finding with its facts. `target_filesystem` is the type of the recorded target's
    file system, None before `init`.
    """
    check = _check(sight.facts.name)
    findings: list[Finding] = []
    section = f'[source.hosts."{sight.facts.name}"]'
    if sight.facts.effective_uid != 0:
        message = f"the connection has uid {sight.facts.effective_uid}, but only root can read bricks and set owners"
        fix = f'{section} ssh = "root@..."; sshd: PermitRootLogin prohibit-password'
        findings.append(failure(check, message, fix))
    for brick, problem in sight.bricks.items():
        if problem is not None:
            place = brick.partition(":")[2]
            fix = f"mount the brick's file system at {place} there; `gluster volume info` names the bricks"
            findings.append(failure(check, problem, fix))
    if sight.target is not None:
        findings += _check_target(sight, target_filesystem, reserve_bytes)
    if sight.native_problem is not None:
        findings.append(
            failure(
                check,
                f"the compiled program does not run there, so the host cannot read or copy: {sight.native_problem}",
                "install migrator on a machine of the host's architecture, mount /dev/shm or /var/tmp there without "
                f"noexec, or take [source.hosts] {sight.facts.name} from site.toml: its bricks are then read through the mount",
            )
        )
    if sight.confinement_problem is not None:
        message = (
            f"streams cannot be confined to their trees there, so nothing is copied there: {sight.confinement_problem}"
        )
        fix = f"reach the host itself and no container on it (CAP_SYS_ADMIN), or remove `target` from {section}: it only scans then"
        findings.append(failure(check, message, fix))
    if is_older(sight.facts.kernel, _KERNEL_OF_HOSTS):
        message = (
            f"its Linux {sight.facts.kernel} is older than {dotted(_KERNEL_OF_HOSTS)}, and nothing was tried there"
        )
        findings.append(warning(check, message, "try a small batch, or let the mount be read: [source] via"))
    return findings or [ok(check, _all_well(sight))]


def check_host_clocks(offsets: Mapping[str, tuple[float, float]]) -> list[Finding]:
    """`offsets`, by host: its clock minus this machine's, and the uncertainty, in seconds."""
    return [
        warning(
            _check(name),
            f"its clock is {abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'} this machine's",
            _CLOCK_FIX,
        )
        for name, (offset_s, error_s) in offsets.items()
        if abs(offset_s) - error_s > _CLOCK_WARN_S
    ]


def check_brick_hosts(
    via: str, state: VolumeState, sections: Collection[str], way: BrickChoice | None
) -> list[Finding]:
    """The way in which a scan would currently read the volume. `sections` are the hosts in site.toml; `way` is None if
    it was not determined.
    """
    check = "bricks"
    if via == "mount":
        return [ok(check, "bricks are not read: [source] via is `mount`")]
    hosts = {brick.host for brick in state.bricks}
    findings = [
        warning(
            check,
            f"site.toml names the host {name}, but no brick of the volume has that host name",
            f"name it as `gluster volume info {state.volume}` does: {', '.join(sorted(hosts))}",
        )
        for name in sorted(set(sections) - hosts)
    ]
    missing = hosts - set(sections)
    without = [f"site.toml has no section [source.hosts.NAME] for {', '.join(sorted(missing))}"] if missing else []
    if way is not None and not way.reasons:
        read = {brick.host for brick in way.bricks}
        found = f"{several(len(way.bricks), 'brick')} on {several(len(read), 'host')} can be read"
        partly = [f"{words}: files on their bricks are copied through the mount" for words in without]
        return [
            *findings,
            ok(check, found),
            *(warning(check, words, "add a section for each host") for words in partly),
        ]
    why = "; ".join([*(way.reasons if way else ()), *without]) or "the volume's state is unknown"
    slower = f"a scan would use the mount, which is much slower: {why}"
    if via == "bricks":
        return [*findings, failure(check, f"bricks cannot be read: {why}", "fix it, or set [source] via to `auto`")]
    if not sections:
        return [ok(check, slower)]
    return [*findings, warning(check, slower, "fix it if possible; `auto` checks again before every scan")]


def _check_target(sight: HostState, target_filesystem: str | None, reserve_bytes: int) -> list[Finding]:
    check = _check(sight.facts.name)
    fix = f'mount it there (and in /etc/fstab), or correct [source.hosts."{sight.facts.name}"] target'
    if target_filesystem is None:
        return [failure(check, "the target is unknown before `init`", "run `migrator init`")]
    if sight.target_problem is not None:
        return [failure(check, sight.target_problem, fix)]
    room = sight.room
    if room is None:
        return [failure(check, f"{sight.target} does not report its free space there", fix)]
    findings = []
    if room.read_only:
        findings.append(failure(check, f"the target is mounted read-only at {sight.target} there", "mount it rw there"))
    if room.filesystem != target_filesystem:
        message = f"{sight.target} is {room.filesystem} there and {target_filesystem} here, for the same directory"
        fix = "mount it with the same file system type on both: the attributes of files may differ"
        findings.append(warning(check, message, fix))
    if room.free_bytes <= reserve_bytes:
        message = f"the target shows {format_size(room.free_bytes)} free there"
        findings.append(failure(check, message, "free space, or mount it again"))
    return findings


def _all_well(sight: HostState) -> str:
    parts = [
        f"reached ({sight.facts.round_trip_s * 1000:.1f} ms)",
        f"Linux {sight.facts.kernel} on {sight.facts.architecture}",
        f"Python {dotted(sight.facts.python_version)}",
        f"{several(len(sight.bricks), 'brick')} of the volume",
        "compiled program",
    ]
    if sight.target is None:
        parts.append("no target there: the host walks its bricks, and their files are copied through the mount")
    elif sight.room is not None:
        parts.append(f"target at {sight.target} ({sight.room.filesystem}, {format_size(sight.room.free_bytes)} free)")
    return ", ".join(parts)


def _check(name: str) -> str:
    return f"host {name}"
