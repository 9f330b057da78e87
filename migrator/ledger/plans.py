"""Plans, scans, verifications, archives and releases."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace
from sqlalchemy import ColumnElement, func, insert, select, update

from migrator.catalog.model import CatalogRecord, StrangeFiles, VerificationRecord
from migrator.core.documents import encode
from migrator.core.entry import UserTree
from migrator.core.errors import LedgerCorrupt, UsageError
from migrator.core.states import BATCH_TRANSITIONS, BatchState
from migrator.ledger import tables
from migrator.ledger.database import Database, expect_one
from migrator.ledger.model import PlanRecord
from migrator.ledger.rows import Records, States, add, blank, change, columns_of, record_of
from migrator.plan.model import Plan, PlannedTree
from migrator.site.model import ReapAction

# Plans and their batches.


_plans, _batches = tables.PlanRow, tables.BatchRow
_BATCH_STATES = States(tables.BatchRow, BATCH_TRANSITIONS, "plan", "number")


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
            add(connection, tables.PlanRow, **columns_of(tables.PlanRow, plan, **document))
            for batch in plan.batches:
                state = BatchState.PLANNED.value
                connection.execute(
                    insert(tables.BatchRow).values(columns_of(tables.BatchRow, batch, plan=plan.name, state=state))
                )
                for tree in batch.trees:
                    row = {"plan": plan.name, "batch": batch.number, "tree": tree.path, "user": tree.user}
                    row["reaped_bytes"], row["reaped_files"] = reaped[tree.path]
                    if tree.path in usage:
                        rank, used = usage[tree.path]
                        row |= columns_of(tables.BatchTreeRow, used, tree=tree.path, rank=rank)
                    connection.execute(insert(tables.BatchTreeRow).values(blank(tables.BatchTreeRow) | row))

    def read(self, name: str) -> PlanRecord | None:
        """A plan by its name."""
        with self._database.read() as connection:
            row = connection.execute(select(tables.PlanRow).where(_plans.name == name)).one_or_none()
            query = select(_batches.number, _batches.state).where(_batches.plan == name).order_by(_batches.number)
            states = {number: BatchState(state) for number, state in connection.execute(query)}
        return None if row is None else record_of(row, PlanRecord, batches=states)

    def activate(self, name: str, at_s: float) -> None:
        """Make a plan the active one. Raises LedgerCorrupt if it is not recorded."""
        last_s = self._value(select(func.max(_plans.activated_at_s)))
        with self._database.write() as connection:
            # Later than every other one, even if the clock went backwards.
            at_s = at_s if last_s is None else max(at_s, math.nextafter(last_s, math.inf))
            changed = update(tables.PlanRow).where(_plans.name == name).values(activated_at_s=at_s)
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
        trees = tables.BatchTreeRow
        query = select(tables.BatchTreeRow).where(trees.plan == plan).order_by(trees.rank, trees.tree)
        return [record_of(row, PlannedTree, tree=UserTree(path=row.tree, user=row.user)) for row in self._rows(query)]

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


# Scans.


_scans = tables.ScanRow
_EVERYTHING = encode(())
_BRICKS = "bricks"


class ScanRecords(Records):
    """Scans, by the closing record of their catalog. "The newest scan" is always one of the whole source."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        site_id = func.coalesce(tables.SiteRow.site_id, "").label("site_id")
        columns = (tables.ScanRow, _scans.id.label("scan_id"), _scans.catalog.label("name"), site_id)
        self._query = select(*columns).outerjoin_from(tables.ScanRow, tables.SiteRow, tables.SiteRow.id == 1)

    def start(self, *, catalog: str, via: str, at_s: float, scope: Sequence[bytes] = ()) -> int:
        """Record a new scan of the user trees `scope`, or (empty) of the whole source. Returns its id, the same one
        when called again for the same catalog.
        """
        row = blank(tables.ScanRow) | dict.fromkeys(
            ("trees", "parts", "reasons", "strange", "set_apart", "selected_by"), encode(())
        )
        row |= {"catalog": catalog, "via": via, "scope": encode(scope), "started_at_s": at_s}
        with self._database.write() as connection:
            there = connection.execute(select(_scans.id).where(_scans.catalog == catalog)).scalar()
            return add(connection, tables.ScanRow, **row) if there is None else int(there)

    def finish(self, record: CatalogRecord) -> None:
        """Record the result of a scan."""
        row = columns_of(tables.ScanRow, record, catalog=record.name)
        self._change(tables.ScanRow, record.scan_id, f"scan {record.scan_id}", **row)

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


_verifications = tables.VerificationRow
_WHOLE_BATCH = encode(())


class VerificationRecords(Records):
    """Verifications and the locations of their manifests."""

    def start(self, *, plan: str, batch: int, at_s: float) -> int:
        """Record a new verification; returns its id. Every call is a verification of its own."""
        row = {"plan": plan, "batch": batch, "started_at_s": at_s}
        return self._add(tables.VerificationRow, **(blank(tables.VerificationRow) | row))

    def finish(self, record: VerificationRecord) -> None:
        """Record the result of a verification. Recording it again is allowed; another result raises LedgerCorrupt."""
        what = f"verification {record.id}"
        with self._database.write() as connection:
            query = select(tables.VerificationRow).where(_verifications.id == record.id)
            there = connection.execute(query).one_or_none()
            expect_one(int(there is not None), what)
            if there is None or there.finished_at_s is None:
                change(
                    connection, tables.VerificationRow, record.id, what, **columns_of(tables.VerificationRow, record)
                )
            elif record_of(there, VerificationRecord) != replace(record, examples=()):
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

    def covering(self, tree: bytes) -> Sequence[VerificationRecord]:
        """Finished verifications of every plan that covered a tree, oldest first."""
        planned = tables.BatchTreeRow
        held = select(planned.tree).where(
            planned.plan == _verifications.plan, planned.batch == _verifications.batch, planned.tree == tree
        )
        return [record for record in self._finished(held.exists()) if record.covers(tree)]

    def newest_id(self) -> int:
        """The number of the newest verification, finished or not; 0 if there is none."""
        return int(self._value(select(func.max(_verifications.id))) or 0)

    def all(self) -> Sequence[VerificationRecord]:
        """Every finished verification, oldest first."""
        return self._finished()

    def _finished(self, *wanted: ColumnElement[bool]) -> Sequence[VerificationRecord]:
        query = select(tables.VerificationRow).where(_verifications.finished_at_s.is_not(None), *wanted)
        return self._all(VerificationRecord, query.order_by(_verifications.id))
