"""Plans, scans, verifications, archives and releases."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, func, insert, select, update

from migrator.catalog.model import CatalogRecord, StrangeFiles
from migrator.core.errors import LedgerCorrupt, UsageError
from migrator.core.states import BATCH_TRANSITIONS, BatchState
from migrator.ledger import tables
from migrator.ledger.database import (
    Database,
    check,
    decode,
    encode,
    encode_counts,
    encode_paths,
    encode_trees,
    encode_words,
    expect_one,
    state_of,
)
from migrator.ledger.model import PlanRecord
from migrator.ledger.rows import columns_of, record_of
from migrator.plan.model import Plan
from migrator.reap.model import (
    ARCHIVE_TRANSITIONS,
    ArchiveRecord,
    ArchiveState,
    ReapAction,
    ReapRelease,
    WrittenArchive,
)
from migrator.verify.model import DigestPolicy, VerificationRecord

# Plans and their batches.


class PlanRecords:
    """Plans and the states of their batches."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, plan: Plan, *, path: str, checksum: str) -> None:
        """Record a plan with its batches, all planned. The same plan may be recorded again.

        Raises UsageError if another plan has the name.
        """
        usage = {tree.tree.path: (rank, tree) for rank, tree in enumerate(plan.ranking, 1)}
        reaped = _reaped(plan)
        with self._database.write() as connection:
            there = connection.execute(select(tables.plans).where(tables.plans.c.name == plan.name)).one_or_none()
            if there is not None:
                if there.checksum != checksum:
                    raise UsageError(
                        f"there is another plan named {plan.name} in the ledger", hint="give the new plan another name"
                    )
                return
            connection.execute(
                insert(tables.plans).values(
                    name=plan.name,
                    path=path,
                    checksum=checksum,
                    created_at_s=plan.created_at_s,
                    scan_id=plan.scan_id,
                    catalog=plan.catalog,
                    size_bytes=plan.size_bytes,
                    files=plan.files,
                    directories=plan.directories,
                    cost=encode(plan.cost),
                    forecast_s=plan.forecast_s,
                )
            )
            for batch in plan.batches:
                connection.execute(
                    insert(tables.batches).values(
                        plan=plan.name,
                        number=batch.number,
                        state=BatchState.PLANNED.value,
                        size_bytes=batch.size_bytes,
                        files=batch.files,
                        directories=batch.directories,
                        chunks=batch.chunks,
                        forecast_s=batch.forecast_s,
                    )
                )
                rows = []
                for tree in batch.trees:
                    rank, used = usage.get(tree.path, (0, None))
                    rows.append(
                        {
                            "plan": plan.name,
                            "batch": batch.number,
                            "tree": tree.path,
                            "user": tree.user,
                            "rank": rank,
                            "size_bytes": used.size_bytes if used else 0,
                            "files": used.files if used else 0,
                            "directories": used.directories if used else 0,
                            "reaped_bytes": reaped[tree.path][0],
                            "reaped_files": reaped[tree.path][1],
                        }
                    )
                if rows:
                    connection.execute(insert(tables.batch_trees), rows)

    def read(self, name: str) -> PlanRecord | None:
        """A plan by its name."""
        with self._database.read() as connection:
            row = connection.execute(select(tables.plans).where(tables.plans.c.name == name)).one_or_none()
            if row is None:
                return None
            states = connection.execute(
                select(tables.batches.c.number, tables.batches.c.state)
                .where(tables.batches.c.plan == name)
                .order_by(tables.batches.c.number)
            ).all()
        return _plan(row, {number: BatchState(state) for number, state in states})

    def latest(self) -> PlanRecord | None:
        """The newest plan."""
        with self._database.read() as connection:
            newest = select(func.max(tables.plans.c.id)).scalar_subquery()
            name = connection.execute(
                select(tables.plans.c.name).where(tables.plans.c.id == newest)
            ).scalar_one_or_none()
        return None if name is None else self.read(name)

    def names(self) -> Sequence[str]:
        """Every plan, in the order in which they were recorded."""
        with self._database.read() as connection:
            return connection.execute(select(tables.plans.c.name).order_by(tables.plans.c.id)).scalars().all()

    def set_batch_state(self, plan: str, batch: int, state: BatchState) -> None:
        """Set the state of a batch. Raises LedgerCorrupt for a change that the states do not allow."""
        this = (tables.batches.c.plan == plan) & (tables.batches.c.number == batch)
        with self._database.write() as connection:
            old = connection.execute(select(tables.batches.c.state).where(this)).scalar_one_or_none()
            if old is None:
                raise LedgerCorrupt(f"the ledger has no batch {batch} of plan {plan}", hint="run `migrator plan` again")
            if check(BATCH_TRANSITIONS, BatchState(old), state, f"batch {batch} of plan {plan}"):
                connection.execute(update(tables.batches).where(this).values(state=state.value))


