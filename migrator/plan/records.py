"""The records of plans, of limits that a cutover sets, and of the room on both sides over time."""

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Integer, cast, delete, func, insert, select, update

from migrator.beegfs.model import OwnerLimit, StorageSample
from migrator.core.entry import UserTree
from migrator.core.errors import UsageError
from migrator.core.states import BATCH_TRANSITIONS, BatchState
from migrator.fs.model import CapacitySample
from migrator.ledger.database import expect_one
from migrator.ledger.rows import Records, States, add, columns_of, put, record_of
from migrator.plan.model import Plan, PlannedTree, PlanRecord
from migrator.plan.ports import CopiedTrees, MeasuredDrains, MeasuredStreams
from migrator.plan.tables import BatchRow, BatchTreeRow, CapacitySampleRow, OwnerLimitRow, PlanRow, StorageSampleRow
from migrator.scan.records import ScanLedger
from migrator.site.model import ReapAction

# Plans and their batches.


_plans, _batches = PlanRow, BatchRow
_BATCH_STATES = States(BatchRow, BATCH_TRANSITIONS, "plan", "number")


class PlanRecords(Records):
    """Plans and the states of their batches."""

    def record(self, plan: Plan, *, path: str, checksum: str) -> None:
        """Record a plan with its batches, all planned: a draft, unless it is the first plan. The same plan may be
        recorded again.

        Raises UsageError if another plan has the name.
        """
        usage = {tree.tree.path: (rank, tree) for rank, tree in enumerate(plan.ranking, 1)}
        reaped = _reaped(plan)
        with self._database.write() as connection:
            there = connection.execute(select(_plans.checksum).where(_plans.name == plan.name)).scalar()
            if there not in (None, checksum):
                raise UsageError(
                    f"there is another plan named {plan.name} in the ledger", hint="give the new plan another name"
                )
            if there is not None:
                return
            first = connection.execute(select(_plans.id).where(_plans.activated_at_s.is_not(None))).first() is None
            document = {"path": path, "checksum": checksum, "activated_at_s": plan.created_at_s if first else None}
            add(connection, PlanRow, **columns_of(PlanRow, plan, **document))
            for batch in plan.batches:
                state = BatchState.PLANNED
                connection.execute(insert(BatchRow).values(columns_of(BatchRow, batch, plan=plan.name, state=state)))
                for tree in batch.trees:
                    reaped_bytes, reaped_files = reaped[tree.path]
                    rank, used = usage.get(tree.path, (0, None))
                    row = {
                        "plan": plan.name,
                        "batch": batch.number,
                        "tree": tree.path,
                        "user": tree.user,
                        "rank": rank,
                        "size_bytes": 0 if used is None else used.size_bytes,
                        "files": 0 if used is None else used.files,
                        "directories": 0 if used is None else used.directories,
                        "reaped_bytes": reaped_bytes,
                        "reaped_files": reaped_files,
                    }
                    connection.execute(insert(BatchTreeRow).values(row))

    def read(self, name: str) -> PlanRecord | None:
        """A plan by its name."""
        with self._database.read() as connection:
            row = connection.execute(select(PlanRow).where(_plans.name == name)).one_or_none()
            query = select(_batches.number, _batches.state).where(_batches.plan == name).order_by(_batches.number)
            states = {row.number: row.state for row in connection.execute(query)}
        return None if row is None else record_of(row, PlanRecord, batches=states)

    def activate(self, name: str, at_s: float) -> None:
        """Make a plan the active one. Raises LedgerCorrupt if it is not recorded."""
        last_s = self._value(select(func.max(_plans.activated_at_s)))
        with self._database.write() as connection:
            # Later than every other one, even if the clock went backwards.
            at_s = at_s if last_s is None else max(at_s, math.nextafter(last_s, math.inf))
            changed = update(PlanRow).where(_plans.name == name).values(activated_at_s=at_s)
            expect_one(connection.execute(changed).rowcount, f"plan {name}")

    def active(self) -> PlanRecord | None:
        """The plan that verbs work by: the one that was activated last."""
        names = self.activated()
        return self.read(names[-1]) if names else None

    def activated(self) -> Sequence[str]:
        """Every plan that was ever active, the active one last."""
        query = select(_plans.name).where(_plans.activated_at_s.is_not(None)).order_by(_plans.activated_at_s, _plans.id)
        return [name for (name,) in self._rows(query)]

    def names(self) -> Sequence[str]:
        """Every plan, in the order in which they were recorded."""
        return [name for (name,) in self._rows(select(_plans.name).order_by(_plans.id))]

    def trees(self, plan: str) -> Sequence[PlannedTree]:
        """The user trees of a plan, in order of rank."""
        trees = BatchTreeRow
        query = select(BatchTreeRow).where(trees.plan == plan).order_by(trees.rank, trees.tree)
        return [record_of(row, PlannedTree, tree=UserTree(path=row.tree, user=row.user)) for row in self._rows(query)]

    def batches_with(self, tree: bytes) -> Sequence[tuple[str, int]]:
        """The batches of all plans that have a user tree, each by its plan and number."""
        rows = self._rows(select(BatchTreeRow.plan, BatchTreeRow.batch).where(BatchTreeRow.tree == tree))
        return [(plan, batch) for plan, batch in rows]

    def set_batch_state(self, plan: str, batch: int, state: BatchState) -> None:
        """Set the state of a batch. Raises LedgerCorrupt for a change that the states do not allow."""
        with self._database.write() as connection:
            _BATCH_STATES.enter(connection, [plan, batch], state, f"batch {batch} of plan {plan}")


