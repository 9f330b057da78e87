"""The schema of the ledger: the same as the tables, upgraded from every earlier release, and refused from a later one."""

import json
import pkgutil
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData

import migrator
from migrator.app import Wiring
from migrator.app.ledger import MigrationLedger
from migrator.core.clock import SystemClock
from migrator.core.errors import LedgerCorrupt, LockHeld, UsageError
from migrator.core.events import Event, EventKind, Severity
from migrator.ledger import schema
from migrator.ledger.database import Database
from migrator.ledger.locks import Locks
from migrator.ledger.tables import Base
from migrator.site.load import load_site
from tests.support.holders import holding
from tests.support.records import SITE, rows_of
from tests.support.warm_program import run_program

FIXTURES = sorted(Path(__file__).with_name("fixtures").glob("*.sql"))
"""A ledger of each released revision: a run interrupted, a user frozen, a drain half done. None is ever changed or removed."""

LATER = '''"""Every run has a note, and its rows are copied to a new table."""

import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = {down!r}


def upgrade() -> None:
    with op.batch_alter_table("runs", recreate="always") as runs:
        runs.add_column(sa.Column("note", sa.Text(), nullable=False, server_default=""))
    {more}
'''
STOP = "import sys; print('in the middle', flush=True); sys.stdin.read()"

HOLD_A_LOCK = """
from pathlib import Path
from migrator.app import Wiring
from migrator.core.clock import SystemClock
from migrator.ledger.locks import Locks

held = Locks(Path(sys.argv[1]), SystemClock()).hold("run", "tree home/bob1")
held.__enter__()
"""

UPGRADE = """
import sys
from pathlib import Path
from migrator.ledger import schema
from migrator.app.ledger import MigrationLedger

schema.MIGRATIONS, schema.REVISIONS = Path(sys.argv[1]), (*schema.REVISIONS, "9999")
MigrationLedger.open(Path(sys.argv[2]))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.db"


def fill(file: Path, fixture: Path) -> Path:
    """A ledger as an earlier release left it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(fixture.read_text())
    return file


def site_of(directory: Path) -> Path:
    """The site file of a migration; nothing but its ledger is there."""
    for name in ("source", "target"):
        (directory / name).mkdir()
    file = directory / "site.toml"
    file.write_text(
        f'[site]\nname = {json.dumps(SITE.name)}\nstate_dir = "state"\n'
        f'[source]\nkind = "posix"\nmount = "{directory / "source"}"\n'
        f'[target]\nkind = "posix"\nmount = "{directory / "target"}"\n[users]\ntrees = ["home/*"]\n'
    )
    return file


@pytest.fixture
def older(file: Path) -> Path:
    """A ledger of the newest release, which `later` makes an earlier one."""
    return fill(file, FIXTURES[-1])


def migrations(directory: Path, more: str = "pass") -> Path:
    """The program's migrations and one more."""
    made = directory / "migrations"
    shutil.copytree(schema.MIGRATIONS, made, ignore=shutil.ignore_patterns("__pycache__"))
    (made / "versions" / "9999.py").write_text(LATER.format(down=schema.REVISIONS[-1], more=more))
    return made


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is of a later release, with one revision more."""
    monkeypatch.setattr(schema, "MIGRATIONS", migrations(tmp_path))
    monkeypatch.setattr(schema, "REVISIONS", (*schema.REVISIONS, "9999"))


def tables_of_features() -> MetaData:
    """The tables of all features."""
    for found in pkgutil.walk_packages(migrator.__path__, "migrator."):
        if found.name.endswith(".tables"):
            import_module(found.name)
    return Base.metadata


def revision(file: Path) -> str:
    ((found,),) = rows_of(file, "SELECT version_num FROM alembic_version")
    return str(found)


def counts(file: Path) -> dict[str, int]:
    names = [name for (name,) in rows_of(file, "SELECT name FROM sqlite_schema WHERE type = 'table'")]
    found = {name: rows_of(file, f"SELECT count(*) FROM {name}")[0][0] for name in names}
    return {name: count for name, count in found.items() if name not in {"schema_versions", "sqlite_sequence"}}


def backups(file: Path) -> list[Path]:
    return sorted((file.parent / "backups").glob("*.db"))


class TestRevisions:
    def test_make_the_tables_of_the_program(self, file: Path) -> None:
        from alembic.autogenerate import compare_metadata
        from alembic.migration import MigrationContext

        MigrationLedger.open(file, create=True).close()
        with closing(Database(file)) as database, database.read() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, tables_of_features()) == []

    def test_keep_keys_checks_and_conditions(self, file: Path) -> None:
        """What `compare_metadata` does not compare: foreign keys' targets, checks, WITHOUT ROWID, conditions of indexes."""
        MigrationLedger.open(file, create=True).close()
        with closing(sqlite3.connect(":memory:")) as connection:
            for table in tables_of_features().sorted_tables:
                for statement in statements_of(table):
                    connection.execute(statement)
            wanted = schema_of(connection)
        with closing(sqlite3.connect(file)) as connection:
            found = schema_of(connection)
        del found["alembic_version"]
        assert found == wanted

    def test_are_those_of_the_directory(self) -> None:
        from alembic.config import Config
        from alembic.script import ScriptDirectory

        config = Config()
        config.set_main_option("script_location", str(schema.MIGRATIONS))
        script = ScriptDirectory.from_config(config)
        assert tuple(one.revision for one in reversed(list(script.walk_revisions()))) == schema.REVISIONS

    def test_have_a_fixture_each(self) -> None:
        assert tuple(fixture.stem for fixture in FIXTURES) == schema.REVISIONS


