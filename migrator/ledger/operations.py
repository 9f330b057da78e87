"""Tracked operations of every kind: attempts, their steps, and Gluster's counters over time.

A row has the state, the time at which the operation entered each state, and the reason for its last failure. All other
fields of the record are in one column of JSON (`facts`), because they are only read together. Attempts at one `subject`
are numbered.
"""

import json
import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Generic

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace

from migrator.bricks.add import model as addition
from migrator.bricks.add.model import AdditionNotes, AdditionRecord, AdditionSide, AdditionState, AdditionStep
from migrator.bricks.drain import model as drain
from migrator.bricks.drain.model import DrainNotes, DrainRecord, DrainSample, DrainState, DrainStep
from migrator.bricks.retire import model as retirement
from migrator.bricks.retire.model import Retirement, RetirementState, RetireStep
from migrator.core.entry import UserTree
from migrator.core.errors import LedgerCorrupt, Refused
from migrator.core.paths import is_beneath, show
from migrator.cutover import model as cutover
from migrator.cutover.model import CutoverNotes, CutoverRecord, CutoverState, CutoverStep
from migrator.gluster.model import TaskStatus
from migrator.ledger import tables
from migrator.ledger.database import Database, check, missing
from migrator.ledger.measures import ALL_STREAMS
from migrator.ledger.rows import Records, add, columns_of, record_of
from migrator.ledger.tables import storable
from migrator.operations.model import Act, Kind, Notes, Record, State, Step, StepRecord, StepResult

_operations, _steps, _samples = tables.OperationRow, tables.OperationStepRow, tables.OperationSampleRow
_COLUMNS = ("id", "attempt", "state", "times", "failure")
_TOKEN_BYTES = 8
_IN, _OUTSIDE = 1, 0


