"""What became of a directory while bricks were added."""

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.bricks.add.rules_directories import DirectoryVerdict, judge, listed, same_owner, untouched_since
from migrator.fs.acl import GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, AclEntry, build_acl
from migrator.gluster.model import DirectoryFacts

V = DirectoryVerdict
MADE = DirectoryFacts(
    path=b"home/a/d", gfid=b"g" * 16, above=b"a" * 16, mode=0o755, uid=1001, gid=1001, changed_ns=100, modified_ns=90
)
ABOVE = replace(MADE, path=b"home/a", gfid=b"a" * 16, above=b"")
PROJECT = replace(ABOVE, mode=0o2775, gid=3000)
SHUT = replace(MADE, mode=0, uid=0, gid=0)


def acl(**permissions: int) -> bytes:
    tags = {"user": USER_OBJ, "named": USER, "group": GROUP_OBJ, "mask": MASK, "other": OTHER}
    return build_acl(
        tuple(
            AclEntry(tag=tags[name], id=9 if name == "named" else 0, permissions=bits)
            for name, bits in permissions.items()
        )
    )


CLOSING = replace(ABOVE, default=acl(user=7, named=7, group=7, mask=7, other=0))


def later(one: DirectoryFacts, *, changed_ns: int = 200, modified_ns: int = 200) -> DirectoryFacts:
    """As where a file was made in it since."""
    return replace(one, changed_ns=changed_ns, modified_ns=modified_ns)


def after_chmod(one: DirectoryFacts) -> DirectoryFacts:
    return later(one, modified_ns=90)


ROOTS = replace(MADE, uid=0, gid=0)


@pytest.mark.parametrize(
    ("known", "seen", "verdict"),
    [
        *((MADE, seen, V.RIGHT) for seen in (MADE, later(MADE), after_chmod(MADE), replace(MADE, path=b"home/b"))),
        # Nobody but root can shut what belongs to root.
        (ROOTS, after_chmod(SHUT), V.DOUBTFUL),
        (MADE, after_chmod(SHUT), V.TAKEN),
        # What was always shut is right, and may be opened.
        (SHUT, later(SHUT), V.RIGHT),
        (SHUT, MADE, V.CHANGED),
        (None, MADE, V.RIGHT),
        (None, SHUT, V.UNKNOWN),
        # What is given to root without a time of change was given by nobody; otherwise it is never given back without a word.
        (MADE, replace(MADE, uid=0, mode=0o711), V.TAKEN),
        (MADE, later(replace(MADE, uid=0, gid=0, mode=0o711)), V.DOUBTFUL),
        (MADE, after_chmod(replace(MADE, uid=0, gid=0, mode=0o711)), V.DOUBTFUL),
    ],
)
def test_what_became_of_a_directory(known: DirectoryFacts | None, seen: DirectoryFacts, verdict: V) -> None:
    assert judge(known, seen, ABOVE) is verdict


@pytest.mark.parametrize("known", [MADE, replace(MADE, mode=0), replace(MADE, gid=0), ROOTS])
@pytest.mark.parametrize("above", [ABOVE, PROJECT, CLOSING, None])
def test_what_is_shut_was_shut_by_gluster(known: DirectoryFacts, above: DirectoryFacts | None) -> None:
    renamed = replace(later(SHUT, modified_ns=90), path=b"home/b")
    for seen in (SHUT, later(SHUT), renamed):
        assert judge(known, seen, above) is V.TAKEN


MADE_ANEW = [
    # The bit and the group of the directory above.
    (MADE, {"mode": 0o2755, "gid": 3000}, PROJECT),
    (MADE, {"gid": 3000}, PROJECT),
    (replace(MADE, mode=0o2770), {"mode": 0o770}, ABOVE),
    # What its default ACL leaves.
    (replace(MADE, mode=0o775), {"mode": 0o770}, CLOSING),
    (replace(MADE, mode=0o775), {"mode": 0o770, "access": CLOSING.default, "default": CLOSING.default}, CLOSING),
]


