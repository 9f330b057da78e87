"""Drains, additions and retirements in the ledger, with their steps and Gluster's counters."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    and_,
    case,
    false,
    func,
    insert,
    or_,
    select,
    update,
)

from migrator.bricks.add.model import (
    ADDITION_ENDED_STATES,
    ADDITION_TRANSITIONS,
    NO_ADDITION_NOTES,
    UNTOUCHED_STATES,
    AdditionAct,
    AdditionNotes,
    AdditionRecord,
    AdditionSide,
    AdditionState,
    AdditionStep,
    AdditionStepRecord,
    TargetRoom,
)
from migrator.bricks.drain.model import (
    DRAIN_ENDED_STATES,
    DRAIN_TRANSITIONS,
    NO_DRAIN_NOTES,
    OUT_STATES,
    UNDER_WAY_STATES,
    CopyTally,
    DrainAct,
    DrainCopying,
    DrainNotes,
    DrainRecord,
    DrainSample,
    DrainState,
    DrainStep,
    DrainStepRecord,
    merged_options,
)
from migrator.bricks.retire.model import RETIREMENT_TRANSITIONS, RetirementRecord, RetirementState
from migrator.core.errors import LedgerCorrupt
from migrator.core.paths import percent_escape, percent_unescape
from migrator.cutover.model import StepResult
from migrator.gluster.model import ListedDirectory, TaskStatus
from migrator.ledger import tables
from migrator.ledger.database import Database, check, decode_options, encode_options, expect_one, missing
from migrator.ledger.measures import ALL_STREAMS

# ---
# What attempts have in common whose steps are written down before they begin: drains, additions, cutovers.
#
# An attempt is a row with a state, the time at which it entered each (JSON), and the reason of its last failure. Every step of it
# is a row with an intent and an end.


State = TypeVar("State", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptTables(Generic[State]):
    """The rows of one kind of attempt. `owner` is the column of a step that names its attempt, `what` and `a_what` are the kind,
    without and with its article, for people.
    """

    attempts: Table
    steps: Table
    owner: str
    what: str
    a_what: str
    states: type[State]
    transitions: Mapping[State, frozenset[State]]

    def row(self, connection: Connection, attempt_id: int) -> Row[Any]:
        """One attempt. Raises LedgerCorrupt where there is none."""
        row = connection.execute(select(self.attempts).where(self.attempts.c.id == attempt_id)).one_or_none()
        if row is None:
            raise missing(f"{self.what} {attempt_id}")
        return row

    def step_rows(self, connection: Connection, attempt_id: int) -> Sequence[Row[Any]]:
        """The steps of an attempt, oldest first."""
        query = select(self.steps).where(self.steps.c[self.owner] == attempt_id).order_by(self.steps.c.id)
        return connection.execute(query).all()

    def entering(self, row: Row[Any], state: State, at_s: float) -> dict[str, Any]:
        """What entering a state changes; nothing where it is the state already. Raises LedgerCorrupt where it may not follow."""
        if not check(self.transitions, self.states(row.state), state, f"{self.what} {row.id}"):
            return {}
        return {"state": state.value, "times": encode_times({**self.times(row), state: at_s})}

    def times(self, row: Row[Any]) -> dict[State, float]:
        """When each state was entered."""
        return {self.states(state): float(at_s) for state, at_s in json.loads(row.times).items()}

    def change(self, connection: Connection, attempt_id: int, values: Mapping[str, Any]) -> None:
        """Change columns of an attempt, if any."""
        if values:
            connection.execute(update(self.attempts).where(self.attempts.c.id == attempt_id).values(values))

    def begin(self, connection: Connection, attempt_id: int, step: StrEnum, *, at_s: float, reason: str) -> int:
        """Write down a step before it begins, and return its id. Steps without an end are said to be interrupted."""
        steps, owner = self.steps, self.steps.c[self.owner]
        connection.execute(
            update(steps)
            .where(owner == attempt_id, steps.c.result.is_(None))
            .values(ended_at_s=at_s, result=StepResult.INTERRUPTED.value)
        )
        made = connection.execute(
            insert(steps)
            .values({self.owner: attempt_id, "step": step.value, "intended_at_s": at_s, "message": reason})
            .returning(steps.c.id)
        ).one()
        return int(made.id)

    def finish(
        self,
        connection: Connection,
        step_id: int,
        changes: Callable[[Row[Any], Row[Any]], Mapping[str, Any]],
        *,
        at_s: float,
        message: str,
    ) -> Row[Any]:
        """A step was done: what `changes` makes of the attempt and the step is written. The first end of a step counts."""
        step = self._step(connection, step_id)
        row = self.row(connection, getattr(step, self.owner))
        if step.result is not None:
            return row
        self.change(connection, row.id, changes(row, step))
        self._end(connection, step, StepResult.DONE, at_s, message)
        return self.row(connection, row.id)

    def fail(self, connection: Connection, step_id: int, reason: str, *, at_s: float) -> Row[Any]:
        """A step failed; the state stays that of the intent. The first end of a step counts."""
        step = self._step(connection, step_id)
        attempt_id = getattr(step, self.owner)
        if step.result is None:
            done = connection.execute(
                update(self.attempts).where(self.attempts.c.id == attempt_id).values(failure=reason)
            )
            expect_one(done.rowcount, f"{self.what} {attempt_id}")
            self._end(connection, step, StepResult.FAILED, at_s, reason)
        return self.row(connection, attempt_id)

    def _step(self, connection: Connection, step_id: int) -> Row[Any]:
        row = connection.execute(select(self.steps).where(self.steps.c.id == step_id)).one_or_none()
        if row is None:
            raise missing(f"step {step_id} of {self.a_what}")
        return row

    def _end(self, connection: Connection, step: Row[Any], result: StepResult, at_s: float, message: str) -> None:
        connection.execute(
            update(self.steps)
            .where(self.steps.c.id == step.id)
            .values(ended_at_s=at_s, result=result.value, message=message or step.message)
        )


def encode_times(times: Mapping[State, float]) -> str:
    """As they stand in the row of an attempt."""
    return json.dumps({state.value: at_s for state, at_s in times.items()})


def step_result(row: Row[Any]) -> StepResult | None:
    """How a step ended; None where it has not."""
    return None if row.result is None else StepResult(row.result)


# ---
# Gluster's counters over time, of a drain or an addition.


_ROWS_AT_ONCE = 10_000
_TIMES_AT_ONCE = 500


def keep_samples(
    connection: Connection, table: Table, owner: str, owner_id: int, samples: Sequence[DrainSample]
) -> None:
    """Those of the same task, time and host replace the ones before."""
    if samples:
        rows = [{**asdict(sample), owner: owner_id, "status": sample.status.value} for sample in samples]
        connection.execute(insert(table).prefix_with("OR REPLACE"), rows)


def read_samples(connection: Connection, table: Table, owner: str, owner_id: int) -> list[DrainSample]:
    """In order of time, then of host."""
    query = select(table).where(table.c[owner] == owner_id).order_by(table.c.at_s, table.c.host)
    return [_sample(row) for row in connection.execute(query)]


def read_telling_samples(
    connection: Connection, table: Table, owner: str, owner_id: int, *, recent_s: float
) -> list[DrainSample]:
    """Those that sums and the pace of the last `recent_s` are made of, in order of time, then of host: a drain of weeks has
    a hundred times as many, which are gone through here by five columns alone.
    """
    kept = _telling(connection, table, owner, owner_id, recent_s)
    times = sorted({at_s for at_s, _, _ in kept})
    found: list[DrainSample] = []
    for begin in range(0, len(times), _TIMES_AT_ONCE):
        query = (
            select(table)
            .where(table.c[owner] == owner_id, table.c.at_s.in_(times[begin : begin + _TIMES_AT_ONCE]))
            .order_by(table.c.at_s, table.c.host)
        )
        rows = connection.execute(query)
        found += [_sample(row) for row in rows if (row.at_s, row.task_id, row.host) in kept]
    return found


def _telling(
    connection: Connection, table: Table, owner: str, owner_id: int, recent_s: float
) -> set[tuple[float, str, str]]:
    """The keys (time, task, host) of the last samples of every task and host, of those around every fall of counters, and of the
    newest task those of its last time and the last ones before that.
    """
    newest_task, from_s = _newest(connection, table, owner, owner_id, recent_s)
    one = table.c
    query = (
        select(one.at_s, one.task_id, one.host, one.files, one.size_bytes)
        .where(one[owner] == owner_id)
        .order_by(one.at_s, one.host)
    )
    kept: set[tuple[float, str, str]] = set()
    last: dict[tuple[str, str], tuple[float, int, int]] = {}
    earlier: dict[tuple[str, str], float] = {}
    fallen: set[tuple[str, str]] = set()
    for at_s, task_id, host, files, size_bytes in connection.execute(query).yield_per(_ROWS_AT_ONCE):
        key = task_id, host
        before = last.get(key)
        if before is not None and (files, size_bytes) < before[1:]:
            kept.add((before[0], *key))
            fallen.add(key)
        if key in fallen:
            kept.add((at_s, *key))
            if files:
                fallen.discard(key)
        if task_id == newest_task:
            if at_s >= from_s:
                kept.add((at_s, *key))
            else:
                earlier[key] = at_s
        last[key] = at_s, files, size_bytes
    kept.update((at_s, *key) for key, (at_s, _, _) in last.items())
    kept.update((at_s, *key) for key, at_s in earlier.items())
    return kept


def _newest(
    connection: Connection, table: Table, owner: str, owner_id: int, recent_s: float
) -> tuple[str | None, float]:
    """The task that was looked at last, and from when on its samples are recent: two looks at least are."""
    one = table.c
    mine = one[owner] == owner_id
    newest = connection.execute(
        select(one.task_id, one.at_s).where(mine).order_by(one.at_s.desc(), one.host.desc()).limit(1)
    ).one_or_none()
    if newest is None:
        return None, 0.0
    before = connection.execute(
        select(func.max(one.at_s)).where(mine, one.task_id == newest.task_id, one.at_s < newest.at_s)
    ).scalar_one()
    return newest.task_id, min(newest.at_s - recent_s, newest.at_s if before is None else before)


def _sample(row: Row[Any]) -> DrainSample:
    return DrainSample(
        task_id=row.task_id,
        at_s=row.at_s,
        host=row.host,
        files=row.files,
        size_bytes=row.size_bytes,
        lookups=row.lookups,
        failures=row.failures,
        skipped=row.skipped,
        status=TaskStatus(row.status),
        runtime_s=row.runtime_s,
    )


# ---
# What streams have brought while drains moved files, and otherwise: sums of the samples.


_IN, _OUTSIDE = 1, 0


def read_copying(connection: Connection) -> DrainCopying:
    """Over all passes. A drain moves files from the first to the last look at a task that was in progress. A sample that lies
    partly in that time counts for neither.
    """
    samples = tables.samples.c
    begins_s = samples.at_s - samples.interval_s
    inside: list[ColumnElement[bool]] = []
    touched: list[ColumnElement[bool]] = []
    for first_s, last_s in _moving(connection):
        inside.append(and_(begins_s >= first_s, samples.at_s <= last_s))
        touched.append(and_(begins_s < last_s, samples.at_s > first_s))
    side = case((or_(false(), *inside), _IN), (or_(false(), *touched), None), else_=_OUTSIDE).label("side")
    rows = connection.execute(
        select(
            side,
            func.sum(samples.files).label("files"),
            func.sum(samples.size_bytes).label("size_bytes"),
            func.sum(samples.interval_s).label("busy_s"),
        )
        .where(samples.attempt_id == ALL_STREAMS, samples.streams > 0)
        .group_by(side)
    )
    found = {row.side: CopyTally(files=row.files, size_bytes=row.size_bytes, busy_s=row.busy_s) for row in rows}
    return DrainCopying(in_drains=found.get(_IN, CopyTally()), outside=found.get(_OUTSIDE, CopyTally()))


def _moving(connection: Connection) -> list[tuple[float, float]]:
    seen = tables.drain_samples.c
    rows = connection.execute(
        select(func.min(seen.at_s), func.max(seen.at_s))
        .where(seen.status == TaskStatus.IN_PROGRESS.value)
        .group_by(seen.drain_id, seen.task_id)
    )
    return [(first_s, last_s) for first_s, last_s in rows]


# ---
# Attempts to drain bricks, every step of them, and Gluster's counters over time.


_KEEP_FAILURE = (DrainStep.GIVE_UP, DrainStep.STOP, DrainStep.SETTLE, DrainStep.RESTORE)
"""Steps after which the reason of an earlier failure is still what people want to know."""

_drains, _samples = tables.drains, tables.drain_samples
_rows = AttemptTables(
    attempts=_drains,
    steps=tables.drain_steps,
    owner="drain_id",
    what="drain",
    a_what="a drain",
    states=DrainState,
    transitions=DRAIN_TRANSITIONS,
)


class DrainRecords:
    """Attempts to drain bricks, every step of them, and Gluster's counters over time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def plan(
        self, *, volume: str, volume_id: str, bricks: Sequence[str], at_s: float, anew: bool = False
    ) -> DrainRecord:
        """A new attempt; one of the same bricks that has not ended is returned as it is."""
        with self._database.write() as connection:
            rows = connection.execute(_of_volume(volume_id)).all()
            newest = next((row for row in reversed(rows) if _is_of(row, bricks)), None)
            for row in rows:
                over = DrainState(row.state) in DRAIN_ENDED_STATES | OUT_STATES
                if not over and not _is_of(row, bricks) and set(json.loads(row.bricks)) & set(bricks):
                    raise LedgerCorrupt(
                        f"a drain of {', '.join(json.loads(row.bricks))} has begun already, and has not ended",
                        cause="two programs worked on the same thing, or other bricks were named the first time",
                        hint="finish that one, or take it back with `migrator brick stop`",
                    )
            if newest is not None:
                state = DrainState(newest.state)
                if state not in DRAIN_ENDED_STATES and not (anew and state in OUT_STATES):
                    return _record(newest)
            row = connection.execute(
                insert(_drains)
                .values(
                    volume=volume,
                    volume_id=volume_id,
                    bricks=json.dumps(list(bricks)),
                    attempt=1 if newest is None else newest.attempt + 1,
                    state=DrainState.PLANNED.value,
                    times=encode_times({DrainState.PLANNED: at_s}),
                    failure="",
                )
                .returning(_drains)
            ).one()
        return _record(row)

    def intend(self, drain_id: int, act: DrainAct, *, at_s: float, notes: DrainNotes = NO_DRAIN_NOTES) -> int:
        """Write down a step before it begins, with its intended state; returns its id."""
        with self._database.write() as connection:
            row = _rows.row(connection, drain_id)
            values = _rows.entering(row, act.intent, at_s) | _noted(row, notes)
            for name, task_id in (("task_id", act.task_id), ("task_before", act.task_before)):
                if task_id is not None:
                    values[name] = task_id
            if act.intent is DrainState.STARTING and values.get("options", row.options) is None:
                raise LedgerCorrupt(
                    f"drain {drain_id} cannot be {act.intent.value}: what the options were before is not written down",
                    hint="this is an error in migrator: report it; nothing was started",
                )
            if act.reason:
                values["failure"] = act.reason
            _rows.change(connection, drain_id, values)
            return _rows.begin(connection, drain_id, act.step, at_s=at_s, reason=act.reason)

    def note(self, drain_id: int, notes: DrainNotes) -> DrainRecord:
        """Facts that are to be kept before the step ends."""
        with self._database.write() as connection:
            row = _rows.row(connection, drain_id)
            _rows.change(connection, drain_id, _noted(row, notes))
            return _record(_rows.row(connection, drain_id))

    def finish(
        self, step_id: int, state: DrainState, *, at_s: float, notes: DrainNotes = NO_DRAIN_NOTES, message: str = ""
    ) -> DrainRecord:
        """A step was done, and came to its state. The first end of a step counts."""

        def changes(row: Row[Any], step: Row[Any]) -> dict[str, Any]:
            values = _rows.entering(row, state, at_s) | _noted(row, notes)
            return values if DrainStep(step.step) in _KEEP_FAILURE else values | {"failure": ""}

        with self._database.write() as connection:
            return _record(_rows.finish(connection, step_id, changes, at_s=at_s, message=message))

    def fail(self, step_id: int, reason: str, *, at_s: float) -> DrainRecord:
        """A step failed; the state stays that of the intent. The first end of a step counts."""
        with self._database.write() as connection:
            return _record(_rows.fail(connection, step_id, reason, at_s=at_s))

    def read(self, drain_id: int) -> DrainRecord:
        """One attempt. Raises LedgerCorrupt where there is none."""
        with self._database.read() as connection:
            return _record(_rows.row(connection, drain_id))

    def latest(self, volume_id: str, bricks: Sequence[str]) -> DrainRecord | None:
        """The newest attempt at just these bricks, in whatever order."""
        with self._database.read() as connection:
            rows = connection.execute(_of_volume(volume_id)).all()
        return next((_record(row) for row in reversed(rows) if _is_of(row, bricks)), None)

    def all(self) -> Sequence[DrainRecord]:
        """Every attempt, oldest first."""
        return self._read(select(_drains))

    def under_way(self) -> Sequence[DrainRecord]:
        """Attempts that may have touched the volume and have not come to rest, oldest first."""
        return self._read(select(_drains).where(_drains.c.state.in_([state.value for state in UNDER_WAY_STATES])))

    def steps(self, drain_id: int) -> Sequence[DrainStepRecord]:
        """The steps of an attempt, oldest first."""
        with self._database.read() as connection:
            return [_step(row) for row in _rows.step_rows(connection, drain_id)]

    def add_samples(self, drain_id: int, samples: Sequence[DrainSample]) -> None:
        """Keep counters; those of the same task, time and host replace the ones before."""
        with self._database.write() as connection:
            keep_samples(connection, _samples, "drain_id", drain_id, samples)

    def samples(self, drain_id: int) -> Sequence[DrainSample]:
        """In order of time, then of host."""
        with self._database.read() as connection:
            return read_samples(connection, _samples, "drain_id", drain_id)

    def telling_samples(self, drain_id: int, *, recent_s: float) -> Sequence[DrainSample]:
        """Those of them that its standing is made of, which are few however long it has lasted. In order of time, then of host."""
        with self._database.read() as connection:
            return read_telling_samples(connection, _samples, "drain_id", drain_id, recent_s=recent_s)

    def copying(self) -> DrainCopying:
        """What streams have brought while drains moved files, and otherwise."""
        with self._database.read() as connection:
            return read_copying(connection)

    def _read(self, query: Select[Any]) -> Sequence[DrainRecord]:
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(_drains.c.id)).all()
        return [_record(row) for row in rows]


