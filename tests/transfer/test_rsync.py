"""Whole trees through the real rsync, confined, as a pass does it; odd files through the built-in engine too."""

import os
from pathlib import Path

import pytest

from migrator.core.states import ChunkKind
from migrator.fs.model import TargetCapabilities
from migrator.lab.model import OddFiles, OddKind
from migrator.site.model import DIRECT
from migrator.transfer.model import AttemptVerdict
from tests.conftest import MakeXfs
from tests.support.entries import acl
from tests.support.snapshots import snapshot
from tests.support.streams import Streams, copy_tree, engine_of, make_trees, rsync_programs
from tests.support.xfs import XfsMount
from tests.transfer.native_copy import engine_named

pytestmark = pytest.mark.needs_root

TREE = b"home/odd"


@pytest.fixture(params=rsync_programs())
def program(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.mark.guarantee("names")
@pytest.mark.parametrize("program", [*rsync_programs(), DIRECT])
def test_every_odd_file_arrives(
    odd_tree: tuple[Path, OddFiles], xfs_target: XfsMount, xfs_source: XfsMount, program: str
) -> None:
    tree, made = odd_tree
    (target,) = make_trees(xfs_target.path, tree=TREE)
    streams = Streams(engine_named(program), xfs_source.path, xfs_target.path)
    before = snapshot(os.fsencode(tree))
    copy_tree(streams, tree, tree=TREE)
    after = snapshot(os.fsencode(tree))
    assert before == after, "the source was changed"
    arrived = snapshot(os.fsencode(target))
    expected = {name: facts for name, facts in before.items() if len(name) <= streams.engine.longest_name_bytes}
    assert arrived.keys() == expected.keys()
    assert program != DIRECT or expected == before, "whatever the length of a path"
    assert {name: facts for name, facts in expected.items() if arrived[name] != facts} == {}
    assert OddKind.SPARSE not in made.skipped
    for name in made.paths[OddKind.SPARSE]:
        there, here = os.stat(os.path.join(os.fsencode(target), name)), os.stat(os.path.join(os.fsencode(tree), name))
        assert there.st_blocks <= here.st_blocks + 64


def test_the_tree_s_own_directory_stays_closed(scratch: Path, program: str) -> None:
    source, target = make_trees(scratch / "s", scratch / "t", tree=TREE)
    source.chmod(0o777)
    os.chown(source, 1234, 1234)
    target.chmod(0o700)
    for name in ("#comment", ";comment", "plain"):
        (source / name).write_text(name)
    (target / "elsewhere").write_text("old")
    streams = Streams(engine_of(program), scratch / "s", scratch / "t")
    for kind in (ChunkKind.DIRECTORIES, ChunkKind.FILES, ChunkKind.DIRECTORY_TIMES):
        ran = streams.run(
            [TREE, *(TREE + b"/" + name for name in (b"#comment", b";comment", b"plain"))], tree=TREE, kind=kind
        )
        assert ran.outcome.verdict is AttemptVerdict.DONE
    assert (target.stat().st_mode & 0o7777, target.stat().st_uid) == (0o700, 0)
    assert {path.name for path in target.iterdir()} == {"#comment", ";comment", "plain", "elsewhere"}, (
        "nothing is deleted"
    )


ATTRIBUTES = {
    "user.plain": b"1",
    "user.with/slash": b"2",
    "user.trusted.x": b"3",
    "user.a/security.selinux": b"4",
    "user.a/trusted.b": b"8",
    "user.a/system.c": b"9",
    "user.rsync.%stat": b"100644 0,0 0:0",
    "user.rsync.%aacl": b"10",
    "security.a/trusted.b": b"11",
    "security.NTACL": b"5",
    "trusted.gfid": b"0123456789abcdef",
    "trusted.user.x": b"6",
    "trusted.a/user.x": b"7",
}


@pytest.mark.parametrize(
    ("capabilities", "kept"),
    [
        (TargetCapabilities(), ("user.", "security.", "system.posix_acl_access")),
        (
            TargetCapabilities(keeps_security_xattrs=False, keeps_default_acls=False),
            ("user.", "system.posix_acl_access"),
        ),
        (TargetCapabilities(keeps_acls=False), ("user.", "security.")),
        (TargetCapabilities(keeps_user_xattrs=False), ("security.", "system.posix_acl_access")),
        (TargetCapabilities(keeps_user_xattrs=False, keeps_security_xattrs=False), ("system.posix_acl_access",)),
        (TargetCapabilities(keeps_user_xattrs=False, keeps_security_xattrs=False, keeps_acls=False), ()),
    ],
)
@pytest.mark.parametrize("kind", [ChunkKind.FILES, ChunkKind.DIRECTORIES])
def test_only_the_attributes_travel_that_the_target_keeps(
    make_xfs: MakeXfs, program: str, capabilities: TargetCapabilities, kept: tuple[str, ...], kind: ChunkKind
) -> None:
    mount = make_xfs()
    source, target = make_trees(mount.path / "s", mount.path / "t", tree=TREE)
    path = source / "it"
    path.mkdir() if kind is ChunkKind.DIRECTORIES else path.write_text("content")
    os.setxattr(path, "system.posix_acl_access", acl(7, 5, 5, 5, 0, uid=12345))
    if kind is ChunkKind.DIRECTORIES and not capabilities.keeps_default_acls:
        os.setxattr(path, "system.posix_acl_default", acl(7, 5, 5, 5, 0, uid=12345))
    for name, value in ATTRIBUTES.items():
        os.setxattr(path, name, value)
    streams = Streams(engine_of(program), mount.path / "s", mount.path / "t", capabilities)
    for _ in range(2):
        ran = streams.run([TREE + b"/it"], tree=TREE, kind=kind)
        assert (ran.outcome.verdict, ran.stderr) == (AttemptVerdict.DONE, b"")
        expected = sorted(name for name in os.listxattr(path) if name.startswith(kept)) if kept else []
        arrived = sorted(os.listxattr(target / "it"))
        # XFS shows its ACLs to root once more, under a name of its own.
        assert [name for name in arrived if not name.startswith("trusted.SGI_")] == expected
        # The target's own are left alone.
        os.setxattr(target / "it", "trusted.own", b"1")
        assert streams.run([TREE + b"/it"], tree=TREE, kind=kind).outcome.verdict is AttemptVerdict.DONE
        assert os.getxattr(target / "it", "trusted.own") == b"1"
        os.removexattr(target / "it", "trusted.own")


@pytest.mark.parametrize("last_bytes", [1, 200, 255])
def test_the_longest_paths_that_are_said_to_fit_do(scratch: Path, program: str, last_bytes: int) -> None:
    source, target = make_trees(scratch / "s", scratch / "t", tree=TREE)
    engine = engine_of(program)
    _make_deep(source, engine.longest_name_bytes, last_bytes)
    copy_tree(Streams(engine, scratch / "s", scratch / "t"), source, tree=TREE)
    assert snapshot(os.fsencode(source)) == snapshot(os.fsencode(target))


def _make_deep(tree: Path, length: int, last_bytes: int) -> bytes:
    left = length - last_bytes - 1
    parts: list[bytes] = []
    while left > 0:
        size = left if left <= 255 else min(250, left - 2)
        parts.append(b"#" + b"d" * (size - 1))
        left -= size + 1
    parts.append(b"l" * last_bytes)
    fd = os.open(tree, os.O_RDONLY)
    for part in parts[:-1]:
        os.mkdir(part, dir_fd=fd)
        deeper = os.open(part, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    os.close(os.open(parts[-1], os.O_CREAT | os.O_WRONLY, 0o640, dir_fd=fd))
    os.symlink(b"to", b"s", dir_fd=fd)
    os.close(fd)
    name = b"/".join(parts)
    assert len(name) == length
    return name
