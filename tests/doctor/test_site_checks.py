"""Judging file systems, the state directory, the clock, hosts and programs."""

import pytest
from msgspec.structs import replace

from migrator.catalog.model import StrangeFiles
from migrator.core.events import Finding, FindingStatus
from migrator.core.units import GIB
from migrator.doctor import rules, rules_machine
from migrator.doctor.rules_hosts import HostState, check_brick_hosts, check_host, check_host_clocks
from migrator.fs.kinds.table import KINDS
from migrator.fs.model import Capacity, MountIdentity, SourceHealth, TargetCapabilities
from migrator.gluster.model import VolumeHealth
from migrator.hosts.model import HostRoom
from migrator.hosts.ports import HostFacts
from migrator.scan.rules import BrickChoice
from tests.support.beegfs_like import BEEGFS_CAPABILITIES
from tests.support.making import made
from tests.support.volumes import brick, volume

GLUSTER = MountIdentity(
    filesystem="fuse.glusterfs", mounted_from="gl1:/vol1", device=None, fsid=None, root_ino=1, sentinel="site-1"
)
EMPTY = MountIdentity(filesystem="ext4", mounted_from="/dev/sda1", device=1, fsid=1, root_ino=9, sentinel=None)
ROOM = Capacity(total_bytes=100 * GIB, free_bytes=50 * GIB, total_inodes=1000, free_inodes=900)


def statuses(findings: list[Finding]) -> dict[str, FindingStatus]:
    assert all(finding.fix for finding in findings if finding.status is not FindingStatus.OK)
    return {finding.check: finding.status for finding in findings}


@pytest.mark.parametrize(
    ("recorded", "current", "status", "said"),
    [
        (GLUSTER, GLUSTER, FindingStatus.OK, "fuse.glusterfs from gl1:/vol1"),
        (GLUSTER, None, FindingStatus.FAILURE, "cannot be read: gone"),
        (GLUSTER, EMPTY, FindingStatus.FAILURE, "is no gluster file system"),
        (None, GLUSTER, FindingStatus.FAILURE, "never recorded"),
        (GLUSTER, replace(GLUSTER, sentinel=None), FindingStatus.FAILURE, "no sentinel"),
        (replace(GLUSTER, sentinel=None), replace(GLUSTER, sentinel=None), FindingStatus.WARNING, "no sentinel"),
    ],
)
def test_mount(recorded: MountIdentity | None, current: MountIdentity | None, status: FindingStatus, said: str) -> None:
    finding = rules.check_mount("source", "gluster", recorded, current, "gone")
    assert (finding.check, finding.status) == ("source mount", status)
    assert said in finding.message
    assert bool(finding.fix) == (status is not FindingStatus.OK)


def test_health() -> None:
    state = volume("gl1:/b", "gl2:/b")
    well = VolumeHealth(problems=(), fingerprint="f", state=state)
    (finding,) = rules.check_health(well)
    assert (finding.status, finding.message) == (FindingStatus.OK, "all 2 bricks are up")
    (finding,) = rules.check_health(SourceHealth(problems=(), fingerprint="f"))
    assert finding.status is FindingStatus.OK
    down = replace(well, state=replace(state, bricks=(brick("gl1:/b"), brick("gl2:/b", online=False))))
    assert [finding.message for finding in rules.check_health(down)] == ["brick gl2:/b is down"]
    assert statuses(rules.check_health(down)) == {"source health": FindingStatus.FAILURE}
    moving = replace(well, state=replace(state, tasks=("Rebalance",)))
    assert statuses(rules.check_health(moving)) == {"source health": FindingStatus.WARNING}
    assert statuses(rules.check_health(None, "no answer")) == {"source health": FindingStatus.FAILURE}


def test_acls_of_the_source() -> None:
    assert rules.check_source_acls(shown=True).status is FindingStatus.OK
    assert "shows no ACLs" in rules.check_source_acls(shown=False).message
    assert rules.check_source_acls(shown=None).status is FindingStatus.WARNING