def _of_volume(volume_id: str) -> Select[Any]:
    return select(_drains).where(_drains.c.volume_id == volume_id).order_by(_drains.c.id)


def _is_of(row: Row[Any], bricks: Sequence[str]) -> bool:
    return set(json.loads(row.bricks)) == set(bricks)


def _noted(row: Row[Any], notes: DrainNotes) -> dict[str, Any]:
    values: dict[str, Any] = {
        "task_id": notes.task_id,
        "task_before": notes.task_before,
        "layout_task_id": notes.layout_task_id,
        "files": notes.files if row.files is None else None,
        "size_bytes": notes.size_bytes if row.size_bytes is None else None,
    }
    if notes.options is not None:
        merged = merged_options(decode_options(row.options), notes.options)
        values["options"] = encode_options(merged or ())
    return {name: value for name, value in values.items() if value is not None}


def _record(row: Row[Any]) -> DrainRecord:
    return DrainRecord(
        id=row.id,
        volume=row.volume,
        volume_id=row.volume_id,
        bricks=tuple(json.loads(row.bricks)),
        attempt=row.attempt,
        state=DrainState(row.state),
        times=_rows.times(row),
        failure=row.failure,
        notes=DrainNotes(
            options=decode_options(row.options),
            task_id=row.task_id,
            task_before=row.task_before,
            layout_task_id=row.layout_task_id,
            files=row.files,
            size_bytes=row.size_bytes,
        ),
    )


