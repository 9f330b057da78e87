"""Move lists carried out on a real file system: cycles, odd targets, sources in doubt, errors of the target."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.core.entry import EntryType
from migrator.core.errors import Refused
from migrator.fs.model import SourceHealth
from migrator.transfer.model import StopReason
from tests.transfer.delta.move_world import MTIME_NS, TREE, MoveWorld

DIRECTORY = EntryType.DIRECTORY


@pytest.fixture
def world(scratch: Path) -> Iterator[MoveWorld]:
    made = MoveWorld(scratch / "target")
    yield made
    made.close()


@pytest.mark.parametrize("differs", ["type", "size", "time"])
def test_a_path_that_is_not_as_listed_is_sent_and_the_old_one_goes_to_the_trash(world: MoveWorld, differs: str) -> None:
    match differs:
        case "type":
            world.file(b"a/inside")
        case "size":
            world.file(b"a", b"123456789")
        case _:
            world.file(b"a", mtime_ns=MTIME_NS + 1)
    world.renamed((b"a", b"b"))
    moved = world.apply()
    assert moved.to_send == list(world.lists.kept_renames)
    assert world.names() == {}
    assert b"a" in world.trashed()


@pytest.mark.parametrize("stale", ["file", "directory", "symlink above", "file above"])
def test_an_entry_with_the_new_name_goes_to_the_trash(world: MoveWorld, stale: str) -> None:
    world.file(b"a")
    match stale:
        case "file":
            world.file(b"d/b", b"stale")
        case "directory":
            world.file(b"d/b/stale")
        case "symlink above":
            Path(world.at(b"d").decode()).symlink_to("/tmp")
        case _:
            world.file(b"d", b"stale")
    world.renamed((b"a", b"d/b"))
    moved = world.apply()
    assert (moved.renamed, moved.displaced) == (1, 1)
    assert world.names() == {b"d": None, b"d/b": b"a"}
    assert moved.to_send == []


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
def test_a_path_that_is_on_the_source_again_or_cannot_be_looked_up_stays(world: MoveWorld, code: int) -> None:
    """A path in split-brain is one of those: it holds up neither its tree nor the others of the batch."""
    for name in (b"back", b"odd", b"gone"):
        world.file(name)
    world.source.add(TREE + b"/back", b"x")
    world.source.look_errors[TREE + b"/odd"] = code
    world.vanished(b"back", b"gone", b"never", b"odd")
    moved = world.apply()
    assert (moved.trashed, moved.stop) == (1, None)
    assert sorted(moved.left) == [TREE + b"/back", TREE + b"/odd"]
    assert set(world.names()) == {b"back", b"odd"}
    # Nothing is asked of the source for what is not on the target.
    assert world.health_looks == 2


def test_a_path_in_a_renamed_directory_is_looked_at_under_its_name_of_now(world: MoveWorld) -> None:
    for name in (b"d/back", b"d/gone"):
        world.file(name)
    world.source.add(TREE + b"/e/back", b"x")
    world.renamed((b"d", b"e"), type=DIRECTORY)
    world.vanished(b"d/back", b"d/gone")
    moved = world.apply()
    assert (moved.trashed, moved.left) == (1, [TREE + b"/e/back"])
    assert set(world.names()) == {b"e", b"e/back"}


def test_entries_of_a_directory_that_was_made_again_are_looked_up_one_by_one(world: MoveWorld) -> None:
    for name in (b"d/back", b"d/gone", b"d/e/back", b"d/e/gone", b"d/other"):
        world.file(name)
    world.directory(b"d/empty/gone")
    for name in (b"/d", b"/d/e", b"/d/empty", b"/d/other"):
        world.source.add(TREE + name)
    for name in (b"/d/back", b"/d/e/back"):
        world.source.add(TREE + name, b"x")
    world.vanished(b"d")
    moved = world.apply()
    assert sorted(moved.left) == [TREE + b"/d/back", TREE + b"/d/e/back"]
    assert set(world.names()) == {b"d", b"d/back", b"d/e", b"d/e/back", b"d/empty"}
    assert set(world.trashed()) >= {b"d/gone", b"d/e/gone", b"d/empty/gone", b"d/other"}


@pytest.mark.parametrize("when", [0, 1])
@pytest.mark.parametrize(
    "health",
    [
        SourceHealth(problems=("brick 1 is down",), doubts=("brick 1 is down",)),
        SourceHealth(problems=(), doubts=("a task",)),
    ],
)
def test_nothing_is_trashed_while_the_source_is_in_doubt(world: MoveWorld, when: int, health: SourceHealth) -> None:
    world.file(b"v")
    world.file(b"a")
    world.vanished(b"v")
    world.renamed((b"a", b"b"))
    world.health = [SourceHealth(problems=(), doubts=())] * when + [health]
    moved = world.apply()
    assert moved.stop is not None
    assert moved.stop[0] is StopReason.SOURCE_UNHEALTHY
    assert health.doubts[0] in moved.stop[1]
    assert b"v" in world.names()
    assert world.apply().stop is None
    assert world.names() == {b"b": b"a"}


@pytest.mark.parametrize("call", ["move", "trash", "put", "open_place", "make_directory"])
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.EIO, StopReason.IO_ERROR),
        (errno.EROFS, StopReason.TARGET_READ_ONLY),
        (errno.ENOSPC, StopReason.TARGET_FULL),
        (errno.EACCES, StopReason.TARGET_MOVES),
        (errno.ETIMEDOUT, StopReason.TARGET_STUCK),
    ],
)
def test_errors_of_the_target_stop_the_step_and_nothing_is_lost(
    world: MoveWorld, call: str, code: int, reason: StopReason
) -> None:
    for name in (b"a", b"b", b"v"):
        world.file(name)
    world.renamed((b"a", b"b"), (b"b", b"a"))
    world.vanished(b"v")
    contents = world.contents()
    error = OSError(code, "injected")
    staged = b".migrator-trash/20231114T221320Z-batch-0001-delta-0001/.migrator-staged/"
    world.moves.errors = {
        "move": {("move", TREE + b"/b"): error},
        "trash": {("trash", TREE + b"/v"): error},
        "put": {("move", staged + b"000000/1"): error},
        "open_place": {("open_place", staged.split(b"/")[1].decode()): error},
        "make_directory": {("make_directory", staged + b"all-taken-out"): error},
    }[call]  # type: ignore[assignment]
    moved = world.apply()
    assert moved.stop is not None
    assert moved.stop[0] is reason
    assert world.contents() == contents
    world.moves.errors = {}
    assert world.apply().stop is None
    assert world.names() == {b"a": b"b", b"b": b"a"}
    assert world.trashed() == {b"v": b"v"}


@pytest.mark.parametrize("path", [TREE, b"home/bob/x", b"home/alice2", b"", b"/etc"])
def test_a_list_that_names_a_whole_tree_or_another_is_refused(world: MoveWorld, path: bytes) -> None:
    world.file(b"a")
    world.vanished(b"a")
    world.lists.kept_gone = [replace(world.lists.kept_gone[0], path=path)]
    with pytest.raises(Refused, match="does not lie in the user tree"):
        world.apply()
    world.lists.kept_gone = []
    world.renamed((b"a", b"b"))
    listed = world.lists.kept_renames[0]
    for changed in (replace(listed, old=path), replace(listed, new=path)):
        world.lists.kept_renames = [changed]
        with pytest.raises(Refused, match="does not lie in the user tree"):
            world.apply()
    assert world.names() == {b"a": b"a"}


def test_another_list_than_the_passs_is_refused(world: MoveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.file(b"a")
    world.renamed((b"a", b"b"))
    monkeypatch.setattr(world.lists, "digest", lambda _: "another")
    with pytest.raises(Refused, match="begun with"):
        world.apply()
    assert world.names() == {b"a": b"a"}
