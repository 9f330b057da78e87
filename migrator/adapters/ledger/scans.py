"""Scans, by the closing record of their catalog."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, func, insert, select, update

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.codec import (
    decode,
    decode_paths,
    decode_trees,
    decode_words,
    encode,
    encode_paths,
    encode_trees,
    encode_words,
)
from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.transitions import expect_one
from migrator.domain.scan import CatalogRecord, StrangeFiles

_EVERYTHING = encode_paths(())
_BRICKS = "bricks"


class SqliteScans:
    """Scans, by the closing record of their catalog."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._query = select(tables.scans, func.coalesce(tables.site.c.site_id, "").label("site_id")).select_from(
            tables.scans.outerjoin(tables.site, tables.site.c.id == 1)
        )

    def start(self, *, catalog: str, via: str, at_s: float, scope: Sequence[bytes] = ()) -> int:
        """Record a new scan, of the user trees `scope` alone or (empty) of the whole source; returns its id, the same
        one when called again for the same catalog.
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
        """The closing facts of a scan."""
        with self._database.write() as connection:
            done = connection.execute(
                update(tables.scans)
                .where(tables.scans.c.id == record.scan_id)
                .values(
                    catalog=record.name,
                    via=record.via,
                    scope=encode_paths(record.scope),
                    started_at_s=record.started_at_s,
                    finished_at_s=record.finished_at_s,
                    trees=encode_trees(record.trees),
                    parts=encode_words(record.parts),
                    whole=int(record.whole),
                    reasons=encode_words(record.reasons),
                    rows=record.rows,
                    files=record.files,
                    directories=record.directories,
                    size_bytes=record.size_bytes,
                    problems=record.problems,
                    health_fingerprint=record.health_fingerprint,
                    strange=encode(record.strange),
                )
            )
            expect_one(done.rowcount, f"scan {record.scan_id}")

    def unfinished(self) -> CatalogRecord | None:
        """The newest scan of the whole source, where it has not ended: one that is older than a finished one is of no
        use any more.
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
        """Scans of some user trees alone that have not ended, oldest first."""
        scans = tables.scans.c
        query = self._query.where(scans.scope != _EVERYTHING, scans.finished_at_s.is_(None)).order_by(scans.id)
        with self._database.read() as connection:
            return [_catalog(row) for row in connection.execute(query)]

    def all(self) -> Sequence[CatalogRecord]:
        """Every scan, of some trees alone too, oldest first."""
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
    return CatalogRecord(
        name=row.catalog,
        scan_id=row.id,
        site_id=row.site_id,
        via=row.via,
        trees=decode_trees(row.trees),
        parts=decode_words(row.parts),
        started_at_s=row.started_at_s,
        finished_at_s=row.finished_at_s,
        whole=bool(row.whole),
        reasons=decode_words(row.reasons),
        rows=row.rows,
        files=row.files,
        directories=row.directories,
        size_bytes=row.size_bytes,
        problems=row.problems,
        health_fingerprint=row.health_fingerprint,
        scope=decode_paths(row.scope),
        strange=decode(row.strange, tuple[StrangeFiles, ...]),
    )
