"""Which verbs probe both file systems beside their work: those that load them, and change or compare what users have."""

from pathlib import Path

import pytest

from tests.support.cli_site import Site
from tests.support.probe_notes import note_probes

pytestmark = [pytest.mark.needs_root, pytest.mark.exhaustive]


def test_verify_and_what_packs_and_unpacks_archives_probe_and_what_only_looks_does_not(
    planned: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed = note_probes(tmp_path / "probed", monkeypatch)
    planned.works("run", "--user-batch", "1", "--deltas", "0")
    found: dict[str, bool] = {}
    for words in (
        ("verify", "--user-batch", "1"),
        ("reap", "archive", "--user-batch", "1"),
        ("reap", "restore", "x", "--tree", "home/ann"),
        ("reap", "list"),
        ("status",),
    ):
        probed()
        planned.call(*words)
        found[" ".join(words[:2])] = probed()
    assert found == {
        "verify --user-batch": True,
        "reap archive": True,
        "reap restore": True,
        "reap list": False,
        "status": False,
    }
