"""Renames in an order in which each can name its path as it is called then."""

from migrator.delta.rules import Relocation, in_order


def moved(path: bytes, new: bytes, place: bytes | None = None, held_by: bytes | None = None) -> Relocation:
    return Relocation(
        path=path, new=new, place=(place or path) if held_by is None else None, held_by=held_by, directory=True
    )


def ordered(*relocations: Relocation) -> list[tuple[bytes, bytes]]:
    found = in_order(relocations)
    assert not found.impossible
    assert found == in_order(relocations)
    assert sorted(index for index, _ in found.order) == list(range(len(relocations)))
    return [(called, relocations[index].new) for index, called in found.order]


def test_a_chain_begins_at_its_free_end() -> None:
    assert ordered(moved(b"a", b"b"), moved(b"b", b"c"), moved(b"c", b"d")) == [
        (b"c", b"d"),
        (b"b", b"c"),
        (b"a", b"b"),
    ]


def test_a_cycle_has_every_rename_once() -> None:
    assert ordered(moved(b"a", b"b"), moved(b"b", b"a")) == [(b"b", b"a"), (b"a", b"b")]


def test_directories_come_before_what_lies_in_them() -> None:
    assert ordered(moved(b"d/s", b"a", b"e/s"), moved(b"d", b"e")) == [(b"d", b"e"), (b"e/s", b"a")]


def test_what_a_new_name_lies_in_comes_first_even_where_it_lay_in_it() -> None:
    assert ordered(moved(b"p", b"p/p"), moved(b"p/c", b"p", b"p/p/c")) == [(b"p/c", b"p"), (b"p", b"p/p")]


def test_a_name_above_a_new_one_is_left_before() -> None:
    # `q` is a new directory now; the one that had the name is elsewhere.
    assert ordered(moved(b"a", b"q/a"), moved(b"q", b"z")) == [(b"q", b"z"), (b"a", b"q/a")]


def test_what_is_saved_out_of_a_directory_comes_before_another_one_has_its_name() -> None:
    assert ordered(moved(b"b", b"a"), moved(b"a/s", b"z", held_by=b"a")) == [(b"a/s", b"z"), (b"b", b"a")]


def test_what_goes_from_the_old_directory_of_a_name_into_the_new_one_cannot_be_named() -> None:
    # Before `b` is `a`, there is no place for it; after that, `a/s` would be what lay in `b`.
    found = in_order([moved(b"b", b"a"), moved(b"a/s", b"a/s", held_by=b"a")])
    assert found.impossible == (1,)


def test_two_directories_that_each_went_into_a_new_one_of_the_other_name() -> None:
    found = in_order([moved(b"p", b"q/p"), moved(b"q", b"p/q")])
    assert len(found.impossible) == 1
