"""The ledger as one object, and how it is opened."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from sqlalchemy import Connection

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.additions import SqliteAdditions
from migrator.adapters.ledger.archives import SqliteArchives
from migrator.adapters.ledger.arrivals import SqliteArrivals
from migrator.adapters.ledger.attempts import SqliteAttempts
from migrator.adapters.ledger.backups import backup
from migrator.adapters.ledger.benchmarks import SqliteBenchmarks
from migrator.adapters.ledger.capacity import SqliteCapacity
from migrator.adapters.ledger.chunks import SqliteChunks
from migrator.adapters.ledger.controls import SqliteControls, SqliteGovernor
from migrator.adapters.ledger.cutovers import SqliteCutovers
from migrator.adapters.ledger.database import BUSY_TIMEOUT_S, Database
from migrator.adapters.ledger.drains import SqliteDrains
from migrator.adapters.ledger.hooks import SqliteHooks
from migrator.adapters.ledger.passes import SqlitePassRecords
from migrator.adapters.ledger.plans import SqlitePlans
from migrator.adapters.ledger.predictions import SqlitePredictions
from migrator.adapters.ledger.probes import SqliteProbes
from migrator.adapters.ledger.records import SqliteEvents, SqliteRuns, SqliteSite
from migrator.adapters.ledger.releases import SqliteReleases
from migrator.adapters.ledger.retirements import SqliteRetirements
from migrator.adapters.ledger.samples import SqliteSamples
from migrator.adapters.ledger.scans import SqliteScans
from migrator.adapters.ledger.speed_ups import SqliteSpeedUps
from migrator.adapters.ledger.target_backups import SqliteTargetBackups
from migrator.adapters.ledger.trees import SqliteTrees
from migrator.adapters.ledger.verifications import SqliteVerifications
from migrator.domain.errors import LedgerCorrupt, UsageError

if TYPE_CHECKING:
    from migrator.adapters.ledger.facts import SqliteFacts
    from migrator.adapters.ledger.metric_sums import SqliteMetricSums
    from migrator.adapters.ledger.report_sums import SqliteReportSums
    from migrator.adapters.ledger.watching import SqliteWatching


class SqlitePasses(SqlitePassRecords, SqliteArrivals, SqliteChunks, SqliteAttempts, SqliteTrees):
    """Passes, chunks and attempts."""


class SqliteLedger:
    """The ledger of a site. Thread-safe. Close it, or use it as a context manager."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.site = SqliteSite(database)
        self.runs = SqliteRuns(database)
        self.scans = SqliteScans(database)
        self.plans = SqlitePlans(database)
        self.passes = SqlitePasses(database)
        self.samples = SqliteSamples(database)
        self.probes = SqliteProbes(database)
        self.controls = SqliteControls(database)
        self.governor = SqliteGovernor(database)
        self.capacity = SqliteCapacity(database)
        self.events = SqliteEvents(database)
        self.verifications = SqliteVerifications(database)
        self.predictions = SqlitePredictions(database)
        self.hooks = SqliteHooks(database)
        self.cutovers = SqliteCutovers(database)
        self.drains = SqliteDrains(database)
        self.additions = SqliteAdditions(database)
        self.retirements = SqliteRetirements(database)
        self.archives = SqliteArchives(database)
        self.releases = SqliteReleases(database)
        self.target_backups = SqliteTargetBackups(database)
        self.benchmarks = SqliteBenchmarks(database)
        self.speed_ups = SqliteSpeedUps(database)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def file(self) -> Path:
        """The database."""
        return self._database.file

    @cached_property
    def facts(self) -> "SqliteFacts":
        """Its sums, for whoever reports; scans, plans and runs do not wait for what they are made of."""
        from migrator.adapters.ledger.facts import SqliteFacts  # noqa: PLC0415

        return SqliteFacts(self._database)

    @cached_property
    def report_sums(self) -> "SqliteReportSums":
        """The sums that only reports ask for, as late as `facts`."""
        from migrator.adapters.ledger.report_sums import SqliteReportSums  # noqa: PLC0415

        return SqliteReportSums(self._database)

    @cached_property
    def watching(self) -> "SqliteWatching":
        """What is at work and what is new, as late as `facts`."""
        from migrator.adapters.ledger.watching import SqliteWatching  # noqa: PLC0415

        return SqliteWatching(self._database)

    @cached_property
    def metric_sums(self) -> "SqliteMetricSums":
        """The sums that only metrics ask for, as late as `facts`."""
        from migrator.adapters.ledger.metric_sums import SqliteMetricSums  # noqa: PLC0415

        return SqliteMetricSums(self._database)

    def close(self) -> None:
        """Release the file. May be called again."""
        self._database.close()

    def backup(self, target: Path) -> None:
        """A consistent copy, on the disk when this returns; before every step that cannot be undone."""
        backup(self._database.file, target)


def open_ledger(
    file: Path, *, create: bool = False, read_only: bool = False, busy_timeout_s: float = BUSY_TIMEOUT_S
) -> SqliteLedger:
    """Open a ledger, or create its tables (`create`).

    `read_only` never blocks a run and works during one. Raises UsageError for a missing or empty ledger and for one of
    another schema version; LedgerCorrupt for a file that is no ledger; LockHeld if another process keeps it locked
    beyond `busy_timeout_s`.
    """
    if not file.exists():
        if not create:
            raise UsageError(
                f"there is no ledger at {file}",
                cause="`migrator init` has not been run for this site, or [site] state_dir names another directory",
                hint="run `migrator init`, or put state_dir right in site.toml",
            )
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    database = Database(file, create=create, read_only=read_only, busy_timeout_s=busy_timeout_s)
    try:
        with database.read() as connection:
            filled = _check_schema(connection, file)
        if not filled:
            _fill(database, create=create)
    except BaseException:
        database.close()
        raise
    return SqliteLedger(database)


def _check_schema(connection: Connection, file: Path) -> bool:
    """Whether the file has the tables of a ledger; False for a file without any table."""
    if not connection.exec_driver_sql("SELECT count(*) FROM sqlite_schema WHERE type = 'table'").scalar():
        return False
    if connection.exec_driver_sql("PRAGMA application_id").scalar() != tables.APPLICATION_ID:
        raise LedgerCorrupt(
            f"{file} is an SQLite database, but no ledger of migrator",
            cause="[site] state_dir names a directory of another program, or a migrator before the first release wrote it",
            hint="set state_dir in site.toml to a directory of its own and run `migrator init`",
        )
    version = connection.exec_driver_sql("PRAGMA user_version").scalar()
    if version != tables.SCHEMA_VERSION:
        raise UsageError(
            f"the ledger {file} has schema version {version}, but this migrator needs version {tables.SCHEMA_VERSION}",
            cause="another version of migrator wrote it",
            hint="install the version of migrator that wrote it; do not run `migrator init` over it",
        )
    return True


def _fill(database: Database, *, create: bool) -> None:
    """Create all tables in one transaction: a kill in the middle leaves an empty file."""
    if not create:
        raise UsageError(
            f"the ledger {database.file} is empty",
            cause="`migrator init` was interrupted",
            hint="run `migrator init` again",
        )
    with database.write() as connection:
        if _check_schema(connection, database.file):
            return  # another process was faster
        tables.metadata.create_all(connection, checkfirst=False)
        connection.exec_driver_sql(f"PRAGMA application_id = {tables.APPLICATION_ID}")
        connection.exec_driver_sql(f"PRAGMA user_version = {tables.SCHEMA_VERSION}")
