"""The copying program, killed at any system call and run again; files that are changed under its hands."""

import errno
import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from migrator.core.units import MIB
from migrator.transfer.rules import part_name
from tests.support.native_builds import SANITIZED, built
from tests.support.native_copy import ALL, listed, run_copy
from tests.support.run_site import wait_for
from tests.support.snapshots import names_of, snapshot
from tests.support.xfs import XfsMount

pytestmark = pytest.mark.needs_root

LONGEST = "n" * 255
RANGE_BYTES = 64 * 1024


def small_tree(source: Path) -> None:
    """One of each kind."""
    source.mkdir()
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


def records(source: Path) -> bytes:
    """The list of everything that is no directory, with its link groups."""
    _, others = names_of(os.fsencode(source))
    found = [(name, os.lstat(os.path.join(os.fsencode(source), name))) for name in others]
    return b"".join((b"l%d" % seen.st_ino if seen.st_nlink > 1 else b"") + b":" + name + b"\0" for name, seen in found)


CALLS = ["openat", "newfstatat", "pread64", "pwrite64", "close", "fchown", "fchownat", "fchmod", "fchmodat", "fsetxattr", "utimensat", "renameat", "linkat", "symlinkat", "mknodat", "unlinkat", "ftruncate", "fsync", "fchdir"]  # fmt: skip


def kills(most: int) -> Iterator[tuple[str, int]]:
    """Every call that leaves something behind, and which time of it: the first ones."""
    for call in CALLS:
        for time in range(1, most + 1):
            yield call, time


def killed_at(call: str, time: int, source: Path, target: Path, names: bytes, *, kind: str = "files") -> bool:
    """Run until the program makes this call for so many times, and dies in it; False: it came to its end before."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    inject = ["strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={time}"]
    program = [str(built()), "copy", "--source", str(source), "--target", str(target), "--kind", kind, *ALL, "--recopy"]
    done = subprocess.run([*inject, *program], input=names, capture_output=True, check=False)
    assert done.returncode in (0, -9, 137), done.stderr
    return done.returncode != 0


@pytest.mark.exhaustive
def test_killed_at_any_call_and_run_again_gives_the_same_tree(xfs_source: XfsMount) -> None:
    source, target = xfs_source.path / "s", xfs_source.path / "t"
    small_tree(source)
    names = records(source)
    before = snapshot(os.fsencode(source), directories=False)
    killed = 0
    for call, time in kills(7):
        target.mkdir()
        (target / "sub").mkdir()
        if killed_at(call, time, source, target, names):
            killed += 1
            done = run_copy(source, target, names, "--recopy")
            assert (done.returncode, done.stderr) == (0, b"")
            assert snapshot(os.fsencode(target), directories=False) == before, (call, time)
        shutil.rmtree(target)
    assert killed > 30


def ranges_of(size: int, mtime_ns: int, name: bytes = b"big") -> list[bytes]:
    """A file's ranges, each a list of its own."""
    return [
        b"s%d,m%d,o%d,n%d:%s\0" % (size, mtime_ns, offset, min(RANGE_BYTES, size - offset), name)
        for offset in range(0, size, RANGE_BYTES)
    ]


def big_file(path: Path, *, size: int = 5 * RANGE_BYTES + 17) -> tuple[int, int]:
    """A file with data, a hole and data; its size and time."""
    content = os.urandom(RANGE_BYTES)
    with path.open("wb") as file:
        file.write(content)
        file.seek(3 * RANGE_BYTES)
        file.write(content)
        file.truncate(size)
    seen = path.stat()
    return seen.st_size, seen.st_mtime_ns


@pytest.mark.exhaustive
def test_ranges_killed_anywhere_and_done_again(xfs_source: XfsMount) -> None:
    source, target = xfs_source.path / "s", xfs_source.path / "t"
    source.mkdir()
    size, mtime_ns = big_file(source / "big")
    last = b"s%d,m%d,r:big\0" % (size, mtime_ns)
    killed = 0
    for call, time in kills(2):
        target.mkdir()
        for part in ranges_of(size, mtime_ns):
            if killed_at(call, time, source, target, part, kind="ranges"):
                killed += 1
                assert run_copy(source, target, part, kind="ranges").stdout.startswith(b"P 0 ")
        before = (target / os.fsdecode(part_name(b"big"))).stat().st_ino
        killed += killed_at(call, time, source, target, last)
        assert b"F" not in run_copy(source, target, last).stdout
        assert snapshot(os.fsencode(source)) == snapshot(os.fsencode(target)), (call, time)
        assert before == (target / "big").stat().st_ino, "the part file was not used"
        assert (target / "big").stat().st_blocks <= (source / "big").stat().st_blocks
        shutil.rmtree(target)
    assert killed > 30


