"""ACLs: what is read is what was built, and what they mean for a mode."""

from hypothesis import given
from hypothesis import strategies as st

from migrator.fs import acl

ENTRIES = st.lists(
    st.builds(
        acl.AclEntry,
        tag=st.sampled_from((acl.USER, acl.GROUP)),
        id=st.integers(0, 2**32 - 2),
        permissions=st.integers(0, 7),
    ),
    max_size=20,
).map(tuple)


@given(ENTRIES)
def test_what_is_built_is_read(entries: tuple[acl.AclEntry, ...]) -> None:
    assert acl.parse_acl(acl.build_acl(entries)) == tuple(sorted(entries))


@given(st.binary(max_size=64))
def test_any_bytes_are_read_or_refused(value: bytes) -> None:
    parsed = acl.parse_acl(value)
    assert parsed is None or len(parsed) == (len(value) - 4) // 8


def test_the_kernels_own_bytes_are_understood() -> None:
    # As getxattr gave them on XFS after `setfacl -m u:1001:rw`, for a file of mode 0644.
    value = bytes.fromhex("0200000001000600ffffffff02000600e903000004000400ffffffff10000600ffffffff20000400ffffffff")
    entries = acl.parse_acl(value)
    assert entries is not None
    assert acl.show_acl(entries) == "u::rw-,u:1001:rw-,g::r--,m::rw-,o::r--"
    assert acl.build_acl(entries) == value
    assert not acl.is_minimal(entries)
    assert acl.owning_group_bits(entries) == 4