def _step(row: Row[Any]) -> DrainStepRecord:
    return DrainStepRecord(
        id=row.id,
        drain_id=row.drain_id,
        step=DrainStep(row.step),
        intended_at_s=row.intended_at_s,
        ended_at_s=row.ended_at_s,
        result=step_result(row),
        message=row.message,
    )


# ---
# Attempts to add bricks, every step of them, and Gluster's counters over time.


_additions, _additions_samples = tables.additions, tables.addition_samples
_additions_rows = AttemptTables(
    attempts=_additions,
    steps=tables.addition_steps,
    owner="addition_id",
    what="addition",
    a_what="an addition",
    states=AdditionState,
    transitions=ADDITION_TRANSITIONS,
)


class AdditionRecords:
    """Attempts to add bricks, every step of them, and Gluster's counters over time. Synchronous, short transactions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def plan(
        self,
        *,
        side: AdditionSide,
        volume: str,
        volume_id: str,
        bricks: Sequence[str],
        instead_of: str | None,
        at_s: float,
        anew: bool = False,
    ) -> AdditionRecord:
        """A new attempt; one of the same bricks is returned as it is."""
        with self._database.write() as connection:
            rows = connection.execute(_additions_of_volume(volume_id)).all()
            same = [row for row in rows if _additions_is_of(row, bricks, side)]
            newest = same[-1] if same else None
            for row in rows:
                over = AdditionState(row.state) in ADDITION_ENDED_STATES | UNTOUCHED_STATES
                if not over and row is not newest and not _additions_is_of(row, bricks, side) and _shares(row, bricks):
                    raise LedgerCorrupt(
                        f"the addition of {', '.join(json.loads(row.bricks))} has begun already, and has not come to its end",
                        cause="two programs worked on the same thing, or other bricks were named the first time",
                        hint="give that command again first",
                    )
            if newest is not None and not (anew and AdditionState(newest.state) in ADDITION_ENDED_STATES):
                given_up = AdditionState(newest.state) in UNTOUCHED_STATES and newest.instead_of != instead_of
                if not given_up:
                    return _additions_record(newest)
            row = connection.execute(
                insert(_additions)
                .values(
                    side=side.value,
                    volume=volume,
                    volume_id=volume_id,
                    bricks=json.dumps(list(bricks)),
                    instead_of=instead_of,
                    attempt=1 if newest is None else newest.attempt + 1,
                    state=AdditionState.PLANNED.value,
                    times=encode_times({AdditionState.PLANNED: at_s}),
                    failure="",
                )
                .returning(_additions)
            ).one()
        return _additions_record(row)

    def intend(
        self, addition_id: int, act: AdditionAct, *, at_s: float, notes: AdditionNotes = NO_ADDITION_NOTES
    ) -> int:
        """Write down a step before it begins, with its intended state; returns its id."""
        with self._database.write() as connection:
            row = _additions_rows.row(connection, addition_id)
            values = _additions_rows.entering(row, act.intent, at_s) | _additions_noted(row, notes)
            if act.task_before is not None:
                values |= {"task_before": act.task_before, "task_id": None}
            if act.task_id is not None:
                values["task_id"] = act.task_id
            if act.intent is AdditionState.HANDING and values.get("room_before", row.room_before) is None:
                raise LedgerCorrupt(
                    f"addition {addition_id} cannot be {act.intent.value}: how large the target was is not written down",
                    hint="this is an error in migrator: report it; nothing was handed over",
                )
            if act.reason:
                values["failure"] = act.reason
            _additions_rows.change(connection, addition_id, values)
            return _additions_rows.begin(connection, addition_id, act.step, at_s=at_s, reason=act.reason)

    def note(self, addition_id: int, notes: AdditionNotes) -> AdditionRecord:
        """Facts that are to be kept before the step ends."""
        with self._database.write() as connection:
            row = _additions_rows.row(connection, addition_id)
            _additions_rows.change(connection, addition_id, _additions_noted(row, notes))
            return _additions_record(_additions_rows.row(connection, addition_id))

    def finish(
        self,
        step_id: int,
        state: AdditionState,
        *,
        at_s: float,
        notes: AdditionNotes = NO_ADDITION_NOTES,
        message: str = "",
    ) -> AdditionRecord:
        """A step was done, and came to its state. The first end of a step counts."""

        def changes(row: Row[Any], step: Row[Any]) -> dict[str, Any]:
            values = _additions_rows.entering(row, state, at_s) | _additions_noted(row, notes)
            return values if AdditionStep(step.step) is AdditionStep.GIVE_UP else values | {"failure": ""}

        with self._database.write() as connection:
            return _additions_record(_additions_rows.finish(connection, step_id, changes, at_s=at_s, message=message))

    def fail(self, step_id: int, reason: str, *, at_s: float) -> AdditionRecord:
        """A step failed; the state stays that of the intent. The first end of a step counts."""
        with self._database.write() as connection:
            return _additions_record(_additions_rows.fail(connection, step_id, reason, at_s=at_s))

    def read(self, addition_id: int) -> AdditionRecord:
        """One attempt. Raises LedgerCorrupt where there is none."""
        with self._database.read() as connection:
            return _additions_record(_additions_rows.row(connection, addition_id))

    def latest(self, volume_id: str, bricks: Sequence[str], side: AdditionSide) -> AdditionRecord | None:
        """The newest attempt at just these bricks, in whatever order."""
        with self._database.read() as connection:
            rows = connection.execute(_additions_of_volume(volume_id)).all()
        return next((_additions_record(row) for row in reversed(rows) if _additions_is_of(row, bricks, side)), None)

    def all(self) -> Sequence[AdditionRecord]:
        """Every attempt, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(select(_additions).order_by(_additions.c.id)).all()
        return [_additions_record(row) for row in rows]

    def steps(self, addition_id: int) -> Sequence[AdditionStepRecord]:
        """The steps of an attempt, oldest first."""
        with self._database.read() as connection:
            return [_additions_step(row) for row in _additions_rows.step_rows(connection, addition_id)]

    def add_samples(self, addition_id: int, samples: Sequence[DrainSample]) -> None:
        """Keep counters; those of the same task, time and host replace the ones before."""
        with self._database.write() as connection:
            keep_samples(connection, _additions_samples, "addition_id", addition_id, samples)

    def samples(self, addition_id: int) -> Sequence[DrainSample]:
        """In order of time, then of host."""
        with self._database.read() as connection:
            return read_samples(connection, _additions_samples, "addition_id", addition_id)

    def telling_samples(self, addition_id: int, *, recent_s: float) -> Sequence[DrainSample]:
        """Those of them that its standing is made of, which are few however long it has lasted. In order of time, then of host."""
        with self._database.read() as connection:
            return read_telling_samples(connection, _additions_samples, "addition_id", addition_id, recent_s=recent_s)


