"""The tables of `status --watch`: streams, bricks, probes, batches, users; the rows that matter most come first. Pure."""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from itertools import chain

from migrator.adapters.output.watch_layout import Field, Line, Part, Rank, Span, grid
from migrator.adapters.output.wording import percent, verified_words
from migrator.domain.addition import ENDED_STATES, AdditionState
from migrator.domain.addition_standing import AdditionStanding
from migrator.domain.cutover import CutoverState
from migrator.domain.drain import OUT_STATES, DrainState
from migrator.domain.drain_standing import DrainStanding
from migrator.domain.paths import show
from migrator.domain.probe import Probe
from migrator.domain.report import BatchFacts, CutoverFacts, RunLife, StatusFacts, TreeFacts, TreeState
from migrator.domain.states import BatchState, ChunkState, PassKind, PassState
from migrator.domain.units import format_count, format_duration, format_rate, format_size, several
from migrator.domain.watch import StreamAtWork, WatchFacts

_SLOW_PROBE_S = 1.0
_CUTOVER_RESTS = frozenset(
    {CutoverState.RETAINED, CutoverState.PURGED, CutoverState.REVERTED, CutoverState.PLANNED, CutoverState.THAWED}
)
_DRAIN_RESTS = OUT_STATES | {DrainState.STOPPED}
_TREE_ORDER = (TreeState.COPYING, TreeState.ATTENTION, TreeState.PLANNED, TreeState.COPIED, TreeState.VERIFIED)


def streams_part(facts: WatchFacts, width: int) -> Part:
    """The streams at work: tree, chunk, where they read, how far, how fast. Without a run they are what a killed one left."""
    now_s = facts.status.at_s
    live = any(run.life is RunLife.AT_WORK for run in facts.status.runs)
    at_work = sorted(facts.streams, key=lambda one: (one.confirming, one.attempt_id))
    several_passes = len({(one.batch, one.pass_kind, one.pass_number) for one in at_work}) > 1
    fields = (
        Field(flexible=True),
        Field(drop=4 if not several_passes else 0),
        Field(),
        Field(flexible=True, least=28),
        Field(right=True),
        Field(right=True, drop=3),
        Field(right=True),
        Field(right=True, drop=2),
    )
    rows = [
        (
            Span(show(one.tree)),
            Span(_pass_words(one), "dim"),
            Span(f"chunk {one.chunk}"),
            Span(_where(one)),
            Span(_share(one)),
            Span(f"{format_count(one.done_files)} of {several(one.files, 'file')}"),
            Span(_stream_rate(one, live), "bold" if live else "dim"),
            Span(format_duration(max(now_s - one.started_at_s, 0.0)), "dim"),
        )
        for one in at_work
    ]
    label = f"streams {len(rows)}" if len(rows) < 100 else "streams"
    return Part(label=label, lines=grid(fields, rows, width), rank=Rank.STREAMS, least=2)


def _pass_words(one: StreamAtWork) -> str:
    number = "" if one.pass_kind is PassKind.SEED else f" {one.pass_number}"
    return f"batch {one.batch} {one.pass_kind.value}{number}"


def _where(one: StreamAtWork) -> str:
    if one.brick is None:
        return f"{one.host}, mount"
    return one.brick if one.brick.startswith(f"{one.host}:") else f"{one.host}, {one.brick}"


def _share(one: StreamAtWork) -> str:
    done, total = (one.done_bytes, one.size_bytes) if one.size_bytes else (one.done_files, one.files)
    return percent(min(100.0 * done / total, 100.0)) if total else ""


def _stream_rate(one: StreamAtWork, live: bool) -> str:
    if one.confirming:
        return "to be confirmed"
    if one.rate_bytes_per_s is None:
        return "just begun" if live else "was just begun"
    return f"{'' if live else 'was '}{format_rate(one.rate_bytes_per_s)}"


