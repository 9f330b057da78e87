"""Attempts to drain bricks, every step of them, and Gluster's counters over time."""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, Select, insert, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.attempt_steps import AttemptTables, encode_times, step_result
from migrator.adapters.ledger.changed_options import decode_options, encode_options
from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.drain_copying import read_copying
from migrator.adapters.ledger.task_samples import keep_samples, read_samples, read_telling_samples
from migrator.domain.drain import (
    DRAIN_TRANSITIONS,
    ENDED_STATES,
    NO_NOTES,
    OUT_STATES,
    UNDER_WAY_STATES,
    DrainNotes,
    DrainRecord,
    DrainSample,
    DrainState,
    DrainStep,
    DrainStepRecord,
    merged_options,
)
from migrator.domain.drain_copying import DrainCopying
from migrator.domain.drain_seen import Act
from migrator.domain.errors import LedgerCorrupt

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


class SqliteDrains:
    """The `DrainRecords` port."""

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
                over = DrainState(row.state) in ENDED_STATES | OUT_STATES
                if not over and not _is_of(row, bricks) and set(json.loads(row.bricks)) & set(bricks):
                    raise LedgerCorrupt(
                        f"a drain of {', '.join(json.loads(row.bricks))} has begun already, and has not ended",
                        cause="two programs worked on the same thing, or other bricks were named the first time",
                        hint="finish that one, or take it back with `migrator brick stop`",
                    )
            if newest is not None:
                state = DrainState(newest.state)
                if state not in ENDED_STATES and not (anew and state in OUT_STATES):
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

    def intend(self, drain_id: int, act: Act, *, at_s: float, notes: DrainNotes = NO_NOTES) -> int:
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
        self, step_id: int, state: DrainState, *, at_s: float, notes: DrainNotes = NO_NOTES, message: str = ""
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
