"""A copy with a reading and a writing end: the same trees as by one program, whatever happens to either end."""

import os
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator.core.units import KIB, MIB
from migrator.lab.model import OddFiles
from tests.support.native_builds import SANITIZED, missing_for_native
from tests.support.snapshots import names_of, snapshot, walk
from tests.support.xfs import XfsMount
from tests.transfer.native_copy import listed, run_copy
from tests.transfer.native_pair import PART, Pair, run_pair

pytestmark = pytest.mark.needs_root

LOST = 75
MALFORMED = 65
CONTENT = [3 * KIB, 64 * KIB, 3 * MIB + 17, 0, 900 * KIB, 1]


@dataclass
class Sides:
    """A source and a target."""

    source: Path
    target: Path

    def __post_init__(self) -> None:
        self.source.mkdir()
        self.target.mkdir()

    def write_files(self) -> bytes:
        """Files of all sizes; the list of their names."""
        (self.source / "d").mkdir()
        (self.target / "d").mkdir()
        for number, size in enumerate(CONTENT):
            (self.source / "d" / f"{number}").write_bytes(os.urandom(size))
        return listed(*(b"d/%d" % number for number in range(len(CONTENT))))

    def differences(self) -> set[bytes]:
        """The paths that are not the same on both sides."""
        here, there = snapshot(os.fsencode(self.source)), snapshot(os.fsencode(self.target))
        return {name for name in here | there if here.get(name) != there.get(name)} - {b"d"}


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return Sides(tmp_path / "source", tmp_path / "target")


def ended_well(pair: Pair) -> bool:
    return (pair.reading, pair.writing) == (0, 0)


# Ids that are mapped twice would be the old ones again.
MAPPED = ("--atimes", "--uids", "0:5000,1000:1001,1001:1000", "--gids", "0:5001,1000:1001,1001:1000")


@pytest.mark.parametrize("options", [("--in-flight", "1"), ("--in-flight", "16", *MAPPED)], ids=["plain", "mapped"])
def test_every_odd_kind_as_one_program_copies_it(
    odd_tree: tuple[Path, OddFiles], xfs_source: XfsMount, options: tuple[str, ...]
) -> None:
    tree, _ = odd_tree
    acl = struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", tag, 6, number)
        for tag, number in ((1, 2**32 - 1), (2, 1000), (2, 1002), (4, 2**32 - 1), (16, 2**32 - 1), (32, 2**32 - 1))
    )
    os.setxattr(tree, "system.posix_acl_default", acl)
    (tree / "with-acl").write_bytes(b"content")
    os.chown(tree / "with-acl", 1001, 1000)
    os.utime(tree / "with-acl", ns=(10**18 + 1, 10**18 + 2))
    roots = [xfs_source.path / name for name in ("by-one", "by-two")]
    directories, others = names_of(os.fsencode(tree))
    steps = ((directories, "directories"), (others, "files"), (directories, "directory-times"))
    for root in roots:
        root.mkdir()
    links = {path: found.st_ino for path, _, _, found in walk(os.fsencode(tree)) if found.st_nlink > 1}
    for names, kind in steps:
        grouped = links if kind == "files" else {}
        records = [(b"l%d:" % grouped[name] if name in grouped else b":") + name + b"\0" for name in names]
        one = run_copy(tree, roots[0], b"".join(records), "--digest", *options, kind=kind)
        two = run_pair(tree, roots[1], b"".join(records), "--digest", *options, kind=kind)
        assert one.returncode == 0
        assert ended_well(two)
        assert {line for line in one.stdout.splitlines() if line[:1] != b"P"} == {
            line.rstrip(b"\n") for line in two.events if line[:1] != b"P"
        }
    assert snapshot(os.fsencode(roots[0])) == snapshot(os.fsencode(roots[1]))
    found = (roots[1] / "with-acl").stat()
    mapped = "--uids" in options
    assert (found.st_uid, found.st_gid) == ((1000, 1001) if mapped else (1001, 1000))
    assert (found.st_atime_ns == 10**18 + 1) is mapped
    named = os.getxattr(roots[1] / "with-acl", "system.posix_acl_access")
    assert struct.pack("<I", 1001 if mapped else 1000) in named


def test_content_of_all_sizes_with_the_digests_of_one_program(sides: Sides) -> None:
    names = sides.write_files()
    pair = run_pair(sides.source, sides.target, names, "--digest", "--in-flight", "2")
    assert ended_well(pair)
    assert sides.differences() == set()
    again = sides.target.with_name("again")
    (again / "d").mkdir(parents=True)
    one = run_copy(sides.source, again, names, "--digest")
    digests = {line + b"\n" for line in one.stdout.splitlines() if line[:1] == b"D"}
    assert len(digests) == len(CONTENT)
    assert digests == {line for line in pair.events if line[:1] == b"D"}


def test_entries_do_not_hold_up_the_content_of_a_big_file(sides: Sides) -> None:
    """More content comes with the entries of one request than is held for a big file."""
    names = [b"%d" % number for number in range(40)]
    for name in names:
        (sides.source / os.fsdecode(name)).write_bytes(os.urandom(60 * KIB if name != b"1" else 3 * MIB))
    assert ended_well(run_pair(sides.source, sides.target, listed(*names), "--in-flight", "1"))
    assert sides.differences() == set()