def drains_part(status: StatusFacts, width: int) -> Part:
    """Drains and additions of bricks; those that are over come last."""
    drains = sorted(status.drains, key=lambda one: one.state in _DRAIN_RESTS)
    additions = sorted(status.additions, key=lambda one: one.state in ENDED_STATES)
    rows = [_drain_row(one) for one in drains] + [_addition_row(one) for one in additions]
    fields = (
        Field(flexible=True, least=26),
        Field(),
        Field(right=True),
        Field(right=True, drop=2),
        Field(right=True),
        Field(right=True, drop=1),
        Field(right=True, drop=3),
    )
    under_way = any(one.state not in _DRAIN_RESTS for one in drains) or any(
        one.state not in ENDED_STATES for one in additions
    )
    return Part(label="bricks", lines=grid(fields, rows, width), rank=Rank.BRICKS if under_way else Rank.RESTING_BRICKS)


def _bricks(names: Sequence[str]) -> str:
    return f"{names[0]} +{len(names) - 1}" if len(names) > 1 else "".join(names)


def _failures(failures: int, skipped: int) -> Span:
    words = [several(failures, "failure")] if failures else []
    words += [f"{format_count(skipped)} skipped"] if skipped else []
    return Span(", ".join(words) or "no failure", "red" if failures else "yellow" if skipped else "dim")


def _drain_row(one: DrainStanding) -> tuple[Span, ...]:
    return (
        Span(_bricks(one.bricks)),
        Span(one.state.value, "bold red" if one.state is DrainState.FAILED else "bold"),
        Span("" if one.left_files is None else f"{several(one.left_files, 'file')} left"),
        Span("" if one.left_bytes is None else f"{format_size(one.left_bytes)} left"),
        _failures(one.failures, one.skipped),
        Span("" if one.bytes_per_s is None else format_rate(one.bytes_per_s)),
        Span("" if one.left_s is None else f"about {format_duration(one.left_s)}"),
    )


def _addition_row(one: AdditionStanding) -> tuple[Span, ...]:
    return (
        Span(_bricks(one.bricks)),
        Span(one.state.value, "bold red" if one.state is AdditionState.FAILED else "bold"),
        Span(f"{several(one.moved_files, 'file')} moved"),
        Span(format_size(one.moved_bytes)),
        _failures(one.failures, one.skipped),
        Span("" if one.bytes_per_s is None else format_rate(one.bytes_per_s)),
        Span("" if one.left_s is None else f"about {format_duration(one.left_s)}"),
    )


def probes_part(status: StatusFacts, width: int) -> Part:
    """What small operations take on either side."""
    fields = (Field(), Field(), Field(drop=3), Field(drop=2), Field(), Field(), Field(), Field(drop=1))
    rows = [_probe_row(one, status.at_s) for one in status.probes]
    return Part(label="probes", lines=grid(fields, rows, width), rank=Rank.PROBES, least=2)


def _probe_row(one: Probe, now_s: float) -> tuple[Span, ...]:
    age = Span(f"{format_duration(max(now_s - one.at_s, 0.0))} ago", "dim")
    if one.times is None:
        no_answer = "" if one.waited_s is None else f"no answer for {one.waited_s:,.0f} s"
        words = Span(no_answer or f"failed: {one.failure}", "bold red")
        return (Span(one.side.value), words, age, *(Span(""),) * 5)
    times = one.times
    named = [
        ("write", times.write_s),
        ("sync", times.sync_s),
        ("stat", times.stat_s),
        ("unlink", times.unlink_s),
        ("readdir", times.readdir_s),
    ]
    shown = (_took("create", times.create_s), age, *(_took(name, took_s) for name, took_s in named))
    return (Span(one.side.value), *shown)


def _took(name: str, took_s: float) -> Span:
    return Span(f"{name} {_milliseconds(took_s)}", "red" if took_s >= _SLOW_PROBE_S else "")


def _milliseconds(took_s: float) -> str:
    return f"{took_s:,.1f} s" if took_s >= _SLOW_PROBE_S else f"{1000.0 * took_s:,.1f} ms"


