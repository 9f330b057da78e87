"""Whether the hosts that read their own bricks are fit for it. Pure: from what each shows to findings."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from migrator.decide.rsync_features import FSYNC_VERSION, MINIMUM_VERSION, dotted, parse_features
from migrator.decide.scan_way import BrickWay
from migrator.domain.brick import VolumeState
from migrator.domain.finding import Finding, failure, ok, warning
from migrator.domain.host import HostRoom
from migrator.domain.units import format_size, several

LEAST_PYTHON = (3, 9)
"""What the part of the program that runs on hosts is written for."""
_CLOCK_WARN_S = 1.0
_CLOCK_FIX = (
    "set it there (chrony, `timedatectl set-ntp true`). Reading the bricks is not harmed: times of files are compared as "
    "Gluster keeps them, and those come from its clients. Harmed are times that a brick's own file system gives "
    "(features.ctime off) and what logs of several hosts tell together"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSight:
    """What a host that was reached shows. `bricks` has for every brick there that glusterd names what is wrong with it,
    None for nothing. `target` is None where site.toml gives the host none; `target_problem` None where it is the
    recorded one, `target_error` why its room is not known. `rsync_output` is what `--version` gave.
    """

    name: str
    python_version: tuple[int, int, int]
    effective_uid: int
    round_trip_s: float
    clock_offset_s: float
    bricks: Mapping[str, str | None] = field(default_factory=dict)
    target: str | None = None
    target_problem: str | None = None
    room: HostRoom | None = None
    rsync: str | None = None
    rsync_output: bytes | None = None
    native_problem: str | None = None


def host_lost(name: str, message: str, cause: str, hint: str) -> Finding:
    """A host that was not reached, in the words of who tried."""
    said = f"{message} ({cause})" if cause else message
    fix = (
        hint or f"see to it, or take [source.hosts] {name} out of site.toml: its bricks are read through the mount then"
    )
    return failure(_check(name), said, fix)


def check_host(sight: HostSight, *, target_filesystem: str | None, reserve_bytes: int) -> list[Finding]:
    """All that is wrong with a host; where that is nothing, one finding that says what there is.

    `target_filesystem` is the type of the recorded target's file system, None before `init`.
    """
    check = _check(sight.name)
    findings: list[Finding] = []
    if sight.python_version[:2] < LEAST_PYTHON:
        findings.append(
            failure(
                check,
                f"Python {dotted(sight.python_version)} is too old there",
                f'install Python 3.9 or later beside it, and name it: [source.hosts."{sight.name}"] python = ...',
            )
        )
    if sight.effective_uid != 0:
        findings.append(
            failure(
                check,
                f"it is reached as uid {sight.effective_uid}, and only root can read bricks and set owners",
                f'[source.hosts."{sight.name}"] ssh = "root@..."; sshd: PermitRootLogin prohibit-password',
            )
        )
    findings += [
        failure(
            check,
            problem,
            f"mount the brick's file system at {brick.partition(':')[2]} there; `gluster volume info` names the bricks",
        )
        for brick, problem in sight.bricks.items()
        if problem is not None
    ]
    if sight.target is not None:
        findings += _check_target(sight, target_filesystem, reserve_bytes)
        findings += _check_rsync(sight, target_filesystem)
    if sight.native_problem is not None:
        findings.append(
            failure(
                check,
                f"the compiled program does not run there, so nothing is read or copied there: {sight.native_problem}",
                "install migrator on a machine of the host's architecture, mount /dev/shm or /var/tmp there without "
                f"noexec, or take [source.hosts] {sight.name} out of site.toml: its bricks are read through the mount then",
            )
        )
    return findings or [ok(check, _all_well(sight))]


def check_host_clocks(offsets: Mapping[str, tuple[float, float]]) -> list[Finding]:
    """`offsets`, by host: its clock minus this machine's, and how far that may be wrong, in seconds."""
    findings = [
        warning(
            _check(name),
            f"its clock is {abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'} this machine's",
            _CLOCK_FIX,
        )
        for name, (offset_s, error_s) in offsets.items()
        if abs(offset_s) - error_s > _CLOCK_WARN_S
    ]
    if findings or len(offsets) < 2:
        return findings
    first = min(offsets, key=lambda name: offsets[name][0])
    last = max(offsets, key=lambda name: offsets[name][0])
    apart_s = offsets[last][0] - offsets[first][0]
    if apart_s - offsets[first][1] - offsets[last][1] > _CLOCK_WARN_S:
        return [warning("host clocks", f"the clocks of {first} and {last} are {apart_s:.1f} s apart", _CLOCK_FIX)]
    return []