class OperationStore(Records, Generic[Record, State, Step, Notes]):
    """Operations of one kind, their steps, and Gluster's counters over time."""

    def __init__(self, database: Database, kind: Kind[Record, State, Step, Notes]) -> None:
        super().__init__(database)
        self._kind = kind

    def intend(self, operation_id: int, act: Act[Step, State], *, at_s: float, notes: Notes | None = None) -> int:
        """Write down a step before it begins, with its intended state and the tasks that the act names; return its id.
        Steps without an end are marked as interrupted. The `reason` of an act becomes the failure of the record.

        Raises LedgerCorrupt for a state that may not follow, and if a fact is missing that the way back needs: see
        `Kind.intended`.
        """
        with self._database.write() as connection:
            before = self._one(connection, operation_id)
            entered = self._changed(before, act.intent, at_s, notes, failure=act.reason or before.failure)
            self._write(connection, before, self._kind.intended(before, entered, act, notes))
            connection.execute(
                sa.update(_steps)
                .where(_steps.operation_id == operation_id, _steps.result.is_(None))
                .values(ended_at_s=at_s, result=StepResult.INTERRUPTED.value)
            )
            intent = {"operation_id": operation_id, "step": act.step.value, "intended_at_s": at_s}
            return add(connection, _steps, **intent, message=act.reason)

    def note(self, operation_id: int, notes: Notes) -> Record:
        """Record facts before the step ends: an option that is about to change, a task that has begun."""
        with self._database.write() as connection:
            before = self._one(connection, operation_id)
            return self._write(connection, before, replace(before, notes=self._kind.noted(before.notes, notes)))

    def finish(
        self, step_id: int, state: State, *, at_s: float, notes: Notes | None = None, message: str = ""
    ) -> Record:
        """A step is done and its state is reached. The first end of a step counts."""
        with self._database.write() as connection:
            step, before = self._step(connection, step_id)
            if step.result is not None:
                return before
            failure = before.failure if self._kind.steps(step.step) in self._kind.keeps_failure else ""
            after = self._changed(before, state, at_s, notes, failure=failure)
            _end(connection, step, StepResult.DONE, at_s, message)
            return self._write(connection, before, self._kind.finished(before, after))

    def fail(self, step_id: int, reason: str, *, at_s: float) -> Record:
        """A step failed; the state stays that of the intent. The first end of a step counts."""
        with self._database.write() as connection:
            step, before = self._step(connection, step_id)
            if step.result is not None:
                return before
            _end(connection, step, StepResult.FAILED, at_s, reason)
            return self._write(connection, before, replace(before, failure=reason))

    def read(self, operation_id: int) -> Record:
        """One operation. Raises LedgerCorrupt if there is none."""
        with self._database.read() as connection:
            return self._one(connection, operation_id)

    def all(self) -> Sequence[Record]:
        """Every operation of the kind, oldest first."""
        with self._database.read() as connection:
            return self.every(connection)

    def under_way(self) -> Sequence[Record]:
        """Operations that may have changed something outside the ledger and have not ended, oldest first."""
        states = [state.value for state in self._kind.under_way]
        with self._database.read() as connection:
            return self._some(connection, self._query().where(_operations.state.in_(states)))

    def steps(self, operation_id: int) -> Sequence[StepRecord[Step]]:
        """The steps of an operation, oldest first."""
        query = sa.select(_steps).where(_steps.operation_id == operation_id).order_by(_steps.id)
        return [record_of(row, StepRecord, step=self._kind.steps(row.step)) for row in self._rows(query)]

    def add_samples(self, operation_id: int, samples: Sequence[DrainSample]) -> None:
        """Store counters, replacing those of the same task, time and host."""
        self._put(_samples, [columns_of(_samples, sample, operation_id=operation_id) for sample in samples])

    def samples(self, operation_id: int) -> Sequence[DrainSample]:
        """All samples, in order of time, then host."""
        query = sa.select(_samples).where(_samples.operation_id == operation_id)
        return self._all(DrainSample, query.order_by(_samples.at_s, _samples.host))

    def telling_samples(self, operation_id: int, *, recent_s: float) -> Sequence[DrainSample]:
        """The few samples that the progress of the operation is computed from, in order of time, then host."""
        with self._database.read() as connection:
            return read_telling_samples(connection, operation_id, recent_s=recent_s)

    def _newest(self, connection: sa.Connection, subject: bytes) -> Record | None:
        found = self._some(connection, self._query().where(_operations.subject == subject))
        return found[-1] if found else None

    def _begin(self, connection: sa.Connection, subject: bytes, record: Record, newest: Record | None) -> Record:
        """Insert a new attempt at a subject. The id of `record` is ignored."""
        record = replace(record, attempt=1 if newest is None else newest.attempt + 1)
        values = {"kind": self._kind.name, "subject": subject, "attempt": record.attempt} | _columns(record)
        return self._one(connection, add(connection, _operations, **values))

    def _changed(self, record: Record, state: State, at_s: float, notes: Notes | None, *, failure: str) -> Record:
        """The record in a new state. Raises LedgerCorrupt if the state may not follow."""
        what = f"{self._kind.name} {record.id}"
        if check(self._kind.transitions, record.state, state, what):
            record = replace(record, state=state, times={**record.times, state: at_s})
        noted = record.notes if notes is None else self._kind.noted(record.notes, notes)
        return replace(record, notes=noted, failure=failure)

    def _write(self, connection: sa.Connection, before: Record, after: Record) -> Record:
        if after != before:
            connection.execute(sa.update(_operations).where(_operations.id == before.id).values(_columns(after)))
        return after

    def _query(self) -> sa.Select[Any]:
        return sa.select(_operations).where(_operations.kind == self._kind.name).order_by(_operations.id)

    def every(self, connection: sa.Connection) -> list[Record]:
        """`all`, as part of a transaction."""
        return self._some(connection, self._query())

    def _some(self, connection: sa.Connection, query: sa.Select[Any]) -> list[Record]:
        return [self._record(row) for row in connection.execute(query)]

    def _one(self, connection: sa.Connection, operation_id: int) -> Record:
        row = connection.execute(self._query().where(_operations.id == operation_id)).one_or_none()
        if row is None:
            raise missing(f"{self._kind.name} {operation_id}")
        return self._record(row)

    def _step(self, connection: sa.Connection, step_id: int) -> tuple[sa.Row[Any], Record]:
        row = connection.execute(sa.select(_steps).where(_steps.id == step_id)).one_or_none()
        if row is None:
            raise missing(f"step {step_id} of {self._kind.article} {self._kind.name}")
        return row, self._one(connection, row.operation_id)

    def _record(self, row: sa.Row[Any]) -> Record:
        columns = {name: getattr(row, name) for name in _COLUMNS} | {"times": json.loads(row.times)}
        record: Record = msgspec.convert(json.loads(row.facts) | columns, self._kind.record, str_keys=True)
        return record


