"""The schema of the ledger, which Alembic makes and carries forward from every earlier release.

A ledger records its revision (`alembic_version`), and which version of the program made or upgraded it (`schema_versions`).
"""

import os
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, create_engine, insert, select

from migrator.core.clock import Clock
from migrator.core.errors import LedgerCorrupt, LockHeld, MigratorError, UsageError
from migrator.core.version import version_and_commit
from migrator.ledger import tables
from migrator.ledger.database import Database, damaged, keep_backup
from migrator.ledger.locks import Locks

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).with_name("migrations")
"""Alembic's directory: one file for each revision."""
REVISIONS: tuple[str, ...] = ("0001",)
"""Every released revision, oldest first. The last one is what this program reads and writes."""

_APPLICATION_ID = 0x4D494752
"""Marks an SQLite file as a ledger ("MIGR"), in `PRAGMA application_id`."""


def prepare(database: Database, clock: Clock, *, create: bool) -> None:
    """Make the tables of an empty ledger (`create`), or upgrade one of an earlier release.

    Raises UsageError if it is empty, or of a later release, or of an earlier one and opened to read; LockHeld if it needs
    an upgrade while a command runs; LedgerCorrupt if it is no ledger.
    """
    with database.read() as connection:
        found = _revision(connection, database.file)
    if found == REVISIONS[-1]:
        return
    if found is not None:
        _upgrade(database, clock)
        return
    if not create:
        raise UsageError(
            f"the ledger {database.file} is empty",
            cause="`migrator init` was interrupted",
            hint="run `migrator init` again",
        )
    with database.write() as connection:
        if _revision(connection, database.file) is None:  # otherwise another process was faster
            _make(connection, clock.now_s())


def _revision(connection: Connection, file: Path) -> str | None:
    """The revision of a ledger; None for a file without any table."""
    if not connection.exec_driver_sql("SELECT count(*) FROM sqlite_schema WHERE type = 'table'").scalar():
        return None
    if connection.exec_driver_sql("PRAGMA application_id").scalar() != _APPLICATION_ID:
        raise LedgerCorrupt(
            f"{file} is an SQLite database, but no ledger of migrator",
            cause="[site] state_dir names a directory of another program, or a migrator before the first release wrote it",
            hint="set state_dir in site.toml to a directory of its own and run `migrator init`",
        )
    if not connection.exec_driver_sql("SELECT count(*) FROM sqlite_schema WHERE name = 'alembic_version'").scalar():
        raise UsageError(
            f"the ledger {file} has no revision",
            cause="a migrator before the first release wrote it",
            hint="finish with the version that wrote it, or set [site] state_dir to a new directory and run `migrator init`",
        )
    found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if found in REVISIONS:
        return str(found)
    versions = tables.SchemaVersionRow
    program = connection.execute(select(versions.program).order_by(versions.id.desc()).limit(1)).scalar()
    raise UsageError(
        f"the ledger {file} has revision {found}, which is unknown to migrator {version_and_commit()}",
        cause=f"migrator {program}, a later version, made or upgraded it",
        hint=f"install migrator {program}, or a later version; backups/ beside it has the ledger from before that upgrade",
    )


@cache
def _statements() -> Sequence[str]:
    """All tables and indexes of the newest revision as SQL. A process that makes several ledgers runs Alembic once."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        _carry_forward(connection)
        query = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        found = connection.exec_driver_sql(query).scalars().all()
    engine.dispose()
    return found


def _make(connection: Connection, at_s: float) -> None:
    """Create all tables in the caller's transaction: a kill leaves an empty file."""
    for statement in _statements():
        connection.exec_driver_sql(statement)
    connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (REVISIONS[-1],))
    connection.exec_driver_sql(f"PRAGMA application_id = {_APPLICATION_ID}")
    _note(connection, at_s)


def _note(connection: Connection, at_s: float) -> None:
    """Record that this program made or upgraded the ledger."""
    row = {"revision": REVISIONS[-1], "program": version_and_commit(), "at_s": at_s}
    connection.execute(insert(tables.SchemaVersionRow).values(row))


def _upgrade(database: Database, clock: Clock) -> None:
    """Back up the ledger, then upgrade it in one transaction: a kill leaves it as it was."""
    file = database.file
    if database.read_only:
        raise UsageError(
            f"an earlier version of migrator wrote the ledger {file}, and this command only reads",
            cause="the program was upgraded, and no command that writes has run since",
            hint="run `migrator init`: it backs up the ledger and upgrades it (docs/upgrading.md)",
        )
    # Revisions replace tables that others refer to, which SQLite allows only without foreign keys.
    with closing(Database(file, foreign_keys=False)) as unchecked, unchecked.write() as connection:
        before = _revision(connection, file)
        if before == REVISIONS[-1]:
            return  # another process was faster
        _refuse_while_in_use(file, clock)
        with MigratorError.of_files(f"the ledger {file} is not upgraded, because it cannot be backed up"):
            keep_backup(file, file.parent, f"before-upgrade-from-{before}")
        _carry_forward(connection)
        if connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
            raise damaged(f"the ledger {file} is not upgraded: a record refers to one that is missing")
        _note(connection, clock.now_s())


def _refuse_while_in_use(file: Path, clock: Clock) -> None:
    """Raise LockHeld if another process holds a lock of the site."""
    others = [one for one in Locks(file.parent / "locks", clock).holders() if one.pid != os.getpid()]
    if others:
        raise LockHeld(
            f"the ledger {file} is not upgraded, because a command is running: {others[0]}",
            cause="that command may be of the earlier version of migrator, which cannot use an upgraded ledger",
            hint="wait until it has ended, or stop it with SIGTERM; then run the same command again",
        )


def migrations(connection: Connection) -> "Config":
    """Alembic's configuration for the ledger of a connection."""
    from alembic.config import Config  # noqa: PLC0415 - slow to load, and most commands find the ledger at the newest revision

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _carry_forward(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - the same

    command.upgrade(migrations(connection), REVISIONS[-1])
