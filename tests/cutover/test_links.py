"""Links of users, switched on real directories: refused, changed, killed."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator.core.entry import UserTree
from migrator.core.errors import Refused
from migrator.cutover.links import Exchange, SymlinkedPaths, exchange_names
from migrator.site.model import LinkPlace
from tests.support.kills import Killed, deaths, ticking

pytestmark = pytest.mark.needs_root


ALICE = UserTree(path=b"home/alice", user="alice")


@dataclass(frozen=True)
class World:
    """A source and a target with the tree of alice, and the directory of links."""

    path: Path
    homes: Path

    def links(self, exchange: Exchange = exchange_names) -> SymlinkedPaths:
        return SymlinkedPaths(self.place(), exchange=exchange)

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

    def switch(self, *, back: bool = False, exchange: Exchange = exchange_names) -> bool:
        old, new = (self.new, self.old) if back else (self.old, self.new)
        return self.links(exchange).switch(ALICE, expected_old=os.fsencode(old), new=os.fsencode(new))

    def refused(self) -> str:
        """The reason of a refused switch; everything in the directory of links is as before."""
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


def test_a_link_is_compared_by_its_target_not_its_text(world: World) -> None:
    (world.path / "data").symlink_to(world.path / "source")
    (world.path / "users").mkdir()
    (world.path / "users" / "alice").symlink_to("../data/home/alice")
    for text in ("../source/home/alice", f"{world.path}/data/./home/../home/alice", "../users/alice"):
        world.alice.unlink()
        world.alice.symlink_to(text)
        look = world.links().read_link(ALICE)
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
def test_anything_but_the_expected_link_is_refused_and_stays(
    world: World, make: Callable[[Path], object], told: str
) -> None:
    (world.path / "source" / "home" / "alice2").mkdir()
    world.alice.unlink()
    make(world.alice)
    assert told in world.refused()


@pytest.mark.parametrize("gone", ["old", "new"])
def test_missing_trees_are_refused(world: World, gone: str) -> None:
    tree: Path = getattr(world, gone)
    tree.rmdir()
    assert f"{tree} is no directory" in world.refused()
    tree.write_text("a file")
    assert f"{tree} is no directory" in world.refused()


def test_a_directory_above_the_link_that_others_can_change_is_refused(world: World) -> None:
    world.homes.chmod(0o1777)
    assert "homes can be written by other users (mode 1777)" in world.refused()
    world.homes.chmod(0o755)
    world.path.chmod(0o777)
    assert f"{world.path} can be written by other users" in world.refused()
    world.path.chmod(0o1777)  # what root made there nobody else can exchange
    assert world.switch()
    os.chown(world.path, 1001, 0)
    assert f"{world.path} belongs to uid 1001" in world.refused()


def test_symlinks_above_the_link_are_followed_if_root_owns_them(world: World) -> None:
    way = world.path / "way"
    way.symlink_to("homes")
    links = SymlinkedPaths(world.place(f"{way}/{{user}}"))
    trees = {"expected_old": os.fsencode(world.old), "new": os.fsencode(world.new)}
    assert links.read_link(ALICE).directory == os.fsencode(world.homes)
    os.lchown(way, 1001, 1001)
    before = world.standing()
    assert links.read_link(ALICE).type is None
    with pytest.raises(Refused, match="1001"):
        links.switch(ALICE, **trees)
    assert world.standing() == before
    os.lchown(way, 0, 0)
    assert links.switch(ALICE, **trees)
    assert says(world.alice) == str(world.new)


def intruder(act: Callable[[], None], *, supported: bool = True) -> Exchange:
    """Somebody acts at the last instant before the links change places. `supported`: the file system exchanges names."""
    acted: list[int] = []

    def after_another(fd: int, one: bytes, other: bytes) -> bool:
        if not acted:
            acted.append(1)
            act()
        return exchange_names(fd, one, other) if supported else False

    return after_another


def replaced_by_link(world: World) -> None:
    (world.path / "made").symlink_to(world.old)
    (world.path / "made").rename(world.alice)


def replaced_by_directory(world: World) -> None:
    world.alice.unlink()
    directory(world.alice)


def given_away(world: World) -> None:
    os.lchown(world.alice, 1003, 1003)


@pytest.mark.parametrize("act", [replaced_by_link, replaced_by_directory, given_away])
def test_a_replacement_made_during_the_switch_stays(world: World, act: Callable[[World], None]) -> None:
    replaced: list[dict[str, tuple[object, ...]]] = []

    def replace() -> None:
        act(world)
        replaced.append({name: seen for name, seen in world.standing().items() if not name.startswith(".")})

    with pytest.raises(Refused):
        world.switch(exchange=intruder(replace))
    assert [world.standing()] == replaced


def test_without_an_exchange_the_link_is_renamed(world: World) -> None:
    assert world.switch(exchange=intruder(lambda: None, supported=False))
    assert says(world.alice) == str(world.new)
    assert sorted(world.standing()) == ["alice", "bob"]


def test_without_an_exchange_a_replaced_link_stays(world: World) -> None:
    with pytest.raises(Refused):
        world.switch(exchange=intruder(lambda: replaced_by_link(world), supported=False))
    assert says(world.alice) == str(world.old)
    assert sorted(world.standing()) == ["alice", "bob"]


@pytest.mark.parametrize("back", [False, True])
def test_a_kill_before_any_change_leaves_a_link_and_the_next_call_completes_it(world: World, back: bool) -> None:
    """Before each of its changes of the directory; nothing that would clear away after an error does anything."""
    for death in deaths():
        shutil.rmtree(world.homes)
        world.homes.mkdir()
        world.alice.symlink_to(world.old)
        os.lchown(world.alice, 1001, 1002)
        with pytest.MonkeyPatch.context() as patch, suppress(Killed):
            for name in ("symlink", "chown", "unlink", "rename", "fsync"):
                patch.setattr(os, name, ticking(getattr(os, name), death))
            world.switch(exchange=ticking(exchange_names, death))
        assert says(world.alice) in (str(world.old), str(world.new))
        # Where it is given up: what never was switched is there already.
        world.switch(back=back)
        assert says(world.alice) == str(world.old if back else world.new)
        assert (os.lstat(world.alice).st_uid, os.lstat(world.alice).st_gid) == (1001, 1002)
        assert list(world.standing()) == ["alice"]


def test_an_entry_of_another_program_with_the_temporary_name_stays(world: World) -> None:
    names: list[bytes] = []

    def killed(_fd: int, temporary: bytes, _name: bytes) -> bool:
        names.append(temporary)
        raise Killed

    with pytest.raises(Killed):
        world.switch(exchange=killed)
    left = world.homes / os.fsdecode(names[0])
    left.unlink(missing_ok=True)
    left.write_text("kept")
    world.refused()
    assert left.read_text() == "kept"
