"""The copying program, killed at any system call and run again; calls that fail, and a symlink in the way."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator.core.units import MIB
from migrator.transfer.rules_leftovers import part_name
from tests.support.native_builds import built
from tests.support.snapshots import names_of, snapshot
from tests.support.xfs import XfsMount
from tests.transfer.native_copy import ALL, SEED, listed, run_copy

pytestmark = pytest.mark.needs_root

LONGEST = "n" * 255
RANGE_BYTES = 64 * 1024
PART = os.fsdecode(part_name(b"big", SEED))


@dataclass
class Sides:
    """A source and a target for the program."""

    source: Path
    target: Path

    def __post_init__(self) -> None:
        self.source.mkdir()
        self.target.mkdir()

    @property
    def big(self) -> Path:
        return self.source / "big"

    def write_big(self, content: bytes) -> os.stat_result:
        self.big.write_bytes(content)
        return self.big.stat()

    def write_holes(self) -> os.stat_result:
        """A file with data, a hole and data."""
        content = os.urandom(RANGE_BYTES)
        with self.big.open("wb") as file:
            file.write(content)
            file.seek(3 * RANGE_BYTES)
            file.write(content)
            file.truncate(5 * RANGE_BYTES + 17)
        return self.big.stat()

    def copy(self, names: bytes, *options: str, kind: str = "files") -> bytes:
        """What is told."""
        return run_copy(self.source, self.target, names, *options, kind=kind).stdout

    def put_in_place(self, seen: os.stat_result) -> bytes:
        told = self.copy(whole(seen))
        assert b"F" not in told
        self.assert_equal()
        return told

    def assert_equal(self) -> None:
        assert snapshot(os.fsencode(self.source)) == snapshot(os.fsencode(self.target))

    def traced(
        self, call: str, inject: str, names: bytes, *options: str, kind: str = "files"
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run with a fault injected into a system call."""
        if shutil.which("strace") is None:
            pytest.skip("strace is not installed")
        strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{inject}"]
        places = ["--source", str(self.source), "--target", str(self.target)]
        program = [str(built()), "copy", *places, "--kind", kind, *ALL, *options]
        return subprocess.run([*strace, *program], input=names, capture_output=True, check=False)

    def killed_at(self, call: str, time: int, names: bytes, *options: str, kind: str = "files") -> bool:
        """Run until the program makes this call for so many times, and dies in it; False: it came to its end before."""
        done = self.traced(call, f"signal=KILL:when={time}", names, *(options or ("--recopy",)), kind=kind)
        assert done.returncode in (0, -9, 137), done.stderr
        return done.returncode != 0


@pytest.fixture
def sides(xfs_source: XfsMount) -> Sides:
    return Sides(xfs_source.path / "s", xfs_source.path / "t")


def ranges_of(seen: os.stat_result, range_bytes: int = RANGE_BYTES) -> list[bytes]:
    """The ranges of the big file, each a list of its own."""
    size = seen.st_size
    return [
        b"s%d,m%d,o%d,n%d:big\0" % (size, seen.st_mtime_ns, offset, min(range_bytes, size - offset))
        for offset in range(0, size, range_bytes)
    ]


def whole(seen: os.stat_result) -> bytes:
    """The list that completes it."""
    return b"s%d,m%d,r:big\0" % (seen.st_size, seen.st_mtime_ns)


def small_tree(source: Path) -> bytes:
    """One of each kind; the list of everything that is no directory, with its link groups."""
    (source / "file").write_text("content")
    os.setxattr(source / "file", "user.mine", b"1")
    (source / LONGEST).write_text("the longest name")
    (source / "second").hardlink_to(source / "file")
    (source / "link").symlink_to("file")
    (source / "sub").mkdir()
    (source / "sub" / "third").hardlink_to(source / "file")
    os.mkfifo(source / "fifo")
    (source / "setuid").write_bytes(b"x" * 10000)
    os.chown(source / "setuid", 1000, 1000)
    (source / "setuid").chmod(0o4755)
    _, others = names_of(os.fsencode(source))
    found = [(name, os.lstat(os.path.join(os.fsencode(source), name))) for name in others]
    return b"".join((b"l%d" % seen.st_ino if seen.st_nlink > 1 else b"") + b":" + name + b"\0" for name, seen in found)


NEW = ("--own-names", "--fsync")
CALLS = ["openat", "newfstatat", "pread64", "pwrite64", "close", "fchown", "fchownat", "fchmod", "fchmodat", "fsetxattr", "utimensat", "renameat", "linkat", "symlinkat", "mknodat", "unlinkat", "ftruncate", "fsync", "fchdir"]  # fmt: skip


def kills(most: int) -> Iterator[tuple[str, int]]:
    """Every call that leaves something behind, and which time of it: the first ones."""
    return ((call, time) for call in CALLS for time in range(1, most + 1))


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [(), NEW])
def test_killed_at_any_call_and_run_again_gives_the_same_tree(sides: Sides, options: tuple[str, ...]) -> None:
    names = small_tree(sides.source)
    before = snapshot(os.fsencode(sides.source), directories=False)
    killed = 0
    for call, time in kills(7):
        (sides.target / "sub").mkdir(parents=True, exist_ok=True)
        if sides.killed_at(call, time, names, *options):
            killed += 1
            done = run_copy(sides.source, sides.target, names, "--recopy")
            assert (done.returncode, done.stderr) == (0, b"")
            assert snapshot(os.fsencode(sides.target), directories=False) == before, (call, time)
        shutil.rmtree(sides.target)
    assert killed > 30


