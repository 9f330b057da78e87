"""Temporary files of streams, told from users' files. The names are what rsync 3.5.0 made of them."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from migrator.transfer.rules_leftovers import (
    copy_name,
    is_leftover,
    is_stream_leftover,
    part_name,
    temporary_marks,
    temporary_stem,
)

SEED = 20260314
NAMES = st.binary(min_size=1, max_size=255).filter(lambda name: b"/" not in name and b"\0" not in name)


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        (b"notes.txt", b"notes.txt"),
        (b".bashrc", b"bashrc"),
        (b"..double", b".double"),
        (b"ends.", b"ends"),
        (b"a" * 255, b"a" * 246),
        (b"." + b"a" * 254, b"a" * 246),
        (b"a" * 245 + "é".encode() + b"b" * 8, b"a" * 245),
        (b"a" * 244 + "é".encode() + b"b" * 8, b"a" * 244 + "é".encode()),
    ],
)
def test_the_stem_of_a_temporary_name(name: bytes, stem: bytes) -> None:
    assert temporary_stem(name) == stem


@example(b"migrator-copy-", "000000")
@given(NAMES, st.text("ABCdefxyz0189", min_size=6, max_size=6))
def test_every_temporary_name_is_found_and_fits(name: bytes, suffix: str) -> None:
    temporary = b"." + temporary_stem(name) + b"." + suffix.encode()
    assert len(temporary) <= 255
    assert is_leftover(temporary, {temporary_stem(name)})


OTHERS = (b"notes.txt.ABCdef", b".notes.txt", b".other.txt.ABCdef", b".notes.txt.ABC-ef", b".notes.txt.ABCdefg")
COPIES = (
    copy_name(b"other.txt", SEED),
    copy_name(b"notes.txt", SEED + 1),
    part_name(b"notes.txt", SEED),
    copy_name(b"notes.txt", SEED) + b".ABCdef",
    b".migrator-tmp-cafe",
)


@pytest.mark.parametrize("name", [*OTHERS, *COPIES])
def test_other_names_are_left_alone(name: bytes) -> None:
    assert not is_leftover(name, set(temporary_marks(b"notes.txt", SEED)))


@given(NAMES)
def test_copies_of_the_compiled_program_are_found_and_fit(name: bytes) -> None:
    assert len(copy_name(name, SEED)) <= 255
    assert is_stream_leftover(copy_name(name, SEED), set(temporary_marks(name, SEED)))
