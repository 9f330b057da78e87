"""Kinds of file systems: what their commands said, as recorded (tests/fixtures/filesystems/README.md), and what is made of it."""

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.units import KIB
from migrator.fs.kinds.ceph import CEPHFS
from migrator.fs.kinds.eos import EOS
from migrator.fs.kinds.gpfs import GPFS
from migrator.fs.kinds.hdfs import HDFS
from migrator.fs.kinds.lustre import LUSTRE
from migrator.fs.kinds.model import FileSystemReport, Malformed, MountedDirectory, Question
from migrator.fs.kinds.moosefs import MOOSEFS
from migrator.fs.kinds.table import KINDS, kind_at
from migrator.fs.model import Mount
from migrator.site.config import FileSystemKind

FIXTURES = Path(__file__).parents[1] / "fixtures" / "filesystems"
PLACE = MountedDirectory(point=b"/fs", mounted_from=b"project", root=b"/fs/project/ibtest/new")
MFS = MountedDirectory(point=b"/mnt/mfs", mounted_from=b"mfs#10.1.1.1:9421", root=b"/mnt/mfs")
QUESTIONS = [one for kind in KINDS.values() for one in (kind.room, kind.health, kind.layout) if one is not None]
DF, DF_I, REPORT, DEAD = "lustre-df.txt", "lustre-df-i.txt", "hdfs-report.txt", "hdfs-report-dead.txt"


def said(question: Question | None, *outputs: str | bytes, place: MountedDirectory = PLACE) -> FileSystemReport:
    """The answer to outputs, by the name of a fixture or as they are."""
    assert question is not None
    return question.parse([one if isinstance(one, bytes) else (FIXTURES / one).read_bytes() for one in outputs], place)


def room(
    question: Question | None, *outputs: str | bytes, place: MountedDirectory = PLACE
) -> tuple[int, int, int | None, int | None]:
    found = said(question, *outputs, place=place).room
    assert found is not None
    return found.total_bytes, found.free_bytes, found.total_inodes, found.free_inodes


def changed(name: str, old: bytes, new: bytes) -> bytes:
    text = (FIXTURES / name).read_bytes()
    assert old in text
    return text.replace(old, new)


def inactive() -> bytes:
    return changed(DF, b"\n\nfilesystem_", b"\nOST0003             : inactive device\n\nfilesystem ")


