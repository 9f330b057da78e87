"""Globs to user trees."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.entry import UserTree
from migrator.core.errors import UsageError
from migrator.core.paths import is_beneath
from migrator.scan import rules as scan_rules


def found(**globs: list[bytes]) -> list[tuple[scan_rules.TreePattern, list[bytes]]]:
    """Globs given as `home__x=[...]` for `home/*`: the name does not matter, the paths do."""
    return [
        (scan_rules.TreePattern(text=text, components=(b"*",) * (paths[0].count(b"/") + 1 if paths else 2)), paths)
        for text, paths in globs.items()
    ]


@pytest.mark.parametrize("outer_first", [True, False])
def test_a_tree_inside_another_is_refused_and_both_are_named(outer_first: bool) -> None:
    globs = [(scan_rules.TreePattern(text="a/*", components=(b"a", b"*")), [b"a/b", b"a/b-c"])]
    deeper = (scan_rules.TreePattern(text="a/b/*", components=(b"a", b"b", b"*")), [b"a/b/d"])
    globs = [*globs, deeper] if outer_first else [deeper, *globs]
    with pytest.raises(UsageError, match=r"a/b \('a/\*'\) and a/b/d \('a/b/\*'\) overlap"):
        scan_rules.choose_trees(globs, (), {})


def test_excluded_trees_are_left_out_and_may_end_an_overlap() -> None:
    exclude = scan_rules.parse_patterns(["home/old*"], "[users] exclude")
    trees = scan_rules.choose_trees(found(one=[b"home/old1", b"home/new"], two=[b"home/old1/x"]), exclude, {})
    assert [tree.path for tree in trees] == [b"home/new"]


@pytest.mark.parametrize("text", ["/home/*", "home/../x", "", ".", "home//x", "home/./x", "home/**"])
def test_globs_that_leave_the_mount_or_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"\[users\] trees"):
        scan_rules.parse_patterns([text], "[users] trees")


@pytest.mark.parametrize(
    ("pattern", "component", "matches"),
    [
        (b"*", b"alice", True),
        (b"*", b".hidden", False),
        (b".*", b".hidden", True),
        (b"*", b"new\nline", True),
        (b"*", b"\xff\xfe", True),
        (b"a?c", b"abc", True),
        (b"[ab]c", b"bc", True),
        (b"A*", b"abc", False),
    ],
)
def test_components_match_as_in_a_shell(pattern: bytes, component: bytes, matches: bool) -> None:
    assert scan_rules.component_matches(pattern, component) is matches


_NAMES = st.sampled_from([b"a", b"b", b"a-", b"a.", b"ab", b"z", b"\xff"])
_PATHS = st.lists(_NAMES, min_size=1, max_size=4).map(b"/".join)


@given(st.sets(_PATHS, max_size=8), _PATHS)
def test_the_index_agrees_with_looking_at_every_tree(paths: set[bytes], asked: bytes) -> None:
    apart = [path for path in paths if not any(other != path and is_beneath(path, other) for other in paths)]
    index = scan_rules.TreeIndex(UserTree(path=path, user="u") for path in apart)
    expected = next((path for path in apart if is_beneath(asked, path)), None)
    assert index.of(asked) == expected
    assert index.is_root(asked) == (asked in apart)
    assert index.of(b"") is None


def test_the_map_of_users_is_read_by_column_name() -> None:
    content = b'tree,group,user\nhome/a,x,alice\n"home/b,c",x,bob\n/home/\xff/,x,carol\n'
    assert scan_rules.parse_user_map(content) == {b"home/a": "alice", b"home/b,c": "bob", b"home/\xff": "carol"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no columns"),
        (b"home/a,alice\n", "no columns"),
        (b"tree,user\nhome/a\n", "line 2"),
        (b"tree,user\nhome/a,\n", "line 2"),
        (b"tree,user\nhome/a,alice\nhome/a,bob\n", "line 3"),
        (b'tree,user\n"home/a,alice\n', "line"),
    ],
)
def test_a_broken_map_of_users_is_refused_with_the_line(content: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        scan_rules.parse_user_map(content)