def _reaped(plan: Plan) -> Mapping[bytes, tuple[int, int]]:
    """Bytes and files of each tree that are archived or skipped, and so in no chunk."""
    sums: dict[bytes, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for one in plan.reap.trees if plan.reap is not None else ():
        if one.action is not ReapAction.LIST:
            size_bytes, files = sums[one.tree.path]
            sums[one.tree.path] = (size_bytes + one.size_bytes, files + one.files)
    return sums


def _plan(row: Row[Any], batches: dict[int, BatchState]) -> PlanRecord:
    return record_of(row, PlanRecord, batches=batches)


# Scans.


_EVERYTHING = encode_paths(())
_BRICKS = "bricks"


class ScanRecords:
    """Scans, by the closing record of their catalog. "The newest scan" is always one of the whole source."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._query = select(tables.scans, func.coalesce(tables.site.c.site_id, "").label("site_id")).select_from(
            tables.scans.outerjoin(tables.site, tables.site.c.id == 1)
        )

    def start(self, *, catalog: str, via: str, at_s: float, scope: Sequence[bytes] = ()) -> int:
        """Record a new scan of the user trees `scope`, or (empty) of the whole source. Returns its id, the same one when called
        again for the same catalog.
        """
        with self._database.write() as connection:
            there = connection.execute(
                select(tables.scans.c.id).where(tables.scans.c.catalog == catalog)
            ).scalar_one_or_none()
            if there is not None:
                return int(there)
            row = connection.execute(
                insert(tables.scans)
                .values(
                    catalog=catalog,
                    via=via,
                    scope=encode_paths(scope),
                    started_at_s=at_s,
                    trees=encode_trees(()),
                    parts=encode_words(()),
                    whole=0,
                    reasons=encode_words(()),
                    rows=0,
                    files=0,
                    directories=0,
                    size_bytes=0,
                    problems=0,
                    health_fingerprint="",
                    strange=encode(()),
                )
                .returning(tables.scans.c.id)
            ).one()
        return int(row.id)

    def finish(self, record: CatalogRecord) -> None:
        """Record the result of a scan."""
        with self._database.write() as connection:
            done = connection.execute(
                update(tables.scans)
                .where(tables.scans.c.id == record.scan_id)
                .values(columns_of(tables.scans, record, catalog=record.name, strange=encode(record.strange)))
            )
            expect_one(done.rowcount, f"scan {record.scan_id}")

    def unfinished(self) -> CatalogRecord | None:
        """The newest scan of the whole source, if it has not ended. An unfinished scan that is older than a finished one is
        useless.
        """
        newest = self._newest(finished=None)
        return newest if newest is not None and newest.finished_at_s is None else None

    def latest(self, *, finished: bool = True) -> CatalogRecord | None:
        """The newest scan of the whole source that has ended; with `finished=False` the newest of all of these."""
        return self._newest(finished=True if finished else None)

    def of_bricks(self) -> CatalogRecord | None:
        """The newest scan of the whole source that has read the bricks and ended, whole or not."""
        return self._newest(finished=True, via=_BRICKS)

    def unfinished_of_trees(self) -> Sequence[CatalogRecord]:
        """Unfinished scans of single user trees, oldest first."""
        scans = tables.scans.c
        query = self._query.where(scans.scope != _EVERYTHING, scans.finished_at_s.is_(None)).order_by(scans.id)
        with self._database.read() as connection:
            return [_catalog(row) for row in connection.execute(query)]

    def all(self) -> Sequence[CatalogRecord]:
        """Every scan, including those of single trees, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(self._query.order_by(tables.scans.c.id)).all()
        return [_catalog(row) for row in rows]

    def _newest(self, *, finished: bool | None, via: str | None = None) -> CatalogRecord | None:
        query = self._query.where(tables.scans.c.scope == _EVERYTHING).order_by(tables.scans.c.id.desc()).limit(1)
        if finished:
            query = query.where(tables.scans.c.finished_at_s.is_not(None))
        if via is not None:
            query = query.where(tables.scans.c.via == via)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _catalog(row)


def _catalog(row: Row[Any]) -> CatalogRecord:
    return record_of(
        row,
        CatalogRecord,
        name=row.catalog,
        scan_id=row.id,
        strange=decode(row.strange, tuple[StrangeFiles, ...]),
    )


# Verifications.


_WHOLE_BATCH = encode_paths(())


class VerificationRecords:
    """Verifications and where their manifests lie."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def start(self, *, plan: str, batch: int, at_s: float) -> int:
        """Record a new verification; returns its id. Every call is a verification of its own."""
        with self._database.write() as connection:
            row = connection.execute(
                insert(tables.verifications)
                .values(
                    plan=plan,
                    batch=batch,
                    started_at_s=at_s,
                    algorithm="",
                    share=0.0,
                    seed=0,
                    paths=0,
                    size_bytes=0,
                    digested_files=0,
                    digested_bytes=0,
                    proven_gone=0,
                    files=0,
                    equal_paths=0,
                    differences=encode_counts({}),
                    expected=encode_counts({}),
                    whole=0,
                    reasons=encode_words(()),
                    trees=_WHOLE_BATCH,
                    carried_files=0,
                    carried_bytes=0,
                )
                .returning(tables.verifications.c.id)
            ).one()
        return int(row.id)

    def finish(self, record: VerificationRecord) -> None:
        """Record the result of a verification. Recording it again is allowed; another result raises LedgerCorrupt."""
        with self._database.write() as connection:
            there = connection.execute(
                select(tables.verifications).where(tables.verifications.c.id == record.id)
            ).one_or_none()
            expect_one(int(there is not None), f"verification {record.id}")
            if there is not None and there.finished_at_s is not None:
                if _verification(there) != record:
                    raise LedgerCorrupt(f"verification {record.id} has ended already, with another result")
                return
            connection.execute(
                update(tables.verifications)
                .where(tables.verifications.c.id == record.id)
                .values(columns_of(tables.verifications, record) | columns_of(tables.verifications, record.policy))
            )

    def latest(self, plan: str, batch: int) -> VerificationRecord | None:
        """The newest finished verification of a whole batch."""
        verifications = tables.verifications.c
        found = self._finished(
            verifications.plan == plan, verifications.batch == batch, verifications.trees == _WHOLE_BATCH
        )
        return found[-1] if found else None

    def of_plan(self, plan: str) -> Sequence[VerificationRecord]:
        """Every finished verification of a plan, oldest first."""
        return self._finished(tables.verifications.c.plan == plan)

    def of_tree(self, plan: str, batch: int, tree: bytes) -> Sequence[VerificationRecord]:
        """Finished verifications of a batch that covered one of its trees, oldest first."""
        verifications = tables.verifications.c
        found = self._finished(verifications.plan == plan, verifications.batch == batch)
        return [record for record in found if record.covers(tree)]

    def covering(self, tree: bytes) -> Sequence[VerificationRecord]:
        """Finished verifications of every plan that covered a tree, oldest first."""
        verifications, planned = tables.verifications.c, tables.batch_trees.c
        held = (
            select(planned.tree)
            .where(planned.plan == verifications.plan, planned.batch == verifications.batch, planned.tree == tree)
            .exists()
        )
        return [record for record in self._finished(held) if record.covers(tree)]

    def newest_id(self) -> int:
        """The number of the newest verification, finished or not; 0 if there is none."""
        with self._database.read() as connection:
            found = connection.execute(select(func.max(tables.verifications.c.id))).scalar_one()
        return 0 if found is None else int(found)

    def all(self) -> Sequence[VerificationRecord]:
        """Every finished verification, oldest first."""
        return self._finished()

    def _finished(self, *wanted: ColumnElement[bool]) -> Sequence[VerificationRecord]:
        verifications = tables.verifications.c
        query = (
            select(tables.verifications)
            .where(verifications.finished_at_s.is_not(None), *wanted)
            .order_by(verifications.id)
        )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [_verification(row) for row in rows]


def _verification(row: Row[Any]) -> VerificationRecord:
    return record_of(row, VerificationRecord, policy=record_of(row, DigestPolicy))


# Archives.


_archives = tables.archives


class ArchiveRecords:
    """The archives of a site."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, *, plan: str, batch: int, tree: bytes, number: int, written: WrittenArchive, at_s: float
    ) -> ArchiveRecord:
        """Record an archive that is written. A number is used once per tree."""
        with self._database.write() as connection:
            row = connection.execute(
                insert(_archives)
                .values(
                    plan=plan,
                    batch=batch,
                    tree=tree,
                    number=number,
                    **columns_of(_archives, written),
                    state=ArchiveState.WRITTEN.value,
                    at_s=at_s,
                    reason="",
                )
                .returning(_archives)
            ).one()
        return _record(row)

    def prove(self, archive_id: int, *, at_s: float) -> None:
        """The archive was read back. May be called again."""
        self._set(archive_id, ArchiveState.PROVEN, at_s, "")

    def void(self, archive_id: int, reason: str, *, at_s: float) -> None:
        """The archive does not count. May be called again."""
        self._set(archive_id, ArchiveState.VOID, at_s, reason)

    def of_tree(self, tree: bytes) -> Sequence[ArchiveRecord]:
        """Every archive of a tree, oldest first."""
        return self._read(select(_archives).where(_archives.c.tree == tree).order_by(_archives.c.number))

    def of_plan(self, plan: str, batch: int | None = None) -> Sequence[ArchiveRecord]:
        """Every archive of a plan, or of one of its batches, oldest first."""
        query = select(_archives).where(_archives.c.plan == plan)
        return self._read(
            (query if batch is None else query.where(_archives.c.batch == batch)).order_by(_archives.c.id)
        )

    def _set(self, archive_id: int, state: ArchiveState, at_s: float, reason: str) -> None:
        what = f"archive {archive_id}"
        with self._database.write() as connection:
            old = state_of(connection, _archives, archive_id, ArchiveState, what)
            if check(ARCHIVE_TRANSITIONS, old, state, what):
                connection.execute(
                    update(_archives)
                    .where(_archives.c.id == archive_id)
                    .values(state=state.value, at_s=at_s, reason=reason)
                )

    def _read(self, query: Select[Any]) -> Sequence[ArchiveRecord]:
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [_record(row) for row in rows]


def _record(row: Row[Any]) -> ArchiveRecord:
    return record_of(row, ArchiveRecord, written=record_of(row, WrittenArchive))


# Releases.


_releases = tables.reap_releases


class ReleaseRecords:
    """Skipped paths that were released for deletion with the source. Releases are never removed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, releases: Sequence[ReapRelease]) -> None:
        """Record releases in one transaction."""
        rows = [columns_of(_releases, release) for release in releases]
        if rows:
            with self._database.write() as connection:
                connection.execute(insert(_releases), rows)

    def of_trees(self, trees: Collection[bytes]) -> Sequence[ReapRelease]:
        """The releases for some trees, in the order in which they were recorded."""
        with self._database.read() as connection:
            rows = connection.execute(select(_releases).order_by(_releases.c.id)).all()
        wanted = frozenset(trees)
        return [record_of(row, ReapRelease) for row in rows if row.tree in wanted]
