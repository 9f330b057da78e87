"""`plan` scans by itself if there is no fresh catalog."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from migrator.core.units import DAY_S
from migrator.plan.plan import FRESH_S
from tests.support.cli_site import Site

pytestmark = pytest.mark.needs_root


@pytest.fixture
def site(scratch: Path) -> Site:
    """A site with one user, and no catalog."""
    made = Site(scratch, scratch / "source", scratch / "target")
    (made.source / "home" / "alice").mkdir(parents=True)
    (made.source / "home" / "alice" / "letter").write_text("dear")
    made.target.mkdir()
    made.write()
    made.works("init")
    return made


def planned_from(site: Site, *words: str) -> str:
    """The catalog behind a new plan."""
    done = site.call("plan", "--json", *words)
    assert done.returncode == 0, done.stderr
    catalog = json.loads(done.stdout)["plan"]["catalog"]
    assert isinstance(catalog, str)
    return catalog


def catalogs(site: Site) -> list[str]:
    return sorted(path.name for path in (site.directory / "state").glob("catalogs/*"))


def age(site: Site, by_s: float) -> None:
    with closing(sqlite3.connect(site.directory / "state" / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE scans SET finished_at_s = finished_at_s - ?", [by_s])


def test_a_source_without_a_catalog_is_scanned_once(site: Site) -> None:
    site.fails(2, "plan", "--no-scan", says=("no catalog",))
    assert catalogs(site) == []
    first = planned_from(site)
    assert catalogs(site) == [first]
    age(site, FRESH_S - DAY_S)
    assert planned_from(site) == first
    assert catalogs(site) == [first]


def test_an_old_catalog_is_replaced_unless_it_is_asked_for(site: Site) -> None:
    site.works("scan")
    (first,) = catalogs(site)
    age(site, FRESH_S + 60)
    assert planned_from(site, "--no-scan") == first
    assert planned_from(site, "--catalog", first) == first
    assert catalogs(site) == [first]
    second = planned_from(site)
    assert catalogs(site) == sorted([first, second])
    assert second != first


def test_other_settings_of_users_need_a_new_catalog(site: Site) -> None:
    (site.source / "projects" / "apollo").mkdir(parents=True)
    first = planned_from(site)
    site.write(trees='["home/*", "projects/*"]')
    assert planned_from(site, "--no-scan") == first
    second = planned_from(site)
    assert second != first
    assert planned_from(site) == second


@pytest.mark.needs_root
def test_numbers_that_an_owner_would_keep_are_not_given_to_another(site: Site) -> None:
    for path, uid, gid in (
        (site.source / "home" / "alice", 61001, 61001),
        (site.source / "home" / "alice" / "letter", 61002, 61003),
    ):
        os.chown(path, uid, gid)
    for key, number in (("uid_map", 61002), ("gid_map", 61003)):
        site.write(trees=f'["home/*"]\n{key} = {{ 61001 = {number} }}')
        site.fails(4, "plan", says=(key, str(number)))
        site.write(trees=f'["home/*"]\n{key} = {{ 61001 = {number}, {number} = 61009 }}')
        planned_from(site)


def test_a_request_that_cannot_be_met_is_refused_before_the_scan(site: Site) -> None:
    planned_from(site, "--name", "mine")
    (first,) = catalogs(site)
    age(site, FRESH_S + 60)
    site.fails(2, "plan", "--name", "mine", says=("mine",))
    assert catalogs(site) == [first]


def test_a_scan_that_has_found_nothing_yet_prints_no_line(site: Site) -> None:
    done = site.call("plan")
    lines = [line for line in done.stderr.splitlines() if line.startswith("scan:")]
    assert lines
    assert not [line for line in lines if line.startswith("scan: 0 paths")]
