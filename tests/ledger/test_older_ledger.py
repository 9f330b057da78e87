"""The ledger is brought back from an older backup: it knows nothing of users who were moved since. It is refused as a whole,
and, where it is accepted because there is no newer one, gives numbers again.
"""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from migrator.core.errors import MigratorError
from migrator.fs.model import JOURNAL_NAME
from migrator.purge.removal import Removal
from tests.conftest import MakeXfs
from tests.support.cut_site import CutSite, Snapshot, cut_site
from tests.support.snapshots import snapshot

pytestmark = pytest.mark.needs_root


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[CutSite]:
    with cut_site(scratch, make_xfs(), make_xfs(), users=("ann", "ben"), stages=("pre-freeze",)) as made:
        made.write(cutover='retain = "0s"')
        yield made


JOURNAL = os.fsdecode(JOURNAL_NAME)


def keep(site: CutSite, name: str = "older.db") -> Path:
    """A backup of the ledger as it is now."""
    kept = site.directory / name
    with closing(sqlite3.connect(site.site.ledger)) as ledger, closing(sqlite3.connect(kept)) as copy:
        ledger.backup(copy)
    return kept


def bring_back(site: CutSite, kept: Path) -> None:
    for suffix in ("-wal", "-shm"):
        site.site.ledger.with_name(site.site.ledger.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(kept, site.site.ledger)


def accept(site: CutSite) -> None:
    """There is no newer ledger: the way that the docs have for that."""
    shutil.move(site.site.target.path / JOURNAL, site.directory / "journal of the lost ledger")
    site.call("init")


def everything(site: CutSite) -> list[Snapshot]:
    """Both sides with the facts of their directories, and all that the state directory has but the ledger, locks and logs."""
    sides = [site.site.source.path, site.site.target.path]
    kept = [site.directory / "state" / name for name in ("manifests", "catalogs", "passes", "moves", "splits")]
    return [snapshot(os.fsencode(path)) if path.exists() else {} for path in (*sides, *kept, site.directory / "plans")]


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


def kept_files(directory: Path) -> Snapshot:
    """All but the log of its ledger: `init` opens every ledger, to upgrade it, and SQLite then removes an empty log."""
    logs = (b"ledger.db-shm", b"ledger.db-wal")
    return {path: facts for path, facts in snapshot(os.fsencode(directory)).items() if path not in logs}


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
    before = [kept_files(path) for path in of_ann]

    bring_back(site, kept)
    accept(site)
    site.cutover("ben")
    assert site.rows("SELECT id FROM operations") == [(1,)], "the number is given again"
    give_up_a_rollback(site, "ben")
    of_ben = [path for path in directories(site) if path not in of_ann]
    assert [path.parent.name for path in of_ben] == ["back"], "the one of ann was not taken for his"
    site.call("purge", "--user", "ben", "--confirm", purge(site, "ben"))

    assert not site.source("ben").exists()
    assert [kept_files(path) for path in of_ann] == before
    assert (site.tree("ann") / "d0" / "new of the user").read_bytes() == b"new"


@pytest.mark.guarantee("old-ledger")
def test_work_of_users_on_the_target_is_not_overwritten(site: CutSite) -> None:
    kept = keep(site)
    (site.source("ann") / "d1" / "f0001").write_bytes(b"changed before the cutover")
    site.cutover("ann")
    (site.target("ann") / "d1" / "f0001").write_bytes(b"changed on the target")
    (site.target("ann") / "d2" / "new").write_bytes(b"made on the target")
    before = site.snapshot("ann")
    bring_back(site, kept)
    accept(site)

    refused = site.call("run", "--user", "ann", "--deltas", "1", code=4)

    assert "frozen on the source and open on the target" in " ".join((refused.err + refused.out).split()), refused
    site.call("verify", "--user", "ann", "--json", code=3)
    site.call("run", "--user", "ann", "--deltas", "1", code=4)
    site.call("cutover", "--user", "ann", "--json", code=4)
    site.call("run", "--user", "ben", "--deltas", "1")
    site.assert_works_on("target", before)


VERBS: tuple[tuple[str, ...], ...] = (
    ("scan",),
    ("plan", "--accept-unknown-inodes"),
    ("run", "--all", "--deltas", "1"),
    ("run", "--user", "ann", "--deltas", "1"),
    ("verify", "--all"),
    ("cutover", "--user", "ann"),
    ("cutover", "--user", "ben"),
    ("rollback", "--user", "ann"),
)


@pytest.mark.guarantee("old-ledger")
def test_no_command_does_anything_by_an_older_ledger(site: CutSite) -> None:
    """A user who was moved since has a top like that of a closed tree, and loses nothing."""
    kept = keep(site)
    site.cutover("ann")
    (site.target("ann") / "d1" / "f0001").write_bytes(b"changed on the target")
    os.chown(site.target("ann"), 0, 0)
    site.target("ann").chmod(0o700)
    right = keep(site, "right.db")
    bring_back(site, kept)
    before = everything(site)
    for words in VERBS:
        refused = site.call(*words, code=None)
        assert refused.code == 4, (words, refused)
        assert "is not the newest ledger of this site" in " ".join(refused.err.split()), (words, refused)
        assert everything(site) == before, words
    bring_back(site, right)
    site.call("scan")


@pytest.mark.guarantee("old-ledger")
def test_a_user_who_is_back_on_the_source_is_not_purged_by_an_older_ledger(site: CutSite) -> None:
    site.cutover("ann")
    kept = keep(site)
    confirm = purge(site, "ann")
    site.rollback("ann")
    bring_back(site, kept)
    before = everything(site)
    for words in (("purge", "--user", "ann", "--confirm", confirm), ("purge", "--all", "--confirm", confirm)):
        assert "is not the newest ledger of this site" in " ".join(site.call(*words, code=4).err.split())
    assert everything(site) == before


@pytest.mark.guarantee("old-ledger")
@pytest.mark.parametrize("step", ["freeze", "switch", "thaw"])
def test_a_copy_made_during_a_cutover_is_older_too(site: CutSite, step: str) -> None:
    """Copies are made right before steps that cannot be undone: they know of the call, but not of its end."""
    hook = f'cp "{site.site.ledger}"* "{site.directory}/aside/"'
    (site.directory / "aside").mkdir()
    site.hook(f"pre-{step}.d/60-copies", hook)
    site.cutover("ann")
    (site.target("ann") / "d1" / "f0001").write_bytes(b"changed on the target")
    copies = site.directory / "aside"
    with closing(sqlite3.connect(copies / site.site.ledger.name)) as ledger:
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    bring_back(site, copies / site.site.ledger.name)
    before = everything(site)
    for words in (("cutover", "--user", "ann"), ("rollback", "--user", "ann"), ("run", "--user", "ann")):
        refused = site.call(*words, code=4)
        assert "is not the newest ledger of this site" in " ".join(refused.err.split())
    assert everything(site) == before


@pytest.mark.guarantee("old-ledger")
def test_a_journal_that_is_lost_in_a_freeze_leaves_nobody_frozen(site: CutSite) -> None:
    journal = site.site.target.path / JOURNAL
    removes = site.hook("pre-switch.d/60-removes", f'rm -f "{journal}"; exit 1')
    assert site.cutover("ann", code=4)["ending"] == "given-up"
    assert site.is_open(site.source("ann"))
    removes.unlink()
    site.call("cutover", "--user", "ann", code=4)
    site.call("init")
    assert site.cutover("ann")["ending"] == "moved"


@pytest.mark.guarantee("old-ledger")
def test_a_journal_that_cannot_be_read_counts_as_one_that_disagrees(site: CutSite) -> None:
    journal = site.site.target.path / JOURNAL
    assert journal.stat().st_mode & 0o777 == 0o600
    kept = journal.read_bytes()
    journal.unlink()
    assert "is missing" in site.call("scan", code=4).err
    journal.symlink_to("/etc/passwd")
    site.call("scan", code=4)
    journal.unlink()
    journal.write_bytes(kept)
    journal.chmod(0o644)
    site.call("scan", code=4)
    journal.chmod(0o600)
    site.call("scan")
    journal.unlink()
    site.call("init")
    site.call("scan")


def test_nothing_that_a_ledger_refers_to_is_replaced_by_another_one(site: CutSite) -> None:
    """There is no newer ledger, so the older one is accepted; then the right one turns up, and has all of its files."""
    kept = keep(site)
    (site.source("ann") / "d1" / "f0001").rename(site.source("ann") / "d1" / "renamed")
    site.call("run", "--all", "--deltas", "1")
    site.call("verify", "--all")
    right = keep(site, "right.db")
    (manifest,) = site.rows("SELECT manifest FROM verifications ORDER BY id DESC LIMIT 1")[0]
    journal = (site.site.target.path / JOURNAL).read_bytes()
    before = everything(site)[2:]

    bring_back(site, kept)
    accept(site)
    (site.source("ann") / "d1" / "renamed").rename(site.source("ann") / "d1" / "renamed again")
    site.call("run", "--all", "--deltas", "1")
    site.call("verify", "--all", code=3)  # a renamed file has both names on the target: what renamed it is forgotten
    assert site.rows("SELECT manifest FROM verifications ORDER BY id DESC LIMIT 1")[0] != (manifest,)
    for then, now in zip(before, everything(site)[2:], strict=True):
        files = {path for path, facts in then.items() if str(facts[0]).startswith("-")}
        # A list of the same content has the same name: its time may be another one.
        assert {path: then[path][5:] for path in files} == {path: now[path][5:] for path in files}

    bring_back(site, right)
    assert "is not the newest ledger" in " ".join(site.call("scan", code=4).err.split())
    (site.site.target.path / JOURNAL).write_bytes(journal)
    assert site.call("verify", "--all", "--carry", "--json", code=None).code in (0, 3)
