"""What a lab is derived from: names, networks, users, content. No I/O."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.units import MIB
from migrator.lab.cluster import planned_hosts
from migrator.lab.model import LabSpec, VolumeType
from migrator.lab.odd import NAMES, acl_value, content_blocks, file_content
from migrator.lab.users import invent_users

SPEC = LabSpec(directory=b"/tmp/lab", users=6, files=1000, data_bytes=64 * MIB)
NOW_S = 1_750_000_000


def test_two_directories_have_different_names_and_one_has_always_the_same() -> None:
    other = replace(SPEC, directory=b"/tmp/lab2")
    assert SPEC.name_prefix == replace(SPEC).name_prefix
    assert SPEC.name_prefix != other.name_prefix
    assert len("v" + SPEC.name_prefix + "-hub") <= 15  # IFNAMSIZ less the terminating NUL


@given(st.binary(min_size=1, max_size=40))
def test_the_derived_network_is_always_one(directory: bytes) -> None:
    assert 1 <= LabSpec(directory=b"/" + directory).network_octet <= 254


def test_given_names_are_kept() -> None:
    spec = replace(SPEC, prefix="mine", subnet_octet=7)
    assert spec.mistakes() == ()
    assert [host.namespace for host in planned_hosts(spec)] == ["mine-1", "mine-2", "mine-3"]
    assert planned_hosts(spec)[0].address == "10.213.7.11"


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (replace(SPEC, directory=b"relative"), "absolute"),
        (replace(SPEC, directory=b"/tmp/a,b"), "commas"),
        (replace(SPEC, prefix="nine-chars"), "prefix"),
        (replace(SPEC, subnet_octet=300), "subnet"),
        (replace(SPEC, hosts=0), "hosts"),
        (replace(SPEC, brick_size_bytes=MIB), "300 MiB"),
        (replace(SPEC, users=0), "users"),
        (replace(SPEC, volume="../x"), "volume"),
        (replace(SPEC, hosts=2, volume_type=VolumeType.REPLICA3), "multiple of 3"),
    ],
)
def test_what_cannot_be_built_is_said(wrong: LabSpec, word: str) -> None:
    assert len(wrong.mistakes()) == 1
    assert word in wrong.mistakes()[0]


def test_equal_seeds_give_equal_users() -> None:
    assert invent_users(SPEC, NOW_S) == invent_users(replace(SPEC, directory=b"/elsewhere"), NOW_S)
    assert invent_users(SPEC, NOW_S) != invent_users(replace(SPEC, seed=2), NOW_S)


@given(st.integers(1, 30), st.integers(0, 400), st.integers(0, 8 * MIB), st.integers(0, 1000))
def test_users_have_what_was_asked_for(users: int, files: int, data_bytes: int, seed: int) -> None:
    spec = replace(SPEC, users=users, files=files, data_bytes=data_bytes, seed=seed)
    invented = invent_users(spec, NOW_S)
    made = [file for user in invented for directory in user.directories for file in directory.files]
    assert len({user.name for user in invented}) == len({user.uid for user in invented}) == users
    assert abs(len(made) - files) <= users
    assert sum(file.size_bytes for file in made) <= data_bytes + users
    assert all(file.mtime_ns <= NOW_S * 10**9 + 10**9 for file in made)
    assert all(file.size_bytes >= 0 for file in made)
    assert all(file.mode != 0o1000 for file in made)
    for user in invented:
        paths = [directory.path for directory in user.directories]
        assert paths[0] == b""
        assert all(path.rpartition(b"/")[0] in paths[:number] for number, path in enumerate(paths) if number)
        for directory in user.directories:
            names = [file.name for file in directory.files]
            assert len(set(names)) == len(names)
            for number, file in enumerate(directory.files):
                assert file.same_as is None or file.same_as in names[:number]


def test_usage_is_heavy_tailed_and_of_all_ages() -> None:
    invented = invent_users(replace(SPEC, files=4000), NOW_S)
    sizes = [sum(file.size_bytes for directory in user.directories for file in directory.files) for user in invented]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > 4 * sizes[-1]
    made = [file for user in invented for directory in user.directories for file in directory.files]
    tiny = [file for file in made if file.size_bytes < 4096]
    assert len(tiny) > len(made) // 2
    ages_days = [(NOW_S - file.mtime_ns / 1e9) / 86400 for file in made]
    assert sum(age > 365 for age in ages_days) > 100
    assert sum(age < 90 for age in ages_days) > 100
    assert any(file.atime_ns > file.mtime_ns + 30 * 86400 * 10**9 for file in made)


def test_content_depends_on_seed_and_path_and_is_whole_beyond_one_block() -> None:
    assert file_content(1, b"a", 64) != file_content(2, b"a", 64) != file_content(2, b"b", 64)
    blocks = list(content_blocks(1, b"a", 2 * MIB + 5))
    assert [len(block) for block in blocks] == [MIB, MIB, 5]
    assert blocks[0] != blocks[1]


def test_an_acl_is_what_the_kernel_wants() -> None:
    value = acl_value(owner=7, group=5, other=0, mask=7, users={20002: 6, 20001: 4}, groups={30001: 1})
    assert value[:4] == struct.pack("<I", 2)
    entries = list(struct.iter_unpack("<HHI", value[4:]))
    assert [tag for tag, _, _ in entries] == [1, 2, 2, 4, 8, 16, 32]
    assert entries[1] == (2, 4, 20001)
    assert entries[2] == (2, 6, 20002)


def test_odd_names_can_be_names() -> None:
    for names in NAMES.values():
        assert len(set(names)) == len(names)
        for name in names:
            assert 1 <= len(name) <= 255
            assert b"/" not in name
            assert b"\0" not in name
            assert name not in (b".", b"..")
