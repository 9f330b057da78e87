"""The switch of a user's path, on real directories: what is exchanged, what is refused, and what is left after a kill."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator.core.entry import UserTree
from migrator.core.errors import Refused
from migrator.cutover import files as switching
from migrator.cutover.files import SymlinkedPaths
from migrator.cutover.model import LinkPlace
from tests.support.kills import Killed, deaths, ticking

pytestmark = pytest.mark.needs_root


ALICE = UserTree(path=b"home/alice", user="alice")


@dataclass(frozen=True)
class World:
    """A source and a target with the tree of alice, and the directory of links."""

    path: Path
    homes: Path

    @property
    def links(self) -> SymlinkedPaths:
        return SymlinkedPaths(self.place())

    @property
    def alice(self) -> Path:
        return self.homes / "alice"

    @property
    def old(self) -> Path:
        return self.path / "source" / "home" / "alice"

    @property
    def new(self) -> Path:
        return self.path / "target" / "home" / "alice"

    def place(self, link: str = "") -> LinkPlace:
        return LinkPlace(
            link=link or f"{self.homes}/{{user}}",
            source_root=os.fsencode(self.path / "source"),
            target_root=os.fsencode(self.path / "target"),
        )

    def switch(self, *, back: bool = False) -> bool:
        old, new = (self.new, self.old) if back else (self.old, self.new)
        return self.links.switch(ALICE, expected_old=os.fsencode(old), new=os.fsencode(new))

    def refused(self) -> str:
        """What a switch is refused for; everything in the directory of links is as before."""
        before = self.standing()
        with pytest.raises(Refused) as caught:
            self.switch()
        assert caught.value.hint
        assert self.standing() == before
        return caught.value.message

    def standing(self) -> dict[str, tuple[object, ...]]:
        found: dict[str, tuple[object, ...]] = {}
        for entry in os.scandir(self.homes) if self.homes.is_dir() else ():
            facts = entry.stat(follow_symlinks=False)
            text = says(entry) if entry.is_symlink() else None
            found[entry.name] = (facts.st_ino, facts.st_mode, facts.st_uid, facts.st_gid, text)
        return found


@pytest.fixture
def world(scratch: Path) -> World:
    made = World(scratch, scratch / "homes")
    for path in (made.old, made.new, made.homes):
        path.mkdir(parents=True)
    made.alice.symlink_to(made.old)
    os.lchown(made.alice, 1001, 1002)
    (made.homes / "bob").symlink_to("/elsewhere")
    return made


def says(link: os.PathLike[str]) -> str:
    return os.fspath(Path(link).readlink())


def test_the_path_leads_to_the_target_and_back_and_the_owner_is_kept(world: World) -> None:
    for back, wanted in ((False, world.new), (True, world.old), (False, world.new)):
        assert world.switch(back=back)
        assert says(world.alice) == str(wanted)
        assert (os.lstat(world.alice).st_uid, os.lstat(world.alice).st_gid) == (1001, 1002)
        before = world.standing()
        assert not world.switch(back=back)
        assert world.standing() == before
    assert sorted(world.standing()) == ["alice", "bob"]
    assert says(world.homes / "bob") == "/elsewhere"


def test_what_a_link_leads_to_counts_and_not_what_it_says(world: World) -> None:
    (world.path / "data").symlink_to(world.path / "source")
    (world.path / "users").mkdir()
    (world.path / "users" / "alice").symlink_to("../data/home/alice")
    for text in ("../source/home/alice", f"{world.path}/data/./home/../home/alice", "../users/alice"):
        world.alice.unlink()
        world.alice.symlink_to(text)
        look = world.links.read_link(ALICE)
        assert (look.text, look.leads_to) == (text.encode(), os.fsencode(world.old))
        assert world.switch()
        assert says(world.alice) == str(world.new)


def directory(path: Path) -> None:
    path.mkdir()
    (path / "kept").touch()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda _: None, "is missing"),
        (directory, "is a directory, not a symlink"),
        (lambda path: path.write_text("kept"), "is a file, not a symlink"),
        (lambda path: path.symlink_to("/nowhere/at all"), "which leads nowhere"),
        (lambda path: path.symlink_to("alice"), "Too many levels of symbolic links"),
        (lambda path: path.symlink_to("/"), "which leads to /,"),
        (lambda path: path.symlink_to("../source/home"), "source/home, and not to"),
        (lambda path: path.symlink_to("../target/home"), "target/home, and not to"),
        (lambda path: path.symlink_to("../source/home/alice/deeper"), "which leads nowhere"),
        (lambda path: path.symlink_to("../source/home/alice2"), "home/alice2, and not to"),
    ],
)
def test_anything_but_the_link_that_is_expected_is_refused_and_stays(
    world: World, make: Callable[[Path], object], told: str
) -> None:
    (world.path / "source" / "home" / "alice2").mkdir()
    world.alice.unlink()
    make(world.alice)
    assert told in world.refused()


@pytest.mark.parametrize("gone", ["old", "new"])
def test_trees_that_are_not_there_are_refused(world: World, gone: str) -> None:
    tree: Path = getattr(world, gone)
    tree.rmdir()
    assert f"{tree} is no directory" in world.refused()
    tree.write_text("a file")
    assert f"{tree} is no directory" in world.refused()


def test_a_directory_on_the_way_that_others_can_change_is_refused(world: World) -> None:
    world.homes.chmod(0o1777)
    assert "homes can be written by other users (mode 1777)" in world.refused()
    world.homes.chmod(0o755)
    world.path.chmod(0o777)
    assert f"{world.path} can be written by other users" in world.refused()
    world.path.chmod(0o1777)  # what root made there nobody else can exchange
    assert world.switch()
    os.chown(world.path, 1001, 0)
    assert f"{world.path} belongs to uid 1001" in world.refused()


def test_symlinks_on_the_way_are_followed_where_they_are_roots(world: World) -> None:
    way = world.path / "way"
    way.symlink_to("homes")
    links = SymlinkedPaths(world.place(f"{way}/{{user}}"))
    trees = {"expected_old": os.fsencode(world.old), "new": os.fsencode(world.new)}
    assert links.read_link(ALICE).directory == os.fsencode(world.homes)
    os.lchown(way, 1001, 1001)
    before = world.standing()
    assert links.read_link(ALICE).type is None
    with pytest.raises(Refused, match="way belongs to uid 1001"):
        links.switch(ALICE, **trees)
    assert world.standing() == before
    os.lchown(way, 0, 0)
    assert links.switch(ALICE, **trees)
    assert says(world.alice) == str(world.new)


@pytest.mark.parametrize("side", ["source", "target"])
def test_links_inside_source_or_target_are_refused(world: World, side: str) -> None:
    inside = World(world.path, world.path / side / "links")
    inside.homes.mkdir()
    inside.alice.symlink_to(world.old)
    assert f"lies inside the {side}" in inside.refused()


def intruder(world: World, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch, *, known: bool = True) -> None:
    """Let somebody act at the last instant before the links change places."""
    exchange = switching._exchange
    acted: list[int] = []

    def after_another(fd: int, one: bytes, other: bytes) -> bool:
        if not acted:
            acted.append(1)
            act()
        return exchange(fd, one, other) if known else False

    monkeypatch.setattr(switching, "_exchange", after_another)


def replaced_by_link(world: World) -> None:
    (world.path / "made").symlink_to(world.old)
    (world.path / "made").rename(world.alice)


def replaced_by_directory(world: World) -> None:
    world.alice.unlink()
    directory(world.alice)


def given_away(world: World) -> None:
    os.lchown(world.alice, 1003, 1003)


@pytest.mark.parametrize("act", [replaced_by_link, replaced_by_directory, given_away])
def test_what_somebody_puts_there_at_the_same_time_stays(
    world: World, act: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    there: list[dict[str, tuple[object, ...]]] = []

    def replace() -> None:
        act(world)
        there.append({name: seen for name, seen in world.standing().items() if not name.startswith(".")})

    intruder(world, replace, monkeypatch)
    with pytest.raises(Refused, match="was replaced by somebody else"):
        world.switch()
    assert [world.standing()] == there


@pytest.mark.parametrize("act", [replaced_by_link, None])
def test_without_an_exchange_the_link_is_looked_at_once_more(
    world: World, act: Callable[[World], None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    intruder(world, lambda: act(world) if act else None, monkeypatch, known=False)
    if act is None:
        assert world.switch()
        assert says(world.alice) == str(world.new)
    else:
        with pytest.raises(Refused, match="was replaced by somebody else"):
            world.switch()
        assert says(world.alice) == str(world.old)
    assert sorted(world.standing()) == ["alice", "bob"]


@pytest.mark.parametrize("back", [False, True])
def test_killed_anywhere_the_path_leads_somewhere_and_the_next_call_ends_it(world: World, back: bool) -> None:
    """Before each of its changes of the directory; nothing that would clear away after an error does anything."""
    for death in deaths():
        shutil.rmtree(world.homes)
        world.homes.mkdir()
        world.alice.symlink_to(world.old)
        os.lchown(world.alice, 1001, 1002)
        with pytest.MonkeyPatch.context() as patch, suppress(Killed):
            for name in ("symlink", "chown", "unlink", "rename", "fsync"):
                patch.setattr(os, name, ticking(getattr(os, name), death))
            patch.setattr(switching, "_exchange", ticking(switching._exchange, death))
            world.switch()
        assert says(world.alice) in (str(world.old), str(world.new))
        # Where it is given up: what never was switched is there already.
        world.switch(back=back)
        assert says(world.alice) == str(world.old if back else world.new)
        assert (os.lstat(world.alice).st_uid, os.lstat(world.alice).st_gid) == (1001, 1002)
        assert list(world.standing()) == ["alice"]


def test_what_is_not_this_programs_beside_a_link_stays(world: World) -> None:
    left = world.homes / os.fsdecode(switching._temporary_name(b"alice"))
    left.write_text("kept")
    assert "not of this program's making" in world.refused()
    assert left.read_text() == "kept"
