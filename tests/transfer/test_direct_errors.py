"""What the engine of our own says of bad input and failing file systems, and what is left on the target then."""

import errno
import os
from pathlib import Path

import pytest

from migrator.core.states import ChunkKind
from migrator.transfer.model import FileProblemKind, StopReason, Verdict
from migrator.transfer.rules import copy_name, part_name
from tests.support.native_builds import SANITIZED, built
from tests.support.snapshots import names_of, snapshot
from tests.support.streams import Streams, make_trees
from tests.support.xfs import XfsMount
from tests.transfer.native_copy import direct_engine, listed, run_copy

pytestmark = pytest.mark.needs_root

TREE = b"home/odd"


@pytest.fixture
def sides(scratch: Path) -> tuple[Path, Path, Streams]:
    source, target = make_trees(scratch / "s", scratch / "t", tree=TREE)
    return source, target, Streams(direct_engine(), scratch / "s", scratch / "t")


@pytest.mark.parametrize(
    "names",
    [b":", b"file\0", b":/etc/passwd\0", b":../file\0", b":a/../b\0", b":a//b\0", b":.\0", b":a/\0", b":\0", b"\0",
     b"q1:file\0", b"s:file\0", b"s-1:file\0", b"s1,:file\0", b"o99999999999999999999,n1:file\0", b":no end",
     b":" + b"n" * 256 + b"\0", b"r1:file\0", b"m:file\0"],
)  # fmt: skip
@pytest.mark.parametrize("flags", [(), SANITIZED])
def test_a_malformed_list_is_refused_as_a_whole(scratch: Path, names: bytes, flags: tuple[str, ...]) -> None:
    (scratch / "s").mkdir()
    (scratch / "t").mkdir()
    (scratch / "s" / "good").write_text("good")
    done = run_copy(scratch / "s", scratch / "t", listed(b"good") + names, flags=flags)
    assert done.returncode == 65
    assert b"malformed" in done.stderr
    assert not list((scratch / "t").iterdir())


def test_odd_names_under_the_sanitizers(odd_tree: tuple[Path, object], xfs_target: XfsMount) -> None:
    tree, _ = odd_tree
    directories, others = names_of(os.fsencode(tree))
    target = xfs_target.path / "t"
    target.mkdir()
    for kind, names in (("directories", directories), ("files", others), ("directory-times", directories)):
        for _ in range(2):
            done = run_copy(tree, target, listed(*names), kind=kind, flags=SANITIZED)
            assert (done.returncode, done.stderr) == (0, b"")
            assert b"F " not in done.stdout
    assert {name: facts[:8] for name, facts in snapshot(os.fsencode(target)).items()} == {
        name: facts[:8] for name, facts in snapshot(os.fsencode(tree)).items()
    }


def test_a_full_target_stops_everything_and_leaves_nothing_half(scratch: Path, tiny_xfs: XfsMount) -> None:
    source, target = make_trees(scratch / "s", tiny_xfs.path, tree=TREE)
    (source / "a").write_text("fits")
    (source / "b").write_bytes(os.urandom(60 << 20))
    (source / "c").write_text("fits")
    ran = Streams(direct_engine(), scratch / "s", tiny_xfs.path).run(
        [TREE + b"/" + name for name in (b"a", b"b", b"c")], tree=TREE
    )
    assert (ran.outcome.verdict, ran.outcome.stop) == (Verdict.STOP, StopReason.TARGET_FULL)
    assert "home/odd/b: write failed on the target" in ran.outcome.message
    assert not ran.outcome.suspects
    assert {path.name for path in target.iterdir()} == {"a"}


def test_what_is_in_the_way(sides: tuple[Path, Path, Streams]) -> None:
    source, target, streams = sides
    for name in ("over-empty", "over-full", "over-link"):
        (source / name).write_text("file")
    (source / "link").symlink_to("x")
    (target / "over-empty").mkdir()
    (target / "over-full").mkdir()
    (target / "over-full" / "kept").write_text("kept")
    (target / "over-link").symlink_to("/etc/passwd")
    (target / "link").write_text("a file")
    (source / "directory").mkdir()
    (target / "directory").write_text("a file")
    ran = streams.run([TREE + b"/" + path.name.encode() for path in source.iterdir()], tree=TREE)
    assert ran.outcome.verdict is Verdict.DONE
    (bad,) = ran.outcome.suspects
    assert (bad.path, bad.kind, bad.errno) == (TREE + b"/over-full", FileProblemKind.BAD, errno.ENOTEMPTY)
    assert (target / "over-full" / "kept").read_text() == "kept"
    assert (target / "over-empty").read_text() == (target / "over-link").read_text() == "file"
    assert not (target / "over-link").is_symlink()
    assert (target / "link").is_symlink()
    assert (target / "directory").is_dir()
    assert Path("/etc/passwd").read_text() != "file"


def test_leftovers_are_replaced_and_never_written_to(sides: tuple[Path, Path, Streams]) -> None:
    source, target, streams = sides
    names = [b"file", b"n" * 255, b"\xff\n", b"gone"]
    for name in names[:-1]:
        Path(os.fsdecode(os.path.join(os.fsencode(source), name))).write_text("new")
    precious = target / "precious"
    precious.write_text("precious")
    for name in names:
        (target / os.fsdecode(copy_name(name))).hardlink_to(precious)
    (target / os.fsdecode(part_name(b"gone"))).write_text("part")
    streams.recopy = True
    ran = streams.run([TREE + b"/" + name for name in names], tree=TREE)
    assert [suspect.kind for suspect in ran.outcome.suspects] == [FileProblemKind.VANISHED]
    assert precious.read_text() == "precious"
    assert sorted(os.listdir(os.fsencode(target))) == sorted([*names[:-1], b"precious"])


def test_without_root_it_does_what_it_may(scratch: Path) -> None:
    source, target = make_trees(scratch / "s", scratch / "t", tree=TREE)
    (source / "file").write_text("content")
    (source / "closed").mkdir()
    (source / "closed" / "inner").write_text("inner")
    (source / "closed").chmod(0o555)
    os.chown(target, 1234, 1234)
    built()
    streams = Streams(direct_engine(privileged=False), scratch / "s", scratch / "t", as_uid=1234)
    for kind, names in (
        (ChunkKind.DIRECTORIES, [b"closed"]),
        (ChunkKind.FILES, [b"file", b"closed/inner"]),
        (ChunkKind.DIRECTORY_TIMES, [b"closed"]),
    ):
        ran = streams.run([TREE + b"/" + name for name in names], tree=TREE, kind=kind)
        assert (ran.outcome.verdict, ran.outcome.suspects) == (Verdict.DONE, ())
    assert (target / "closed" / "inner").read_text() == "inner"
    assert (target / "closed").stat().st_mode & 0o7777 == 0o555
    assert (target / "file").stat().st_uid == 1234


@pytest.mark.parametrize("gone", ["s", "t"])
def test_a_tree_that_is_gone(scratch: Path, gone: str) -> None:
    roots = [scratch / side for side in ("s", "t")]
    make_trees(*roots, tree=TREE)
    (scratch / gone / os.fsdecode(TREE)).rmdir()
    ran = Streams(direct_engine(), roots[0], roots[1]).run([TREE + b"/file"], tree=TREE)
    if gone == "s":
        assert ran.outcome.verdict is Verdict.DONE
        assert [suspect.kind for suspect in ran.outcome.suspects] == [FileProblemKind.VANISHED]
    else:
        assert (ran.outcome.verdict, ran.outcome.stop) == (Verdict.STOP, StopReason.MOUNT_CHANGED)