@pytest.mark.parametrize(
    ("room", "inodes_free", "expected"),
    [
        (ROOM, None, {"target bytes": "ok", "target inodes": "ok"}),
        (replace(ROOM, read_only=True), None, {"target mount": "failure", "target bytes": "ok", "target inodes": "ok"}),
        (replace(ROOM, free_bytes=GIB), None, {"target bytes": "failure", "target inodes": "ok"}),
        (replace(ROOM, free_inodes=0), None, {"target bytes": "ok", "target inodes": "failure"}),
        (replace(ROOM, total_inodes=None, free_inodes=None), None, {"target bytes": "ok", "target inodes": "failure"}),
        (replace(ROOM, total_inodes=None, free_inodes=None), 10**8, {"target bytes": "ok", "target inodes": "ok"}),
        (None, 10**8, {"target room": "failure"}),
    ],
)
def test_room(room: Capacity | None, inodes_free: int | None, expected: dict[str, str]) -> None:
    found = rules.check_target_room(room, None, inodes_free=inodes_free, reserve_bytes=GIB, error="no answer")
    assert statuses(found) == expected


def test_a_source_that_does_not_fit_is_told() -> None:
    source = Capacity(total_bytes=100 * GIB, free_bytes=40 * GIB, total_inodes=None, free_inodes=None)
    bytes_finding, _ = rules.check_target_room(ROOM, source, inodes_free=None, reserve_bytes=GIB)
    assert bytes_finding.status is FindingStatus.WARNING
    assert "the source uses 60.0 GiB" in bytes_finding.message


def test_findings_of_target_capabilities() -> None:
    assert statuses(rules.check_capabilities(TargetCapabilities(), None, "")) == {"target keeps": FindingStatus.OK}
    xfs = TargetCapabilities(max_symlink_target_bytes=1023, max_acl_entries=5461)
    assert statuses(rules.check_capabilities(xfs, xfs, "")) == {"target keeps": FindingStatus.OK}
    short = replace(xfs, max_symlink_target_bytes=255)
    assert statuses(rules.check_capabilities(short, short, "")) == {"target keeps": FindingStatus.WARNING}
    (synced, finding) = rules.check_capabilities(BEEGFS_CAPABILITIES, BEEGFS_CAPABILITIES, "")
    assert (synced.check, synced.status) == ("target sync", FindingStatus.OK)
    assert finding.status is FindingStatus.WARNING
    assert "times are cut to whole seconds" in finding.message
    assert "device nodes lose their numbers" in finding.message
    assert "hard links" not in finding.message
    assert "ACLs of more than 499 entries" in finding.message
    off = replace(BEEGFS_CAPABILITIES, keeps_acls=False, keeps_user_xattrs=False)
    assert any("sysACLsEnabled" in finding.fix for finding in rules.check_capabilities(off, None, ""))
    alone = replace(BEEGFS_CAPABILITIES, inherits_default_acls=False)
    assert any("storeClientACLs" in finding.fix for finding in rules.check_capabilities(alone, None, ""))
    changed = rules.check_capabilities(TargetCapabilities(), BEEGFS_CAPABILITIES, "")
    assert statuses(changed) == {"target keeps": FindingStatus.WARNING}
    assert statuses(rules.check_capabilities(None, None, "read-only")) == {"target keeps": FindingStatus.FAILURE}


@pytest.mark.parametrize(
    ("directory", "filesystem", "free_bytes", "status"),
    [
        (b"/var/lib/migrator", "ext4", 50 * GIB, FindingStatus.OK),
        (b"/var/lib/migrator", "ext4", GIB - 1, FindingStatus.WARNING),
        (b"/var/lib/migrator", "ext4", None, FindingStatus.WARNING),
        (b"/var/lib/migrator", "tmpfs", 50 * GIB, FindingStatus.WARNING),
        (b"/var/lib/migrator", "nfs4", 50 * GIB, FindingStatus.FAILURE),
        (b"/var/lib/migrator", "fuse.sshfs", 50 * GIB, FindingStatus.FAILURE),
        (b"/var/lib/migrator", None, 50 * GIB, FindingStatus.FAILURE),
        (b"/mnt/source/state", "xfs", 50 * GIB, FindingStatus.FAILURE),
        (b"/mnt/target", "xfs", 50 * GIB, FindingStatus.FAILURE),
        (b"/mnt/source2/state", "xfs", 50 * GIB, FindingStatus.OK),
    ],
)
def test_the_state_directory(
    directory: bytes, filesystem: str | None, free_bytes: int | None, status: FindingStatus
) -> None:
    roots = (("source", b"/mnt/source"), ("target", b"/mnt/target"))
    found = rules_machine.check_state_directory(directory, filesystem=filesystem, free_bytes=free_bytes, roots=roots)
    assert statuses(found) == {"state directory": status}


