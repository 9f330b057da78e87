"""Completion of users, batches, plans and bricks."""

import os
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.cli.main import main
from tests.support.catalogs import write_catalog
from tests.support.cli_site import Site

USERS = ("alice", "bob")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    for user in USERS:
        (tmp_path / "source/home" / user).mkdir(parents=True)
        (tmp_path / "source/home" / user / "file").write_text(user)
    (tmp_path / "target").mkdir()
    made = Site(directory=tmp_path, source=tmp_path / "source", target=tmp_path / "target")
    made.write()
    for words in (["init"], ["scan"], ["plan", "--accept-unknown-inodes"], ["plan", "--accept-unknown-inodes"]):
        made.works(*words)
    return made


def completed(site: Site, *words: str) -> list[str]:
    completion = BashComplete(main, {}, "migrator", "_MIGRATOR_COMPLETE")
    before = ["--site", str(site.file), *words[:-1]]
    return [item.value for item in completion.get_completions(before, words[-1])]


def test_users_batches_and_plans(site: Site) -> None:
    assert completed(site, "run", "--user", "") == ["alice", "bob"]
    assert completed(site, "reap", "restore", "--user", "a") == ["alice"]
    assert completed(site, "cutover", "--user-batch", "") == ["1", "2"]
    assert completed(site, "status", "--plan", "") == ["plan-0002", "plan-0001"]
    assert completed(site, "plan", "--activate", "plan-0002") == ["plan-0002"]
    assert completed(site, "run", "--plan", "plan-0007", "--user", "") == []


@pytest.mark.parametrize("change", ["no ledger", "no site file", "damaged ledger", "wrong site file"])
def test_an_error_completes_nothing_and_prints_nothing(
    site: Site, change: str, capfd: pytest.CaptureFixture[str]
) -> None:
    match change:
        case "no ledger":
            (site.directory / "state/ledger.db").unlink()
        case "no site file":
            site.file.unlink()
        case "damaged ledger":
            (site.directory / "state/ledger.db").write_bytes(os.urandom(9_000))
        case _:
            site.file.write_text("[site\n")
    before = sorted(site.directory.rglob("*"))
    assert completed(site, "run", "--user", "") == []
    assert tuple(capfd.readouterr()) == ("", "")
    assert sorted(site.directory.rglob("*")) == before


def test_bricks_of_the_newest_scan_that_read_them(site: Site) -> None:
    assert completed(site, "brick", "drain", "") == []
    names = ("gl1:/srv/b1", "gl2:/srv/b1")
    record = write_catalog(site.directory / "state/catalogs", (), (), name="of-bricks", bricks=names)
    with MigrationLedger.open(site.directory / "state/ledger.db") as ledger:
        scan_id = ledger.scans.start(catalog="of-bricks", via="bricks", at_s=record.started_at_s)
        ledger.scans.finish(replace(record, scan_id=scan_id, via="bricks"))
    assert completed(site, "brick", "drain", "") == list(names)
    assert completed(site, "brick", "add", "--to", "source", "--instead-of", "gl2") == ["gl2:/srv/b1"]
