"""Judging hosts that read their own bricks by what they show."""

from dataclasses import replace

import pytest

from migrator.core.events import Finding, FindingStatus
from migrator.doctor.rules import HostSight, check_brick_hosts, check_host, check_host_clocks
from migrator.hosts.model import HostRoom
from migrator.hosts.ports import HostFacts
from migrator.scan.rules import BrickWay
from tests.support.volumes import volume

OK, WARNING, FAILURE = FindingStatus.OK, FindingStatus.WARNING, FindingStatus.FAILURE
RSYNC = b"""rsync  version 3.2.7  protocol version 31
Capabilities:
    64-bit files, 64-bit inums, hardlinks, symlinks, ACLs, xattrs, symtimes
"""
ROOM = HostRoom(filesystem="beegfs", total_bytes=10_000, free_bytes=5_000, read_only=False)
FACTS = HostFacts(
    name="gl1",
    node_name="gl1",
    architecture="x86_64",
    python_version=(3, 9, 2),
    effective_uid=0,
    boot_id="b",
    clock_offset_s=0.1,
    round_trip_s=0.002,
    python=b"python3",
    process_id=1,
)
FIT = HostSight(
    facts=FACTS,
    bricks={"gl1:/b1": None},
    target="/mnt/beegfs",
    room=ROOM,
    rsync="/usr/bin/rsync",
    rsync_output=RSYNC,
)
VOLUME = volume("gl1:/b1", "gl2:/b1")


def judge(sight: HostSight, *, filesystem: str | None = "beegfs") -> list[Finding]:
    findings = check_host(sight, target_filesystem=filesystem, reserve_bytes=1000)
    for finding in findings:
        assert finding.check == "host gl1"
        assert bool(finding.fix) == (finding.status is not OK)
    return findings


@pytest.mark.parametrize(
    ("sight", "status", "words"),
    [
        (replace(FIT, facts=replace(FACTS, python_version=(3, 8, 19))), FAILURE, "Python 3.8.19 is too old"),
        (replace(FIT, facts=replace(FACTS, effective_uid=1000)), FAILURE, "uid 1000"),
        (replace(FIT, bricks={"gl1:/b1": "gl1:/b1 is no brick there"}), FAILURE, "is no brick there"),
        (replace(FIT, target_problem="the target is not mounted at /mnt/beegfs there"), FAILURE, "is not mounted"),
        (replace(FIT, room=None), FAILURE, "does not report its room"),
        (replace(FIT, room=replace(ROOM, read_only=True)), FAILURE, "read-only"),
        (replace(FIT, room=replace(ROOM, filesystem="nfs4")), WARNING, "nfs4 there and beegfs here"),
        (replace(FIT, room=replace(ROOM, free_bytes=1000)), FAILURE, "1000 B free"),
        (replace(FIT, rsync=None, rsync_output=None), WARNING, "rsync is missing"),
        (replace(FIT, rsync_output=RSYNC.replace(b"3.2.7", b"3.1.3")), WARNING, "3.1.3 is too old"),
        (replace(FIT, rsync_output=RSYNC.replace(b"3.2.7", b"3.2.3")), WARNING, "cannot sync each file"),
        (replace(FIT, rsync_output=None), WARNING, "does not report its version"),
        (replace(FIT, native_problem="it is compiled for x86_64"), FAILURE, "nothing is read or copied there"),
        (replace(FIT, native_problem="not built", target=None), FAILURE, "not built"),
    ],
)
def test_what_is_wrong_with_a_host(sight: HostSight, status: FindingStatus, words: str) -> None:
    (finding,) = judge(sight)
    assert finding.status is status
    assert words in finding.message


def test_what_a_host_needs_depends_on_the_recorded_target() -> None:
    old = replace(FIT, rsync_output=RSYNC.replace(b"3.2.7", b"3.2.3"), room=replace(ROOM, filesystem="xfs"))
    assert [finding.status for finding in judge(old, filesystem="xfs")] == [OK]
    (finding,) = judge(FIT, filesystem=None)
    assert (finding.status, finding.fix) == (FAILURE, "run `migrator init`")


def test_a_clock_that_is_ahead_and_one_behind() -> None:
    ahead, behind = check_host_clocks({"gl1": (90.0, 0.0), "gl2": (-2.0, 0.0), "gl3": (0.0, 0.0)})
    assert (ahead.check, ahead.status) == ("host gl1", WARNING)
    assert "90.0 s ahead of" in ahead.message
    assert "2.0 s behind" in behind.message
    assert "not harmed" in behind.fix


def statuses(via: str, sections: list[str], way: BrickWay | None) -> list[FindingStatus]:
    findings = check_brick_hosts(via, VOLUME, sections, way)
    assert all(bool(finding.fix) == (finding.status is not OK) for finding in findings)
    return [finding.status for finding in findings]


GOOD_WAY = BrickWay(bricks=VOLUME.bricks)


def test_bricks_that_can_be_read() -> None:
    assert statuses("auto", ["gl1", "gl2"], GOOD_WAY) == [OK]
    assert statuses("mount", [], None) == [OK]


def test_without_sections_the_mount_is_read_and_that_is_told() -> None:
    (finding,) = check_brick_hosts("auto", VOLUME, [], None)
    assert finding.status is OK
    assert "use the mount" in finding.message
    assert "gl1, gl2" in finding.message
    assert statuses("bricks", [], None) == [FAILURE]


def test_reasons_against_the_bricks_are_told() -> None:
    way = BrickWay(reasons=("the volume is dispersed: a brick holds pieces of files",))
    (finding,) = check_brick_hosts("auto", VOLUME, ["gl1"], way)
    assert finding.status is WARNING
    assert "dispersed" in finding.message
    assert "NAME] for gl2" in finding.message
    assert statuses("bricks", ["gl1", "gl2"], way) == [FAILURE]


def test_a_section_that_no_brick_has_and_a_brick_without_a_section() -> None:
    wrong, read, missing = check_brick_hosts("auto", VOLUME, ["gl1", "glserver3"], GOOD_WAY)
    assert (wrong.status, read.status, missing.status) == (WARNING, OK, WARNING)
    assert "glserver3" in wrong.message
    assert "gl2" in missing.message