@pytest.mark.parametrize("call", ["sync_file_range", "fsync"])
def test_a_range_that_has_not_reached_the_disks_does_not_count(scratch: Path, call: str) -> None:
    """Its bytes may be gone after a crash of the machine, and what tells of them be there."""
    source, target = scratch / "s", scratch / "t"
    source.mkdir()
    target.mkdir()
    half = 9 * MIB
    (source / "big").write_bytes(os.urandom(2 * half))
    seen = (source / "big").stat()
    listed_as = b"s%d,m%d" % (seen.st_size, seen.st_mtime_ns)
    first, second = (listed_as + b",o%d,n%d:big\0" % (offset, half) for offset in (0, half))
    assert b"F" not in run_copy(source, target, first, kind="ranges").stdout
    assert killed_at(call, 1, source, target, second, kind="ranges")
    part = (target / os.fsdecode(part_name(b"big"))).stat()
    assert part.st_size > half, "it was killed before it had written anything"
    told = run_copy(source, target, listed_as + b",r:big\0").stdout
    assert b"F" not in told
    assert told.splitlines()[-1].split()[2] == b"%d" % (2 * half), "the part file was put in place"
    assert snapshot(os.fsencode(source)) == snapshot(os.fsencode(target))


@pytest.mark.parametrize("missing", range(6))
def test_a_part_file_that_lacks_a_range_is_not_put_in_place(scratch: Path, missing: int) -> None:
    source, target = scratch / "s", scratch / "t"
    source.mkdir()
    target.mkdir()
    (source / "big").write_bytes(os.urandom(5 * RANGE_BYTES + 17))
    seen = (source / "big").stat()
    for number, part in enumerate(ranges_of(seen.st_size, seen.st_mtime_ns)):
        if number == missing:
            # Gone for a moment: the range's stream tells that, and ends well.
            (source / "big").rename(source / "aside")
        run_copy(source, target, part, kind="ranges")
        if number == missing:
            (source / "aside").rename(source / "big")
    assert b"F" not in run_copy(source, target, b"s%d,m%d,r:big\0" % (seen.st_size, seen.st_mtime_ns)).stdout
    assert snapshot(os.fsencode(source)) == snapshot(os.fsencode(target))


def test_ranges_in_an_older_part_file_prove_nothing_of_a_new_one(scratch: Path) -> None:
    source, target = scratch / "s", scratch / "t"
    source.mkdir()
    target.mkdir()
    (source / "big").write_bytes(os.urandom(5 * RANGE_BYTES + 17))
    seen = (source / "big").stat()
    ranges = ranges_of(seen.st_size, seen.st_mtime_ns)
    for part in ranges:
        run_copy(source, target, part, kind="ranges")
    # Put in place by a run that was killed before it could clear up.
    (target / os.fsdecode(part_name(b"big"))).rename(target / "big")
    run_copy(source, target, ranges[-1], kind="ranges")
    last = b"s%d,m%d,r:big\0" % (seen.st_size, seen.st_mtime_ns)
    assert b"F" not in run_copy(source, target, last, "--recopy").stdout
    assert snapshot(os.fsencode(source)) == snapshot(os.fsencode(target))


