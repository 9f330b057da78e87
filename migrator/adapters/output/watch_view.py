"""`status --watch` as lines for a window of any size. Pure: what is left out in a small one is decided here."""

from collections.abc import Sequence
from datetime import UTC, datetime

from migrator.adapters.output.watch_layout import LABEL_CELLS, Line, Part, Span, arranged, beside, fitted, sides
from migrator.adapters.output.watch_parts import allowed_part, events_part, progress_parts, run_part, waits_part
from migrator.adapters.output.watch_tables import batches_part, drains_part, probes_part, streams_part, users_part
from migrator.domain.watch import WatchFacts

WIDE = 150
"""From here on there are two columns."""

_RULE_CELLS = 3
_ENDS = "q ends"


def watch_lines(facts: WatchFacts, *, width: int, height: int, problem: str = "") -> tuple[Line, ...]:
    """At most `height` lines of at most `width` cells. `problem` says why these facts could not be read anew."""
    title = _title(facts, width)
    head = [title, (Span(problem, "bold red"),)] if problem else [title]
    room = max(height - len(head) - 1, 0)
    body, left_out = _two_columns(facts, width, room) if width >= WIDE else _one_column(facts, width, room)
    lines = [*head, *body]
    lines += [()] * (height - 1 - len(lines))
    lines.append(_foot(left_out, width))
    return tuple(fitted(line, width) for line in lines[: max(height - 1, 0)] + lines[-1:])[-height:]


def _title(facts: WatchFacts, width: int) -> Line:
    status = facts.status
    at = datetime.fromtimestamp(status.at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    name = f"Migration of {status.site}" if status.site is not None else "Migration"
    plan = f", plan {status.plan.name}" if status.plan is not None else ""
    return sides((Span(name, "bold"), Span(plan, "dim")), (Span(at),), width)


def _foot(left_out: Sequence[str], width: int) -> Line:
    hidden = f"no room for: {', '.join(label.split()[0] for label in left_out)}" if left_out else ""
    return sides((Span(hidden, "dim"),), (Span(_ENDS, "dim"),), width)


def _one_column(facts: WatchFacts, width: int, height: int) -> tuple[Sequence[Line], Sequence[str]]:
    room = max(width - LABEL_CELLS, 0)
    parts = (*_top(facts, room), *_at_work(facts, room), *_counts(facts, room), *_felt(facts, room))
    return arranged(parts, width, height)


def _two_columns(facts: WatchFacts, width: int, height: int) -> tuple[Sequence[Line], Sequence[str]]:
    top, _ = arranged(_top(facts, width - LABEL_CELLS), width, height, dense=True)
    right = (width - _RULE_CELLS) * 2 // 5
    left = width - _RULE_CELLS - right
    below = max(height - len(top) - 1, 0)
    room = left - LABEL_CELLS
    one, left_out = arranged((*_at_work(facts, room), *_felt(facts, room)), left, below)
    other, further = arranged(_counts(facts, right - LABEL_CELLS), right, below)
    return [*top, (), *beside(one, other, left)], [*left_out, *further]


def _top(facts: WatchFacts, room: int) -> tuple[Part, ...]:
    return (run_part(facts.status), *progress_parts(facts, room))


def _at_work(facts: WatchFacts, room: int) -> tuple[Part, ...]:
    status = facts.status
    return (waits_part(status, room), streams_part(facts, room), allowed_part(status), drains_part(status, room))


def _counts(facts: WatchFacts, room: int) -> tuple[Part, ...]:
    return (batches_part(facts.status, room), users_part(facts.status, room))


def _felt(facts: WatchFacts, room: int) -> tuple[Part, ...]:
    return (probes_part(facts.status, room), events_part(facts.status))
