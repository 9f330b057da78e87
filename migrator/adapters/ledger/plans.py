"""Plans, their batches, and the user trees of every batch."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, func, insert, select, update

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.codec import encode
from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.transitions import check
from migrator.domain.errors import LedgerCorrupt, UsageError
from migrator.domain.plan import Plan
from migrator.domain.reap import ReapAction
from migrator.domain.states import BATCH_TRANSITIONS, BatchState
from migrator.ports.plans import PlanRecord


class SqlitePlans:
    """Plans that were written, and how far each batch is."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, plan: Plan, *, path: str, checksum: str) -> None:
        """Record a plan with its batches, all planned. The same plan may be recorded again.

        Raises UsageError where the name is taken by a plan with another checksum.
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
        """The plan that was recorded last."""
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
        """A batch is now so far. Raises LedgerCorrupt for a change that the states do not allow."""
        this = (tables.batches.c.plan == plan) & (tables.batches.c.number == batch)
        with self._database.write() as connection:
            old = connection.execute(select(tables.batches.c.state).where(this)).scalar_one_or_none()
            if old is None:
                raise LedgerCorrupt(f"the ledger has no batch {batch} of plan {plan}", hint="run `migrator plan` again")
            if check(BATCH_TRANSITIONS, BatchState(old), state, f"batch {batch} of plan {plan}"):
                connection.execute(update(tables.batches).where(this).values(state=state.value))


def _reaped(plan: Plan) -> Mapping[bytes, tuple[int, int]]:
    """Bytes and files of each tree that are archived or skipped: no chunk has them."""
    sums: dict[bytes, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for one in plan.reap.trees if plan.reap is not None else ():
        if one.action is not ReapAction.LIST:
            size_bytes, files = sums[one.tree.path]
            sums[one.tree.path] = (size_bytes + one.size_bytes, files + one.files)
    return sums


def _plan(row: Row[Any], batches: dict[int, BatchState]) -> PlanRecord:
    return PlanRecord(
        name=row.name,
        path=row.path,
        checksum=row.checksum,
        created_at_s=row.created_at_s,
        scan_id=row.scan_id,
        batches=batches,
    )