def _reaped(plan: Plan) -> Mapping[bytes, tuple[int, int]]:
    """Bytes and files of each tree that are archived or skipped, and so in no chunk."""
    sums: dict[bytes, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for one in plan.reap.trees if plan.reap is not None else ():
        if one.action is not ReapAction.LIST:
            size_bytes, files = sums[one.tree.path]
            sums[one.tree.path] = (size_bytes + one.size_bytes, files + one.files)
    return sums


# Limits of owners.


class LimitRecords(Records):
    """The limits that were confirmed, to be set at the cutover."""

    def confirm(self, limits: Collection[OwnerLimit], *, withdrawn: Collection[int]) -> None:
        """Record these limits, which replace those of the same owners, and forget the withdrawn ones, by uid."""
        with self._database.write() as connection:
            connection.execute(delete(OwnerLimitRow).where(OwnerLimitRow.uid.in_(withdrawn)))
            put(connection, OwnerLimitRow, [columns_of(OwnerLimitRow, one, uid=one.uid) for one in limits])

    def all(self) -> Sequence[OwnerLimit]:
        """Every confirmed limit, in order of uid."""
        return self._all(OwnerLimit, select(OwnerLimitRow).order_by(OwnerLimitRow.uid))


# Capacity.


_capacity = CapacitySampleRow


class CapacityRecords(Records):
    """Capacity samples of both sides."""

    def add(self, samples: Sequence[CapacitySample]) -> None:
        """Store samples, replacing those of the same side and time."""
        self._put(CapacitySampleRow, [columns_of(CapacitySampleRow, sample) for sample in samples])

    def all(self, *, span_s: float = 0.0) -> Sequence[CapacitySample]:
        """All samples in order of time; with `span_s` only the last one of each side per span."""
        query = select(CapacitySampleRow).order_by(_capacity.at_s, _capacity.side)
        if span_s > 0:
            # SQLite takes the other columns from the row that has the maximum; that is documented.
            query = query.add_columns(func.max(_capacity.at_s).label("newest"))
            query = query.group_by(_capacity.side, cast(_capacity.at_s / span_s, Integer))
        return self._all(CapacitySample, query)

    def add_storage(self, sample: StorageSample) -> None:
        """Store a sample of the storage targets, replacing that of the same day."""
        self._put(StorageSampleRow, [columns_of(StorageSampleRow, sample)])

    def storage(self) -> Sequence[StorageSample]:
        """The first and the newest sample of the storage targets."""
        samples = self._all(StorageSample, select(StorageSampleRow).order_by(StorageSampleRow.day))
        return (*samples[:1], *samples[1:][-1:])


class PlanLedger(ScanLedger):
    """The ledger with the records of plans, and the measurements that plans are made by."""

    plans: PlanRecords
    limits: LimitRecords
    capacity: CapacityRecords
    passes: CopiedTrees
    samples: MeasuredStreams
    drains: MeasuredDrains