def test_what_the_source_does_not_give_to_the_end_is_no_copy(scratch: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    source, target = scratch / "s", scratch / "t"
    source.mkdir()
    target.mkdir()
    (source / "file").write_bytes(b"x" * 5000)
    (target / "file").write_bytes(b"older")
    program = [str(built()), "copy", "--source", str(source), "--target", str(target), "--kind", "files", *ALL]
    none = ["strace", "-qq", "-o", "/dev/null", "-e", "trace=pread64", "-e", "inject=pread64:retval=0", *program]
    done = subprocess.run(none, input=listed(b"file"), capture_output=True, check=False)
    assert (b"F 0 bad source %d read to the end" % errno.ENODATA) in done.stdout, done
    assert [path.name for path in target.iterdir()] == ["file"]
    assert (target / "file").read_bytes() == b"older"


def test_ranges_of_a_file_that_is_there_are_not_sent_again(scratch: Path) -> None:
    source, target = scratch / "s", scratch / "t"
    source.mkdir()
    target.mkdir()
    (source / "big").write_bytes(os.urandom(5 * RANGE_BYTES + 17))
    seen = (source / "big").stat()
    ranges = ranges_of(seen.st_size, seen.st_mtime_ns)
    last = b"s%d,m%d,r:big\0" % (seen.st_size, seen.st_mtime_ns)
    for names, kind in (*((part, "ranges") for part in ranges), (last, "files")):
        run_copy(source, target, names, kind=kind)
    before = (target / "big").stat().st_ino
    (source / "big").chmod(0o640)
    for names, kind in (*((part, "ranges") for part in ranges), (last, "files")):
        told = run_copy(source, target, names, kind=kind).stdout
        assert told.splitlines()[-1].split()[2] == b"0", "bytes were sent"
        assert [path.name for path in target.iterdir()] == ["big"]
    assert snapshot(os.fsencode(source)) == snapshot(os.fsencode(target))
    assert before == (target / "big").stat().st_ino
    for part in ranges:
        run_copy(source, target, part, "--recopy", kind="ranges")
    run_copy(source, target, last, "--recopy")
    assert before != (target / "big").stat().st_ino
    assert snapshot(os.fsencode(source)) == snapshot(os.fsencode(target))


def test_ranges_of_a_file_that_was_rewritten(xfs_source: XfsMount) -> None:
    source, target = xfs_source.path / "s", xfs_source.path / "t"
    source.mkdir()
    target.mkdir()
    (source / "big").write_bytes(b"1" * 7 * RANGE_BYTES)
    older = (source / "big").stat()
    for part in ranges_of(older.st_size, older.st_mtime_ns):
        assert b"F" not in run_copy(source, target, part, kind="ranges").stdout
    (source / "big").unlink()
    size, mtime_ns = big_file(source / "big")
    assert (
        b"F 0 changed source 0 -"
        in run_copy(source, target, ranges_of(older.st_size, older.st_mtime_ns)[0], kind="ranges").stdout
    )
    # Listed as it was: the part file is not what the file is now, and the content is copied whole.
    assert b"F" not in run_copy(source, target, b"s%d,m%d,r:big\0" % (older.st_size, older.st_mtime_ns)).stdout
    assert snapshot(os.fsencode(source)) == snapshot(os.fsencode(target))
    # Older data in the part file does not show through the holes.
    (source / "older").write_bytes(b"1" * 7 * RANGE_BYTES)
    seen = (source / "older").stat()
    for part in ranges_of(seen.st_size, seen.st_mtime_ns, b"older"):
        run_copy(source, target, part, kind="ranges")
    (source / "big").rename(source / "older")
    for part in ranges_of(size, mtime_ns, b"older"):
        assert b"F" not in run_copy(source, target, part, kind="ranges").stdout
    (target / "big").unlink()
    assert b"F" not in run_copy(source, target, b"s%d,m%d,r:older\0" % (size, mtime_ns)).stdout
    assert snapshot(os.fsencode(source)) == snapshot(os.fsencode(target))


def during(source: Path, target: Path, names: bytes, act: Callable[[], None]) -> bytes:
    """Run slowly, act in the middle of the copy of the first file, and return all that is told.

    What is told goes into a pipe that is full: the program stands still at its first word of progress until that is read. The
    word is due before the file has come to its end.
    """
    options = ["--source", str(source), "--target", str(target), "--kind", "files", *ALL, "--bwlimit", str(4 * MIB)]
    before = set(os.listdir(target))
    reads, writes = os.pipe()
    room = fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writes, bytes(room))
    with (
        open(reads, "rb") as told,
        subprocess.Popen(
            [str(built(*SANITIZED)), "copy", *options], stdin=subprocess.PIPE, stdout=writes, stderr=subprocess.PIPE
        ) as process,
    ):
        os.close(writes)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(names)
        process.stdin.close()

        def copying() -> bool:
            assert process.poll() is None, process.communicate()
            return any((target / name).stat().st_size for name in set(os.listdir(target)) - before)

        try:
            wait_for(copying, "the first bytes of a copy")
            assert not (target / "big").exists()
            act()
        except BaseException:
            process.kill()
            raise
        said = told.read()[room:]
        assert said.startswith(b"P "), process.stderr.read()
        assert process.stderr.read() == b""
        assert process.wait() == 0
    return said


@pytest.fixture
def sides(xfs_source: XfsMount) -> tuple[Path, Path]:
    source, target = xfs_source.path / "s", xfs_source.path / "t"
    source.mkdir()
    target.mkdir()
    (source / "big").write_bytes(os.urandom(3 * MIB))
    return source, target


def test_a_file_that_grows_is_copied_again(sides: tuple[Path, Path]) -> None:
    source, target = sides

    def grow() -> None:
        with (source / "big").open("ab") as file:
            file.write(b"more")

    assert b"F" not in during(source, target, listed(b"big"), grow)
    assert snapshot(os.fsencode(source)) == snapshot(os.fsencode(target))