def _additions_of_volume(volume_id: str) -> Select[Any]:
    return select(_additions).where(_additions.c.volume_id == volume_id).order_by(_additions.c.id)


def _additions_is_of(row: Row[Any], bricks: Sequence[str], side: AdditionSide) -> bool:
    return bool(row.side == side.value and set(json.loads(row.bricks)) == set(bricks))


def _shares(row: Row[Any], bricks: Sequence[str]) -> bool:
    return bool(set(json.loads(row.bricks)) & set(bricks))


def _additions_noted(row: Row[Any], notes: AdditionNotes) -> dict[str, Any]:
    values: dict[str, Any] = {
        "task_id": notes.task_id,
        "task_before": notes.task_before,
        "size_bytes": notes.size_bytes,
        "files": notes.files,
        "filesystem_id": notes.filesystem_id,
    }
    if row.filesystem_before is None:
        values["filesystem_before"] = notes.filesystem_before
    if notes.options is not None:
        merged = merged_options(decode_options(row.options), notes.options) if notes.options else ()
        values["options"] = encode_options(merged or ())
    if notes.directories is not None:
        values["directories"] = _encode_directories(notes.directories)
    if notes.room_before is not None and row.room_before is None:
        values["room_before"] = json.dumps(asdict(notes.room_before))
    return {name: value for name, value in values.items() if value is not None}


