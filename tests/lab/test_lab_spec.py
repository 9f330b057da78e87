"""What a lab is derived from: names, networks, users, content. No I/O."""

from dataclasses import replace

import pytest

from migrator.core.units import MIB
from migrator.lab.model import LabSpec, VolumeType

SPEC = LabSpec(directory=b"/tmp/lab", users=6, files=1000, data_bytes=64 * MIB)
NOW_S = 1_750_000_000


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
