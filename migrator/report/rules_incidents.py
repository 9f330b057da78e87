"""Incidents, and the events that end them. Pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from migrator.core.events import Event, EventKind, Severity
from migrator.report import model
from migrator.report.rules import of_record

_K = EventKind


class _End(NamedTuple):
    """An event ends incidents of the kinds `of` about the same subject, or about any subject. `clean`: only if it is no
    warning itself. A pass has its batch as the subject, a cutover its user tree.
    """

    by: EventKind
    words: str
    of: tuple[EventKind, ...]
    any_subject: bool = False
    clean: bool = False


_OF_A_CUTOVER = (_K.CUTOVER_FAILED, _K.CUTOVER_REVERTING, _K.CUTOVER_GIVEN_UP, _K.CUTOVER_HALTED, _K.GUARD_REFUSED)

_ENDS = (
    _End(_K.HOST_FOUND, "the host is back", (_K.HOST_LOST,)),
    _End(_K.BRICKS_FIT, "the bricks are read again", (_K.BRICKS_UNFIT,)),
    _End(_K.STORAGE_BACK, "the storage is back", (_K.STORAGE_LOST,)),
    _End(_K.LIMITS_SET, "resumed", (_K.LIMITS_SET,), clean=True),
    _End(_K.CUTOVER_FINISHED, "a later attempt finished", _OF_A_CUTOVER),
    _End(_K.DRAIN_STEP, "the drain continued", (_K.DRAIN_HALTED,), clean=True),
    _End(_K.DRAIN_FINISHED, "the drain finished", (_K.DRAIN_FAILED, _K.DRAIN_HALTED, _K.DRAIN_DOUBTED)),
    _End(_K.ADDITION_FINISHED, "the addition finished", (_K.ADDITION_FAILED, _K.ADDITION_HALTED)),
    _End(
        _K.RETIREMENT_FINISHED,
        "the retirement continued",
        (_K.RETIREMENT_GIVEN_UP, _K.RETIREMENT_HALTED),
        any_subject=True,
    ),
    _End(_K.PASS_FINISHED, "the pass finished", (_K.CHUNK_RETRIED, _K.CHUNK_FAILED)),
    _End(_K.PASS_STARTED, "a later pass began", (_K.POOL_STOPPED, _K.BATCH_REFUSED)),
    _End(_K.PASS_FINISHED, "a later pass finished", (_K.PASS_FINISHED, _K.GUARD_REFUSED), clean=True),
    _End(_K.RUN_FINISHED, "a later run finished", (_K.RUN_INTERRUPTED, _K.BRICKS_UNFIT), any_subject=True),
    _End(
        _K.RUN_FINISHED,
        "a later run finished",
        (_K.RUN_FINISHED, _K.TREES_SET_APART, _K.BATCH_REFUSED),
        any_subject=True,
        clean=True,
    ),
    _End(_K.VERIFY_FINISHED, "a later verification found no difference", (_K.VERIFY_FINISHED,), clean=True),
    _End(
        _K.SCAN_FINISHED,
        "a later scan is whole",
        (_K.SCAN_FINISHED, _K.SCAN_INTERRUPTED, _K.SOURCE_UNHEALTHY),
        any_subject=True,
        clean=True,
    ),
)

ENDING_KINDS = tuple(dict.fromkeys(end.by for end in _ENDS))
"""All events that can end an incident."""


def incidents(groups: Sequence[model.Incident], endings: Sequence[model.Incident]) -> tuple[model.Incident, ...]:
    """Every group of warnings or errors with the event that ended it. Unresolved ones first, then by time."""
    found = [replace(group, **_ended(group.kind, group.subject, group.last_at_s, endings)) for group in groups]
    return tuple(sorted(found, key=lambda one: (one.resolved_at_s is not None, -one.last_at_s)))


def seen_events(events: Sequence[Event], endings: Sequence[model.Incident]) -> tuple[model.RecordedEvent, ...]:
    """Warnings and errors, each with the event that ended it."""
    return tuple(
        of_record(model.RecordedEvent, event, **_ended(event.kind, event.subject, event.at_s, endings))
        for event in events
    )


def _ended(kind: EventKind, subject: str, at_s: float, endings: Sequence[model.Incident]) -> dict[str, Any]:
    """The time and the way in which the incident ended: by the first event that ends it."""
    later = [
        (ending.last_at_s, end.words)
        for ending in endings
        for end in _ENDS
        if end.by is ending.kind
        and kind in end.of
        and ending.last_at_s > at_s
        # The same subject, or one within it: `batch 1` contains `batch 1: chunk 7`.
        and (
            end.any_subject
            or subject == ending.subject
            or subject.startswith(tuple(ending.subject + mark for mark in ":, "))
        )
        and (not end.clean or ending.severity is Severity.INFO)
    ]
    resolved_at_s, resolution = min(later, default=(None, ""))
    return {"resolved_at_s": resolved_at_s, "resolution": resolution}
