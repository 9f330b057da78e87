"""Reports of a brick: each entry of the kind is found, under any name and depth, whatever else the brick has."""

import os
import struct
import subprocess
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT
from migrator.core.errors import MigratorError
from migrator.gluster.walks import WalkFinding, decode_findings
from tests.gluster.walks import Walk
from tests.support.hand_brick import GFID, LINKTO, HandBrick

NAMES = (b"plain", b"-n \xff\n", b".hidden", b"n" * 255)
NO_GFID = uuid.UUID(int=7)


def report(walk: Walk, brick: HandBrick, kind: str, *more: str, words: tuple[bytes, ...] = ()) -> list[WalkFinding]:
    walked = walk(brick.root, trees=words, workers=4, own=True, more=("--report", kind, *more))
    assert (walked.exit_code, walked.stderr, walked.failed, walked.rows) == (0, "", [], {})
    return walked.findings


def make(brick: HandBrick, directory: bytes) -> set[bytes]:
    """Make files of all names in a directory of the brick, 30 levels deep. Returns their paths relative to the brick."""
    path, fd = b"", os.open(brick.root, os.O_PATH)
    for name in (directory, *(b"d" * 200 for _ in range(29))):
        os.mkdir(name, dir_fd=fd)
        deeper = os.open(name, os.O_PATH, dir_fd=fd)
        os.close(fd)
        path, fd = path + b"/" + name if path else name, deeper
    made = set()
    for name in NAMES:
        file = os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640, dir_fd=fd)
        os.close(file)
        made.add(path + b"/" + name)
    os.symlink(b"plain", b"symlink", dir_fd=fd)
    os.close(fd)
    return made


@pytest.mark.needs_root
def test_one_name_is_found_of_each_wanted_file_that_the_brick_has(brick: HandBrick, walk: Walk) -> None:
    paths = make(brick, b"deep")
    linked = brick.file("home/linked")
    os.link(linked, brick.root / "home/again")
    gone, hidden = brick.file("home/gone"), brick.file("home/hidden")
    brick.adopt()
    gfids = {path: os.getxattr(path, GFID) for path in (linked, gone, hidden)}
    gone.unlink()
    hidden.rename(brick.root / ".glusterfs/landfill/hidden")  # Gluster's own folder is not walked
    wanted = [*brick.gfids.values(), NO_GFID.bytes]
    words = tuple(str(uuid.UUID(bytes=gfid)).encode() for gfid in wanted)
    found = report(walk, brick, "names", "--wanted", str(len(words)), words=words)
    by_gfid = {one.value: one.path for one in found}
    assert len(by_gfid) == len(found)
    assert by_gfid[gfids[linked]] in (b"home/linked", b"home/again")
    assert by_gfid[gfids[hidden]] == b""
    assert gfids[gone] not in by_gfid
    assert NO_GFID.bytes not in by_gfid
    assert paths <= set(by_gfid.values())


@pytest.mark.needs_root
def test_no_directory_is_read_when_no_wanted_file_is_there(brick: HandBrick, walk: Walk) -> None:
    brick.file("home/file")
    brick.adopt()
    word = str(NO_GFID).encode()
    walked = walk(brick.root, trees=(word,), more=("--report", "names", "--wanted", "1"))
    assert (walked.exit_code, walked.findings) == (0, [])


@pytest.mark.needs_root
def test_files_without_an_acl_are_found_below_a_default_acl_alone(brick: HandBrick, walk: Walk) -> None:
    make(brick, b"closed")
    (brick.root / "open").mkdir()
    for name in ("a", "b", "own"):
        brick.file(f"open/{name}", mode=0o640)
    (brick.root / "open/symlink").symlink_to("a")
    (brick.root / "open/inner").mkdir()
    brick.file("open/inner/file")
    subprocess.run(["setfacl", "-m", "u:9:r", brick.root / "open/own"], check=True)
    subprocess.run(["setfacl", "-d", "-m", "u:9:rwx", brick.root / "open"], check=True)
    brick.adopt()
    assert ACL_ACCESS.decode() in os.listxattr(brick.root / "open/own")
    assert ACL_DEFAULT.decode() in os.listxattr(brick.root / "open")
    found = report(walk, brick, "without-acl")
    expected = {name: os.getxattr(brick.root / os.fsdecode(name), GFID) for name in (b"open/a", b"open/b")}
    assert dict(found) == expected
    assert len(found) == len(expected)


@pytest.mark.needs_root
def test_directories_come_after_the_one_above_whatever_the_number_of_workers(brick: HandBrick, walk: Walk) -> None:
    for number in range(40):
        for inner in range(40):
            (brick.root / f"d{number}/e{inner}").mkdir(parents=True)
    brick.adopt()
    found = report(walk, brick, "directories")
    seen: set[bytes] = set()
    for one in found:
        above = one.path.rpartition(b"/")[0]
        assert not above or above in seen
        seen.add(one.path)
    assert len(seen) == len(found) == 40 + 40 * 40


@pytest.mark.needs_root
def test_a_marked_file_of_several_names_is_found_by_each_of_them(brick: HandBrick, walk: Walk) -> None:
    make(brick, b"deep")
    for name, mode in (("marked", 0o644), ("link-to", 0o1000), ("moving", 0o3640)):
        os.link(brick.file(f"home/{name}", b"", mode=mode, linkto=True), brick.root / f"home/{name} again")
    brick.file("home/alone", linkto=True)
    brick.adopt()
    inode = (brick.root / "home/marked").stat().st_ino.to_bytes(8, "little")
    found = report(walk, brick, "link-marks")
    assert {one.path for one in found} == {b"home/marked", b"home/marked again"}
    assert {one.value for one in found} == {inode}
    assert LINKTO in os.listxattr(brick.root / "home/alone")


@pytest.mark.needs_root
@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--report", "other"), ()),
        (("--report", "names", "--wanted", "1"), ()),
        (("--report", "names", "--wanted", "1"), (b"../../../../../../../../../../etc/passwd",)),
        (("--report", "names", "--wanted", "1"), (b"00000000-0000-0000-0000-00000000000Z",)),
        (("--wanted", "1"), (str(NO_GFID).encode(),)),
    ],
)
def test_a_malformed_request_is_refused(
    brick: HandBrick, walk: Walk, more: tuple[str, ...], words: tuple[bytes, ...]
) -> None:
    brick.adopt()
    walked = walk(brick.root, trees=words, more=more)
    assert walked.exit_code in (1, 2)
    assert walked.findings == []


@given(st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=40)), max_size=5), st.data())
def test_findings_are_decoded_whole_or_refused(findings: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    payload = struct.pack("<Q", len(findings)) + b"".join(
        struct.pack("<II", len(path), len(value)) + path + value for path, value in findings
    )
    assert decode_findings(memoryview(payload)) == findings
    cut = data.draw(st.integers(0, len(payload) - 1))
    for malformed in (payload[:cut], payload + b"x", payload[:8] + b"\xff" * 8 + payload[16:]):
        if malformed != payload and (findings or malformed[:8] != payload[:8] or len(malformed) != 8):
            with pytest.raises(MigratorError):
                decode_findings(memoryview(malformed))
