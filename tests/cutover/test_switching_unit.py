"""Which links can be switched."""

import pytest

from migrator.core.entry import EntryType, UserTree
from migrator.core.events import FindingStatus
from migrator.cutover.model import LinkLook, LinkPlace
from migrator.fs.model import Mount
from migrator.hooks.model import FileLook, Hook, HookEvent, HooksFound, HookStage, HookStep
from migrator.site import rules_links as site_rules_links

PLACE = LinkPlace(link="/home/{user}", source_root=b"/mnt/gl", target_root=b"/mnt/bee/", volume="vol1")


def seen(path: bytes, *, uid: int = 0, mode: int = 0o755, kind: EntryType = EntryType.DIRECTORY) -> FileLook:
    return FileLook(path=path, type=kind, uid=uid, mode=mode)


def look(
    user: str = "alice", *, at: bytes = b"/home", leads_to: bytes | None = None, mount: Mount | None = None
) -> LinkLook:
    return LinkLook(
        path=at + b"/" + user.encode(),
        way=(seen(b"/"), seen(at)),
        directory=at,
        mount=mount,
        type=EntryType.SYMLINK,
        text=b"text",
        leads_to=leads_to or b"/mnt/gl/home/" + user.encode(),
    )


@pytest.mark.parametrize("user", ["alice", "a.b", "a-b_c", "MACHINE$", "jürgen", "a b", "x@example.org", "{user}"])
def test_names_that_can_be_part_of_a_path(user: str) -> None:
    assert site_rules_links.user_problem(user) is None
    assert site_rules_links.link_path("/home/{user}", user) == b"/home/" + user.encode()


@pytest.mark.parametrize(
    "user", ["", ".", "..", ".a", "a/b", "/", "a\\b", "a\n", "a\0", "a\x7f", "\udcff", " a", "a ", "\u202e", "ü" * 128]
)
def test_names_that_cannot(user: str) -> None:
    assert site_rules_links.user_problem(user)
    with pytest.raises(ValueError, match="it "):
        site_rules_links.link_path("/home/{user}", user)


def test_the_way_is_roots_and_nobody_elses() -> None:
    good = (seen(b"/"), seen(b"/tmp", mode=0o1777), seen(b"/tmp/l", kind=EntryType.SYMLINK, mode=0o777), seen(b"/h"))
    assert site_rules_links.way_problem(good, 0, reached=True) is None
    assert site_rules_links.way_problem((*good, seen(b"/x", uid=5)), 5, reached=True) is None
    for bad in (
        seen(b"/x", uid=5),
        seen(b"/x", mode=0o775),
        seen(b"/x", mode=0o1777),
        seen(b"/x", uid=5, kind=EntryType.SYMLINK, mode=0o777),
        seen(b"/x", kind=EntryType.FILE),
    ):
        problem = site_rules_links.way_problem((*good, bad), 0, reached=True)
        assert problem is not None
        assert problem.message.startswith("/x ")
        assert problem.fix
    assert site_rules_links.way_problem((*good, seen(b"/x", mode=0o1777)), 0, reached=False) is None


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


def test_findings_are_told_with_their_fixes_and_not_without_end() -> None:
    trees = [UserTree(path=b"home/%d" % number, user=str(number)) for number in range(50)]
    real = {tree.path: (b"/mnt/gl/" + tree.path, b"/mnt/bee/" + tree.path) for tree in trees}
    right = [(tree, look(tree.user, leads_to=real[tree.path][at])) for tree, at in zip(trees, [0, 1] * 25, strict=True)]
    (good,) = site_rules_links.check_links(PLACE, right, real=real, euid=0)
    assert (good.status, good.message) == (FindingStatus.OK, "50 links of the latest plan can be switched")
    wrong = [(tree, look(tree.user, leads_to=b"/elsewhere")) for tree in trees]
    found = site_rules_links.check_links(PLACE, [*wrong[:3], *right[3:]], real=real, euid=0)
    assert [finding.status for finding in found] == [FindingStatus.FAILURE] * 3
    assert all(
        finding.fix and "which leads to /elsewhere, and not to /mnt/gl/home" in finding.message for finding in found
    )
    assert (
        site_rules_links.check_links(PLACE, wrong, real=real, euid=0)[-1].message == "30 links more cannot be switched"
    )
    # What is wrong with the directory of all links is one finding.
    open_to_all = [
        (tree, LinkLook(path=b"/home/" + tree.user.encode(), way=(seen(b"/home", mode=0o777),), directory=b"/home"))
        for tree in trees
    ]
    (one,) = site_rules_links.check_links(PLACE, open_to_all, real=real, euid=0)
    assert (one.message, one.fix) == ("/home can be written by others than root (mode 0777)", "chmod go-w /home")


def test_users_without_a_link_of_their_own_are_told() -> None:
    trees = [
        UserTree(path=b"home/alice", user="alice"),
        UserTree(path=b"projects/x/alice", user="alice"),
        UserTree(path=b"home/bob", user="bob"),
        UserTree(path=b"home/\xe9", user="\\xe9"),
    ]
    hostile, shared = site_rules_links.check_link_users(trees)
    assert "a slash or a backslash" in hostile.message
    assert "2 trees have the link of one user, alice: home/alice, projects/x/alice" in shared.message
    assert hostile.fix
    assert shared.fix
    assert list(site_rules_links.check_link_users(trees[1:3])) == []


def test_where_a_hook_makes_the_switch_there_has_to_be_one() -> None:
    def hooks(step: HookStep, event: HookEvent) -> HooksFound:
        return HooksFound(hooks=(Hook(stage=HookStage(step=step, event=event), name=b"10-x", path=b"/10-x"),))

    statuses = [
        site_rules_links.check_switch_hooks(found)[0].status
        for found in (
            HooksFound(),
            hooks(HookStep.SWITCH, HookEvent.POST),
            hooks(HookStep.FREEZE, HookEvent.PRE),
            hooks(HookStep.SWITCH, HookEvent.PRE),
        )
    ]
    assert statuses == [FindingStatus.FAILURE] * 3 + [FindingStatus.OK]
