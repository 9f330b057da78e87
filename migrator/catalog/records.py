"""The records of scans and verifications."""

from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import replace
from sqlalchemy import ColumnElement, func, select, tuple_

from migrator.catalog.model import CatalogRecord, StrangeFiles, VerificationRecord, begun_catalog
from migrator.catalog.tables import ScanRow, VerificationRow
from migrator.core.errors import LedgerCorrupt
from migrator.fs.model import DigestPolicy
from migrator.ledger.database import Database, expect_one
from migrator.ledger.ledger import Ledger
from migrator.ledger.rows import AnyRow, Records, add, change, columns_of, record_of
from migrator.ledger.tables import SiteRow

# Scans.


_scans = ScanRow
_EVERYTHING: tuple[bytes, ...] = ()
_BRICKS = "bricks"


class ScanRecords(Records):
    """Scans, by the closing record of their catalog. "The newest scan" is always one of the whole source."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        site_id = func.coalesce(SiteRow.site_id, "").label("site_id")
        columns = (ScanRow, _scans.id.label("scan_id"), _scans.catalog.label("name"), site_id)
        self._query = select(*columns).outerjoin_from(ScanRow, SiteRow, SiteRow.id == 1)

    def start(self, *, catalog: str, via: str, at_s: float, scope: Sequence[bytes] = ()) -> int:
        """Record a new scan of the user trees `scope`, or (empty) of the whole source. Returns its id, the same one
        when called again for the same catalog.
        """
        row = columns_of(ScanRow, begun_catalog(catalog, via=via, at_s=at_s, scope=tuple(scope)), catalog=catalog)
        with self._database.write() as connection:
            there = connection.execute(select(_scans.id).where(_scans.catalog == catalog)).scalar()
            return add(connection, ScanRow, **row) if there is None else int(there)

    def finish(self, record: CatalogRecord) -> None:
        """Record the result of a scan."""
        row = columns_of(ScanRow, record, catalog=record.name)
        self._change(ScanRow, record.scan_id, f"scan {record.scan_id}", **row)

    def unfinished(self) -> CatalogRecord | None:
        """The newest scan of the whole source, if it has not ended. An unfinished scan that is older than a finished
        one is useless.
        """
        newest = self._newest()
        return newest if newest is not None and newest.finished_at_s is None else None

    def latest(self, *, finished: bool = True) -> CatalogRecord | None:
        """The newest scan of the whole source that has ended; with `finished=False` the newest of all of these."""
        return self._newest(_scans.finished_at_s.is_not(None)) if finished else self._newest()

    def of_bricks(self) -> CatalogRecord | None:
        """The newest scan of the whole source that has read the bricks and ended, whole or not."""
        return self._newest(_scans.finished_at_s.is_not(None), _scans.via == _BRICKS)

    def strange(self) -> tuple[StrangeFiles, ...]:
        """The files on bricks that bypassed Gluster, by the newest scan of the bricks."""
        newest = self.of_bricks()
        return () if newest is None else newest.strange

    def unfinished_of_trees(self) -> Sequence[CatalogRecord]:
        """Unfinished scans of single user trees, oldest first."""
        query = self._query.where(_scans.scope != _EVERYTHING, _scans.finished_at_s.is_(None))
        return self._all(CatalogRecord, query.order_by(_scans.id))

    def all(self) -> Sequence[CatalogRecord]:
        """Every scan, including those of single trees, oldest first."""
        return self._all(CatalogRecord, self._query.order_by(_scans.id))

    def named(self, name: str) -> CatalogRecord | None:
        """The scan with this catalog."""
        return self._first(CatalogRecord, self._query.where(_scans.catalog == name))

    def _newest(self, *these: ColumnElement[bool]) -> CatalogRecord | None:
        query = self._query.where(_scans.scope == _EVERYTHING, *these)
        return self._first(CatalogRecord, query.order_by(_scans.id.desc()))


# Verifications.


_verifications = VerificationRow
_WHOLE_BATCH: tuple[bytes, ...] = ()


class VerificationRecords(Records):
    """Verifications and the locations of their manifests."""

    def start(self, *, plan: str, batch: int, at_s: float) -> int:
        """Record a new verification; returns its id. Every call is a verification of its own."""
        begun = VerificationRecord(
            id=0,
            plan=plan,
            batch=batch,
            started_at_s=at_s,
            finished_at_s=None,
            policy=DigestPolicy(algorithm="", share=0.0, seed=0),
            paths=0,
            size_bytes=0,
            digested_files=0,
            digested_bytes=0,
            proven_gone=0,
            differences={},
            expected={},
            whole=False,
            reasons=(),
            manifest=None,
            manifest_digest=None,
        )
        return self._add(VerificationRow, **_columns(begun))

    def finish(self, record: VerificationRecord) -> None:
        """Record the result of a verification. Recording it again is allowed; another result raises LedgerCorrupt."""
        what = f"verification {record.id}"
        with self._database.write() as connection:
            query = select(VerificationRow).where(_verifications.id == record.id)
            there = connection.execute(query).one_or_none()
            expect_one(int(there is not None), what)
            if there is None or there.finished_at_s is None:
                change(connection, VerificationRow, record.id, what, **_columns(record))
            elif _record(there) != replace(record, examples=()):
                raise LedgerCorrupt(f"{what} has ended already, with another result")

    def latest(self, plan: str, batch: int) -> VerificationRecord | None:
        """The newest finished verification of a whole batch."""
        of_batch = (_verifications.plan == plan, _verifications.batch == batch)
        found = self._finished(*of_batch, _verifications.trees == _WHOLE_BATCH)
        return found[-1] if found else None

    def of_plan(self, plan: str) -> Sequence[VerificationRecord]:
        """Every finished verification of a plan, oldest first."""
        return self._finished(_verifications.plan == plan)

    def of_tree(self, plan: str, batch: int, tree: bytes) -> Sequence[VerificationRecord]:
        """Finished verifications of a batch that covered one of its trees, oldest first."""
        found = self._finished(_verifications.plan == plan, _verifications.batch == batch)
        return [record for record in found if record.covers(tree)]

    def covering(self, tree: bytes, batches: Collection[tuple[str, int]]) -> Sequence[VerificationRecord]:
        """Finished verifications that covered a tree, oldest first. `batches` are those with the tree, of all plans."""
        held = tuple_(_verifications.plan, _verifications.batch).in_(sorted(batches))
        return [record for record in self._finished(held) if record.covers(tree)]

    def newest_id(self) -> int:
        """The number of the newest verification, finished or not; 0 if there is none."""
        return int(self._value(select(func.max(_verifications.id))) or 0)

    def all(self) -> Sequence[VerificationRecord]:
        """Every finished verification, oldest first."""
        return self._finished()

    def _finished(self, *wanted: ColumnElement[bool]) -> Sequence[VerificationRecord]:
        query = select(VerificationRow).where(_verifications.finished_at_s.is_not(None), *wanted)
        return [_record(row) for row in self._rows(query.order_by(_verifications.id))]


def _columns(record: VerificationRecord) -> dict[str, Any]:
    return columns_of(VerificationRow, record) | columns_of(VerificationRow, record.policy)


def _record(row: AnyRow) -> VerificationRecord:
    return record_of(row, VerificationRecord, policy=record_of(row, DigestPolicy))


class CatalogLedger(Ledger):
    """The ledger with the records of scans and verifications."""

    scans: ScanRecords
    verifications: VerificationRecords