def _additions_record(row: Row[Any]) -> AdditionRecord:
    return AdditionRecord(
        id=row.id,
        side=AdditionSide(row.side),
        volume=row.volume,
        volume_id=row.volume_id,
        bricks=tuple(json.loads(row.bricks)),
        instead_of=row.instead_of,
        attempt=row.attempt,
        state=AdditionState(row.state),
        times=_additions_rows.times(row),
        failure=row.failure,
        notes=AdditionNotes(
            task_id=row.task_id,
            task_before=row.task_before,
            room_before=None if row.room_before is None else TargetRoom(**json.loads(row.room_before)),
            size_bytes=row.size_bytes,
            files=row.files,
            options=decode_options(row.options),
            directories=_decode_directories(row.directories),
            filesystem_before=row.filesystem_before,
            filesystem_id=row.filesystem_id,
        ),
    )


def _encode_directories(directories: Sequence[ListedDirectory]) -> str:
    return json.dumps([asdict(one) | {"path": percent_escape(one.path)} for one in directories])


def _decode_directories(text: str | None) -> tuple[ListedDirectory, ...] | None:
    if text is None:
        return None
    return tuple(ListedDirectory(**{**one, "path": percent_unescape(one["path"])}) for one in json.loads(text))


def _additions_step(row: Row[Any]) -> AdditionStepRecord:
    return AdditionStepRecord(
        id=row.id,
        addition_id=row.addition_id,
        step=AdditionStep(row.step),
        intended_at_s=row.intended_at_s,
        ended_at_s=row.ended_at_s,
        result=step_result(row),
        message=row.message,
    )


