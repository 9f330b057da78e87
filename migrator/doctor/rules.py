"""Findings about both file systems. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from migrator.catalog.model import StrangeFiles
from migrator.core.events import Finding, failure, ok, warning
from migrator.core.paths import show
from migrator.core.units import first_of, format_count, format_size, several
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
from migrator.plan.losses import loss_details
from migrator.scan.rules import REMEDY, describe_strange_files
from migrator.site.rules_guards import (
    bytes_problem,
    health_problems,
    inodes_problem,
    kind_problem,
    mount_problems,
    mounted_volume,
)

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
    """Check that the mounted file system is the one that `init` recorded. `current` is None if reading failed with
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
    """Check that the source is complete. `health` is None if reading failed with `error`."""
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
    """Check that clients find every file by its name. `moved`: the ledger has a drain of the volume or an addition of
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
    """Check that no files on the bricks were created outside Gluster, by the newest scan of the bricks."""
    return [
        warning(
            "files without a gfid",
            f"{describe_strange_files(one)}: clients that look up such a name can hang while {LOOKUP_OPTION} is off",
            f"{REMEDY}; then `migrator scan --via bricks`",
        )
        for one in found
    ]


def check_source_acls(*, shown: bool | None) -> Finding:
    """Check that the mount shows ACLs; None: unknown."""
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


def unusable_source(kind: str, volume: str | None, identity: MountIdentity | None) -> Finding | None:
    """The reason why the health of the source is not queried: it is not mounted, or the mounted volume is not that of
    site.toml.

    The health of a volume does not apply to another volume or a plain directory.
    """
    check = "source health"
    if identity is None:
        return failure(check, "unknown: the source cannot be read", "fix the findings about the source's mount first")
    if kind_problem(identity.filesystem, identity.mounted_from, kind, where="the source"):
        fix = "mount the source first" + (f": volume {volume}" if volume else "")
        return failure(check, "unknown: the source is not mounted", fix)
    if kind != "gluster" or volume is None or identity.filesystem != "fuse.glusterfs":
        return None
    mounted = mounted_volume(identity.mounted_from)
    if mounted == volume:
        return None
    return failure(
        check,
        f"[source] volume is {volume}, but the mount is of {mounted} ({identity.mounted_from})",
        f'put [source] volume = "{mounted}" into site.toml, or mount volume {volume}',
    )


def check_user_map(users: Mapping[bytes, str], trees: Collection[bytes], unknown: Collection[str]) -> Iterator[Finding]:
    """Rows of the user map without effect: with trees that are no user trees, and with `unknown` users."""
    fix = "correct or remove these lines of [users] map; its columns are `tree` (below the source's mount) and `user`"
    if lost := sorted(set(users) - set(trees)):
        named = first_of(list(map(show, lost)), 3)
        yield warning("users map", f"the map names {several(len(lost), 'tree')} that no glob matches: {named}", fix)
    if unknown:
        named = first_of([show(one.encode("utf-8", "surrogateescape")) for one in sorted(unknown)], 3)
        yield warning(
            "users map", f"the map names {several(len(unknown), 'user')} unknown on this machine: {named}", fix
        )


def check_globs(matches: Iterable[tuple[str, int]], problem: str, fix: str, trees: int) -> list[Finding]:
    """Check that every glob of [users] trees matches a directory, and the matches are valid user trees. Otherwise
    `problem` and `fix` describe the failure; they are empty if there is none. `trees` is the number of user trees.
    """
    check = "user trees"
    findings = [
        failure(
            check,
            f"[users] trees: {glob!r} matches no directory of the source",
            "correct it in site.toml: globs are relative to the source's mount, as in `home/*`; or remove it",
        )
        for glob, count in matches
        if count == 0
    ]
    if findings:
        return findings
    if problem:
        return [failure(check, problem, fix)]
    return [ok(check, f"{several(trees, 'user tree')}")]


def check_catalog_trees(catalog: str, scanned: Collection[bytes], now: Collection[bytes]) -> Finding | None:
    """Check that the latest catalog, from which plans are made, has the user trees that [users] gives now."""
    lacking, gone = sorted(set(now) - set(scanned)), sorted(set(scanned) - set(now))
    if not lacking and not gone:
        return None
    differences = [
        f"{words} {first_of(list(map(show, paths)), 3)}"
        for words, paths in (("it has not", lacking), ("it has besides", gone))
        if paths
    ]
    return warning(
        "user trees",
        f"catalog {catalog} was made with other user trees than [users] gives now: {'; '.join(differences)}",
        "run `migrator scan`: a plan takes the trees of its catalog",
    )


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
    if bytes_problem(target, 1, reserve_bytes):
        return failure(
            check, f"{free}; {format_size(reserve_bytes)} stay in reserve", "free space on the target, or enlarge it"
        )
    used_bytes = source.total_bytes - source.free_bytes if source is not None else 0
    if bytes_problem(target, used_bytes, reserve_bytes):
        return warning(
            check,
            f"{free}; the source uses {format_size(used_bytes)}",
            "the target cannot hold everything yet: `migrator plan` lists the batches that fit",
        )
    return ok(check, free)


def _check_inodes(target: Capacity, given: int | None) -> Finding:
    check = "target inodes"
    if problem := inodes_problem(target, 1, given):
        fix = "free inodes on the target's metadata targets"
        if target.free_inodes is None and given is None:
            fix = (
                "read it with the file system's own tool (BeeGFS: `beegfs health capacity`, `beegfs-df`) and put it "
                "into [target] inodes_free"
            )
        return failure(check, problem, fix)
    if target.free_inodes is None:
        return ok(check, f"{format_count(given or 0)} free, by site.toml")
    return ok(check, f"{format_count(target.free_inodes)} of {format_count(target.total_inodes or 0)} are free")
