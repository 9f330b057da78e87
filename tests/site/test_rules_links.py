"""Which links can be switched."""

import pytest

from migrator.core.entry import EntryType, UserTree
from migrator.fs.model import FileLook, Mount
from migrator.site import rules_links as site_rules_links
from migrator.site.model import LinkPlace, LinkReading

PLACE = LinkPlace(link="/home/{user}", source_root=b"/mnt/gl", target_root=b"/mnt/bee/", volume="vol1")


def seen(path: bytes, *, uid: int = 0, mode: int = 0o755, kind: EntryType = EntryType.DIRECTORY) -> FileLook:
    return FileLook(path=path, type=kind, uid=uid, mode=mode)


def look(*, at: bytes = b"/home", mount: Mount | None = None) -> LinkReading:
    return LinkReading(
        path=at + b"/alice",
        way=(seen(b"/"), seen(at)),
        directory=at,
        mount=mount,
        type=EntryType.SYMLINK,
        text=b"text",
        leads_to=b"/mnt/gl/home/alice",
    )


@pytest.mark.parametrize("user", ["alice", "a.b", "a-b_c", "MACHINE$", "jürgen", "a b", "x@example.org", "{user}"])
def test_names_that_can_be_part_of_a_path(user: str) -> None:
    assert site_rules_links.user_problem(user) is None
    assert site_rules_links.link_path("/home/{user}", UserTree(path=b"x", user=user)) == b"/home/" + user.encode()


@pytest.mark.parametrize(
    "user", ["", ".", "..", ".a", "a/b", "/", "a\\b", "a\n", "a\0", "a\x7f", "\udcff", " a", "a ", "\u202e", "ü" * 128]
)
def test_names_that_cannot(user: str) -> None:
    assert site_rules_links.user_problem(user)
    with pytest.raises(ValueError, match="it "):
        site_rules_links.link_path("/home/{user}", UserTree(path=b"x", user=user))


@pytest.mark.parametrize(
    ("at", "mount", "inside"),
    [
        (b"/home", None, None),
        (b"/mnt/gl", None, "source"),
        (b"/mnt/gl/links", None, "source"),
        (b"/mnt/glue", None, None),
        (b"/mnt/bee/links", None, "target"),
        (b"/data", Mount(point=b"/data", filesystem="fuse.glusterfs", source=b"gl9:/vol1"), "source"),
        (b"/data", Mount(point=b"/data", filesystem="fuse.glusterfs", source=b"gl9:/vol1/home"), "source"),
        (b"/data", Mount(point=b"/data", filesystem="fuse.glusterfs", source=b"gl9:vol1"), "source"),
        (b"/data", Mount(point=b"/data", filesystem="fuse.glusterfs", source=b"gl9:/vol11"), None),
        (b"/data", Mount(point=b"/data", filesystem="nfs4", source=b"gl9:/vol1"), None),
    ],
)
def test_links_lie_outside_both_file_systems(at: bytes, mount: Mount | None, inside: str | None) -> None:
    problem = site_rules_links.link_problem(look(at=at, mount=mount), PLACE, 0)
    if inside is None:
        assert problem is None
    else:
        assert problem is not None
        assert f"lies inside the {inside}" in problem.message


def test_users_without_a_link_of_their_own_are_reported() -> None:
    trees = [
        UserTree(path=b"home/alice", user="alice"),
        UserTree(path=b"projects/x/alice", user="alice"),
        UserTree(path=b"home/bob", user="bob"),
        UserTree(path=b"home/\xe9", user="\\xe9"),
    ]
    hostile, shared = site_rules_links.check_link_names("/home/{user}", trees)
    assert "a slash or a backslash" in hostile.message
    assert "2 trees have the link of one user, alice: home/alice, projects/x/alice" in shared.message
    assert hostile.fix
    assert shared.fix
    assert list(site_rules_links.check_link_names("/home/{user}", trees[1:3])) == []
    (hostile,) = site_rules_links.check_link_names("/links/{tree}", trees)
    assert "home/\\xe9" in hostile.message
    assert site_rules_links.link_path("/links/{tree}", trees[1]) == b"/links/projects/x/alice"
    assert site_rules_links.link_path("/{user}/{tree}", UserTree(path=b"a/b", user="{tree}")) == b"/{tree}/a/b"