# ---
# Attempts to retire volumes.


_retirements = tables.retirements
_UNDER_WAY = (RetirementState.RETIRING.value, RetirementState.STOPPING.value)


class RetirementRecords:
    """Attempts to retire volumes. Synchronous, short transactions; times in seconds since the epoch."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def intend(
        self, *, volume: str, volume_id: str, catalog: str, files: int, size_bytes: int, at_s: float
    ) -> RetirementRecord:
        """Write down that the volume is about to be stopped."""
        facts = {"catalog": catalog, "files": files, "size_bytes": size_bytes, "intended_at_s": at_s}
        with self._database.write() as connection:
            known = connection.execute(
                select(_retirements.c.id).where(
                    _retirements.c.volume_id == volume_id,
                    _retirements.c.state.in_(_UNDER_WAY),
                )
            ).scalar_one_or_none()
            if known is None:
                made = insert(_retirements).values(
                    volume=volume, volume_id=volume_id, state=RetirementState.RETIRING.value, failure="", **facts
                )
                known = connection.execute(made.returning(_retirements.c.id)).scalar_one()
            else:
                facts |= {"state": RetirementState.RETIRING.value}
                connection.execute(update(_retirements).where(_retirements.c.id == known).values(facts))
            return _retirements_record(_row(connection, known))

    def last_look(self, retirement_id: int) -> RetirementRecord:
        """Write down that the command to stop the volume is next. Raises LedgerCorrupt where an attempt has ended."""
        return self._move(retirement_id, RetirementState.STOPPING, {})

    def finish(self, retirement_id: int, state: RetirementState, *, at_s: float, failure: str = "") -> RetirementRecord:
        """What became of it. Raises LedgerCorrupt for a state that may not follow."""
        return self._move(retirement_id, state, {"ended_at_s": at_s, "failure": failure})

    def _move(self, retirement_id: int, state: RetirementState, facts: dict[str, Any]) -> RetirementRecord:
        with self._database.write() as connection:
            row = _row(connection, retirement_id)
            if check(RETIREMENT_TRANSITIONS, RetirementState(row.state), state, f"retirement {retirement_id}"):
                connection.execute(
                    update(_retirements).where(_retirements.c.id == retirement_id).values(state=state.value, **facts)
                )
            return _retirements_record(_row(connection, retirement_id))

    def newest(self) -> RetirementRecord | None:
        """The newest attempt at any volume."""
        query = select(_retirements).order_by(_retirements.c.id.desc()).limit(1)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else _retirements_record(row)


def _row(connection: Connection, retirement_id: int) -> Row[Any]:
    row = connection.execute(select(_retirements).where(_retirements.c.id == retirement_id)).one_or_none()
    if row is None:
        raise missing(f"retirement {retirement_id}")
    return row


def _retirements_record(row: Row[Any]) -> RetirementRecord:
    return RetirementRecord(
        id=row.id,
        volume=row.volume,
        volume_id=row.volume_id,
        state=RetirementState(row.state),
        intended_at_s=row.intended_at_s,
        ended_at_s=row.ended_at_s,
        catalog=row.catalog,
        files=row.files,
        size_bytes=row.size_bytes,
        failure=row.failure,
    )
