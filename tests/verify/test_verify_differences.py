"""Each kind of difference in a faithful copy is found alone, at its path; odd trees verify; the command line."""

import errno
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, EntryType
from migrator.core.errors import ExitCode
from migrator.core.paths import show
from migrator.core.states import BatchState
from migrator.core.units import MIB, NS_PER_S
from migrator.fs.model import DifferenceKind, SurpriseKind, TargetCapabilities
from migrator.fs.ports import Digest
from migrator.fs.reading import ReadingFileSystem, problem_of
from migrator.fs.writing import MountedTarget
from migrator.gluster import walks
from migrator.gluster.walks import WalkProblems
from migrator.lab.model import OddFiles
from migrator.lab.odd import odd_files
from migrator.transfer.engines.rsync import capability_options
from migrator.verify.model import CTIME_MARGIN_NS
from tests.conftest import MakeXfs
from tests.support.beegfs_like import BEEGFS_CAPABILITIES, STRICT_CAPABILITIES, beegfs_like, missing_for_fuse
from tests.support.cli_site import Site
from tests.support.entries import acl
from tests.support.verify_world import OTHER_TREE, TREE, World, verify_world, walk_tree
from tests.transfer.native_copy import copy_entries

pytestmark = pytest.mark.needs_root

NAMED_ACL = acl(6, 6, 4, 6, 4)


@pytest.fixture
def world(scratch: Path) -> Iterator[World]:
    """A tree with some of everything, not copied yet."""
    with verify_world(scratch) as made:
        tree = made.tree
        (tree / "sub" / "deeper").mkdir(parents=True)
        (made.source_path / os.fsdecode(OTHER_TREE)).mkdir()
        (tree / "file").write_bytes(b"content")
        (tree / "sub" / "big").write_bytes(os.urandom(3 * MIB))
        (tree / "sub" / "deeper" / "new\nline \udcff").write_bytes(b"x")
        (tree / "first").write_bytes(b"linked")
        (tree / "sub" / "second").hardlink_to(tree / "first")
        (tree / "alone").write_bytes(b"linked")
        (tree / "link").symlink_to("file")
        os.mkfifo(tree / "fifo")
        os.mknod(tree / "device", 0o20600, os.makedev(1, 3))
        with (tree / "sparse").open("wb") as file:
            file.truncate(64 * MIB)
        os.setxattr(tree / "file", b"user.kept", b"value")
        yield made


def keep_times(path: Path, change: Callable[[Path], object]) -> None:
    """Change something and put back the times of the path and of its directory."""
    before = {name: name.lstat() for name in (path, path.parent)}
    change(path)
    for name, facts in before.items():
        if os.path.lexists(name):
            os.utime(name, ns=(facts.st_atime_ns, facts.st_mtime_ns), follow_symlinks=False)