def check_brick_hosts(via: str, state: VolumeState, sections: Collection[str], way: BrickWay | None) -> list[Finding]:
    """How a scan would read the volume now. `sections` are the hosts that site.toml names; `way` is None where that was
    not asked.
    """
    check = "bricks"
    if via == "mount":
        return [ok(check, "not read: [source] via is `mount`")]
    hosts = {brick.host for brick in state.bricks}
    findings = [
        warning(
            check,
            f"site.toml names the host {name}, and no brick of the volume is there under that name",
            f"name it as `gluster volume info {state.volume}` does: {_some(sorted(hosts))}",
        )
        for name in sorted(set(sections) - hosts)
    ]
    missing = sorted(hosts - set(sections))
    if not sections:
        told = f"site.toml says of no brick host how it is reached: {_some(missing)}"
        fix = "add a section [source.hosts.NAME] for each brick host"
        if via == "bricks":
            return [failure(check, told, f"{fix}, or set [source] via to `auto`")]
        return [ok(check, f"everything is read through the mount, which is slower by far, because {told}")]
    if way is None or way.reasons:
        reasons = list(way.reasons) if way else ["the volume's state is not known"]
        if missing:
            reasons.append(f"site.toml has no section for {_some(missing)}")
        if via == "bricks":
            findings.append(
                failure(check, f"they are not to be read: {'; '.join(reasons)}", "mend that, or set via to `auto`")
            )
        else:
            findings.append(
                warning(
                    check,
                    f"a scan would go through the mount now, which is slower by far: {'; '.join(reasons)}",
                    "mend that where you can; `auto` looks anew before every scan",
                )
            )
        return findings
    read = {brick.host for brick in way.bricks}
    findings.append(ok(check, f"{several(len(way.bricks), 'brick')} on {several(len(read), 'host')} can be read"))
    if missing:
        findings.append(
            warning(
                check,
                f"site.toml has no section for {_some(missing)}: what is copied from bricks there goes through the mount",
                "add a section [source.hosts.NAME] for each",
            )
        )
    return findings


def _check_target(sight: HostSight, target_filesystem: str | None, reserve_bytes: int) -> list[Finding]:
    check = _check(sight.name)
    fix = f'mount it there (and in /etc/fstab), or correct [source.hosts."{sight.name}"] target'
    if target_filesystem is None:
        return [failure(check, "whether the target is mounted there is not known before `init`", "run `migrator init`")]
    if sight.target_problem is not None:
        return [failure(check, sight.target_problem, fix)]
    room = sight.room
    if room is None:
        return [failure(check, f"{sight.target} does not tell its room there", fix)]
    findings = []
    if room.read_only:
        findings.append(failure(check, f"the target is mounted read-only at {sight.target} there", "mount it rw there"))
    if room.filesystem != target_filesystem:
        findings.append(
            warning(
                check,
                f"{sight.target} is {room.filesystem} there and {target_filesystem} here, though it is the same tree",
                "mount it there as it is mounted here: what a file keeps of its attributes may differ",
            )
        )
    if room.free_bytes <= reserve_bytes:
        findings.append(
            failure(check, f"the target shows {format_size(room.free_bytes)} free there", "make room, or mount it anew")
        )
    return findings


def _check_rsync(sight: HostSight, target_filesystem: str | None) -> list[Finding]:
    check, there = _check(sight.name), "or later there (Debian: `apt install rsync`)"
    if (problem := _rsync_problem(sight)) is not None:
        told = f"{problem}: files that changed cannot be patched there, only copied anew"
        return [warning(check, told, f"install rsync {dotted(MINIMUM_VERSION)} {there}")]
    if (syncing := _syncing_problem(sight, target_filesystem)) is not None:
        return [warning(check, syncing, f"install rsync {dotted(FSYNC_VERSION)} {there}")]
    return []


def _rsync_problem(sight: HostSight) -> str | None:
    if sight.rsync is None:
        return "it has no rsync"
    features = None if sight.rsync_output is None else parse_features(sight.rsync_output)
    if features is None:
        return f"{sight.rsync} does not tell its version there"
    return features.problem()


def _syncing_problem(sight: HostSight, target_filesystem: str | None) -> str | None:
    features = None if sight.rsync_output is None else parse_features(sight.rsync_output)
    return None if features is None or target_filesystem is None else features.syncing_problem(target_filesystem)


def _all_well(sight: HostSight) -> str:
    said = [
        f"reached ({sight.round_trip_s * 1000:.1f} ms)",
        f"Python {dotted(sight.python_version)}",
        f"{several(len(sight.bricks), 'brick')} of the volume",
        "compiled program",
    ]
    features = parse_features(sight.rsync_output) if sight.rsync_output is not None else None
    if features is not None:
        said.append(f"rsync {features.version_text}")
    if sight.target is None:
        said.append("no target there: it walks its bricks, what it holds is copied through the mount")
    elif sight.room is not None:
        said.append(f"target at {sight.target} ({sight.room.filesystem}, {format_size(sight.room.free_bytes)} free)")
    return ", ".join(said)


def _check(name: str) -> str:
    return f"host {name}"


def _some(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