def test_the_clock() -> None:
    assert rules_machine.check_clock(1_800_000_000, None).status is FindingStatus.OK
    assert rules_machine.check_clock(1_800_000_000, 1_800_000_030).status is FindingStatus.OK
    assert rules_machine.check_clock(1_800_000_000, 1_800_003_600).status is FindingStatus.FAILURE
    assert rules_machine.check_clock(86_400, None).status is FindingStatus.FAILURE


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("tasks", [(), ("rebalance",)])
@pytest.mark.parametrize("value", [None, "on", "off"])
def test_names_that_clients_may_not_find_are_told(moved: bool, tasks: tuple[str, ...], value: str | None) -> None:
    options = () if value is None else (("cluster.lookup-optimize", value),)
    state = volume(options=options, tasks=tasks)
    found = rules.check_lookups(state, moved=moved)
    if value == "off":
        assert [one.status for one in found] == [FindingStatus.OK]
    elif moved or tasks:
        assert [one.status for one in found] == [FindingStatus.WARNING]
        assert found[0].fix.startswith(f"gluster volume set {state.volume} cluster.lookup-optimize off")
    else:
        assert found == []


def test_files_that_were_put_on_bricks_past_gluster_are_told_with_what_to_do() -> None:
    assert rules.check_strange_files(()) == []
    (found,) = rules.check_strange_files((StrangeFiles(brick="gl1:/b", files=1, paths=(b"home/placed",)),))
    assert (found.status, found.check) == (FindingStatus.WARNING, "files without a gfid")


OK, WARNING, FAILURE = FindingStatus.OK, FindingStatus.WARNING, FindingStatus.FAILURE
HOST_ROOM = HostRoom(filesystem="beegfs", total_bytes=10_000, free_bytes=5_000, read_only=False)
FACTS = made(HostFacts, name="gl1", python_version=(3, 9, 2))
FIT = HostState(
    facts=FACTS,
    bricks={"gl1:/b1": None},
    target="/mnt/beegfs",
    room=HOST_ROOM,
)
VOLUME = volume("gl1:/b1", "gl2:/b1")


def judge(sight: HostState, *, filesystem: str | None = "beegfs") -> list[Finding]:
    findings = check_host(sight, target_filesystem=filesystem, reserve_bytes=1000)
    for finding in findings:
        assert finding.check == "host gl1"
        assert bool(finding.fix) == (finding.status is not OK)
    return findings


@pytest.mark.parametrize(
    ("sight", "status", "words"),
    [
        (replace(FIT, facts=replace(FACTS, effective_uid=1000)), FAILURE, "uid 1000"),
        (replace(FIT, bricks={"gl1:/b1": "gl1:/b1 is no brick there"}), FAILURE, "is no brick there"),
        (replace(FIT, target_problem="the target is not mounted at /mnt/beegfs there"), FAILURE, "is not mounted"),
        (replace(FIT, room=None), FAILURE, "does not report its free space"),
        (replace(FIT, room=replace(HOST_ROOM, read_only=True)), FAILURE, "read-only"),
        (replace(FIT, room=replace(HOST_ROOM, filesystem="nfs4")), WARNING, "nfs4 there and beegfs here"),
        (replace(FIT, room=replace(HOST_ROOM, free_bytes=1000)), FAILURE, "1000 B free"),
        (replace(FIT, native_problem="it is compiled for x86_64"), FAILURE, "does not run there"),
        (replace(FIT, native_problem="not built", target=None), FAILURE, "not built"),
        (replace(FIT, confinement_problem="no namespaces"), FAILURE, "no namespaces"),
        (replace(FIT, facts=replace(FACTS, kernel="3.10.0-1160.el7.x86_64")), WARNING, "older than 4.18"),
    ],
)
def test_findings_of_a_host(sight: HostState, status: FindingStatus, words: str) -> None:
    (finding,) = judge(sight)
    assert finding.status is status
    assert words in finding.message


@pytest.mark.parametrize(
    ("sight", "named"),
    [
        (replace(FIT, target=None, writer="bg1"), "bg1 writes"),
        (replace(FIT, target=None), "through the mount"),
        (replace(FIT, bricks={}, of="target.hosts"), "target at /mnt/beegfs"),
    ],
)
def test_a_host_that_is_well_reports_who_writes(sight: HostState, named: str) -> None:
    (finding,) = judge(sight)
    assert finding.status is OK
    assert named in finding.message


def test_the_remedy_of_a_writing_host_names_its_section() -> None:
    for fault in ({"target_problem": "not mounted"}, {"native_problem": "no"}, {"confinement_problem": "no"}):
        (finding,) = judge(replace(FIT, bricks={}, of="target.hosts", **fault))
        assert "[target.hosts" in finding.fix