def statements_of(table: Any) -> Iterator[str]:
    from sqlalchemy.dialects import sqlite
    from sqlalchemy.schema import CreateIndex, CreateTable

    yield str(CreateTable(table).compile(dialect=sqlite.dialect()))
    for index in table.indexes:
        yield str(CreateIndex(index).compile(dialect=sqlite.dialect()))


def schema_of(connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    """The parts of each statement: revisions may write the constraints of a table in another order."""
    rows = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'")
    return {name: frozenset(part.strip(" ,\t") for part in sql.splitlines()) - {""} for name, sql in rows}


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.stem)
class TestFixtures:
    def test_are_opened_by_status_and_report(self, fixture: Path, file: Path, tmp_path: Path) -> None:
        fill(file, fixture)
        MigrationLedger.open(file).close()
        assert revision(file) == schema.REVISIONS[-1]
        site = site_of(tmp_path)
        status = run_program(["--site", str(site), "status", "--json"], within_s=60.0)
        assert status.returncode == 0, status.stderr
        found = json.loads(status.stdout)
        assert found["frozen"] != []
        report = run_program(["--site", str(site), "report", "--json"], within_s=60.0)
        assert report.returncode == 0, report.stderr

    def test_keep_what_was_interrupted(self, fixture: Path, file: Path) -> None:
        fill(file, fixture)
        before = counts(file)
        with MigrationLedger.open(file) as ledger:
            (run,) = [one for one in ledger.passes.runs_with_attempts() if one.finished_at_s is None]
            (attempt,) = ledger.passes.unfinished_attempts()
            (drain,) = ledger.drains.all()
            frozen = [one for one in ledger.cutovers.all() if one.state == "frozen"]
        assert (run.pid, attempt.token, drain.state) == (4242, "t-running", "started")
        assert [one.tree.path for one in frozen] == [b"home/bob1"]
        assert counts(file) == before


