"""The top of a tree is closed and put back, and a user's path switched, on real directories: refused, changed, killed."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from migrator.core.entry import UserTree
from migrator.core.errors import Refused
from migrator.cutover import files as freezing
from migrator.cutover import files as switching
from migrator.cutover.files import MountedTops, SymlinkedPaths, TopChanged
from migrator.cutover.model_snapshot import TopState
from migrator.site.model import LinkPlace
from tests.support.holders import holding
from tests.support.kills import Death, Killed, deaths, ticking
from tests.support.xfs import XfsMount, run_tool

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
    with pytest.raises(Refused, match="was replaced by another program"):
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
        with pytest.raises(Refused, match="was replaced by another program"):
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
    assert "was not made by this program" in world.refused()
    assert left.read_text() == "kept"


ANN = b"home/ann"
UID, GID = 20_001, 20_002
_AS_ANN = ("setpriv", f"--reuid={UID}", f"--regid={GID}", "--clear-groups")

LEADS_NOWHERE = "Too many levels of symbolic links|Not a directory"

TOPS = ["plain", "setgid", "acl", "default-acl", "both-acls", "no-permissions", "of-root"]


@pytest.fixture
def source(xfs_source: XfsMount) -> Path:
    top = xfs_source.path / "home/ann"
    top.mkdir(parents=True)
    (top / "data").write_bytes(b"data")
    os.chown(top, UID, GID)
    os.chown(top / "data", UID, GID)
    top.chmod(0o755)
    return xfs_source.path


def prepare(source: Path, kind: str) -> Path:
    """Tops as they are found."""
    top = source / "home/ann"
    match kind:
        case "setgid":
            top.chmod(0o3770)
        case "acl":
            run_tool("setfacl", "-m", f"u:{UID + 5}:rwx,g:{GID + 5}:r-x,m::rwx,o::---", str(top))
        case "default-acl":
            run_tool("setfacl", "-d", "-m", f"u::rwx,u:{UID + 5}:rw-,g::r-x,m::rwx,o::---", str(top))
        case "both-acls":
            top.chmod(0o2751)
            run_tool("setfacl", "-m", f"u:{UID + 5}:rwx,m::r-x", str(top))
            run_tool("setfacl", "-d", "-m", f"u:{UID + 6}:rwx", str(top))
        case "no-permissions":
            top.chmod(0)
        case "of-root":
            os.chown(top, 0, 0)
            top.chmod(0o500)
        case _:
            assert kind == "plain"
    return top


@pytest.fixture
def tops(source: Path) -> MountedTops:
    return MountedTops(os.fsencode(source))


def facts(top: Path) -> tuple[int, int, int, dict[str, bytes]]:
    seen = top.lstat()
    xattrs = {name: os.getxattr(top, name, follow_symlinks=False) for name in os.listxattr(top, follow_symlinks=False)}
    return seen.st_uid, seen.st_gid, seen.st_mode & 0o7777, xattrs


def test_nobody_but_root_comes_in_and_the_owner_does_not_open_it_again(source: Path, tops: MountedTops) -> None:
    top = source / "home/ann"
    code = """
def tried(act):
    try:
        act()
    except PermissionError:
        return "refused"
    return "done"
top = sys.argv[1]
print([tried(lambda: os.listdir(top)), tried(lambda: open(top + "/data")), tried(lambda: open(top + "/new", "w")),
       tried(lambda: os.chmod(top, 0o700)), tried(lambda: os.rename(top, top + ".old"))], file=open(sys.argv[2], "w"))
"""
    said = source / "said"
    said.touch()
    said.chmod(0o666)
    (source / "home").chmod(0o755)
    for directory in (source, *source.parents[:2]):
        directory.chmod(0o755)
    kept = tops.read_top(ANN)
    with holding(code, top, said, prefix=_AS_ANN):
        assert "['done', 'done', 'done', 'done', 'refused']" in said.read_text()
    top.chmod(kept.mode)
    tops.freeze(ANN, kept)
    with holding(code, top, said, prefix=_AS_ANN):
        assert "['refused', 'refused', 'refused', 'refused', 'refused']" in said.read_text()
    assert sorted(os.listdir(top)) == ["data", "new"]


CHANGES = ("fchmod", "fchown", "removexattr", "setxattr", "fsync")


def dying_os(death: Death) -> SimpleNamespace:
    """The module `os`, whose calls that change something may be the last."""
    return SimpleNamespace(**vars(os) | {name: ticking(getattr(os, name), death) for name in CHANGES})


@pytest.mark.parametrize("kind", TOPS)
@pytest.mark.parametrize("going_on", ["freeze", "thaw"])
@pytest.mark.parametrize("first", ["freeze", "thaw"])
def test_killed_before_any_call_it_goes_on_or_back(
    source: Path, tops: MountedTops, monkeypatch: pytest.MonkeyPatch, *, kind: str, first: str, going_on: str
) -> None:
    top = prepare(source, kind)
    before = facts(top)
    kept = tops.read_top(ANN)
    for count in range(10):
        if first == "thaw":
            tops.freeze(ANN, kept)
        monkeypatch.setattr(freezing, "os", dying_os(Death(left=count + 1)))
        try:
            getattr(tops, first)(ANN, kept)
            ended = True
        except Killed:
            ended = False
        monkeypatch.setattr(freezing, "os", os)
        assert tops.look(ANN, kept).state is not TopState.OTHER
        getattr(tops, going_on)(ANN, kept)
        if going_on == "freeze":
            assert facts(top) == (0, before[1], before[2] & 0o7000 | 0o500, {})
        tops.thaw(ANN, kept)
        assert facts(top) == before
        if ended:
            break
    else:
        raise AssertionError("more calls than were expected")


@pytest.mark.parametrize("frozen", [False, True])
def test_a_top_that_somebody_changed_is_told_and_left_alone(source: Path, tops: MountedTops, frozen: bool) -> None:
    top = prepare(source, "both-acls")
    kept = tops.read_top(ANN)
    if frozen:
        tops.freeze(ANN, kept)
    top.chmod(0o2777)
    changed = facts(top)
    for act in (tops.freeze, tops.thaw):
        with pytest.raises(TopChanged, match="its mode is 2777, and was 2751") as caught:
            act(ANN, kept)
        assert caught.value.hint
        assert facts(top) == changed
    assert tops.look(ANN, kept).state is TopState.OTHER


@pytest.mark.parametrize("swapped", ["home/ann", "home"])
def test_what_was_swapped_for_a_symlink_leads_nowhere(source: Path, tops: MountedTops, swapped: str) -> None:
    kept = tops.read_top(ANN)
    (source / swapped).rename(source / "elsewhere")
    (source / swapped).symlink_to(source / "elsewhere")
    before = facts(source / "home/ann")
    for act in (tops.freeze, tops.thaw, tops.look):
        with pytest.raises(OSError, match=LEADS_NOWHERE):
            act(ANN, kept)
    assert facts(source / "home/ann") == before