def _columns(record: Any) -> dict[str, Any]:  # noqa: ANN401 - a record of any kind
    facts = msgspec.to_builtins(record, str_keys=True)
    return {
        "state": record.state.value,
        "times": json.dumps(facts["times"]),
        "failure": record.failure,
        "facts": json.dumps({name: value for name, value in facts.items() if name not in _COLUMNS}),
    }


def _end(connection: sa.Connection, step: sa.Row[Any], result: StepResult, at_s: float, message: str) -> None:
    connection.execute(
        sa.update(_steps)
        .where(_steps.id == step.id)
        .values(ended_at_s=at_s, result=result.value, message=message or step.message)
    )


def _bricks_subject(volume_id: str, bricks: Sequence[str], side: str = "") -> bytes:
    """Bricks of a volume, in whatever order."""
    return "\0".join((volume_id, side, *sorted(bricks))).encode("utf-8", "surrogateescape")


def _begun(what: str, hint: str) -> LedgerCorrupt:
    return LedgerCorrupt(
        f"{what} has begun already, and has not ended",
        cause="two programs worked on the same thing, or it was named otherwise the first time",
        hint=hint,
    )


# Gluster's counters of drains and additions.


def read_telling_samples(connection: sa.Connection, operation_id: int, *, recent_s: float) -> list[DrainSample]:
    """The samples that sums and the rate of the last `recent_s` are computed from, in order of time, then host. A drain
    of weeks has a hundred times as many samples. Of every task and host: the last one, those around every fall of
    counters, the first that counts files again; and of the newest task the recent ones, with the last before them.
    """
    newest_task, from_s = _newest_task(connection, operation_id, recent_s)
    one = _samples
    counts = sa.tuple_(one.files, one.size_bytes)

    def beside(shift: Callable[..., sa.Function[Any]], column: sa.SQLColumnExpression[Any]) -> sa.ColumnElement[Any]:
        return shift(column).over(partition_by=(one.task_id, one.host), order_by=one.at_s)

    before, after = partial(beside, sa.func.lag), partial(beside, sa.func.lead)
    query = sa.select(
        _samples,
        after(one.at_s).label("next_at_s"),
        (counts < sa.tuple_(before(one.files), before(one.size_bytes))).label("fell"),
        (sa.tuple_(after(one.files), after(one.size_bytes)) < counts).label("falls"),
        sa.and_(one.files > 0, before(one.files) == 0).label("rises"),
    )
    seen = query.where(one.operation_id == operation_id).subquery().c
    recent = sa.and_(seen.task_id == newest_task, seen.next_at_s >= from_s)
    kept = sa.or_(seen.next_at_s.is_(None), seen.fell, seen.falls, seen.rises, recent)
    rows = connection.execute(sa.select(*seen).where(kept).order_by(seen.at_s, seen.host))
    return [record_of(row, DrainSample) for row in rows]


def _newest_task(connection: sa.Connection, operation_id: int, recent_s: float) -> tuple[str | None, float]:
    """The newest task, and the time from which its samples are recent: at least the last two polls."""
    one = _samples
    mine = one.operation_id == operation_id
    newest = connection.execute(
        sa.select(one.task_id, one.at_s).where(mine).order_by(one.at_s.desc(), one.host.desc()).limit(1)
    ).one_or_none()
    if newest is None:
        return None, 0.0
    before = connection.execute(
        sa.select(sa.func.max(one.at_s)).where(mine, one.task_id == newest.task_id, one.at_s < newest.at_s)
    ).scalar()
    return newest.task_id, min(newest.at_s - recent_s, newest.at_s if before is None else before)


# The kinds of operations.