def batches_part(status: StatusFacts, width: int) -> Part:
    """Batches by state, then those that are at work or wait for somebody, then the others."""
    fields = (
        Field(right=True),
        Field(),
        Field(right=True),
        Field(right=True),
        Field(right=True, drop=1),
        Field(drop=2),
    )
    rows = [_batch_row(one) for one in sorted(status.batches, key=_batch_order)]
    lines = (_counted(one.state.value for one in status.batches),) if rows else ()
    return Part(label="batches", lines=(*lines, *grid(fields, rows, width)), rank=Rank.BATCHES)


def _batch_order(one: BatchFacts) -> tuple[int, int]:
    if one.passes and one.passes[-1].state is not PassState.DONE:
        return (0, one.number)
    return ({BatchState.PLANNED: 2, BatchState.VERIFIED: 3}.get(one.state, 1), one.number)


def _batch_row(one: BatchFacts) -> tuple[Span, ...]:
    waiting = sum(one.chunks.get(state, 0) for state in (ChunkState.PENDING, ChunkState.RUNNING, ChunkState.FAILED))
    state = one.state.value
    if one.state is BatchState.VERIFIED:
        state = verified_words(one.verification.percent_content if one.verification else None)
    elif one.passes and one.passes[-1].state is PassState.STOPPED:
        state = f"{state}, stopped"
    return (
        Span(str(one.number), "bold"),
        Span(state, "green" if one.state is BatchState.VERIFIED else ""),
        Span(percent(one.tally.percent_bytes)),
        Span(f"{format_size(one.tally.left_bytes)} left"),
        Span(f"{several(waiting, 'chunk')} left"),
        Span(several(one.attention.bad, "bad file") if one.attention.bad else "", "yellow"),
    )


def users_part(status: StatusFacts, width: int) -> Part:
    """Users by state, then who is being cut over, who is being copied, and the others."""
    fields = (Field(flexible=True), Field(flexible=True, drop=1), Field(), Field(right=True), Field(right=True))
    stopped = {one.number for one in status.batches if one.passes and one.passes[-1].state is not PassState.RUNNING}
    under_way = [one for one in status.cutovers if one.state not in _CUTOVER_RESTS]
    trees = sorted(status.trees, key=lambda one: (_TREE_ORDER.index(one.state), one.rank))
    rows = [_cutover_row(one, status.at_s) for one in under_way]
    rows += [_tree_row(one, _tree_state(one, stopped)) for one in trees]
    lines: tuple[Line, ...] = ()
    if status.trees:
        lines = (_counted(_tree_state(one, stopped) for one in status.trees),)
    if status.cutovers:
        lines = (
            (*(lines[0] if lines else ()), Span("; cut over: "), *_counted(one.state.value for one in status.cutovers)),
        )
    return Part(label="users", lines=(*lines, *grid(fields, rows, width)), rank=Rank.USERS)


def _cutover_row(one: CutoverFacts, now_s: float) -> tuple[Span, ...]:
    begun_s = one.frozen_since_s
    since = "" if begun_s is None else f"frozen for {format_duration(max(now_s - begun_s, 0.0))}"
    style = "bold yellow"
    return (Span(one.tree.user, style), Span(show(one.tree.path)), Span(one.state.value, style), Span(since), Span(""))


def _tree_state(one: TreeFacts, stopped: Container[int]) -> str:
    if one.state is TreeState.COPYING and one.batch in stopped:
        return "stopped"
    return one.state.value.replace("-", " ")


def _tree_row(one: TreeFacts, state: str) -> tuple[Span, ...]:
    return (
        Span(one.tree.user),
        Span(show(one.tree.path)),
        Span(state),
        Span(percent(one.tally.percent_bytes)),
        Span(f"{format_size(one.tally.left_bytes)} left"),
    )


def _counted(states: Iterable[str]) -> Line:
    counts = Counter(states)
    pairs = (
        (Span(format_count(count), "bold"), Span(f" {state.replace('-', ' ')}")) for state, count in counts.items()
    )
    separated = chain.from_iterable((Span(", "), *pair) for pair in pairs)
    return tuple(separated)[1:]
