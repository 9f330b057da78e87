"""What schema a ledger's file has, asked in plain SQL: the tools that change it are only loaded to change it."""

from pathlib import Path

from sqlalchemy import Connection

from migrator.domain.errors import LedgerCorrupt, UsageError


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


def newer_version(file: Path, revision: str) -> UsageError:
    """The error for a ledger that this version does not understand."""
    return UsageError(
        f"the ledger {file} was written by a newer version of migrator (schema {revision})",
        cause="this machine has an older migrator than the one that ran last",
        hint="install that version here; to go back, restore the backup that its upgrade left beside the ledger",
    )
