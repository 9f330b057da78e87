"""What a lab is derived from: names, networks, users, content. No I/O."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.units import MIB
from migrator.lab.model import LabSpec, VolumeType
from migrator.lab.users import invent_users

SPEC = LabSpec(directory=b"/tmp/lab", users=6, files=1000, data_bytes=64 * MIB)
NOW_S = 1_750_000_000


@given(st.binary(min_size=1, max_size=40))
def test_the_derived_network_is_always_one(directory: bytes) -> None:
    assert 1 <= LabSpec(directory=b"/" + directory).network_octet <= 254


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (replace(SPEC, directory=b"relative"), "absolute"),
        (replace(SPEC, directory=b"/tmp/a,b"), "commas"),
        (replace(SPEC, hosts=0), "hosts"),
        (replace(SPEC, brick_size_bytes=MIB), "300 MiB"),
        (replace(SPEC, users=0), "users"),
        (replace(SPEC, hosts=2, volume_type=VolumeType.REPLICA3), "multiple of 3"),
    ],
)
def test_what_cannot_be_built_is_said(wrong: LabSpec, word: str) -> None:
    assert len(wrong.mistakes()) == 1
    assert word in wrong.mistakes()[0]


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