def test_ranges_with_holes_become_the_file(sides: Sides) -> None:
    big = sides.source / "big"
    with big.open("wb") as file:
        file.write(os.urandom(5 * MIB))
        file.seek(20 * MIB)
        file.write(os.urandom(3 * MIB))
        file.truncate(32 * MIB)
    seen = big.stat()
    facts = b"s%d,m%d" % (seen.st_size, seen.st_mtime_ns)
    ranges = b"".join(facts + b",o%d,n%d:big\0" % (at * 8 * MIB, 8 * MIB) for at in range(4))
    assert ended_well(run_pair(sides.source, sides.target, ranges, "--in-flight", "4", kind="ranges"))
    assert (sides.target / "big").exists() is False
    pair = run_pair(sides.source, sides.target, facts + b",r:big\0")
    assert ended_well(pair)
    # Its content is not sent again.
    assert pair.parts == 1
    assert sides.differences() == set()
    assert (sides.target / "big").stat().st_blocks < 9 * MIB // 512


@pytest.mark.guarantee("kill-9")
@pytest.mark.parametrize("killed", ["reading", "writing"])
def test_killed_at_any_part_and_run_again_gives_the_same_tree(sides: Sides, killed: str) -> None:
    names = sides.write_files()
    old = sides.target / "d" / "0"
    for at in range(100):
        old.write_bytes(b"old")

        def kill(
            number: int,
            part: bytes,
            reading: "subprocess.Popen[bytes]",
            writing: "subprocess.Popen[bytes]",
            at: int = at,
        ) -> bytes:
            if number == at:
                victim = reading if killed == "reading" else writing
                victim.kill()
                victim.wait()
                return part[: len(part) // 2] if killed == "reading" else part
            return part

        pair = run_pair(sides.source, sides.target, names, "--recopy", between=kill)
        for number, size in enumerate(CONTENT):
            there = sides.target / "d" / f"{number}"
            if there.exists() and there.read_bytes() != b"old":
                assert there.read_bytes() == (sides.source / "d" / f"{number}").read_bytes(), (at, size)
        if ended_well(pair):
            break
        assert (pair.writing if killed == "reading" else pair.reading) in (0, LOST, 74), (at, pair)
        for there in (sides.target / "d").iterdir():
            if there.name.isdecimal():
                there.unlink()
    else:
        raise AssertionError("it never came to its end")
    assert at > 3
    assert ended_well(run_pair(sides.source, sides.target, names, "--recopy"))
    assert sides.differences() == set()


def test_content_that_is_damaged_on_the_way_does_not_arrive(sides: Sides) -> None:
    (sides.source / "file").write_bytes(b"a" * 5000)

    def damage(_number: int, part: bytes, *_: object) -> bytes:
        return part.replace(b"aaaa", b"aaab", 1)

    pair = run_pair(sides.source, sides.target, listed(b"file"), "--digest", between=damage)
    assert any(line.startswith(b"F 0 bad source") for line in pair.events), pair
    assert not any(line.startswith(b"D") for line in pair.events)
    assert list(sides.target.iterdir()) == []


@pytest.mark.parametrize(
    "junk", [PART.pack(999, 8), PART.pack(0, 8) + b"\xff" * 8, PART.pack(0, 4096) + b"\xff" * 4096]
)
def test_bytes_of_no_reading_end_change_nothing(sides: Sides, junk: bytes) -> None:
    if reason := missing_for_native(*SANITIZED):
        pytest.skip(reason)
    (sides.source / "file").write_bytes(b"new")
    (sides.target / "file").write_bytes(b"old")
    pair = run_pair(sides.source, sides.target, listed(b"file"), "--recopy", flags=SANITIZED, between=lambda *_: junk)
    assert pair.writing in (MALFORMED, LOST)
    assert (sides.target / "file").read_bytes() == b"old"


@pytest.mark.guarantee("confined")
@pytest.mark.parametrize("where", ["directory", "file"])
def test_a_symlink_on_the_target_leads_nowhere(sides: Sides, tmp_path: Path, where: str) -> None:
    names = sides.write_files()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "0").write_bytes(b"untouched")
    if where == "directory":
        (sides.target / "d").rmdir()
        (sides.target / "d").symlink_to(outside)
    else:
        (sides.target / "d" / "0").symlink_to(outside / "0")
    pair = run_pair(sides.source, sides.target, names)
    assert ended_well(pair)
    assert (outside / "0").read_bytes() == b"untouched"
    assert [path.name for path in outside.iterdir()] == ["0"]
    bad = {line.split()[1] for line in pair.events if line.startswith(b"F") and b" bad target " in line}
    assert bad == ({b"%d" % number for number in range(len(CONTENT))} if where == "directory" else set())
    if where == "file":
        assert sides.differences() == set()


@pytest.mark.parametrize("size", [5 * KIB, 5 * MIB])
def test_a_file_that_changes_meanwhile_is_reported(sides: Sides, size: int) -> None:
    file = sides.source / "file"
    file.write_bytes(os.urandom(size))

    def change(_number: int, part: bytes, *_: object) -> bytes:
        with file.open("r+b") as opened:
            opened.write(os.urandom(16))
        return part

    pair = run_pair(sides.source, sides.target, listed(b"file"), "--digest", between=change)
    assert ended_well(pair)
    if size > MIB:
        assert any(line.startswith(b"F 0 changed") for line in pair.events) or sides.differences() == set()
    assert (sides.target / "file").stat().st_size == size


def test_a_path_that_vanished_or_became_another_kind(sides: Sides) -> None:
    (sides.source / "became-directory").mkdir()
    (sides.source / "link").symlink_to("x" * 4000)
    pair = run_pair(sides.source, sides.target, listed(b"gone", b"gone-directory/file", b"became-directory", b"link"))
    assert ended_well(pair)
    assert [line.split()[:3] for line in pair.events if line.startswith(b"F")] == [
        [b"F", b"0", b"vanished"],
        [b"F", b"1", b"vanished"],
    ]
    assert (sides.target / "became-directory").is_dir()
    assert (sides.target / "link").readlink() == Path("x" * 4000)
