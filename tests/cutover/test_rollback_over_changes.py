"""A rollback to a source that somebody changed meanwhile: nothing of that is overwritten in silence."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.core.errors import MigratorError
from migrator.cutover.carry_back import CarryingBack
from migrator.cutover.model import CutoverRecord
from migrator.verify.model import VerificationRecord
from tests.conftest import MakeXfs
from tests.support.cut_site import CutSite, cut_site
from tests.support.snapshots import snapshot

pytestmark = pytest.mark.needs_root


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[CutSite]:
    with cut_site(scratch, make_xfs(), make_xfs(), stages=("pre-freeze",)) as made:
        yield made


@pytest.mark.guarantee("rollback")
def test_what_root_changed_on_the_source_stops_a_rollback_until_it_is_given_up(site: CutSite) -> None:
    site.cutover()
    source, target = site.source(), site.target()
    before = snapshot(os.fsencode(target))
    (source / "d0" / "made by root").write_bytes(b"root's")
    (source / "d1" / "f0001").write_bytes(b"root was here")
    (source / "d2" / "f0002").unlink()
    refused = site.call("rollback", "--user", "ann", "--json", code=4).outcome
    assert refused["ending"] == "refused"
    for words in ("d0/made by root (made)", "d1/f0001 (changed)", "d2/f0002 (removed)", "3 paths"):
        assert words in refused["words"], refused["words"]
    assert "--overwrite-source" in refused["hint"]
    assert site.tree() == target
    assert site.is_open(target), "nobody was frozen for it"
    assert (source / "d1" / "f0001").read_bytes() == b"root was here"

    moved = site.call("rollback", "--user", "ann", "--overwrite-source", "--json").outcome

    assert moved["ending"] == "moved", moved
    assert site.tree() == source
    assert site.snapshot() == before
    trash = site.site.source.path / ".migrator-trash"
    kept = {path.name: path.read_bytes() for path in trash.rglob("*") if path.is_file()}
    assert kept == {"made by root": b"root's", "f0001": b"root was here"}


@pytest.mark.exhaustive
def test_what_a_rollback_carried_before_it_was_given_up_is_nobodys_change(site: CutSite) -> None:
    site.cutover()
    (site.target() / "d0" / "new of the user").write_bytes(b"new")
    (site.target() / "d3" / "f0003").write_bytes(b"changed by the user")
    (site.target() / "d4" / "f0004").unlink()
    refuses = site.hook("pre-switch.d/60-refuses", "exit 1")
    before = site.snapshot()
    assert site.rollback(code=4)["ending"] == "given-up"
    assert (site.source() / "d0" / "new of the user").exists(), "it was carried"
    assert site.tree() == site.target()
    refuses.unlink()
    assert site.rollback()["ending"] == "moved"
    assert site.tree() == site.source()
    assert site.snapshot() == before


@pytest.mark.exhaustive
def test_the_source_is_purged_after_a_rollback_that_was_given_up_with_what_it_had_carried(site: CutSite) -> None:
    site.write(cutover='retain = "0s"')
    site.cutover()
    (site.target() / "d0" / "new of the user").write_bytes(b"new")
    (site.target() / "d3" / "f0003").write_bytes(b"changed by the user")
    site.hook("pre-switch.d/60-refuses", "exit 1")
    assert site.rollback(code=4)["ending"] == "given-up"
    (site.target() / "d3" / "f0003").write_bytes(b"changed by the user once more")
    before = site.snapshot()
    checksum = site.call("purge", "--user", "ann", "--dry-run", "--json").json["checksum"]
    # The content of what was carried has to be the one that the rollback's own verification read.
    carried = site.source() / "d0" / "new of the user"
    facts = carried.stat()
    carried.write_bytes(b"odd")
    os.utime(carried, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    site.call("purge", "--user", "ann", "--confirm", checksum, "--json", code=4)
    carried.write_bytes(b"new")
    os.utime(carried, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    site.call("purge", "--user", "ann", "--confirm", checksum, "--json")
    assert not site.source().exists()
    assert site.snapshot() == before


def no_verification() -> None:
    """A rollback cannot verify what it has carried."""

    async def fails(_self: CarryingBack, _record: CutoverRecord) -> VerificationRecord:
        raise MigratorError("the state directory is full")

    CarryingBack.compare = fails  # type: ignore[method-assign, assignment]  # in a process of its own


@pytest.mark.exhaustive
def test_what_a_rollback_carried_without_proof_is_purged_after_a_verification_of_that_user(site: CutSite) -> None:
    site.write(cutover='retain = "0s"')
    site.cutover()
    target = site.target()
    (target / "d0" / "new of the user").write_bytes(b"new")
    (target / "d3" / "f0003").write_bytes(b"changed by the user")
    given_up = site.start("rollback", "--user", "ann", "--json", before=no_verification).end()
    assert given_up.outcome["ending"] == "given-up", given_up
    assert (site.source() / "d0" / "new of the user").exists(), "it was carried"

    (tree,) = site.call("purge", "--user", "ann", "--dry-run", "--json", code=4).json["trees"]
    assert "`migrator verify --user ann`" in " ".join(tree["reasons"])

    # He works all the while: what he changes now differs, and what he changes later was proven before.
    (target / "d4" / "f0004").write_bytes(b"changed since the rollback")
    (verified,) = site.call("verify", "--user", "ann", "--json", code=3).json
    assert verified["whole"], verified
    assert verified["differences"], verified
    (target / "d3" / "f0003").unlink()
    (target / "d0" / "new of the user").write_bytes(b"newer")
    before = site.snapshot()
    checksum = site.call("purge", "--user", "ann", "--dry-run", "--json").json["checksum"]
    site.call("purge", "--user", "ann", "--confirm", checksum, "--json")
    assert not site.source().exists()
    assert site.snapshot() == before