@pytest.mark.parametrize(("known", "changes", "above"), MADE_ANEW)
def test_what_a_new_directory_would_have_may_be_of_gluster_or_of_people(
    known: DirectoryFacts, changes: dict[str, int], above: DirectoryFacts
) -> None:
    seen = replace(known, **changes)  # type: ignore[arg-type]
    assert judge(known, seen, above) is V.TAKEN
    # A file was made in it since, so its times tell nothing.
    assert judge(known, later(seen), above) is V.DOUBTFUL
    # A rename sets the same time as a chmod.
    assert judge(known, replace(after_chmod(seen), path=b"home/a/e"), above) is V.DOUBTFUL
    assert judge(known, after_chmod(seen), above) is V.DOUBTFUL
    # Where there are no times, nothing is known.
    assert judge(replace(known, changed_ns=None), seen, above) is V.DOUBTFUL


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": 0o700},
        {"mode": 0o2755},
        {"gid": 5},
        {"uid": 5},
        {"access": acl(user=7, named=7, group=7, mask=7, other=0)},
    ],
)
def test_what_gluster_makes_of_nothing_was_made_by_people(changes: dict[str, int]) -> None:
    seen = replace(MADE, **changes)  # type: ignore[arg-type]
    assert judge(MADE, later(seen), ABOVE) is judge(MADE, after_chmod(seen), ABOVE) is V.CHANGED
    # The clock of somebody's client is behind, or this is not known yet of Gluster.
    assert judge(MADE, seen, ABOVE) is V.DOUBTFUL


def test_a_group_that_is_inherited_may_be_of_gluster_whatever_the_mode_is_by_now() -> None:
    seen = after_chmod(replace(MADE, mode=0o711, gid=3000))
    assert judge(MADE, seen, PROJECT) is V.DOUBTFUL
    assert judge(MADE, seen, replace(PROJECT, mode=0o775)) is V.CHANGED


def test_a_copy_whose_time_is_no_later_was_touched_by_no_user() -> None:
    assert untouched_since(MADE, MADE)
    assert untouched_since(later(MADE), replace(MADE, mode=0))
    assert not untouched_since(MADE, later(MADE))
    assert not untouched_since(MADE, replace(MADE, gfid=b"o" * 16))
    assert not untouched_since(MADE, replace(MADE, changed_ns=None))
    assert not untouched_since(replace(MADE, changed_ns=None), MADE)


def test_what_a_mount_does_not_tell_of_acls_is_no_difference() -> None:
    told = replace(MADE, access=acl(user=7, named=7, group=7, mask=7, other=0))
    assert same_owner(told, replace(told, access=None))
    assert not same_owner(told, MADE)
    assert not same_owner(MADE, replace(MADE, default=told.access))
    assert not same_owner(MADE, replace(MADE, gid=5))

    # An ACL that says no more than a mode is none.
    minimal = replace(MADE, access=acl(user=7, group=5, other=5))
    assert same_owner(MADE, minimal)
    assert judge(MADE, minimal, ABOVE) is judge(minimal, MADE, ABOVE) is V.RIGHT
    assert not same_owner(MADE, replace(MADE, access=acl(user=7, group=5, mask=5, other=5)))
    # What is made below gets the other one.
    assert not same_owner(MADE, replace(MADE, default=minimal.access))


@pytest.mark.parametrize("name", [b"plain", b"o'clock $HOME", "äö".encode(), b"not\xfftext\n'\\"])
def test_the_command_puts_it_right(tmp_path: Path, name: bytes) -> None:
    path = bytes(tmp_path) + b"/" + name
    Path(path.decode("utf-8", "surrogateescape")).mkdir(mode=0o700)
    me = Path(tmp_path).stat()
    known = replace(MADE, path=name, uid=me.st_uid, gid=me.st_gid, mode=0o751)
    told = listed(V.TAKEN, known, replace(SHUT, path=name), root=bytes(tmp_path), failure="no room")
    assert "only root may enter it" in told.reason
    assert told.reason.endswith("(no room)")
    subprocess.run(["bash", "-c", told.command], check=True)
    assert Path(path.decode("utf-8", "surrogateescape")).stat().st_mode & 0o7777 == 0o751


def test_of_one_that_was_never_seen_the_command_gives_it_to_the_owner_of_the_one_above(tmp_path: Path) -> None:
    (tmp_path / "above" / "new").mkdir(parents=True)
    told = listed(V.UNKNOWN, None, replace(SHUT, path=b"above/new"), root=bytes(tmp_path))
    assert "whose it is, is not known" in told.reason
    subprocess.run(["bash", "-c", told.command], check=True)
    assert (tmp_path / "above" / "new").stat().st_mode & 0o7777 == 0o700
    in_root = listed(V.UNKNOWN, None, replace(SHUT, path=b"new"), root=b"/mnt/gl")
    assert shlex.split(in_root.command)[1] == "--reference=/mnt/gl"


def test_the_command_has_the_acl_where_a_mode_does_not_bring_it_back() -> None:
    known = replace(MADE, access=acl(user=7, named=5, group=5, mask=5, other=0))
    told = listed(V.DOUBTFUL, known, MADE, root=b"/mnt/gl")
    assert "setfacl --set u::rwx,u:9:r-x,g::r-x,m::r-x,o::--- /mnt/gl/home/a/d" in told.command
    assert "or somebody who works there" in told.reason
    assert "setfacl" not in listed(V.DOUBTFUL, known, replace(known, mode=0), root=b"/mnt/gl").command
