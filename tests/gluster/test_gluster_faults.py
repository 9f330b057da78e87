"""Which faults a version has."""

import pytest

from migrator.gluster.rules import known_faults, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("10.3", (10, 3)),
        ("glusterfs 11.0\nRepository revision", (11, 0)),
        ("3.12.15-1", (3, 12, 15)),
        ("glusterfs", None),
        ("11", None),
        ("", None),
    ],
)
def test_the_numbers_of_a_version(text: str, version: tuple[int, ...] | None) -> None:
    assert parse_version(text) == version


def references(version: str | None) -> set[str]:
    return {fault.reference for fault in known_faults(version)}


@pytest.mark.parametrize(
    ("version", "deletes_data"), [("10.3", False), ("11.0", True), ("11.0.1", True), ("11.1", False), ("11.2", False)]
)
def test_the_version_whose_rebalance_deletes_data(version: str, deletes_data: bool) -> None:
    assert ("#4148" in references(version)) is deletes_data
    assert any(fault.stops_drain for fault in known_faults(version)) is deletes_data
