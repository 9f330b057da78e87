"""Tops of user trees on the source, closed and opened on real directories: refused, changed, killed."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from migrator.cutover.model_snapshot import TopState
from migrator.cutover.tops import MountedTops, TopChanged
from tests.support.holders import holding
from tests.support.kills import Death, Killed, ticking
from tests.support.xfs import XfsMount, run_tool

pytestmark = pytest.mark.needs_root

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


def test_only_root_can_enter_a_frozen_top_and_its_owner_cannot_open_it(source: Path, tops: MountedTops) -> None:
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


@pytest.mark.parametrize("kind", TOPS)
@pytest.mark.parametrize("next_call", ["freeze", "thaw"])
@pytest.mark.parametrize("first", ["freeze", "thaw"])
def test_a_freeze_or_thaw_that_was_killed_can_be_completed_or_reverted(
    source: Path, tops: MountedTops, *, kind: str, first: str, next_call: str
) -> None:
    top = prepare(source, kind)
    before = facts(top)
    kept = tops.read_top(ANN)
    for count in range(10):
        if first == "thaw":
            tops.freeze(ANN, kept)
        death = Death(left=count + 1)
        with pytest.MonkeyPatch.context() as patch, suppress(Killed):
            for name in CHANGES:
                patch.setattr(os, name, ticking(getattr(os, name), death))
            getattr(tops, first)(ANN, kept)
        assert tops.compare(ANN, kept).state is not TopState.OTHER
        getattr(tops, next_call)(ANN, kept)
        if next_call == "freeze":
            assert facts(top) == (0, before[1], before[2] & 0o7000 | 0o500, {})
        tops.thaw(ANN, kept)
        assert facts(top) == before
        if not death.happened:
            break
    else:
        raise AssertionError("more calls than were expected")


@pytest.mark.parametrize("frozen", [False, True])
def test_a_top_that_was_changed_is_reported_and_stays(source: Path, tops: MountedTops, frozen: bool) -> None:
    top = prepare(source, "both-acls")
    kept = tops.read_top(ANN)
    if frozen:
        tops.freeze(ANN, kept)
    top.chmod(0o2777)
    changed = facts(top)
    for act in (tops.freeze, tops.thaw):
        with pytest.raises(TopChanged, match=r"2777.*2751") as caught:
            act(ANN, kept)
        assert caught.value.hint
        assert facts(top) == changed
    assert tops.compare(ANN, kept).state is TopState.OTHER


@pytest.mark.parametrize("swapped", ["home/ann", "home"])
def test_a_symlink_in_place_of_a_directory_is_not_followed(source: Path, tops: MountedTops, swapped: str) -> None:
    kept = tops.read_top(ANN)
    (source / swapped).rename(source / "elsewhere")
    (source / swapped).symlink_to(source / "elsewhere")
    before = facts(source / "home/ann")
    for act in (tops.freeze, tops.thaw, tops.compare):
        with pytest.raises(OSError, match=LEADS_NOWHERE):
            act(ANN, kept)
    assert facts(source / "home/ann") == before
