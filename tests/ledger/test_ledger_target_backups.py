"""The ledger's knowledge of backups of the target."""

from migrator.ledger.ledger import Ledger

ALICE, BOB = b"home/alice", b"home/bob"


def test_the_newest_backup_of_a_tree_counts(ledger: Ledger) -> None:
    backups = ledger.target_backups
    assert backups.latest(ALICE) is None
    backups.record([ALICE, BOB], at_s=20.0, note="weekly")
    backups.record([ALICE], at_s=10.0, note="told late")
    assert (backups.latest(ALICE), backups.latest(BOB)) == (20.0, 20.0)
    backups.record([ALICE], at_s=30.5, note="")
    assert (backups.latest(ALICE), backups.latest(BOB)) == (30.5, 20.0)


def test_a_backup_of_nothing_is_none(ledger: Ledger) -> None:
    ledger.target_backups.record([], at_s=1.0, note="")
    assert ledger.target_backups.latest(ALICE) is None
