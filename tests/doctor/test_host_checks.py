"""Judging hosts that read their own bricks by what they show."""

from dataclasses import replace

import pytest

from migrator.core.events import Finding, FindingStatus
from migrator.doctor.rules import HostSight, check_brick_hosts, check_host, check_host_clocks, host_lost
from migrator.gluster.model import Brick, VolumeState
from migrator.hosts.model import HostRoom
from migrator.scan.rules import BrickWay

OK, WARNING, FAILURE = FindingStatus.OK, FindingStatus.WARNING, FindingStatus.FAILURE
RSYNC = b"""rsync  version 3.2.7  protocol version 31
Capabilities:
    64-bit files, 64-bit inums, hardlinks, symlinks, ACLs, xattrs, symtimes
"""
ROOM = HostRoom(filesystem="beegfs", total_bytes=10_000, free_bytes=5_000, read_only=False)
FIT = HostSight(
    name="gl1",
    python_version=(3, 9, 2),
    effective_uid=0,
    round_trip_s=0.002,
    clock_offset_s=0.1,
    bricks={"gl1:/b1": None},
    target="/mnt/beegfs",
    room=ROOM,
    rsync="/usr/bin/rsync",
    rsync_output=RSYNC,
)
VOLUME = VolumeState(
    volume="vol1",
    volume_id="0a1b2c3d-0000-1111-2222-333344445555",
    type="Distribute",
    started=True,
    bricks=tuple(Brick(name=f"{host}:/b1", host=host, path=b"/b1", online=True) for host in ("gl1", "gl2")),
    options=(),
    tasks=(),
)


def judge(sight: HostSight, *, filesystem: str | None = "beegfs") -> list[Finding]:
    findings = check_host(sight, target_filesystem=filesystem, reserve_bytes=1000)
    for finding in findings:
        assert finding.check == "host gl1"
        assert bool(finding.fix) == (finding.status is not OK)
    return findings


def test_a_host_that_is_fit_is_told_in_one_line() -> None:
    (finding,) = judge(FIT)
    assert finding.status is OK
    for words in ("Python 3.9.2", "1 brick of the volume", "compiled program", "rsync 3.2.7", "/mnt/beegfs"):
        assert words in finding.message


def test_a_host_without_a_target_walks_only() -> None:
    (finding,) = judge(replace(FIT, target=None, room=None, rsync=None, rsync_output=None))
    assert finding.status is OK
    assert "walks its bricks" in finding.message


@pytest.mark.parametrize(
    ("sight", "status", "words"),
    [
        (replace(FIT, python_version=(3, 8, 19)), FAILURE, "Python 3.8.19 is too old"),
        (replace(FIT, effective_uid=1000), FAILURE, "uid 1000"),
        (replace(FIT, bricks={"gl1:/b1": "gl1:/b1 is no brick there"}), FAILURE, "is no brick there"),
        (replace(FIT, target_problem="the target is not mounted at /mnt/beegfs there"), FAILURE, "is not mounted"),
        (replace(FIT, room=None), FAILURE, "does not report its room"),
        (replace(FIT, room=replace(ROOM, read_only=True)), FAILURE, "read-only"),
        (replace(FIT, room=replace(ROOM, filesystem="nfs4")), WARNING, "nfs4 there and beegfs here"),
        (replace(FIT, room=replace(ROOM, free_bytes=1000)), FAILURE, "1000 B free"),
        (replace(FIT, rsync=None, rsync_output=None), WARNING, "it has no rsync"),
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


def test_everything_that_is_wrong_is_told_at_once() -> None:
    bad = replace(
        FIT, effective_uid=5, rsync=None, native_problem="not built", bricks={"gl1:/b1": "no", "gl1:/b2": "no"}
    )
    assert [finding.status for finding in judge(bad)] == [FAILURE] * 3 + [WARNING, FAILURE]


def test_a_host_that_is_not_reached() -> None:
    finding = host_lost("gl1", "gl1 cannot be reached over ssh: it refuses the key", "not in authorized_keys", "add it")
    assert (finding.check, finding.status, finding.fix) == ("host gl1", FAILURE, "add it")
    assert finding.message == "gl1 cannot be reached over ssh: it refuses the key (not in authorized_keys)"
    assert "through the mount" in host_lost("gl1", "lost", "", "").fix


@pytest.mark.parametrize("offsets", [{}, {"gl1": (0.4, 0.1), "gl2": (-0.4, 0.1)}, {"slow connection": (1.5, 0.6)}])
def test_clocks_that_agree(offsets: dict[str, tuple[float, float]]) -> None:
    assert check_host_clocks(offsets) == []


def test_a_clock_that_is_ahead_and_one_behind() -> None:
    ahead, behind = check_host_clocks({"gl1": (90.0, 0.0), "gl2": (-2.0, 0.0), "gl3": (0.0, 0.0)})
    assert (ahead.check, ahead.status) == ("host gl1", WARNING)
    assert "90.0 s ahead of" in ahead.message
    assert "2.0 s behind" in behind.message
    assert "not harmed" in behind.fix


def test_clocks_of_two_hosts_that_are_apart() -> None:
    (finding,) = check_host_clocks({"gl1": (0.9, 0.0), "gl2": (0.0, 0.0), "gl3": (-0.8, 0.0)})
    assert finding.message == "the clocks of gl3 and gl1 are 1.7 s apart"


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
    assert "through the mount" in finding.message
    assert "gl1, gl2" in finding.message
    assert statuses("bricks", [], None) == [FAILURE]


def test_reasons_against_the_bricks_are_told() -> None:
    way = BrickWay(reasons=("the volume is dispersed: a brick holds pieces of files",))
    (finding,) = check_brick_hosts("auto", VOLUME, ["gl1"], way)
    assert finding.status is WARNING
    assert "dispersed" in finding.message
    assert "no section for gl2" in finding.message
    assert statuses("bricks", ["gl1", "gl2"], way) == [FAILURE]


def test_a_section_that_no_brick_has_and_a_brick_without_a_section() -> None:
    wrong, read, missing = check_brick_hosts("auto", VOLUME, ["gl1", "glserver3"], GOOD_WAY)
    assert (wrong.status, read.status, missing.status) == (WARNING, OK, WARNING)
    assert "glserver3" in wrong.message
    assert "gl2" in missing.message
