"""Dividing lists: nothing lost, nothing twice, link groups whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.catalog.rules_packing import divisible, halves, set_apart, total_bytes, units
from migrator.plan.model import ListedPath

LISTS = st.lists(st.none() | st.integers(min_value=1, max_value=4), max_size=30).map(
    lambda groups: [
        ListedPath(path=b"p%d" % number, size_bytes=number, link_group=group) for number, group in enumerate(groups)
    ]
)


def group_is_whole(part: tuple[ListedPath, ...], rest: tuple[ListedPath, ...]) -> bool:
    here = {listed.link_group for listed in part} - {None}
    return not here & {listed.link_group for listed in rest}


@given(LISTS)
def test_halves_are_a_partition_with_groups_whole(paths: list[ListedPath]) -> None:
    if not divisible(paths):
        with pytest.raises(ValueError, match="single unit"):
            halves(paths)
        return
    first, second = halves(paths)
    assert first
    assert second
    assert sorted(listed.path for listed in (*first, *second)) == sorted(listed.path for listed in paths)
    assert group_is_whole(first, second)
    assert total_bytes(first) + total_bytes(second) == total_bytes(paths)


@given(LISTS, st.sets(st.integers(min_value=0, max_value=29)))
def test_what_is_set_apart_takes_its_group_along(paths: list[ListedPath], chosen: set[int]) -> None:
    names = {b"p%d" % number for number in chosen}
    rest, apart = set_apart(paths, names)
    assert sorted((*rest, *apart), key=lambda listed: listed.path) == sorted(paths, key=lambda listed: listed.path)
    assert not names & {listed.path for listed in rest}
    assert group_is_whole(apart, rest)
    for unit in units(apart):
        assert any(listed.path in names for listed in unit)