def test_room_is_that_of_new_files() -> None:
    free = (524063444 + 524063428) * KIB
    assert room(LUSTRE.room, DF, DF_I) == (2 * 529449792 * KIB, free, 4194304, 1310189)
    # An OST that takes no new objects adds nothing, and the fullest one is named.
    flagged = inactive().replace(b"[OST:1]", b"[OST:1] N").replace(b"524063444", b"1024")
    assert room(LUSTRE.room, flagged, DF_I, b"")[1] == 1024 * KIB
    notes = said(LUSTRE.room, flagged, DF_I, flagged).notes
    assert any("OST0000 is 100% full" in one for one in notes)
    assert any("takes no new objects" in one for one in notes)
    assert "OST0003: inactive device: files with objects on it cannot be read" in notes
    assert room(CEPHFS.room, "ceph-df.json", "ceph-fs-ls.json", "ceph-layout-pool.txt")[1] == 1020014784
    assert room(CEPHFS.room, "ceph-df.json", "ceph-fs-ls.json", b"")[1:] == (1020014784, 1 << 62, 1 << 62)
    # The goal is two copies.
    assert room(MOOSEFS.room, "mfs-IG.txt", "mfs-goal.txt", place=MFS)[:2] == (97793294336 // 2, 73378439168 // 2)
    # The inode space of the deepest fileset above the directory.
    blocks = (3647786188800 * KIB, 475190722560 * KIB)
    assert room(GPFS.room, "mmdf.txt", "mmlsfileset.txt") == (*blocks, 1_000_000, 1_000_000 - (556032 - 544397))
    assert room(HDFS.room, REPORT, b"3\n", "hdfs-count-unlimited.txt") == (
        190246318080 // 3,
        143504465920 // 3,
        None,
        None,
    )
    # An exceeded quota leaves nothing.
    assert room(HDFS.room, REPORT, b"3\n", "hdfs-count.txt") == (190246318080 // 3, 11110 // 3, 44444, 0)
    assert room(EOS.room, "eos-node.txt") == (247686881280, 237439672320, 241999872, 241621608)


@pytest.mark.parametrize(
    ("question", "outputs", "problems", "doubts"),
    [
        (LUSTRE.health, [DF], [], []),
        (LUSTRE.health, [inactive()], ["OST0003: ina"], []),
        (CEPHFS.health, ["ceph-health.json"], [], []),
        (
            CEPHFS.health,
            ["ceph-health-mds-down.json"],
            ["FS_DEGRADED: 1 filesystem is", "FS_WITH_FAILED_MDS", "MDS_ALL_DOWN"],
            [],
        ),
        (CEPHFS.health, ["ceph-health-osd-down.json"], [], ["OSD_DOWN: 1 osds down", "OSD_HOST_DOWN"]),
        (MOOSEFS.health, ["mfs-IC.txt", "mfs-CS.txt"], [], []),
        (
            MOOSEFS.health,
            ["mfs-IC-lost.txt", "mfs-CS-lost.txt"],
            ["4 chunks have no copy"],
            ["10.213.77.1:29422 is dis"],
        ),
        (GPFS.health, ["mmlsdisk.txt"], [], ["RG008VS010 is bar"]),
        (HDFS.health, [REPORT], [], []),
        (HDFS.health, [DEAD], [], ["1 datanode is dead"]),
        (
            HDFS.health,
            [changed(DEAD, b"groups: 0\n\tLow", b"groups: 2\n\tLow")],
            ["HDFS: 2 blocks have no replica"],
            ["1 datanode is dead"],
        ),
        (HDFS.health, ["hdfs-report-missing.txt"], ["305,883 blocks have no"], ["6 datanodes are dead"]),
        (EOS.health, ["eos-node.txt"], [], []),
        (EOS.health, [changed("eos-node.txt", b"online", b"offline")], [], ["fst1.localdomain:1095 is offline"]),
    ],
)
def test_missing_parts_are_reported(
    question: Question, outputs: list[str | bytes], problems: list[str], doubts: list[str]
) -> None:
    found = said(question, *outputs)
    for sentences, parts in ((found.problems, problems), (found.doubts, doubts)):
        assert len(sentences) == len(parts)
        assert all(part in sentence for part, sentence in zip(parts, sentences, strict=True))


def test_layouts_of_new_files() -> None:
    assert said(LUSTRE.layout, "lustre-getstripe.txt").notes == ("new files get stripes of 1024 KiB over 1 OST(s)",)
    assert "composite" in said(LUSTRE.layout, b"  lcm_layout_gen:    0\n  lcm_entry_count: 3\n").notes[0]
    assert said(CEPHFS.layout, b"").notes == ()


@pytest.mark.parametrize(
    ("question", "outputs"),
    [
        (LUSTRE.room, [DF, b""]),
        (LUSTRE.health, [changed(DF, b"UUID  ", b"What ")]),
        (CEPHFS.room, ["ceph-df.json", b"[]", b""]),
        (CEPHFS.room, ["ceph-df.json", "ceph-fs-ls.json", b"elsewhere"]),
        (CEPHFS.health, [b'{"status": "HEALTH_OK"}']),
        (MOOSEFS.room, ["mfs-no-master.txt", "mfs-goal.txt"]),
        (MOOSEFS.health, ["mfs-IC.txt", b""]),
        (GPFS.room, [changed("mmdf.txt", b":475190722560:13:12059515296:0:\n", b":\n"), "mmlsfileset.txt"]),
        (GPFS.health, [b"mmlsdisk::HEADER:version:nsdName:availability:\n"]),
        (HDFS.room, [REPORT, b"three\n", b"none inf none inf 1 2 3 /\n"]),
        (EOS.room, [changed("eos-node.txt", b"sum.stat.statfs.freebytes=", b"freebytes=")]),
    ],
)
def test_another_form_is_no_answer(question: Question, outputs: list[str | bytes]) -> None:
    with pytest.raises(Malformed):
        said(question, *outputs)


TEXTS = st.binary(max_size=80) | st.sampled_from(
    [line for file in FIXTURES.glob("*.[jt]*") for line in file.read_bytes().split(b"\n")]
)


@given(st.sampled_from(QUESTIONS), st.lists(TEXTS, min_size=3, max_size=3))
def test_nothing_but_malformed_is_raised(question: Question, outputs: list[bytes]) -> None:
    try:
        found = question.parse(outputs, PLACE)
    except Malformed:
        return
    assert found.room is None or min(found.room.total_bytes, found.room.free_bytes) >= 0


@pytest.mark.parametrize(
    ("filesystem", "source", "kind"),
    [
        ("lustre", b"10.0.0.10@tcp:/exacloud", "lustre"),
        ("ceph", b"10.0.0.1:6789:/", "cephfs"),
        ("fuse.ceph-fuse", b"ceph-fuse", "cephfs"),
        ("fuse", b"mfs#10.1.1.1:9421", "moosefs"),
        ("fuse", b"sshfs#host", "posix"),
        ("fuse.eosxd", b"eoshome", "eos"),
        ("nfs4", b"server:/export", "nfs"),
        ("xfs", b"/dev/sdb", "xfs"),
        ("fuse.glusterfs", b"gl1:/vol1", "gluster"),
    ],
)
def test_the_mount_decides(filesystem: str, source: bytes, kind: str) -> None:
    mounts = (
        Mount(point=b"/", filesystem="ext4", source=b"/dev/sda"),
        Mount(point=b"/m", filesystem=filesystem, source=source),
    )
    assert kind_at(mounts, b"/m") == kind
    # Below a mount point of a plain one, another may be missing.
    assert kind_at(mounts, b"/m/x") == ("posix" if kind == "xfs" else kind)
    assert kind_at(mounts, b"/n") == "posix"


def test_site_toml_knows_all_kinds() -> None:
    assert get_args(FileSystemKind) == ("auto", *KINDS)