@pytest.mark.parametrize(
    ("release", "status"),
    [("4.18.0-553.el8_10.x86_64", FAILURE), ("5.2.21", FAILURE), ("5.3.0-1-amd64", OK), ("6.1.0", OK), ("10.0", OK)],
)
def test_the_kernel_of_this_machine(release: str, status: FindingStatus) -> None:
    assert rules_machine.check_kernel(release).status is status


def test_a_fit_host_shows_what_it_is() -> None:
    known = replace(FIT, facts=replace(FACTS, kernel="4.18.0-553.el8_10.aarch64", architecture="aarch64"))
    (finding,) = judge(known)
    assert (finding.status, "4.18.0-553.el8_10.aarch64 on aarch64" in finding.message) == (OK, True)


def test_a_host_is_compared_with_the_recorded_target() -> None:
    alike = replace(FIT, room=replace(HOST_ROOM, filesystem="xfs"))
    assert [finding.status for finding in judge(alike, filesystem="xfs")] == [OK]
    (finding,) = judge(FIT, filesystem=None)
    assert (finding.status, finding.fix) == (FAILURE, "run `migrator init`")


def test_a_clock_that_is_ahead_and_one_behind() -> None:
    ahead, behind = check_host_clocks({"gl1": (90.0, 0.0), "gl2": (-2.0, 0.0), "gl3": (0.0, 0.0)})
    assert (ahead.check, ahead.status) == ("host gl1", WARNING)
    assert "90.0 s ahead of" in ahead.message
    assert "2.0 s behind" in behind.message
    assert "not harmed" in behind.fix


def host_statuses(via: str, sections: list[str], way: BrickChoice | None) -> list[FindingStatus]:
    findings = check_brick_hosts(via, VOLUME, sections, way)
    assert all(bool(finding.fix) == (finding.status is not OK) for finding in findings)
    return [finding.status for finding in findings]


GOOD_WAY = BrickChoice(bricks=VOLUME.bricks)


def test_bricks_that_can_be_read_and_without_sections_the_mount() -> None:
    assert host_statuses("auto", ["gl1", "gl2"], GOOD_WAY) == [OK]
    assert host_statuses("mount", [], None) == [OK]
    (finding,) = check_brick_hosts("auto", VOLUME, [], None)
    assert finding.status is OK
    assert "use the mount" in finding.message
    assert "gl1, gl2" in finding.message
    assert host_statuses("bricks", [], None) == [FAILURE]


def test_reasons_against_the_bricks_are_told() -> None:
    way = BrickChoice(reasons=("the volume is dispersed: a brick holds pieces of files",))
    (finding,) = check_brick_hosts("auto", VOLUME, ["gl1"], way)
    assert finding.status is WARNING
    assert "dispersed" in finding.message
    assert "NAME] for gl2" in finding.message
    assert host_statuses("bricks", ["gl1", "gl2"], way) == [FAILURE]


def test_a_section_that_no_brick_has_and_a_brick_without_a_section() -> None:
    wrong, read, missing = check_brick_hosts("auto", VOLUME, ["gl1", "glserver3"], GOOD_WAY)
    assert (wrong.status, read.status, missing.status) == (WARNING, OK, WARNING)
    assert "glserver3" in wrong.message
    assert "gl2" in missing.message


def test_a_kind_is_named_by_what_follows_from_it() -> None:
    assert rules.check_kind("source", KINDS["posix"], "xfs") == rules.check_kind("target", KINDS["ext4"], "ext4") == []
    (lustre,) = rules.check_kind("source", KINDS["lustre"], "lustre")
    assert (lustre.status, "OST" in lustre.message, "layout" in lustre.message) == (FindingStatus.OK, True, False)
    (beegfs,) = rules.check_kind("target", KINDS["beegfs"], "beegfs")
    assert "synced one by one" in beegfs.message
    assert "offline" not in beegfs.message
    assert "synced one by one" in rules.check_kind("target", KINDS["lustre"], "lustre")[0].message
    hdfs = rules.check_kind("source", KINDS["hdfs"], "fuse.fuse_dfs")
    assert statuses(hdfs) == {"source kind": FindingStatus.WARNING}
    assert "moved files are copied again" in hdfs[-1].fix
    (unknown,) = rules.check_kind("source", KINDS["posix"], "fuse.sshfs")
    assert "is not known: its inode numbers" in unknown.message
