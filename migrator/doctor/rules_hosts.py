"""Findings about hosts that read their own bricks, and about the nodes of Slurm. Pure."""

from collections.abc import Collection, Mapping

from msgspec import Struct

from migrator.core.events import Finding, failure, ok, warning
from migrator.core.units import format_size, several
from migrator.doctor.rules_machine import is_older
from migrator.gluster.model import VolumeState
from migrator.hosts.model import SOURCE_HOSTS, HostRoom
from migrator.hosts.ports import HostFacts
from migrator.scan.rules import BrickChoice
from migrator.transfer.engines.rules_rsync import dotted

_KERNEL_OF_HOSTS = (4, 18)
"""That of RHEL 8. Calls that it lacks (openat2, pidfd_open) have another way on hosts."""
_TAKES_JOBS = frozenset({"idle", "mix", "alloc", "comp", "plnd"})


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
    of: str = SOURCE_HOSTS
    """The place of its section in site.toml."""
    bricks: Mapping[str, str | None] = {}
    target: str | None = None
    writer: str = ""
    """The host of the target that writes for this one, which has none."""
    target_problem: str | None = None
    room: HostRoom | None = None
    native_problem: str | None = None
    confinement_problem: str | None = None


def host_lost(name: str, message: str, cause: str, hint: str, *, of: str = SOURCE_HOSTS) -> Finding:
    """A host that could not be reached, with the error."""
    text = f"{message} ({cause})" if cause else message
    fix = (
        hint
        or f"fix it, or remove [{of}] {name} from site.toml: its bricks, or what it would write, are then read through the mount"
    )
    return failure(_check(name), text, fix)


def check_host(sight: HostState, *, target_filesystem: str | None, reserve_bytes: int) -> list[Finding]:
    """All problems of a host, or one finding with its facts. `target_filesystem` is the type of the recorded target's
    file system, None before `init`.
    """
    check = _check(sight.facts.name)
    findings: list[Finding] = []
    section = f'[{sight.of}."{sight.facts.name}"]'
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
                f"noexec, or take [{sight.of}] {sight.facts.name} from site.toml: its bricks are then read through the mount",
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
    fix = f'mount it there (and in /etc/fstab), or correct [{sight.of}."{sight.facts.name}"] target'
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
        *((f"{several(len(sight.bricks), 'brick')} of the volume",) if sight.of == SOURCE_HOSTS else ()),
        "compiled program",
    ]
    if sight.target is None and sight.writer:
        parts.append(f"no target there: {sight.writer} writes what the host reads")
    elif sight.target is None:
        parts.append("no target there: the host walks its bricks, and their files are copied through the mount")
    elif sight.room is not None:
        parts.append(f"target at {sight.target} ({sight.room.filesystem}, {format_size(sight.room.free_bytes)} free)")
    return ", ".join(parts)


def _check(name: str) -> str:
    return f"host {name}"


def check_slurm_nodes(listed: str, wanted: int) -> Finding:
    """Check that there are as many nodes as [slurm] nodes requires. `listed` is the output of `sinfo --Node
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