class DrainRecords(OperationStore[DrainRecord, DrainState, DrainStep, DrainNotes]):
    """Attempts to drain bricks."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, drain.DRAINS)

    def plan(self, record: DrainRecord, *, anew: bool = False) -> DrainRecord:
        """Begin this attempt, or return an unfinished one of the same bricks."""
        volume_id, bricks = record.volume_id, record.bricks
        subject = _bricks_subject(volume_id, bricks)
        with self._database.write() as connection:
            newest = self._newest(connection, subject)
            over = drain.DRAIN_ENDED_STATES | drain.OUT_STATES
            for one in self.every(connection):
                others = set(one.bricks) != set(bricks) and one.volume_id == volume_id and one.state not in over
                if others and set(one.bricks) & set(bricks):
                    hint = "finish that one, or take it back with `migrator brick stop`"
                    raise _begun(f"a drain of {one.shown_bricks}", hint)
            begins = anew and newest is not None and newest.state in drain.OUT_STATES
            if newest is not None and newest.state not in drain.DRAIN_ENDED_STATES and not begins:
                return newest
            return self._begin(connection, subject, record, newest)

    def latest(self, volume_id: str, bricks: Sequence[str]) -> DrainRecord | None:
        """The newest attempt at exactly these bricks, in any order."""
        with self._database.read() as connection:
            return self._newest(connection, _bricks_subject(volume_id, bricks))

    def copying(self) -> drain.DrainCopying:
        """Throughput of streams while drains moved files, and at other times."""
        with self._database.read() as connection:
            return _copying(connection)


def _copying(connection: sa.Connection) -> drain.DrainCopying:
    """Over all passes. A drain moves files from the first to the last sample of a task that was in progress. Throughput
    samples that overlap only part of that time are left out.
    """
    samples = tables.SampleRow
    begins_s = samples.at_s - samples.interval_s
    inside: list[sa.ColumnElement[bool]] = []
    touched: list[sa.ColumnElement[bool]] = []
    for first_s, last_s in _moving(connection):
        inside.append(sa.and_(begins_s >= first_s, samples.at_s <= last_s))
        touched.append(sa.and_(begins_s < last_s, samples.at_s > first_s))
    side = sa.case((sa.or_(sa.false(), *inside), _IN), (sa.or_(sa.false(), *touched), None), else_=_OUTSIDE).label(
        "side"
    )
    rows = connection.execute(
        sa.select(
            side,
            sa.func.sum(samples.files).label("files"),
            sa.func.sum(samples.size_bytes).label("size_bytes"),
            sa.func.sum(samples.interval_s).label("busy_s"),
        )
        .where(samples.attempt_id == ALL_STREAMS, samples.streams > 0)
        .group_by(side)
    )
    found = {row.side: drain.CopyTally(files=row.files, size_bytes=row.size_bytes, busy_s=row.busy_s) for row in rows}
    return drain.DrainCopying(
        in_drains=found.get(_IN, drain.CopyTally()), outside=found.get(_OUTSIDE, drain.CopyTally())
    )


def _moving(connection: sa.Connection) -> list[tuple[float, float]]:
    seen, one = tables.OperationSampleRow, tables.OperationRow
    rows = connection.execute(
        sa.select(sa.func.min(seen.at_s), sa.func.max(seen.at_s))
        .join(tables.OperationRow, one.id == seen.operation_id)
        .where(one.kind == drain.DRAINS.name, seen.status == TaskStatus.IN_PROGRESS.value)
        .group_by(seen.operation_id, seen.task_id)
    )
    return [(first_s, last_s) for first_s, last_s in rows]


class AdditionRecords(OperationStore[AdditionRecord, AdditionState, AdditionStep, AdditionNotes]):
    """Attempts to add bricks."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, addition.ADDITIONS)

    def plan(self, record: AdditionRecord, *, anew: bool = False) -> AdditionRecord:
        """Begin this attempt, or return the one of the same bricks."""
        volume_id, bricks = record.volume_id, record.bricks
        subject = _bricks_subject(volume_id, bricks, record.side.value)
        with self._database.write() as connection:
            newest = self._newest(connection, subject)
            over = addition.ADDITION_ENDED_STATES | addition.UNTOUCHED_STATES
            for one in self.every(connection):
                same = one.side is record.side and set(one.bricks) == set(bricks)
                others = not same and one.volume_id == volume_id and one.state not in over
                if others and set(one.bricks) & set(bricks):
                    raise _begun(f"the addition of {one.shown_bricks}", "give that command again first")
            if newest is not None and not (anew and newest.state in addition.ADDITION_ENDED_STATES):
                given_up = newest.state in addition.UNTOUCHED_STATES and newest.instead_of != record.instead_of
                if not given_up:
                    return newest
            return self._begin(connection, subject, record, newest)

    def latest(self, volume_id: str, bricks: Sequence[str], side: AdditionSide) -> AdditionRecord | None:
        """The newest attempt at exactly these bricks, in any order."""
        with self._database.read() as connection:
            return self._newest(connection, _bricks_subject(volume_id, bricks, side.value))


