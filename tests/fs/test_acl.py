"""ACLs: what is read is what was built, and what they mean for a mode."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.fs.acl import (
    GROUP,
    GROUP_OBJ,
    MASK,
    OTHER,
    USER,
    USER_OBJ,
    AclEntry,
    build_acl,
    is_minimal,
    owning_group_bits,
    parse_acl,
    show_acl,
)

ENTRIES = st.lists(
    st.builds(
        AclEntry,
        tag=st.sampled_from((USER, GROUP)),
        id=st.integers(0, 2**32 - 2),
        permissions=st.integers(0, 7),
    ),
    max_size=20,
).map(tuple)


@given(ENTRIES)
def test_what_is_built_is_read(entries: tuple[AclEntry, ...]) -> None:
    assert parse_acl(build_acl(entries)) == tuple(sorted(entries))


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    parsed = parse_acl(value)
    assert parsed is None or len(parsed) == (len(value) - 4) // 8


@pytest.mark.parametrize("value", [b"", b"\x02\x00\x00", b"\x01\x00\x00\x00", b"\x02\x00\x00\x00\x01"])
def test_what_is_no_acl_is_refused(value: bytes) -> None:
    assert parse_acl(value) is None


def test_the_kernels_own_bytes_are_understood() -> None:
    # As getxattr gave them on XFS after `setfacl -m u:1001:rw`, for a file of mode 0644.
    value = bytes.fromhex("0200000001000600ffffffff02000600e903000004000400ffffffff10000600ffffffff20000400ffffffff")
    entries = parse_acl(value)
    assert entries is not None
    assert show_acl(entries) == "u::rw-,u:1001:rw-,g::r--,m::rw-,o::r--"
    assert build_acl(entries) == value
    assert not is_minimal(entries)
    assert owning_group_bits(entries) == 4


def test_the_mask_bounds_the_owning_group() -> None:
    entries = (
        AclEntry(tag=USER_OBJ, id=0, permissions=7),
        AclEntry(tag=GROUP_OBJ, id=0, permissions=7),
        AclEntry(tag=MASK, id=0, permissions=5),
        AclEntry(tag=OTHER, id=0, permissions=0),
    )
    assert owning_group_bits(entries) == 5
    assert is_minimal(entries)
    assert owning_group_bits(()) is None


def test_long_acls_are_shown_short() -> None:
    entries = tuple(AclEntry(tag=USER, id=number, permissions=1) for number in range(100))
    assert "u:7:--x and 92 more (" in show_acl(entries)
    assert show_acl(entries) != show_acl((*entries[:-1], AclEntry(tag=USER, id=99, permissions=2)))