@pytest.mark.exhaustive
def test_ranges_killed_anywhere_and_done_again(sides: Sides) -> None:
    seen = sides.write_holes()
    killed = 0
    for call, time in kills(2):
        sides.target.mkdir(exist_ok=True)
        for part in ranges_of(seen):
            if sides.killed_at(call, time, part, kind="ranges"):
                killed += 1
                assert sides.copy(part, kind="ranges").startswith(b"P 0 ")
        before = (sides.target / PART).stat().st_ino
        killed += sides.killed_at(call, time, whole(seen))
        # If it was put in place before the kill, it may be copied again: the source has only just been written.
        left = (sides.target / PART).exists()
        sides.put_in_place(seen)
        assert not left or before == (sides.target / "big").stat().st_ino, "the part file was not used"
        assert (sides.target / "big").stat().st_blocks <= seen.st_blocks
        shutil.rmtree(sides.target)
    assert killed > 30


@pytest.mark.parametrize("call", ["sync_file_range", "fsync"])
def test_a_range_that_has_not_reached_the_disks_does_not_count(sides: Sides, call: str) -> None:
    """Its bytes may be gone after a crash of the machine, and what tells of them be there."""
    half = 9 * MIB
    seen = sides.write_big(os.urandom(2 * half))
    first, second = ranges_of(seen, range_bytes=half)
    assert b"F" not in sides.copy(first, kind="ranges")
    assert sides.killed_at(call, 1, second, kind="ranges")
    assert (sides.target / PART).stat().st_size > half, "it was killed before it had written anything"
    told = sides.put_in_place(seen)
    assert told.splitlines()[-1].split()[2] == b"%d" % (2 * half), "the part file was put in place"


@pytest.mark.parametrize("missing", range(6))
def test_a_part_file_that_lacks_a_range_is_not_put_in_place(sides: Sides, missing: int) -> None:
    seen = sides.write_big(os.urandom(5 * RANGE_BYTES + 17))
    for number, part in enumerate(ranges_of(seen)):
        if number == missing:
            # Gone for a moment: the range's stream tells that, and ends well.
            sides.big.rename(sides.source / "aside")
        sides.copy(part, kind="ranges")
        if number == missing:
            (sides.source / "aside").rename(sides.big)
    sides.put_in_place(seen)


def test_a_directory_that_is_a_symlink_by_now_leads_nowhere(sides: Sides) -> None:
    outside = sides.source.parent / "outside"
    for directory in (outside, sides.target / "d"):
        directory.mkdir()
    (outside / "secret").write_text("secret")
    (sides.source / "d").symlink_to(outside)
    sides.write_big(b"big")
    assert b"F 1 bad source 20 open directory\n" in sides.copy(listed(b"big", b"d/secret"))
    assert not (sides.target / "d" / "secret").exists()
    assert (sides.target / "big").read_bytes() == b"big"


@pytest.mark.parametrize(
    ("call", "code", "told", "ends", "arrived"),
    [
        ("pread64", "EIO", b"F 0 bad source 5 read\n", 0, ["b"]),
        ("pread64", "ENOTCONN", b"F 0 bad source 107 read\n", 3, []),
        ("pwrite64", "EIO", b"F 0 bad target 5 write\n", 3, []),
        ("pwrite64", "EDQUOT", b"F 0 bad target 122 write\n", 3, []),
        ("fsetxattr", "ENOSPC", b"F 0 bad target 28 set xattr\n", 0, ["b"]),
        ("fchown", "EPERM", b"F 0 bad target 1 set owner\n", 0, ["b"]),
        ("renameat", "EACCES", b"F 0 bad target 13 rename\n", 0, ["b"]),
        ("fsync", "EINVAL", b"F 0 bad target 22 sync\n", 0, []),
        ("utimensat", "EROFS", b"F 0 bad target 30 set times\n", 3, []),
        ("flistxattr", "EIO", b"F 0 bad source 5 list xattrs\n", 0, ["b"]),
        # Network file systems say at close(2) that what was written has not arrived: the copy's is the first one here.
        ("close", "ENOSPC", b"F 0 bad target 28 close\n", 3, []),
        # Bytes that cannot be written back; a file system that cannot tell is believed at the sync.
        ("sync_file_range", "ENOSPC", b"F 0 bad target 28 write\n", 3, []),
        ("sync_file_range", "ENOSYS", b"", 0, ["a", "b"]),
    ],
)
def test_a_call_that_fails(sides: Sides, *, call: str, code: str, told: bytes, ends: int, arrived: list[str]) -> None:
    for name in ("a", "b"):
        (sides.source / name).write_bytes(bytes(9 * MIB if call == "sync_file_range" else 7))
        os.setxattr(sides.source / name, "user.mine", b"1")
    # Which thread syncs a file is not known, and strace counts the calls of each: all of them fail.
    options, when = (NEW, "1+") if call == "fsync" else ((), "1")
    done = sides.traced(call, f"error={code}:when={when}", listed(b"a", b"b"), *options)
    assert done.returncode == ends, done.stderr
    assert told in done.stdout
    assert (b"F" in done.stdout) is bool(told)
    assert sorted(path.name for path in sides.target.iterdir()) == arrived
