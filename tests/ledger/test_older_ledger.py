"""The ledger is brought back from an older backup: it knows nothing of users who were moved since, and gives numbers again."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from migrator.core.errors import MigratorError
from migrator.purge.removal import Removal
from tests.conftest import MakeXfs
from tests.support.cut_site import CutSite, cut_site
from tests.support.snapshots import snapshot

pytestmark = pytest.mark.needs_root


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[CutSite]:
    with cut_site(scratch, make_xfs(), make_xfs(), users=("ann", "ben"), stages=("pre-freeze",)) as made:
        made.write(cutover='retain = "0s"')
        yield made


def keep(site: CutSite) -> Path:
    """A backup of the ledger as it is now."""
    kept = site.directory / "older.db"
    with closing(sqlite3.connect(site.site.ledger)) as ledger, closing(sqlite3.connect(kept)) as copy:
        ledger.backup(copy)
    return kept


def bring_back(site: CutSite, kept: Path) -> None:
    for suffix in ("-wal", "-shm"):
        site.site.ledger.with_name(site.site.ledger.name + suffix).unlink(missing_ok=True)
    kept.rename(site.site.ledger)


def stops_in_the_removal() -> None:
    """A purge comes as far as having moved the tree away."""

    async def fails(_self: Removal, *, user: str, total: int) -> None:
        raise MigratorError(f"nothing of {user} is removed: {total}")

    Removal.run = fails  # type: ignore[method-assign, assignment]  # in a process of its own


def purge(site: CutSite, user: str) -> str:
    """The checksum to confirm."""
    return str(site.call("purge", "--user", user, "--dry-run", "--json").json["checksum"])


def directories(site: CutSite) -> list[Path]:
    """What rollbacks and purges have made."""
    places = (site.directory / "state" / "back", site.site.source.path / ".migrator-purge")
    return sorted(path for place in places if place.exists() for path in place.iterdir())


def give_up_a_rollback(site: CutSite, user: str) -> None:
    (site.target(user) / "d0" / "new of the user").write_bytes(b"new")
    refuses = site.hook("pre-switch.d/60-refuses", "exit 1")
    assert site.rollback(user, code=4)["ending"] == "given-up"
    refuses.unlink()


@pytest.mark.exhaustive
@pytest.mark.guarantee("old-ledger")
def test_no_directory_of_a_cutover_that_the_ledger_has_forgotten_is_touched(site: CutSite) -> None:
    kept = keep(site)
    site.cutover("ann")
    give_up_a_rollback(site, "ann")
    words = ("purge", "--user", "ann", "--confirm", purge(site, "ann"))
    assert site.start(*words, before=stops_in_the_removal).end().code == 1
    of_ann = directories(site)
    assert [path.name.removeprefix("cutover-")[:6] for path in of_ann] == ["000001", "000001"]
    before = [snapshot(os.fsencode(path)) for path in of_ann]

    bring_back(site, kept)
    site.cutover("ben")
    assert site.rows("SELECT id FROM operations") == [(1,)], "the number is given again"
    give_up_a_rollback(site, "ben")
    of_ben = [path for path in directories(site) if path not in of_ann]
    assert [path.parent.name for path in of_ben] == ["back"], "the one of ann was not taken for his"
    site.call("purge", "--user", "ben", "--confirm", purge(site, "ben"))

    assert not site.source("ben").exists()
    assert [snapshot(os.fsencode(path)) for path in of_ann] == before
    assert (site.tree("ann") / "d0" / "new of the user").read_bytes() == b"new"


@pytest.mark.guarantee("old-ledger")
def test_what_a_user_does_on_the_target_is_not_written_over(site: CutSite) -> None:
    kept = keep(site)
    (site.source("ann") / "d1" / "f0001").write_bytes(b"changed before the cutover")
    site.cutover("ann")
    (site.target("ann") / "d1" / "f0001").write_bytes(b"changed on the target")
    (site.target("ann") / "d2" / "new").write_bytes(b"made on the target")
    before = site.snapshot("ann")
    bring_back(site, kept)

    refused = site.call("run", "--user", "ann", "--deltas", "1", code=4)

    assert "frozen on the source and open on the target" in " ".join((refused.err + refused.out).split()), refused
    site.call("verify", "--user", "ann", "--json", code=3)
    site.call("run", "--user", "ann", "--deltas", "1", code=4)
    site.call("cutover", "--user", "ann", "--json", code=4)
    site.call("run", "--user", "ben", "--deltas", "1")
    site.assert_works_on("target", before)
