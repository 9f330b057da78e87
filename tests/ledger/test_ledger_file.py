"""The ledger's file: kills, two writers, backups, and files that are no ledger."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from migrator.app.ledger import MigrationLedger
from migrator.core.errors import ExitCode, LedgerCorrupt, LockHeld, MigratorError, UsageError
from migrator.core.states import PassKind
from migrator.ledger.database import backup
from tests.support.records import rows_of
from tests.support.xfs import XfsMount

IMPORTS = """
import sys
from pathlib import Path
from migrator.core.states import ChunkKind, PassKind
from migrator.app.ledger import MigrationLedger
from migrator.plan.model import Chunk

ledger = MigrationLedger.open(Path(sys.argv[1]), create=True)
"""

STOP_IN_MID_TRANSACTION = """
def chunks():
    for number in range(1, 50_001):
        yield Chunk(number=number, kind=ChunkKind.FILES, tree=b"t", files=1, size_bytes=1)
    print("in the middle", flush=True)
    sys.stdin.read()

ledger.passes.start(plan="q", batch=1, kind=PassKind.SEED, catalog="c", chunk_list="l", chunks=chunks(), at_s=1.0)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state of 100%" / "ledger.db"


@contextmanager
def process(script: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(
        [sys.executable, "-c", IMPORTS + script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path.cwd(),
    )
    try:
        with started:
            try:
                yield started
            finally:
                started.kill()
    finally:
        started.wait()


class TestKill:
    def test_in_mid_transaction_leaves_nothing_of_it(self, file: Path) -> None:
        MigrationLedger.open(file, create=True).close()
        with process(STOP_IN_MID_TRANSACTION, str(file)) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"in the middle\n"
            # Reading goes on while the transaction is open, and sees nothing of it.
            with MigrationLedger.open(file, read_only=True) as reader:
                assert reader.passes.find("q", 1, PassKind.SEED) is None
            # A second writer waits, and gives up with the right error.
            with MigrationLedger.open(file, busy_timeout_s=0.05) as writer, pytest.raises(LockHeld) as caught:
                writer.runs.start(verb="run", pid=1, at_s=0.0, directory="d")
            assert caught.value.exit_code is ExitCode.LOCKED
            worker.send_signal(signal.SIGKILL)
        with MigrationLedger.open(file) as ledger:
            assert ledger.passes.find("q", 1, PassKind.SEED) is None
            assert rows_of(file, "SELECT count(*) FROM chunks") == [(0,)]
            ledger.runs.start(verb="run", pid=1, at_s=0.0, directory="d")


class TestReadOnly:
    def test_sees_what_is_written_and_writes_nothing(self, file: Path) -> None:
        with MigrationLedger.open(file, create=True) as writer, MigrationLedger.open(file, read_only=True) as reader:
            writer.runs.start(verb="run", pid=1, at_s=0.0, directory="d")
            assert reader.runs.latest() is not None
            with pytest.raises(MigratorError, match="cannot be opened"):
                reader.runs.start(verb="run", pid=1, at_s=0.0, directory="d")


class TestBadFiles:
    def test_missing(self, file: Path) -> None:
        with pytest.raises(UsageError, match="no ledger") as caught:
            MigrationLedger.open(file)
        assert "migrator init" in caught.value.hint
        assert not file.exists()

    def test_empty(self, file: Path) -> None:
        file.parent.mkdir()
        file.touch()
        with pytest.raises(UsageError, match="empty"):
            MigrationLedger.open(file)
        MigrationLedger.open(file, create=True).close()
        MigrationLedger.open(file).close()

    @pytest.mark.parametrize("read_only", [True, False])
    def test_no_database(self, file: Path, read_only: bool) -> None:
        file.parent.mkdir()
        content = b"not a database at all\n" * 1000
        file.write_bytes(content)
        with pytest.raises(LedgerCorrupt) as caught:
            MigrationLedger.open(file, read_only=read_only)
        assert "backups/" in caught.value.hint
        assert file.read_bytes() == content

    def test_overwritten_in_the_middle(self, file: Path) -> None:
        with MigrationLedger.open(file, create=True) as ledger:
            for turn in range(300):
                ledger.runs.start(verb="run", pid=turn, at_s=0.0, directory="d" * 200)
        size = file.stat().st_size
        with file.open("r+b") as damaged:
            damaged.seek(4096)
            damaged.write(os.urandom(size - 4096))
        with pytest.raises(LedgerCorrupt), MigrationLedger.open(file) as ledger:
            ledger.runs.latest()

    def test_of_another_program(self, file: Path) -> None:
        file.parent.mkdir()
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE recipes (name TEXT)")
        for create in (True, False):
            with pytest.raises(LedgerCorrupt, match="no ledger"):
                MigrationLedger.open(file, create=create)


class TestCreation:
    def test_by_two_processes_at_once_makes_one_ledger(self, file: Path) -> None:
        with process("", str(file)) as one, process("", str(file)) as two:
            assert (one.wait(60), two.wait(60)) == (0, 0)
        MigrationLedger.open(file).close()


class TestBackup:
    def test_is_whole_while_the_ledger_is_written(self, file: Path, tmp_path: Path) -> None:
        target = tmp_path / "backups" / "ledger.db"
        target.parent.mkdir()
        with MigrationLedger.open(file, create=True) as ledger:
            for turn in range(3):
                ledger.runs.start(verb="run", pid=turn, at_s=0.0, directory="d")
                backup(file, target)
            ledger.runs.start(verb="run", pid=9, at_s=0.0, directory="d")
        with MigrationLedger.open(target, read_only=True) as kept:
            latest = kept.runs.latest()
            assert latest is not None
            assert latest.pid == 2
        assert [path.name for path in target.parent.glob("*.partial")] == []

    def test_of_nothing_fails(self, file: Path, tmp_path: Path) -> None:
        with pytest.raises(MigratorError):
            backup(file, tmp_path / "b")
        assert not (tmp_path / "b").exists()


@pytest.mark.needs_root
def test_a_ledger_on_a_full_disk_is_read_and_afterwards_what_was_written_since(tiny_xfs: XfsMount) -> None:
    file, ballast = tiny_xfs.path / "state" / "ledger.db", tiny_xfs.path / "ballast"
    with MigrationLedger.open(file, create=True) as ledger:
        ledger.scans.start(catalog="before", via="mount", at_s=1.0)
    with ballast.open("wb", buffering=0) as full:
        for size_bytes in (1 << 20, 4096):
            with suppress(OSError):
                while True:
                    full.write(bytes(size_bytes))
    with MigrationLedger.open(file, read_only=True) as reader:
        for _ in range(2):
            assert [scan.name for scan in reader.scans.all()] == ["before"]
        with pytest.raises(MigratorError, match="is full"), MigrationLedger.open(file) as ledger:
            ledger.scans.start(catalog="full", via="mount", at_s=2.0)
        ballast.unlink()
        with MigrationLedger.open(file) as ledger:
            ledger.scans.start(catalog="after", via="mount", at_s=3.0)
        assert "after" in [scan.name for scan in reader.scans.all()]
