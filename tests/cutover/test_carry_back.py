"""A user who works on the target changes everything, and goes back: the source becomes what the target is."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.core.units import MIB
from migrator.fs.model import TargetCapabilities
from migrator.ledger.ledger import open_ledger
from tests.conftest import MakeXfs
from tests.support.cut_site import CutSite, cut_site, top_facts
from tests.support.delta_changes import MANY, MANY_BYTES, VANISHED, build, change, let_settle, standing, write

pytestmark = pytest.mark.needs_root


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[CutSite]:
    """A user who was moved a moment ago."""

    def settled(tree: Path) -> None:
        build(tree)
        let_settle()  # otherwise the final pass sends the files again

    with cut_site(scratch, make_xfs(), make_xfs(), stages=("pre-freeze",), fill=settled) as made:
        let_settle()  # what is as young as the thaw goes back
        made.cutover()
        yield made


def goes_back(site: CutSite) -> None:
    expected, top = site.snapshot(), top_facts(site.target())
    site.rollback()
    site.assert_works_on("source", expected)
    assert top_facts(site.source()) == top


def stays(site: CutSite, words: str) -> None:
    """The rollback is given up for this reason, and the source is as it was."""
    before, expected = standing(site.source()), site.snapshot()
    found = site.rollback(code=4)
    assert found["ending"] == "given-up"
    assert words in found["words"]
    site.assert_works_on("target", expected)
    assert standing(site.source()) == before


def trashed(site: CutSite) -> set[str]:
    """Paths in the trash of the source, each relative to the place of its pass."""
    places = (site.site.source.path / ".migrator-trash").iterdir()
    return {str(path.relative_to(place)) for place in places for path in place.rglob("*")}


@pytest.mark.guarantee("rollback")
def test_every_kind_of_change_comes_back_and_nothing_else_is_sent(site: CutSite) -> None:
    source = site.source()
    kept, many = standing(source / "kept"), standing(source / "many")
    change(site.target())
    goes_back(site)
    assert standing(source / "kept") == kept
    moved = standing(source / "new" / "moved along")
    assert {path: facts[:2] for path, facts in moved.items()} == {path: facts[:2] for path, facts in many.items()}
    assert len(moved) == MANY
    assert {f"home/ann/{path}" for path in VANISHED} <= trashed(site)
    ((files, size_bytes, gone),) = changes(site)
    assert gone >= len(VANISHED)
    assert 0 < size_bytes < MANY_BYTES * 10
    assert 10 < files < 50


def changes(site: CutSite) -> list[tuple[Any, ...]]:
    keys = ", ".join(f"facts ->> '$.notes.target_changes.{name}'" for name in ("files", "size_bytes", "gone"))
    return site.rows(f"SELECT {keys} FROM operations")


@pytest.mark.guarantee("rollback")
def test_what_the_target_cannot_keep_stays_as_it_was_on_the_source(scratch: Path, make_xfs: MakeXfs) -> None:
    """The target is made to keep less, as BeeGFS does: the file that nobody touched keeps what only the source has."""

    def rich(tree: Path) -> None:
        build(tree)
        for name in ("0", "1"):
            os.setxattr(tree / "kept" / name, "security.rich", b"only here")
        let_settle()  # otherwise the final pass sends the files again

    with cut_site(scratch, make_xfs(), make_xfs(), stages=("pre-freeze",), fill=rich, prepared=False) as site:
        with open_ledger(site.site.ledger) as ledger:
            ledger.site.record_capabilities(TargetCapabilities(keeps_security_xattrs=False), 11.0)
        site.call("run", "--all", "--json")
        let_settle()
        site.cutover()
        with (site.target() / "kept" / "1").open("a") as grown:
            grown.write("more")
        site.rollback()
        assert os.getxattr(site.source() / "kept" / "0", "security.rich") == b"only here"
        assert (site.source() / "kept" / "1").read_text().endswith("more")


@pytest.mark.exhaustive
def test_a_directory_that_became_a_symlink_leads_nowhere(site: CutSite, scratch: Path) -> None:
    outside = scratch / "outside"
    write(outside / "0", "not the user's")
    shutil.rmtree(site.target() / "kept")
    (site.target() / "kept").symlink_to(outside)
    write(site.target() / "vanishes" / "inner" / "deep", "changed")
    goes_back(site)
    assert (outside / "0").read_text() == "not the user's"
    assert (site.source() / "kept").is_symlink()
    assert "home/ann/kept/0" in trashed(site)


def test_nothing_is_touched_on_a_doubt(site: CutSite) -> None:
    # The proof of the switch is not what it was.
    *_, manifest = sorted((site.directory / "state" / "manifests").glob("*/manifest.parquet"))
    content = manifest.read_bytes()
    manifest.write_bytes(content[:-1] + b"?")
    stays(site, "is not the one that the cutover was proven with")
    manifest.write_bytes(content)
    # More is gone than is believed.
    shutil.rmtree(site.target() / "many")
    write(site.target() / "later", "later")
    stays(site, "has lost")
    text = site.site.file.read_text()
    site.site.file.write_text(text.replace("[transfer]\n", '[transfer]\nmax_shrink = "100%"\n'))
    goes_back(site)
    assert "home/ann/many/sub-0/5" in trashed(site)


@pytest.mark.exhaustive
def test_a_full_source_stops_it_with_the_reason_and_room_lets_it_go_on(site: CutSite) -> None:
    filler = site.site.source.path / "filler"
    free = os.statvfs(site.site.source.path)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max((free.f_bavail * free.f_frsize) - 20 * MIB, MIB))
    (site.target() / "big").write_bytes(os.urandom(40 * MIB))
    found = site.rollback(code=4)
    assert "lacks" in found["words"] or "full" in found["words"], found
    filler.unlink()
    goes_back(site)


@pytest.mark.exhaustive
def test_the_top_gets_what_the_user_made_of_it_on_the_target(site: CutSite) -> None:
    site.target().chmod(0o2711)
    os.setxattr(site.target(), "user.note", b"of the top")
    write(site.target() / "later", "later")
    written = site.target().stat().st_mtime_ns
    goes_back(site)
    assert site.source().stat().st_mtime_ns == written
    assert os.getxattr(site.source(), "user.note") == b"of the top"
