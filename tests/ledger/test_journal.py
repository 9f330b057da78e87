"""The journal on the target: its records, and which ledgers it refuses."""

import os
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.app.ledger import MigrationLedger
from migrator.core.errors import LockHeld, Refused
from migrator.fs.model import JOURNAL_NAME
from migrator.ledger.locks import Locks
from migrator.operations.journal import (
    RECORD_BYTES,
    RECORDS,
    Journal,
    JournalEntry,
    JournalUnread,
    decode_entries,
    encode_entry,
    unknown_entries,
)
from tests.support.fake_filesystem import IDENTITY
from tests.support.fakes import VirtualClock
from tests.support.records import site_record

ENTRIES = st.builds(JournalEntry, st.integers(1, 2**40), st.text("0123456789abcdef", min_size=32), st.text(), st.text())


@given(st.lists(ENTRIES, unique_by=lambda entry: entry.number), st.integers(0, RECORD_BYTES - 2))
def test_entries_are_read_as_written_and_what_a_crash_has_cut_is_none(entries: list[JournalEntry], cut: int) -> None:
    blank = b" " * (RECORD_BYTES - 1) + b"\n"
    short = [JournalEntry(one.number, one.token[:32], one.at[:8], one.what[:8]) for one in entries]
    records = [encode_entry(entry) for entry in short]
    assert {len(record) for record in records} <= {RECORD_BYTES}
    torn = encode_entry(JournalEntry(9, "ab" * 16, "now", "cut off"))
    end = torn.index(b"]")
    content = b"".join((blank, *records, torn[: min(cut, end)].ljust(RECORD_BYTES)))
    assert decode_entries(content) == sorted(short, key=lambda entry: entry.number)


@given(st.text(min_size=1))
def test_a_long_act_is_cut(what: str) -> None:
    (entry,) = decode_entries(encode_entry(JournalEntry(2**40, "ab" * 16, "2026-11-28 22:34:58 UTC", what * 300)))
    assert (what * 300).startswith(entry.what)


def test_an_entry_is_known_by_its_token() -> None:
    entries = [JournalEntry(number, f"t{number}", "", "") for number in (1, 2, 3)]
    assert unknown_entries(entries, {1: "t1", 2: "t2", 3: "t3", 4: "t4"}) == []
    assert unknown_entries(entries, {1: "t1", 2: "another"}) == entries[1:]
    assert unknown_entries((), {}) == []


@pytest.fixture
def locks(tmp_path: Path) -> Locks:
    tokens = (f"{number:032x}" for number in count())
    journal = Journal(os.fsencode(tmp_path), tmp_path / "ledger.db", VirtualClock(), lambda: next(tokens))
    with MigrationLedger.open(tmp_path / "ledger.db", create=True) as ledger:
        ledger.site.create(site_record(IDENTITY, site_id="s"))
    assert journal.make()
    assert not journal.make()
    return Locks(tmp_path / "locks", VirtualClock(), journal.note)


def acts(root: Path) -> list[str]:
    return [entry.what for entry in decode_entries((root / os.fsdecode(JOURNAL_NAME)).read_bytes())]


def test_each_lock_that_is_held_alone_is_noted(locks: Locks, tmp_path: Path) -> None:
    with locks.hold("a run", "run", shared=("volume",)), locks.hold("a stream", shared=("brick",)):
        with pytest.raises(LockHeld), locks.hold("another run", "run"):
            pass
        with locks.hold("probes", "probe", noted=False):
            locks.note("a step")
    assert acts(tmp_path) == ["a run", "a step"]


def test_the_file_takes_any_number_of_entries_in_its_place(locks: Locks, tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(JOURNAL_NAME)
    with MigrationLedger.open(tmp_path / "ledger.db") as ledger:
        while ledger.journal.add(token="", at_s=1.0, what="never written to the target") < RECORDS - 1:
            pass
    for number in range(4):
        locks.note(f"act {number}")
    assert file.stat().st_size == RECORDS * RECORD_BYTES
    assert acts(tmp_path) == [f"act {number}" for number in range(4)]


def test_a_ledger_that_lacks_an_entry_holds_no_lock(locks: Locks, tmp_path: Path) -> None:
    locks.note("known")
    file = tmp_path / os.fsdecode(JOURNAL_NAME)
    content = file.read_bytes()
    with file.open("r+b") as stream:
        stream.write(encode_entry(JournalEntry(2, "ff" * 16, "now", "a switch")))
    with pytest.raises(Refused, match="a switch"), locks.hold("a run", "run"):
        pass
    assert locks.holders() == []
    file.write_bytes(content)
    spoils = (lambda: None, lambda: file.symlink_to("/dev/null"), lambda: file.write_bytes(content))
    for spoil in spoils:
        file.unlink(missing_ok=True)
        spoil()
        if file.is_file():
            file.chmod(0o640)
        with pytest.raises(JournalUnread), locks.hold("a run", "run"):
            pass
