"""Scans of some user trees alone: what they hold, what makes them not whole, and that nothing takes one for the site's."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migrator.catalog.model import ScanTimes
from migrator.core.errors import Interrupted, UsageError
from migrator.gluster.model import SourceHealth
from tests.support.scan_site import Lying, ScanSite, cancelled

ALICE = b"home/alice"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ScanSite]:
    made = ScanSite(tmp_path)
    made.grow(["alice", "alice-b", "bob", "carol"])
    (made.root / "stray").write_text("nobody's")
    (made.root / "home" / "loose").write_text("nobody's")
    (made.root / "other" / "place").mkdir(parents=True)
    yield made
    made.close()


@pytest.fixture
def watched(site: ScanSite) -> Iterator[Lying]:
    source = Lying(os.fsencode(site.root))
    yield source
    source.close()


def test_it_holds_the_rows_of_a_whole_one_in_its_trees_and_on_the_way_to_them(site: ScanSite, watched: Lying) -> None:
    whole = site.scan()
    record = site.scan(source=watched, only=(b"home/bob", ALICE))
    assert record.whole, record.reasons
    assert record.scope == (b"home/bob", ALICE)
    assert [tree.path for tree in record.trees] == [ALICE, b"home/bob"]
    trees = {ALICE, b"home/bob"}
    expected = [row for row in site.rows(whole) if row["tree"] in trees or row["path"] == b"home"]
    assert site.rows(record) == expected
    assert (record.rows, record.directories, record.files) == (len(expected), 9, len(expected) - 9)
    assert record.size_bytes == sum(row["size"] for row in expected if row["type"] == "file")
    assert all(path.startswith((ALICE + b"/", b"home/bob/")) or path in trees for path in watched.listed)
    assert set(watched.looked) <= {b"", b"home", *trees}
    assert whole.covers([ALICE, b"home/none"])
    assert record.covers([b"home/bob", ALICE])
    assert not record.covers([ALICE, b"home/alice-b"])
    assert site.catalogs().closed(record.name).record == record
    assert site.ledger.scans.all()[-1] == replace(record, times=ScanTimes())
    assert site.ledger.scans.latest() == replace(whole, times=ScanTimes())


def test_what_is_wrong_outside_does_not_matter_and_what_is_wrong_within_does(site: ScanSite, watched: Lying) -> None:
    watched.unreadable = {b"home/carol", b"home/loose"}
    assert site.scan(source=watched, only=(ALICE,)).whole
    watched.healths = [
        SourceHealth(problems=(), fingerprint="a"),
        SourceHealth(problems=("brick is down",), fingerprint="a"),
    ]
    record = site.scan(source=watched, only=(ALICE,))
    assert not record.whole
    assert any("down" in reason for reason in record.reasons)
    # The tree is found, and then the way to it is lost.
    watched.unreadable = {b"home"}
    record = site.scan(source=watched, only=(ALICE,))
    assert not record.whole
    assert [(row["path"], row["operation"]) for row in site.problems(record)] == [(b"home", "lstat")]


@pytest.mark.parametrize("how", ["gone", "symlink", "file", "another name", "excluded too"])
def test_a_tree_that_is_none_any_more_makes_it_not_whole(site: ScanSite, how: str) -> None:
    tree, lost = site.root / "home" / "bob", b"home/bob"
    changes: dict[str, Any] = {}
    if how == "gone":
        tree.rename(site.root / "elsewhere")
    elif how == "symlink":
        tree.rename(site.root / "elsewhere")
        tree.symlink_to(site.root / "elsewhere")
    elif how == "file":
        tree.rename(site.root / "elsewhere")
        tree.write_text("a file")
    elif how == "another name":
        lost = b"other/place"
    else:
        changes = {"exclude": ["home/bob"]}
    record = site.scan(only=(ALICE, lost), **changes)
    assert not record.whole
    assert any(lost.decode() in reason for reason in record.reasons)
    assert [found.path for found in record.trees] == [ALICE]
    assert {row["tree"] for row in site.rows(record)} == {None, ALICE}
    if how == "excluded too":
        with pytest.raises(UsageError):
            site.scan(only=(lost,), **changes)
        return
    record = site.scan(only=(lost,))
    assert (record.whole, record.trees, record.rows) == (False, (), 0)


def test_one_that_is_stopped_starts_over_and_leaves_nothing(site: ScanSite, watched: Lying) -> None:
    with pytest.raises(Interrupted) as stopped:
        asyncio.run(cancelled(site, watched, 1, workers=1, only=(ALICE,)))
    assert "starts over" in str(stopped.value.hint)
    assert list(site.catalogs_dir.iterdir()) == []
    watched.before_reading = lambda _: None
    record = site.scan(source=watched)
    assert (record.whole, record.scope) == (True, ())
    assert b"home/carol" in {row["path"] for row in site.rows(record)}


def test_one_that_was_closed_and_not_told_is_told_and_not_taken_for_another(site: ScanSite) -> None:
    record = site.scan(only=(ALICE,))
    site.forget_the_end()
    again = site.scan()
    assert (again.scope, again.name != record.name) == ((), True)
    assert site.ledger.scans.unfinished_of_trees() == []
    assert site.ledger.scans.all()[0].rows == record.rows
    site.forget_the_end()
    (site.catalogs_dir / record.name / record.parts[0]).unlink()
    assert site.scan(only=(b"home/bob",)).whole, "a damaged one is in nobody's way"
