"""What every file system does when it is read, the same suite for sources and targets; and /proc/self/mountinfo."""

import errno
import os
import socket
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.core.entry import ACL_ACCESS, Entry, EntryType
from migrator.core.probe import PROBE_NAME
from migrator.core.units import MIB
from migrator.fs.model import (
    BENCH_NAME,
    PURGE_NAME,
    SENTINEL_NAME,
    ScanProblem,
    mount_of,
    mounts_beneath,
    parse_mountinfo,
    syncfs_reaches_disks,
)
from migrator.fs.ports import FileSystem
from migrator.fs.reading import PosixSource, ReadingFileSystem
from migrator.fs.writing import MountedTarget
from migrator.lab.model import OddFiles, OddKind
from tests.conftest import MakeXfs
from tests.support.xfs import bound, run_tool

Make = Callable[[bytes], ReadingFileSystem]


@pytest.fixture(params=[ReadingFileSystem, PosixSource, MountedTarget], ids=["reading", "posix", "target"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes a file system over a root; all are closed afterwards."""
    made: list[ReadingFileSystem] = []

    def build(root: bytes) -> ReadingFileSystem:
        made.append(request.param(root))
        return made[-1]

    yield build
    for filesystem in made:
        filesystem.close()


def raises_errno(*codes: int) -> AbstractContextManager[object]:
    """As `pytest.raises(OSError)`, with one of these numbers."""
    return pytest.raises(OSError, check=lambda error: error.errno in codes)


def listed(filesystem: FileSystem, path: bytes = b"", **options: int) -> tuple[list[Entry], list[ScanProblem]]:
    blocks = list(filesystem.read_directory(path, **options))
    return [entry for block in blocks for entry in block.entries], [
        problem for block in blocks for problem in block.problems
    ]


def walked(filesystem: FileSystem) -> tuple[dict[bytes, Entry], list[ScanProblem]]:
    """Everything beneath the root."""
    entries: dict[bytes, Entry] = {}
    problems: list[ScanProblem] = []
    waiting = [b""]
    while waiting:
        here, wrong = listed(filesystem, waiting.pop())
        problems += wrong
        for entry in here:
            assert entry.path not in entries
            entries[entry.path] = entry
            if entry.type is EntryType.DIRECTORY:
                waiting.append(entry.path)
    return entries, problems


@pytest.mark.needs_root
def test_every_odd_file_is_seen_as_it_is(odd_tree: tuple[Path, OddFiles], make: Make) -> None:
    tree, odd = odd_tree
    root = os.fsencode(tree.parent.parent)
    filesystem = make(root)
    entries, problems = walked(filesystem)
    assert problems == []
    for kind, paths in odd.paths.items():
        for path in paths:
            entry = entries[b"home/odd/" + path]
            again = filesystem.look(entry.path)
            assert again is not None, kind
            assert replace(again, atime_ns=0) == replace(entry, atime_ns=0), kind
            if len(path) < 3000:
                facts = os.lstat(os.path.join(root, entry.path))
                assert (entry.size_bytes, entry.blocks) == (facts.st_size, facts.st_blocks)
                assert (entry.uid, entry.gid, entry.mode) == (facts.st_uid, facts.st_gid, facts.st_mode & 0o7777)
                assert (entry.mtime_ns, entry.ctime_ns) == (facts.st_mtime_ns, facts.st_ctime_ns)
                assert (entry.ino, entry.nlink, entry.dev) == (facts.st_ino, facts.st_nlink, facts.st_dev)
                assert entry.type is EntryType.of_mode(facts.st_mode)

    assert max(map(len, odd.paths[OddKind.DEEP_PATH])) > 4096
    assert any(ACL_ACCESS in entries[b"home/odd/" + path].xattrs for path in odd.paths[OddKind.ACL_ACCESS])
    assert any(b"security.capability" in entries[b"home/odd/" + p].xattrs for p in odd.paths[OddKind.FILE_CAPABILITY])
    assert {entries[b"home/odd/" + path].type for path in odd.paths[OddKind.FIFO]} >= {EntryType.FIFO}
    assert {entries[b"home/odd/" + path].link_group for path in odd.paths[OddKind.HARD_LINK_SAME_DIRECTORY]} != {None}
    long_targets = [entries[b"home/odd/" + path].symlink_target or b"" for path in odd.paths[OddKind.SYMLINK_LONG]]
    assert max(map(len, long_targets)) >= 1000


def test_the_programs_own_names_are_skipped_in_the_root_only(make: Make, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for place in (tmp_path, tmp_path / "a"):
        (place / os.fsdecode(SENTINEL_NAME)).write_text("x\n")
        (place / os.fsdecode(PURGE_NAME)).mkdir()
        (place / os.fsdecode(PROBE_NAME)).mkdir()
        (place / os.fsdecode(BENCH_NAME)).mkdir()
    entries, _ = walked(make(os.fsencode(tmp_path)))
    assert set(entries) == {b"a", b"a/" + SENTINEL_NAME, b"a/" + PURGE_NAME, b"a/" + PROBE_NAME, b"a/" + BENCH_NAME}


def test_a_symlink_is_seen_and_never_followed(make: Make, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "deeper").mkdir(parents=True)
    (outside / "secret").write_text("secret")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(outside)
    filesystem = make(os.fsencode(root))
    (entry,), problems = listed(filesystem)
    assert (entry.type, entry.symlink_target, problems) == (EntryType.SYMLINK, os.fsencode(outside), [])
    entries, problems = listed(filesystem, b"link")
    assert entries == []
    assert problems[0].errno in (errno.ELOOP, errno.ENOTDIR)
    for path in (b"link/secret", b"link/deeper"):
        with raises_errno(errno.ELOOP, errno.ENOTDIR):
            filesystem.look(path)
    with raises_errno(errno.ELOOP, errno.ENOTDIR):
        filesystem.digest(b"link/secret", "sha256")
    with raises_errno(errno.EXDEV):
        filesystem.look(b"../outside/secret")


def test_a_vanished_path_is_absent_and_no_problem(make: Make, tmp_path: Path) -> None:
    filesystem = make(os.fsencode(tmp_path))
    assert listed(filesystem, b"gone") == ([], [])
    assert filesystem.look(b"gone") is None
    assert filesystem.look(b"gone/deeper") is None
    with pytest.raises(FileNotFoundError):
        filesystem.digest(b"gone", "sha256")


def test_a_file_where_a_directory_was_is_doubt_and_not_absence(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    filesystem = make(os.fsencode(tmp_path))
    entries, (problem,) = listed(filesystem, b"file")
    assert (entries, problem.path, problem.errno) == ([], b"file", errno.ENOTDIR)
    with pytest.raises(NotADirectoryError):
        filesystem.look(b"file/x")


@pytest.mark.parametrize("held", [True, False], ids=["removed meanwhile", "never there"])
def test_a_root_that_is_not_there_proves_nothing(make: Make, tmp_path: Path, held: bool) -> None:
    root = tmp_path / "root"
    filesystem = make(os.fsencode(root))
    if held:
        (root / "a").mkdir(parents=True)
        assert filesystem.look(b"a") is not None
        (root / "a").rmdir()
        root.rmdir()
    for path in (b"", b"a"):
        entries, problems = listed(filesystem, path)
        assert entries == []
        assert problems
    with raises_errno(errno.ENOENT):
        filesystem.look(b"a")
    with pytest.raises(FileNotFoundError):
        filesystem.identity()


@pytest.mark.needs_root
def test_a_mount_beneath_is_reported_and_not_entered(make_xfs: MakeXfs, make: Make) -> None:
    outer, inner = make_xfs(), make_xfs()
    (inner.path / "strange").touch()
    (outer.path / "own").mkdir()
    for name in ("other", "same"):
        (outer.path / name).mkdir()
    with ExitStack() as stack:
        for what, name in ((inner.path, "other"), (outer.path / "own", "same")):
            stack.enter_context(bound(what, outer.path / name))
        filesystem = make(outer.root)
        entries, problems = walked(filesystem)
        assert set(entries) == {b"own"}
        assert {(problem.path, problem.errno) for problem in problems} == {
            (b"other", errno.EXDEV),
            (b"same", errno.EXDEV),
        }
        assert listed(filesystem, b"other")[0] == []


@pytest.mark.needs_root
def test_a_path_that_a_mount_hides_is_not_missing(make_xfs: MakeXfs, make: Make) -> None:
    outer, inner = make_xfs(), make_xfs()
    hidden = outer.path / "above/other/deep"
    hidden.mkdir(parents=True)
    (hidden / "file").write_text("hidden")
    (inner.path / "strange").write_text("not of this file system")
    filesystem = make(outer.root)
    assert filesystem.look(b"above/other/deep/file") is not None
    # The root was opened before, so it does not know the mount.
    with bound(inner.path, outer.path / "above/other"):
        for path in (b"above/other", b"above/other/deep", b"above/other/deep/file", b"above/other/strange"):
            with raises_errno(errno.EXDEV):
                filesystem.look(path)
        with raises_errno(errno.EXDEV):
            filesystem.digest(b"above/other/strange", "sha256")
    assert filesystem.look(b"above/other/deep/file") is not None


@pytest.mark.needs_root
def test_a_directory_of_the_same_file_system_hides_paths_too(make_xfs: MakeXfs, make: Make) -> None:
    mount = make_xfs()
    for name in ("own", "same/deep"):
        (mount.path / name).mkdir(parents=True)
    filesystem = make(mount.root)
    assert filesystem.look(b"same/deep") is not None
    with bound(mount.path / "own", mount.path / "same"), raises_errno(errno.EXDEV):
        filesystem.look(b"same/deep")


@pytest.mark.needs_root
def test_attributes_of_people_are_kept_and_those_of_file_systems_left_out(make_xfs: MakeXfs, make: Make) -> None:
    mount = make_xfs()
    file = mount.path / "file"
    file.touch()
    kept = {b"user.a": b"1", b"user.big": b"x" * 60_000, b"trusted.foreign": b"\x00\xff", b"security.mine": b"s"}
    inner = {b"trusted.gfid": b"g" * 16, b"trusted.glusterfs.dht": b"d", b"trusted.afr.dirty": b"0"}
    for name, value in {**kept, **inner}.items():
        os.setxattr(file, name, value)
    run_tool("setfacl", "-m", "u:12345:r", str(file))
    (entry,), problems = listed(make(mount.root))
    assert problems == []
    assert dict(entry.xattrs).keys() == {*kept, ACL_ACCESS}
    assert {name: entry.xattrs[name] for name in kept} == kept


def test_reading_for_a_digest_leaves_the_access_time_alone(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    os.utime(file, ns=(1, 2))
    make(os.fsencode(tmp_path)).digest(b"file", "sha256")
    assert file.stat().st_atime_ns == 1


def test_only_regular_files_have_a_digest_and_nothing_blocks(make: Make, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    with socket.socket(socket.AF_UNIX) as listener:
        cwd = os.open(tmp_path, os.O_PATH)
        listener.bind(f"/proc/self/fd/{cwd}/socket")
        os.close(cwd)
    filesystem = make(os.fsencode(tmp_path))
    for name, code in {b"fifo": errno.EINVAL, b"directory": errno.EINVAL, b"link": errno.ELOOP}.items():
        with raises_errno(code):
            filesystem.digest(name, "sha256")
    with raises_errno(errno.ENXIO):
        filesystem.digest(b"socket", "sha256")


def test_a_file_that_grows_without_end_does_not_hold_the_reader(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"line" * 10)
    plain, reads = os.preadv, 0

    def read_while_it_grows(fd: int, buffers: Sequence[memoryview], offset: int) -> int:
        nonlocal reads
        reads += 1
        assert reads < 10, "it reads on and on"
        with open(file, "ab") as log:
            log.write(b"line" * 10)
        return plain(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", read_while_it_grows)
    assert make(os.fsencode(tmp_path)).digest(b"log", "sha256").changed


def test_identity_tells_what_is_mounted_and_the_sentinel(make: Make, tmp_path: Path) -> None:
    sentinel = tmp_path / os.fsdecode(SENTINEL_NAME)
    filesystem = make(os.fsencode(tmp_path))
    identity = filesystem.identity()
    assert (identity.sentinel, identity.root_ino) == (None, tmp_path.stat().st_ino)
    assert identity.filesystem
    sentinel.write_bytes(b"5e1f\n")
    assert filesystem.identity().sentinel == "5e1f"
    sentinel.write_bytes(b"\xff" * 100_000)
    assert len(filesystem.identity().sentinel or "") <= 4 * 4096
    sentinel.unlink()
    sentinel.symlink_to("/etc/hostname")
    assert filesystem.identity().sentinel is None
    sentinel.unlink()
    os.mkfifo(sentinel)
    assert filesystem.identity().sentinel is None


@pytest.mark.needs_root
def test_identity_sees_a_mount_that_appears_over_the_root(make_xfs: MakeXfs, scratch: Path, make: Make) -> None:
    root, mount = scratch / "root", make_xfs()
    root.mkdir()
    (root / "below").touch()
    filesystem = make(os.fsencode(root))
    before = filesystem.identity()
    assert filesystem.look(b"below") is not None
    with bound(mount.path, root):
        after = filesystem.identity()
        assert (after.filesystem, after.device) == ("xfs", mount.path.stat().st_dev)
        assert after.device != before.device
        assert after.mounted_from == mount.device
        assert filesystem.look(b"below") is not None, "the root that is held stays the one that was opened"


def test_memory_does_not_grow_with_the_size_of_a_directory(make: Make, tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_PATH)
    for number in range(30_000):
        os.mknod(b"file-with-a-rather-long-name-%d" % number, 0o600, dir_fd=directory)
    os.close(directory)
    filesystem = make(os.fsencode(tmp_path))
    assert sum(len(block.entries) for block in filesystem.read_directory(b"", block_entries=500)) == 30_000
    tracemalloc.start()
    try:
        for _ in filesystem.read_directory(b"", block_entries=500):
            pass
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 * MIB


TEXT = rb"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:45 / /mnt/gl rw,relatime shared:9 master:2 - fuse.glusterfs 10.0.0.1:/vol1 rw,user_id=0
41 22 0:46 / /mnt/gl\040two\134\012 rw - nfs4 server:/a\040b rw
42 40 7:0 / /mnt/gl/home/big rw - xfs /dev/loop0 rw
43 40 7:1 / /mnt/gl rw shared:1 - xfs /dev/loop1 rw
broken line
"""


def test_lines_are_read_with_optional_fields_and_escapes() -> None:
    mounts = parse_mountinfo(TEXT)
    assert [mount.point for mount in mounts] == [b"/", b"/mnt/gl", b"/mnt/gl two\\\n", b"/mnt/gl/home/big", b"/mnt/gl"]
    assert mounts[1].filesystem == "fuse.glusterfs"
    assert mounts[2].source == b"server:/a b"


def test_the_deepest_mount_counts_and_of_two_at_one_place_the_later() -> None:
    mounts = parse_mountinfo(TEXT)
    for path, source in [
        (b"/", b"/dev/vda"),
        (b"/mnt/glx", b"/dev/vda"),
        (b"/mnt/gl", b"/dev/loop1"),
        (b"/mnt/gl/home", b"/dev/loop1"),
        (b"/mnt/gl/home/big/x", b"/dev/loop0"),
    ]:
        mount = mount_of(mounts, path)
        assert mount is not None
        assert mount.source == source
    assert mount_of((), b"/") is None


def test_mounts_beneath_are_relative_and_without_the_place_itself() -> None:
    mounts = parse_mountinfo(TEXT)
    assert mounts_beneath(mounts, b"/mnt/gl") == {b"home/big"}
    assert b"mnt/gl" in mounts_beneath(mounts, b"/")


def test_one_call_syncs_local_disks_and_clients_that_forward_it() -> None:
    for filesystem in ("xfs", "nfs4", "beegfs", "fuse.glusterfs", "something new", ""):
        assert syncfs_reaches_disks(filesystem) is (filesystem in ("xfs", "nfs4"))


@given(st.binary(max_size=300))
def test_no_content_makes_it_fail(text: bytes) -> None:
    parse_mountinfo(text)
