"""Verifications and where their manifests lie."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, func, insert, select, update

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.codec import (
    decode_counts,
    decode_paths,
    decode_words,
    encode_counts,
    encode_paths,
    encode_words,
)
from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.transitions import expect_one
from migrator.domain.errors import LedgerCorrupt
from migrator.domain.verification import DigestPolicy, VerificationRecord

_WHOLE_BATCH = encode_paths(())


class SqliteVerifications:
    """Verifications and where their manifests lie. Reads give finished ones only: others prove nothing."""

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
        """The closing facts of a verification. The same ones may be recorded again; other ones raise LedgerCorrupt."""
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
                .values(
                    plan=record.plan,
                    batch=record.batch,
                    started_at_s=record.started_at_s,
                    finished_at_s=record.finished_at_s,
                    algorithm=record.policy.algorithm,
                    share=record.policy.share,
                    seed=record.policy.seed,
                    paths=record.paths,
                    size_bytes=record.size_bytes,
                    digested_files=record.digested_files,
                    digested_bytes=record.digested_bytes,
                    proven_gone=record.proven_gone,
                    differences=encode_counts(record.differences),
                    expected=encode_counts(record.expected),
                    whole=int(record.whole),
                    reasons=encode_words(record.reasons),
                    manifest=record.manifest,
                    manifest_digest=record.manifest_digest,
                    files=record.files,
                    equal_paths=record.equal_paths,
                    differences_file=record.differences_file,
                    trees=encode_paths(record.trees),
                    carried_files=record.carried_files,
                    carried_bytes=record.carried_bytes,
                )
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
        """Those of a batch that covered one of its trees, oldest first."""
        verifications = tables.verifications.c
        found = self._finished(verifications.plan == plan, verifications.batch == batch)
        return [record for record in found if record.covers(tree)]

    def covering(self, tree: bytes) -> Sequence[VerificationRecord]:
        """Those of every plan that covered a tree, oldest first."""
        verifications, planned = tables.verifications.c, tables.batch_trees.c
        held = (
            select(planned.tree)
            .where(planned.plan == verifications.plan, planned.batch == verifications.batch, planned.tree == tree)
            .exists()
        )
        return [record for record in self._finished(held) if record.covers(tree)]

    def newest_id(self) -> int:
        """The number of the newest one that was begun; 0 where there is none."""
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
    return VerificationRecord(
        id=row.id,
        plan=row.plan,
        batch=row.batch,
        started_at_s=row.started_at_s,
        finished_at_s=row.finished_at_s,
        policy=DigestPolicy(algorithm=row.algorithm, share=row.share, seed=row.seed),
        paths=row.paths,
        size_bytes=row.size_bytes,
        digested_files=row.digested_files,
        digested_bytes=row.digested_bytes,
        proven_gone=row.proven_gone,
        differences=decode_counts(row.differences),
        expected=decode_counts(row.expected),
        whole=bool(row.whole),
        reasons=decode_words(row.reasons),
        manifest=row.manifest,
        manifest_digest=row.manifest_digest,
        files=row.files,
        equal_paths=row.equal_paths,
        differences_file=row.differences_file,
        trees=decode_paths(row.trees),
        carried_files=row.carried_files,
        carried_bytes=row.carried_bytes,
    )
