"""Attempts to add bricks, every step of them, and Gluster's counters over time."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Row, Select, insert, select

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.attempt_steps import AttemptTables, encode_times, step_result
from migrator.adapters.ledger.changed_options import decode_options, encode_options
from migrator.adapters.ledger.database import Database
from migrator.adapters.ledger.task_samples import keep_samples, read_samples, read_telling_samples
from migrator.domain.addition import (
    ADDITION_TRANSITIONS,
    ENDED_STATES,
    NO_NOTES,
    UNTOUCHED_STATES,
    AdditionNotes,
    AdditionRecord,
    AdditionSide,
    AdditionState,
    AdditionStep,
    AdditionStepRecord,
    TargetRoom,
)
from migrator.domain.addition_seen import Act
from migrator.domain.directory_owners import ListedDirectory
from migrator.domain.drain import DrainSample, merged_options
from migrator.domain.errors import LedgerCorrupt
from migrator.domain.paths import percent_escape, percent_unescape

_additions, _samples = tables.additions, tables.addition_samples
_rows = AttemptTables(
    attempts=_additions,
    steps=tables.addition_steps,
    owner="addition_id",
    what="addition",
    a_what="an addition",
    states=AdditionState,
    transitions=ADDITION_TRANSITIONS,
)


class SqliteAdditions:
    """The `AdditionRecords` port."""

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
            rows = connection.execute(_of_volume(volume_id)).all()
            same = [row for row in rows if _is_of(row, bricks, side)]
            newest = same[-1] if same else None
            for row in rows:
                over = AdditionState(row.state) in ENDED_STATES | UNTOUCHED_STATES
                if not over and row is not newest and not _is_of(row, bricks, side) and _shares(row, bricks):
                    raise LedgerCorrupt(
                        f"the addition of {', '.join(json.loads(row.bricks))} has begun already, and has not come to its end",
                        cause="two programs worked on the same thing, or other bricks were named the first time",
                        hint="give that command again first",
                    )
            if newest is not None and not (anew and AdditionState(newest.state) in ENDED_STATES):
                given_up = AdditionState(newest.state) in UNTOUCHED_STATES and newest.instead_of != instead_of
                if not given_up:
                    return _record(newest)
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
        return _record(row)

    def intend(self, addition_id: int, act: Act, *, at_s: float, notes: AdditionNotes = NO_NOTES) -> int:
        """Write down a step before it begins, with its intended state; returns its id."""
        with self._database.write() as connection:
            row = _rows.row(connection, addition_id)
            values = _rows.entering(row, act.intent, at_s) | _noted(row, notes)
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
            _rows.change(connection, addition_id, values)
            return _rows.begin(connection, addition_id, act.step, at_s=at_s, reason=act.reason)

    def note(self, addition_id: int, notes: AdditionNotes) -> AdditionRecord:
        """Facts that are to be kept before the step ends."""
        with self._database.write() as connection:
            row = _rows.row(connection, addition_id)
            _rows.change(connection, addition_id, _noted(row, notes))
            return _record(_rows.row(connection, addition_id))

    def finish(
        self, step_id: int, state: AdditionState, *, at_s: float, notes: AdditionNotes = NO_NOTES, message: str = ""
    ) -> AdditionRecord:
        """A step was done, and came to its state. The first end of a step counts."""

        def changes(row: Row[Any], step: Row[Any]) -> dict[str, Any]:
            values = _rows.entering(row, state, at_s) | _noted(row, notes)
            return values if AdditionStep(step.step) is AdditionStep.GIVE_UP else values | {"failure": ""}

        with self._database.write() as connection:
            return _record(_rows.finish(connection, step_id, changes, at_s=at_s, message=message))

    def fail(self, step_id: int, reason: str, *, at_s: float) -> AdditionRecord:
        """A step failed; the state stays that of the intent. The first end of a step counts."""
        with self._database.write() as connection:
            return _record(_rows.fail(connection, step_id, reason, at_s=at_s))

    def read(self, addition_id: int) -> AdditionRecord:
        """One attempt. Raises LedgerCorrupt where there is none."""
        with self._database.read() as connection:
            return _record(_rows.row(connection, addition_id))

    def latest(self, volume_id: str, bricks: Sequence[str], side: AdditionSide) -> AdditionRecord | None:
        """The newest attempt at just these bricks, in whatever order."""
        with self._database.read() as connection:
            rows = connection.execute(_of_volume(volume_id)).all()
        return next((_record(row) for row in reversed(rows) if _is_of(row, bricks, side)), None)

    def all(self) -> Sequence[AdditionRecord]:
        """Every attempt, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(select(_additions).order_by(_additions.c.id)).all()
        return [_record(row) for row in rows]

    def steps(self, addition_id: int) -> Sequence[AdditionStepRecord]:
        """The steps of an attempt, oldest first."""
        with self._database.read() as connection:
            return [_step(row) for row in _rows.step_rows(connection, addition_id)]

    def add_samples(self, addition_id: int, samples: Sequence[DrainSample]) -> None:
        """Keep counters; those of the same task, time and host replace the ones before."""
        with self._database.write() as connection:
            keep_samples(connection, _samples, "addition_id", addition_id, samples)

    def samples(self, addition_id: int) -> Sequence[DrainSample]:
        """In order of time, then of host."""
        with self._database.read() as connection:
            return read_samples(connection, _samples, "addition_id", addition_id)

    def telling_samples(self, addition_id: int, *, recent_s: float) -> Sequence[DrainSample]:
        """Those of them that its standing is made of, which are few however long it has lasted. In order of time, then of host."""
        with self._database.read() as connection:
            return read_telling_samples(connection, _samples, "addition_id", addition_id, recent_s=recent_s)


def _of_volume(volume_id: str) -> Select[Any]:
    return select(_additions).where(_additions.c.volume_id == volume_id).order_by(_additions.c.id)


def _is_of(row: Row[Any], bricks: Sequence[str], side: AdditionSide) -> bool:
    return bool(row.side == side.value and set(json.loads(row.bricks)) == set(bricks))


def _shares(row: Row[Any], bricks: Sequence[str]) -> bool:
    return bool(set(json.loads(row.bricks)) & set(bricks))


def _noted(row: Row[Any], notes: AdditionNotes) -> dict[str, Any]:
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


def _record(row: Row[Any]) -> AdditionRecord:
    return AdditionRecord(
        id=row.id,
        side=AdditionSide(row.side),
        volume=row.volume,
        volume_id=row.volume_id,
        bricks=tuple(json.loads(row.bricks)),
        instead_of=row.instead_of,
        attempt=row.attempt,
        state=AdditionState(row.state),
        times=_rows.times(row),
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


def _step(row: Row[Any]) -> AdditionStepRecord:
    return AdditionStepRecord(
        id=row.id,
        addition_id=row.addition_id,
        step=AdditionStep(row.step),
        intended_at_s=row.intended_at_s,
        ended_at_s=row.ended_at_s,
        result=step_result(row),
        message=row.message,
    )
