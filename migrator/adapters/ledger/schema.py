"""Bringing a ledger's file to the schema that this version knows, after a backup copy beside it."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from migrator.adapters.ledger.backups import backup
from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.revision import newer_version
from migrator.domain.errors import LedgerCorrupt

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


def _free_name(file: Path, revision: str) -> Path:
    number = 1
    while (name := file.with_name(f"{file.name}.{revision}-{number}.backup")).exists():
        number += 1
    return name