class TestUpgrade:
    @pytest.mark.usefixtures("later")
    def test_is_made_once_after_a_backup(self, older: Path) -> None:
        before = counts(older)
        for _ in range(2):
            MigrationLedger.open(older).close()
        assert revision(older) == "9999"
        assert counts(older) == before
        assert rows_of(older, "SELECT DISTINCT note FROM runs") == [("",)]
        assert rows_of(older, "SELECT revision FROM schema_versions ORDER BY id")[-1] == ("9999",)
        (kept,) = backups(older)
        assert (revision(kept), counts(kept)) == (schema.REVISIONS[-2], before)

    @pytest.mark.usefixtures("later")
    def test_keeps_foreign_keys(self, older: Path) -> None:
        with MigrationLedger.open(older) as ledger:
            assert rows_of(older, "PRAGMA foreign_key_check") == []
            run = ledger.runs.start(verb="run", pid=1, at_s=0.0, directory="d")
            event = Event(at_s=0.0, kind=EventKind.HOST_LOST, severity=Severity.INFO, subject="h", message="m")
            with pytest.raises(LedgerCorrupt):
                ledger.events.add(event, run + 1)

    @pytest.mark.usefixtures("later")
    def test_is_not_made_by_commands_that_only_read(self, older: Path) -> None:
        before = older.read_bytes()
        with pytest.raises(UsageError) as caught:
            MigrationLedger.open(older, read_only=True)
        assert "migrator init" in caught.value.hint
        assert older.read_bytes() == before
        assert backups(older) == []

    @pytest.mark.usefixtures("later")
    def test_is_not_made_while_a_command_runs(self, older: Path) -> None:
        with holding(HOLD_A_LOCK, older.parent / "locks"):
            with pytest.raises(LockHeld):
                MigrationLedger.open(older)
            assert (revision(older), backups(older)) == (schema.REVISIONS[-2], [])
        MigrationLedger.open(older).close()
        assert revision(older) == "9999"

    @pytest.mark.usefixtures("later")
    def test_is_made_by_the_command_that_holds_the_lock(self, older: Path) -> None:
        with Locks(older.parent / "locks", SystemClock()).hold("run", "tree home/bob1"):
            MigrationLedger.open(older).close()
        assert revision(older) == "9999"

    def test_that_is_killed_leaves_the_ledger_whole(self, older: Path, tmp_path: Path) -> None:
        before = counts(older)
        with upgrading(older, migrations(tmp_path, more=STOP)) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"in the middle\n"
            worker.send_signal(signal.SIGKILL)
        with MigrationLedger.open(older) as ledger:
            assert len(ledger.drains.all()) == 1
        assert (revision(older), counts(older)) == (schema.REVISIONS[-1], before)

    def test_that_fails_leaves_the_ledger_whole(
        self, older: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = counts(older)
        monkeypatch.setattr(schema, "MIGRATIONS", migrations(tmp_path, more="raise ValueError(revision)"))
        with monkeypatch.context() as of_later:
            of_later.setattr(schema, "REVISIONS", (*schema.REVISIONS, "9999"))
            with pytest.raises(ValueError, match="9999"):
                MigrationLedger.open(older)
        assert (revision(older), counts(older)) == (schema.REVISIONS[-1], before)

    @pytest.mark.usefixtures("later")
    def test_covers_the_ledgers_of_rollbacks(self, tmp_path: Path) -> None:
        directory = tmp_path / "state" / "back" / "one"
        fill(directory / "ledger.db", FIXTURES[-1])
        (directory / "made").touch()
        Wiring(load_site(site_of(tmp_path))).upgrade_rollbacks()
        assert revision(directory / "ledger.db") == "9999"


@contextmanager
def upgrading(file: Path, place: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """A process of a later release that opens the ledger."""
    words = [sys.executable, "-c", UPGRADE, str(place), str(file)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        try:
            yield started
        finally:
            started.kill()


class TestRefusal:
    @pytest.mark.parametrize("opening", [{}, {"read_only": True}, {"create": True}])
    def test_of_a_later_release_names_the_version_that_reads_it(self, older: Path, opening: dict[str, Any]) -> None:
        with closing(sqlite3.connect(older)) as connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
            connection.execute("INSERT INTO schema_versions (revision, program, at_s) VALUES ('9999', '7.5.1', 1.0)")
            connection.commit()
        before = older.read_bytes()
        with pytest.raises(UsageError) as caught:
            MigrationLedger.open(older, **opening)
        assert "7.5.1" in caught.value.hint
        assert older.read_bytes() == before

    @pytest.mark.parametrize("opening", [{}, {"read_only": True}, {"create": True}])
    def test_of_a_ledger_before_the_first_release(self, older: Path, opening: dict[str, Any]) -> None:
        with closing(sqlite3.connect(older)) as connection:
            connection.execute("DROP TABLE alembic_version")
            connection.execute("PRAGMA user_version = 15")
        before = older.read_bytes()
        with pytest.raises(UsageError):
            MigrationLedger.open(older, **opening)
        assert older.read_bytes() == before


def test_a_ledger_at_the_newest_revision_is_opened_without_alembic(older: Path) -> None:
    script = "import sys; from pathlib import Path; from migrator.app.ledger import MigrationLedger\n"
    script += "MigrationLedger.open(Path(sys.argv[1])).close(); sys.exit('alembic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script, str(older)], check=False).returncode == 0