def make_socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def make_dense(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(bytes(8 * MIB))


def replace_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("elsewhere")


def remake_device(path: Path) -> None:
    path.unlink()
    os.mknod(path, 0o20600, os.makedev(1, 5))


def as_file_of_its_own(path: Path) -> None:
    content = path.read_bytes()
    facts = path.stat()
    path.unlink()
    path.write_bytes(content)
    path.chmod(facts.st_mode & 0o7777)


def as_link_to_other(path: Path) -> None:
    path.unlink()
    path.hardlink_to(path.parent / "first")


INJECTIONS: dict[str, tuple[str, Callable[[Path], object], DifferenceKind]] = {
    "missing": ("file", Path.unlink, DifferenceKind.MISSING),
    "missing-deep": ("sub/deeper/new\nline \udcff", Path.unlink, DifferenceKind.MISSING),
    "extra": ("extra", Path.touch, DifferenceKind.EXTRA),
    "leftover": (".file.AbC123", Path.touch, DifferenceKind.EXTRA),
    "type": ("fifo", make_socket, DifferenceKind.TYPE),
    "size": ("file", lambda path: path.write_bytes(b"contents"), DifferenceKind.SIZE),
    "content": ("file", lambda path: path.write_bytes(b"Content"), DifferenceKind.CONTENT),
    "content-big": ("sub/big", lambda path: path.write_bytes(bytes(3 * MIB)), DifferenceKind.CONTENT),
    "mtime": ("sub/big", lambda path: os.utime(path, ns=(0, 1)), DifferenceKind.MTIME),
    "directory-mtime": ("sub/deeper", lambda path: os.utime(path, ns=(0, 1)), DifferenceKind.MTIME),
    "owner": ("link", lambda path: os.chown(path, 7, 0, follow_symlinks=False), DifferenceKind.OWNER),
    "mode": ("file", lambda path: path.chmod(0o4755), DifferenceKind.MODE),
    "symlink-target": ("link", replace_link, DifferenceKind.SYMLINK_TARGET),
    "device": ("device", remake_device, DifferenceKind.DEVICE),
    "acl-access": ("alone", lambda path: os.setxattr(path, ACL_ACCESS, NAMED_ACL), DifferenceKind.ACL),
    "acl-default": ("sub", lambda path: os.setxattr(path, ACL_DEFAULT, NAMED_ACL), DifferenceKind.ACL),
    "xattr-gone": ("file", lambda path: os.removexattr(path, b"user.kept"), DifferenceKind.XATTR),
    "xattr-other": ("file", lambda path: os.setxattr(path, b"user.kept", b"Value"), DifferenceKind.XATTR),
    "xattr-extra": ("sub", lambda path: os.setxattr(path, b"user.new", b""), DifferenceKind.XATTR),
    "trusted-leaked": ("sub", lambda path: os.setxattr(path, b"trusted.leak", b"x"), DifferenceKind.XATTR),
    "links-split": ("sub/second", as_file_of_its_own, DifferenceKind.HARD_LINKS),
    "sparseness": ("sparse", make_dense, DifferenceKind.SPARSENESS),
    "open-root": ("", lambda path: path.chmod(0o755), DifferenceKind.MODE),
    "foreign-root": ("", lambda path: os.chown(path, 7, 7), DifferenceKind.OWNER),
    "root-with-acl": ("", lambda path: os.setxattr(path, ACL_DEFAULT, NAMED_ACL), DifferenceKind.ACL),
}


@pytest.mark.parametrize("name", INJECTIONS)
def test_exactly_the_injected_difference_is_found(world: World, name: str) -> None:
    relative, change, kind = INJECTIONS[name]
    world.copy_trees()
    path = world.copy / relative if relative else world.copy
    if kind is DifferenceKind.MTIME:
        change(path)
    elif os.path.lexists(path):
        keep_times(path, change)
    else:
        keep_times(path.parent, lambda _: change(path))
    record = world.verify()
    examples = world.manifests.examples(record.manifest or "")
    expected = TREE + (b"/" + os.fsencode(relative) if relative else b"")
    assert [(difference.path, difference.kind) for difference in examples.differences] == [(expected, kind)]
    assert dict(record.differences) == {kind.value: 1}
    assert record.whole, record.reasons
    assert record.exit_code is ExitCode.ATTENTION
    assert world.batch_state() is BatchState.SEEDED
    assert expected not in [row["path"] for row in world.manifest_rows(record)]


def test_a_faithful_copy_has_none_and_lists_every_path(world: World) -> None:
    world.copy_trees()
    record = world.verify()
    assert (dict(record.differences), dict(record.expected), record.reasons) == ({}, {}, ())
    rows = {row["path"]: row for row in world.manifest_rows(record)}
    found = {TREE} | {TREE + b"/" + os.fsencode(path.relative_to(world.tree)) for path in world.tree.rglob("*")}
    assert set(rows) == found
    assert rows[TREE]["mode"] == 0o755
    assert rows[TREE + b"/link"]["symlink_target"] == b"file"
    assert rows[TREE + b"/first"]["link_group"] == rows[TREE + b"/sub/second"]["link_group"]
    assert list(rows) == sorted(rows)
    assert record.manifest_digest == world.manifests.digest(record.manifest or "")
    assert world.batch_state() is BatchState.VERIFIED


def test_names_of_two_files_that_became_one_are_reported(world: World) -> None:
    os.utime(world.tree / "alone", ns=(5, 5))
    os.utime(world.tree / "first", ns=(5, 5))
    world.copy_trees()
    keep_times(world.copy / "alone", as_link_to_other)
    record = world.verify()
    assert dict(record.differences) == {DifferenceKind.HARD_LINKS: 2}


def test_a_name_outside_the_batch_is_reported(world: World) -> None:
    world.copy_trees()
    (world.target_path / "outside").hardlink_to(world.copy / "alone")
    record = world.verify()
    examples = world.manifests.examples(record.manifest or "")
    assert [difference.kind for difference in examples.differences] == [DifferenceKind.HARD_LINKS]
    assert examples.differences[0].target == "2 names, 1 of them in this batch"


def test_groups_over_two_trees_of_a_batch_have_to_be_whole_and_over_batches_are_expected_broken(world: World) -> None:
    (world.source_path / os.fsdecode(OTHER_TREE) / "third").hardlink_to(world.tree / "first")
    world.set_trees((TREE, OTHER_TREE))
    world.copy_trees(TREE, OTHER_TREE)
    together = world.verify()
    assert (dict(together.differences), dict(together.expected)) == ({}, {})
    shutil.rmtree(world.target_path / "home")
    world.set_trees((TREE,), (OTHER_TREE,))
    world.copy_trees(TREE)
    world.copy_trees(OTHER_TREE)
    for batch in (1, 2):
        record = world.verify(batch)
        assert (dict(record.differences), dict(record.expected)) == ({}, {SurpriseKind.HARD_LINKS_BROKEN: 1})
        assert record.whole


def test_without_hard_links_on_the_target_copies_are_expected(world: World) -> None:
    world.ledger.site.record_capabilities(replace(TargetCapabilities(), keeps_hard_links=False), 1.0)
    world.copy_trees()
    keep_times(world.copy / "sub" / "second", as_file_of_its_own)
    record = world.verify()
    assert (dict(record.differences), dict(record.expected)) == ({}, {SurpriseKind.LOSS_HARD_LINK: 1})


def test_a_directory_in_a_files_place_and_the_other_way_round(world: World) -> None:
    world.copy_trees()
    keep_times(world.copy / "file", Path.unlink)
    keep_times(world.copy, lambda path: (path / "file").mkdir())
    (world.copy / "file" / "inside").touch()
    keep_times(world.copy / "sub", shutil.rmtree)
    keep_times(world.copy, lambda path: (path / "sub").touch())
    record = world.verify()
    assert dict(record.differences) == {DifferenceKind.TYPE: 2, DifferenceKind.EXTRA: 1, DifferenceKind.MISSING: 4}


def test_a_file_that_changes_while_it_is_read_is_told_from_one_that_differs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.copy_trees()
    plain = world.source.digest
    victim = TREE + b"/file"

    def digest(path: bytes, algorithm: str) -> Digest:
        if path == victim:
            (world.tree / "file").write_bytes(b"CONTENT")
        return plain(path, algorithm)

    monkeypatch.setattr(world.source, "digest", digest)
    record = world.verify()
    assert dict(record.differences) == {DifferenceKind.CHANGED: 1}
    assert record.whole


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_directory_that_cannot_be_read_hides_nothing_else(
    world: World, side: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.copy_trees()
    file_system = world.source if side == "source" else world.target
    opened, walked = file_system._open_directory, walks.walk_mount
    no_access = PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def open_directory(path: bytes) -> int:
        if path == TREE + b"/sub":
            raise no_access
        return opened(path)

    async def walk_mount(processes: Any, program: bytes, root: bytes, **given: Any) -> Any:
        if root == file_system.held_path():
            found = WalkProblems(unreadable=(problem_of(TREE + b"/sub", "open", no_access),))
            await given["listener"].problems(found)
        return await walked(processes, program, root, **given)

    monkeypatch.setattr(file_system, "_open_directory", open_directory)
    monkeypatch.setattr("migrator.verify.listings.walk_mount", walk_mount)
    record = world.verify()
    assert dict(record.differences) == {DifferenceKind.UNREADABLE: 1}
    assert not record.whole


def copied_many(world: World) -> Path:
    """A directory of 200 files, which is copied."""
    many = world.tree / "many"
    many.mkdir()
    for number in range(200):
        (many / f"file-{number}").write_bytes(b"%d" % number)
    world.copy_trees()
    return many


def test_differences_in_a_directory_of_many_files_are_found(world: World) -> None:
    many = copied_many(world)
    (world.copy / "many" / "file-77").write_bytes(b"xx")
    (world.copy / "many" / "file-78").unlink()
    (world.copy / "many" / "more").touch()
    os.utime(world.copy / "many", ns=(1, many.stat().st_mtime_ns))
    record = world.verify(workers=3)
    examples = world.manifests.examples(record.manifest or "")
    found = {(one.path.rpartition(b"/")[2], one.kind.value) for one in examples.differences}
    assert found == {(b"file-77", "content"), (b"file-77", "mtime"), (b"file-78", "missing"), (b"more", "extra")}
    assert len(world.manifest_rows(record)) == record.paths - 2


def test_only_the_sampled_share_is_read_and_the_manifest_says_which(world: World) -> None:
    copied_many(world)
    read = world.watch_reads()
    record = world.verify(share=0.3)
    digested = sorted(row["path"] for row in world.manifest_rows(record) if row["digest"] is not None)
    assert record.digested_files == len(digested)
    assert {TREE + b"/" + path for path in read} <= set(digested)
    assert 20 < record.digested_files < 110
    again = world.verify(share=0.3)
    assert sorted(row["path"] for row in world.manifest_rows(again) if row["digest"] is not None) == digested


def verified(site: Site, *arguments: str) -> list[dict[str, Any]]:
    done = site.call("verify", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_trees_of_a_user_are_verified_and_what_was_read_is_not_read_again(planned: Site) -> None:
    planned.works("run", "--user-batch", "1", "--deltas", "0")
    user = json.loads(planned.call("status", "--json").stdout)["batches"][0]["users"][0]
    time.sleep(CTIME_MARGIN_NS / NS_PER_S + 0.5)
    (whole,) = verified(planned, "--user-batch", "1")
    (again,) = verified(planned, "--user", user, "--carry")
    assert again["digested_files"] == 0
    assert again["carried_files"] == whole["digested_files"] > 0
    assert (again["proven_bytes"], again["percent_content"]) == (whole["digested_bytes"], 100.0)
    # The only tree of its batch is all of it.
    assert (again["batch"], again["trees"]) == (1, [])
    text = planned.call("verify", "--user", user, "--carry").stdout
    assert "content read before, and nothing changed since" in text
    assert json.loads(planned.call("status", "--json").stdout)["batches"][0]["state"] == "verified"


def test_mistakes_are_told(planned: Site) -> None:
    planned.fails(2, "verify", "--user", "nobody-at-all", says=("no tree of nobody-at-all", "migrator status"))
    planned.fails(2, "verify", "--carry", says=())


def make_odd(world: World) -> OddFiles:
    neighbour = world.source_path / os.fsdecode(OTHER_TREE)
    world.tree.mkdir(parents=True)
    neighbour.mkdir()
    return odd_files(os.fsencode(world.tree), neighbour=os.fsencode(neighbour), source_mount=world.source_root)


@pytest.mark.guarantee("target-losses")
@pytest.mark.parametrize(
    "capabilities", [STRICT_CAPABILITIES, BEEGFS_CAPABILITIES], ids=["strict", "with default ACLs"]
)
def test_copied_by_rsync_to_a_file_system_like_beegfs(
    make_xfs: MakeXfs, scratch: Path, capabilities: TargetCapabilities
) -> None:
    if reason := missing_for_fuse():
        pytest.skip(f"needs FUSE: {reason}")
    source = make_xfs()
    strict = not capabilities.keeps_default_acls
    with beegfs_like(scratch, strict=strict) as target, verify_world(scratch, source.path, target) as world:
        site = world.ledger.site.read()
        assert site is not None
        assert site.capabilities == capabilities
        made = make_odd(world)
        assert not made.skipped
        shared = world.tree / "shared"
        shared.mkdir()
        os.setxattr(shared, ACL_DEFAULT, acl(7, 7, 7, 7, 0))
        (shared / "link").symlink_to("nowhere")
        os.mkfifo(shared / "fifo", 0o604)
        for path in (shared / "link", shared / "fifo", shared):
            os.utime(path, (1_500_000_000, 1_500_000_000), follow_symlinks=False)
        long = b"user.".ljust(246, b"n")
        for name, value in ((b"user.big", b"b" * 4001), (long, b"1")):
            os.setxattr(world.tree / "odd", name, value)
        copy_by_rsync(world, capabilities)
        record = world.verify()
        examples = world.manifests.examples(record.manifest or "")
        assert [(show(difference.path)[:200], difference.kind) for difference in examples.differences] == []
        assert record.whole, record.reasons
        assert record.exit_code is ExitCode.DONE
        assert world.batch_state() is BatchState.VERIFIED
        assert set(record.expected) == {
            SurpriseKind.LOSS_TIME,
            SurpriseKind.LOSS_DEVICE,
            SurpriseKind.LOSS_XATTR_NAMESPACE,
            SurpriseKind.LOSS_XATTR_SIZE,
            SurpriseKind.HARD_LINKS_BROKEN,
        } | ({SurpriseKind.LOSS_ACL} if strict else set())
        assert record.expected[SurpriseKind.LOSS_DEVICE] == 2
        too_big = [loss for loss in examples.losses if loss.kind is SurpriseKind.LOSS_XATTR_SIZE]
        assert {loss.detail for loss in too_big} == {"user.big of 4001 bytes", f"{long.decode()} of 1 bytes"}
        assert len(world.manifest_rows(record)) == record.paths


def copy_by_rsync(world: World, capabilities: TargetCapabilities) -> None:
    """What a run does for such a target: what rsync could not copy goes by the compiled program, and times come last."""
    world.target.make_parents(TREE, ())
    options = ["-a", "--numeric-ids", "--modify-window=1", "--filter=-x user.big"]
    options += capability_options(capabilities)
    subprocess.run(["rsync", *options, f"{world.tree}/.", f"{world.copy}/."], check=False, capture_output=True)
    target = MountedTarget(world.target_root, capabilities)
    source = ReadingFileSystem(world.source_root)
    entries = [
        entry
        for entry in walk_tree(source, TREE)
        if entry.type is EntryType.DIRECTORY or target.look(entry.path) is None
    ]
    copy_entries(world.source_path, world.target_path, entries, capabilities)
    target.make_parents(TREE, ())
    source.close()
    target.close()