class CutoverRecords(OperationStore[CutoverRecord, CutoverState, CutoverStep, CutoverNotes]):
    """Attempts to cut trees over. `under_way` returns those of all plans whose users may be frozen."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, cutover.CUTOVERS)

    def plan(
        self, *, plan: str, batch: int, tree: UserTree, predicted_freeze_s: float | None, at_s: float
    ) -> CutoverRecord:
        """Begin a new attempt, or return an unfinished one of the same plan and batch."""
        with self._database.write() as connection:
            newest = self._newest(connection, tree.path)
            if newest is not None and newest.state not in cutover.ENDED_STATES:
                if (newest.plan, newest.batch) != (plan, batch):
                    which = f"a cutover of {tree.user}, by plan {newest.plan}, batch {newest.batch},"
                    raise _begun(which, "see `migrator status`, and go on with that one")
                return newest
            record = CutoverRecord(
                id=0,
                plan=plan,
                batch=batch,
                tree=replace(tree, user=storable(tree.user)),
                token=secrets.token_hex(_TOKEN_BYTES),
                state=CutoverState.PLANNED,
                times={CutoverState.PLANNED: at_s},
                predicted_freeze_s=predicted_freeze_s,
            )
            return self._begin(connection, tree.path, record, newest)

    def latest(self, tree: bytes) -> CutoverRecord | None:
        """The newest attempt of a tree, of any plan."""
        with self._database.read() as connection:
            return self._newest(connection, tree)

    def require_apart(self, trees: Iterable[bytes]) -> None:
        """Raise Refused if a tree contains, or lies in, another tree that was moved or is being moved. Such overlaps
        arise when [users] trees was changed since. Copying, archiving or moving the tree would overwrite the work of
        users on the target. The same tree is no overlap.
        """
        held = [one for one in self.all() if one.state in cutover.SETTLED_STATES | cutover.UNDER_WAY_STATES]
        for tree in trees:
            for one in held:
                other = one.tree.path
                if other != tree and (is_beneath(other, tree) or is_beneath(tree, other)):
                    raise Refused(
                        f"user tree {show(tree)} overlaps {show(other)}, and {one.tree.user} of that tree works on the target or "
                        "is being moved",
                        cause="[users] trees in site.toml was changed after that tree was planned",
                        hint="let [users] trees match the same directories as before, or exclude this one in [users] exclude; then "
                        "`migrator scan` and `migrator plan --activate`",
                    )

    def of_plan(self, plan: str, batch: int | None = None) -> Sequence[CutoverRecord]:
        """Every attempt of a plan, or of one of its batches, oldest first."""
        return [one for one in self.all() if one.plan == plan and batch in (None, one.batch)]


class RetirementRecords(OperationStore[Retirement, RetirementState, RetireStep, None]):
    """Attempts to retire volumes."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, retirement.RETIREMENTS)

    def begin(
        self, *, volume: str, volume_id: str, catalog: str, files: int, size_bytes: int, at_s: float
    ) -> Retirement:
        """Record that the volume is about to be stopped."""
        subject, state = volume_id.encode("utf-8", "surrogateescape"), RetirementState.RETIRING
        with self._database.write() as connection:
            newest = self._newest(connection, subject)
            if newest is not None and newest.state in retirement.UNDER_WAY:
                facts = replace(newest, catalog=catalog, files=files, size_bytes=size_bytes)
                times = {one: s for one, s in newest.times.items() if one not in retirement.UNDER_WAY}
                return self._write(connection, newest, replace(facts, state=state, times={**times, state: at_s}))
            record = Retirement(
                id=0,
                volume=volume,
                volume_id=volume_id,
                catalog=catalog,
                files=files,
                size_bytes=size_bytes,
                state=state,
                times={state: at_s},
            )
            return self._begin(connection, subject, record, newest)

    def newest(self) -> Retirement | None:
        """The newest attempt at any volume."""
        found = self.all()
        return found[-1] if found else None

    def enter(self, operation_id: int, state: RetirementState, *, at_s: float, failure: str = "") -> Retirement:
        """Record a state. Raises LedgerCorrupt if it may not follow."""
        with self._database.write() as connection:
            before = self._one(connection, operation_id)
            if before.state is state:
                return before
            return self._write(connection, before, self._changed(before, state, at_s, None, failure=failure))
