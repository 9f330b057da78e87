"""Bringing a ledger's file to the schema that this version knows, after a backup copy beside it."""

import sqlite3
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from migrator.adapters.durable import sync
from migrator.adapters.ledger.database import BUSY_TIMEOUT_S, Database, translated
from migrator.domain.errors import LedgerCorrupt, UsageError

MIGRATIONS = Path(__file__).parent / "migrations"


def configuration(migrations: Path = MIGRATIONS) -> Config:
    """Alembic's configuration, without a file of its own."""
    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def known_revisions(migrations: Path = MIGRATIONS) -> tuple[str, ...]:
    """Every revision that this version knows, oldest first."""
    scripts = ScriptDirectory.from_config(configuration(migrations))
    return tuple(reversed([script.revision for script in scripts.walk_revisions()]))


def upgrade(connection: Connection, *, revision: str = "head", migrations: Path = MIGRATIONS) -> None:
    """Run the revisions that are missing inside the connection's transaction. Raises LedgerCorrupt where a row would
    be left without the one that it belongs to.
    """
    config = configuration(migrations)
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
    if broken:
        raise LedgerCorrupt(
            f"the upgrade of the ledger would break {len(broken)} references, first in table {broken[0][0]}",
            hint="the ledger was left as it was; go on with the version that wrote it",
        )


def revision_of(connection: Connection) -> str | None:
    """The revision of the schema; None for a file without any table. Raises LedgerCorrupt for another's database."""
    tables = connection.exec_driver_sql("SELECT name FROM sqlite_schema WHERE type = 'table'").scalars().all()
    if not tables:
        return None
    if "alembic_version" not in tables or "passes" not in tables:
        raise LedgerCorrupt(
            "the file is an SQLite database, but no ledger",
            cause="[site] state_dir names a directory of another program",
            hint="name a directory of its own in site.toml and run `migrator init`",
        )
    version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if version is None else str(version)


def bring_up_to_date(file: Path, *, found: str | None, migrations: Path = MIGRATIONS) -> None:
    """Upgrade an older ledger (or fill an empty file), after a backup. May be called by two processes at once.

    Raises UsageError where the revision is not known: a newer version wrote it.
    """
    if found is not None and found not in known_revisions(migrations):
        raise newer_version(file, found)
    if found is not None:
        backup(file, _free_name(file, found))
    database = Database(file, foreign_keys=False)
    try:
        with database.write() as connection:
            upgrade(connection, migrations=migrations)
    finally:
        database.close()


def newer_version(file: Path, revision: str) -> UsageError:
    """The error for a ledger that this version does not understand."""
    return UsageError(
        f"the ledger {file} was written by a newer version of migrator (schema {revision})",
        cause="this machine has an older migrator than the one that ran last",
        hint="install that version here; to go back, restore the backup that its upgrade left beside the ledger",
    )


def backup(ledger_file: Path, target: Path) -> None:
    """A consistent copy of a ledger, also while it is written to; on the disk when this returns.

    Written under another name first, so `target` is whole or not there. Replaces an older `target`.
    """
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    with translated(ledger_file):
        source = sqlite3.connect(f"{ledger_file.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_TIMEOUT_S)
        try:
            copy = sqlite3.connect(partial)
            try:
                source.backup(copy)
            finally:
                copy.close()
        finally:
            source.close()
    sync(partial)
    partial.replace(target)
    sync(target.parent)


def _free_name(file: Path, revision: str) -> Path:
    number = 1
    while (name := file.with_name(f"{file.name}.{revision}-{number}.backup")).exists():
        number += 1
    return name