def test_a_file_that_shrinks_is_copied_again(sides: tuple[Path, Path]) -> None:
    source, target = sides
    assert b"F" not in during(source, target, listed(b"big"), lambda: os.truncate(source / "big", 5))
    assert snapshot(os.fsencode(source)) == snapshot(os.fsencode(target))


def test_a_directory_that_is_swapped_for_a_symlink_leads_nowhere(sides: tuple[Path, Path]) -> None:
    source, target = sides
    outside = source.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    for side in sides:
        (side / "d").mkdir()
    (source / "d" / "secret").write_text("mine")

    def swap() -> None:
        (source / "d").rename(source / "was-d")
        (source / "d").symlink_to(outside)

    said = during(source, target, listed(b"big", b"d/secret"), swap)
    assert b"F 1 bad source 20 open directory\n" in said
    assert not (target / "d" / "secret").exists()
    assert (target / "big").stat().st_size == 3 * MIB


@pytest.mark.parametrize("kind", ["fifo", "symlink", "directory", "gone"])
def test_a_file_that_is_replaced_is_copied_as_what_it_is(sides: tuple[Path, Path], kind: str) -> None:
    source, target = sides
    (source / "it").write_text("file")
    (target / "it").write_text("older")

    def replace() -> None:
        (source / "it").unlink()
        if kind == "fifo":
            os.mkfifo(source / "it")
        elif kind == "symlink":
            (source / "it").symlink_to("/etc/shadow")
        elif kind == "directory":
            (source / "it").mkdir()

    said = during(source, target, listed(b"big", b"it"), replace)
    if kind == "gone":
        assert b"F 1 vanished source 2 " in said
        assert (target / "it").read_text() == "older"
    else:
        assert b"F" not in said
        assert (target / "it").lstat().st_mode == (source / "it").lstat().st_mode


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
        ("utimensat", "EROFS", b"F 0 bad target 30 set times\n", 3, []),
        ("flistxattr", "EIO", b"F 0 bad source 5 list xattrs\n", 0, ["b"]),
    ],
)
def test_a_call_that_fails(
    sides: tuple[Path, Path], *, call: str, code: str, told: bytes, ends: int, arrived: list[str]
) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    source, target = sides
    for name in ("a", "b"):
        (source / name).write_text("content")
        os.setxattr(source / name, "user.mine", b"1")
    inject = ["strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:error={code}:when=1"]
    program = [str(built()), "copy", "--source", str(source), "--target", str(target), "--kind", "files", *ALL]
    done = subprocess.run([*inject, *program], input=listed(b"a", b"b"), capture_output=True, check=False)
    assert done.returncode == ends, done.stderr
    assert told in done.stdout
    assert [path.name for path in target.iterdir()] == arrived


@pytest.mark.parametrize(("code", "told"), [("ENOSPC", b"F 0 bad target 28 write\n"), ("ENOSYS", None)])
def test_bytes_that_cannot_be_written_back_are_told(scratch: Path, code: str, told: bytes | None) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    source, target = scratch / "s", scratch / "t"
    source.mkdir()
    target.mkdir()
    (source / "a").write_bytes(os.urandom(9 * MIB))
    inject = ["strace", "-qq", "-o", "/dev/null", "-e", "trace=sync_file_range"]
    inject += ["-e", f"inject=sync_file_range:error={code}:when=1"]
    program = [str(built()), "copy", "--source", str(source), "--target", str(target), "--kind", "files", *ALL]
    done = subprocess.run([*inject, *program], input=listed(b"a"), capture_output=True, check=False)
    if told is None:
        assert (done.returncode, b"F" in done.stdout) == (0, False)
        assert snapshot(os.fsencode(source)) == snapshot(os.fsencode(target))
    else:
        assert (done.returncode, told in done.stdout) == (3, True)
        assert not list(target.iterdir())


def test_a_write_that_is_told_late_is_told(sides: tuple[Path, Path]) -> None:
    """Network file systems say at close(2) that what was written has not arrived: the copy's is the first one here."""
    source, target = sides
    (source / "a").write_text("content")
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    inject = ["strace", "-qq", "-o", "/dev/null", "-e", "trace=close", "-e", "inject=close:error=ENOSPC:when=1"]
    program = [str(built()), "copy", "--source", str(source), "--target", str(target), "--kind", "files", *ALL]
    done = subprocess.run([*inject, *program], input=listed(b"a"), capture_output=True, check=False)
    assert b"F 0 bad target 28 close\n" in done.stdout
    assert done.returncode == 3
    assert not list(target.iterdir())
