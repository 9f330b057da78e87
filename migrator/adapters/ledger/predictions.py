"""What was predicted and decided after every delta pass."""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, Select, insert, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.database import Database
from migrator.domain.convergence import ConvergenceRecord, Outcome, Prediction, TreeChurn
from migrator.domain.paths import percent_escape, percent_unescape


class SqlitePredictions:
    """What was predicted and decided after every delta pass."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, record: ConvergenceRecord) -> None:
        """Keep what was predicted after a pass; what was predicted after the same one before is replaced."""
        found = record.prediction
        with self._database.write() as connection:
            connection.execute(
                insert(tables.predictions)
                .prefix_with("OR REPLACE")
                .values(
                    pass_id=record.pass_id,
                    at_s=record.at_s,
                    decision=record.outcome.value,
                    max_freeze_s=record.max_freeze_s,
                    next_pass_s=found.next_pass_s,
                    freeze_s=found.freeze_s,
                    least_freeze_s=found.least_freeze_s,
                    churn_files_per_h=found.churn_files_per_h,
                    churn_bytes_per_h=found.churn_bytes_per_h,
                    churn_of_trees=_encode_trees(found.trees),
                )
            )

    def of_batch(self, plan: str, batch: int) -> Sequence[ConvergenceRecord]:
        """Those of a batch, in the order of its passes."""
        return self._read(_of_plan(plan).where(tables.passes.c.batch == batch))

    def of_plan(self, plan: str) -> Sequence[ConvergenceRecord]:
        """Those of all batches of a plan, in the order of the passes."""
        return self._read(_of_plan(plan))

    def _read(self, query: Select[Any]) -> Sequence[ConvergenceRecord]:
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [_record(row) for row in rows]


def _of_plan(plan: str) -> Select[Any]:
    return (
        select(tables.passes.c.batch, tables.predictions)
        .join(tables.passes, tables.passes.c.id == tables.predictions.c.pass_id)
        .where(tables.passes.c.plan == plan)
        .order_by(tables.predictions.c.pass_id)
    )


def _record(row: Row[Any]) -> ConvergenceRecord:
    return ConvergenceRecord(
        pass_id=row.pass_id,
        at_s=row.at_s,
        batch=row.batch,
        outcome=Outcome(row.decision),
        max_freeze_s=row.max_freeze_s,
        prediction=Prediction(
            next_pass_s=row.next_pass_s,
            freeze_s=row.freeze_s,
            least_freeze_s=row.least_freeze_s,
            churn_files_per_h=row.churn_files_per_h,
            churn_bytes_per_h=row.churn_bytes_per_h,
            trees=_decode_trees(row.churn_of_trees),
        ),
    )


def _encode_trees(trees: Sequence[TreeChurn]) -> str:
    return json.dumps([[percent_escape(tree.tree), tree.files_per_h, tree.bytes_per_h] for tree in trees])


def _decode_trees(text: str) -> tuple[TreeChurn, ...]:
    return tuple(
        TreeChurn(tree=percent_unescape(tree), files_per_h=files_per_h, bytes_per_h=bytes_per_h)
        for tree, files_per_h, bytes_per_h in json.loads(text)
    )
