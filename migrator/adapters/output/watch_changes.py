"""`status --watch` without a terminal: one plain line for each change between two looks. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from migrator.adapters.output.document import clean
from migrator.adapters.output.progress_lines import event_line
from migrator.adapters.output.watch_parts import runs_of_interest
from migrator.adapters.output.wording import LINE_CHARACTERS, percent, shortened, when
from migrator.domain.paths import show
from migrator.domain.report import RunFacts, RunLife, StatusFacts
from migrator.domain.units import format_count, format_duration, format_rate, format_size, several
from migrator.domain.watch import WatchFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """One thing that is told again when its `state` is another one; `words` may have what changes all the time."""

    subject: str
    state: str
    words: str
    waits: bool = False


def change_lines(before: WatchFacts | None, now: WatchFacts) -> Iterator[str]:
    """Of the first look everything, of every later one only what is no longer as it was, and the events since."""
    at = datetime.fromtimestamp(now.status.at_s, UTC).strftime("%H:%M:%S")
    told = _by_place(now.status)
    known = {} if before is None else _by_place(before.status)
    for place, one in told.items():
        if place not in known or known[place].state != one.state:
            yield _line(at, one.subject, one.words)
    for place, one in known.items():
        if one.waits and place not in told:
            yield _line(at, one.subject, "no longer")
    for event in now.news:
        yield event_line(event)


def _line(at: str, subject: str, words: str) -> str:
    return shortened(clean(f"{at} {subject}: {words}"), LINE_CHARACTERS)


def _by_place(status: StatusFacts) -> dict[tuple[str, str], _Told]:
    # Several things may wait under one name.
    return {(one.subject, one.state if one.waits else ""): one for one in _standing(status)}


def _standing(status: StatusFacts) -> Iterator[_Told]:
    for run in runs_of_interest(status.runs):
        words = _run(run, status.at_s)
        yield _Told(subject=f"{run.verb} (run {run.id}, process {run.pid})", state=run.life.value, words=words)
    if status.plan is not None:
        done = (status.overall.done_bytes, status.overall.done_files, status.overall.done_users)
        yield _Told(subject="copied", state=str(done), words=", ".join(_progress(status)))
    yield from _batches_and_users(status)
    yield from _bricks(status)
    for probe in status.probes:
        words = "no answer" if probe.times is None else "answers"
        words = f"failed: {probe.failure}" if probe.failure else words
        yield _Told(subject=f"probe of the {probe.side.value}", state=words, words=words)
    governor = status.governing.governor
    if status.governing.at_work and governor is not None:
        words = f"{governor.streams} of {governor.most}: {governor.reason}"
        state = f"{governor.gate.value} {governor.bound.value} {governor.streams} {governor.most}"
        yield _Told(subject="streams that may be at work", state=state, words=words)
    for one in status.blocked:
        # Some say for how long it has lasted: that is no change.
        state = "".join(character for character in one.on if not character.isdigit())
        yield _Told(subject=f"waits: {one.subject}", state=state, words=one.on, waits=True)


def _run(run: RunFacts, now_s: float) -> str:
    match run.life:
        case RunLife.AT_WORK:
            return f"at work since {when(run.started_at_s)}"
        case RunLife.SILENT:
            return f"no sign of life since {when(now_s - run.silent_s)}: it hangs, or was killed"
        case RunLife.KILLED:
            return "was killed; the same command again goes on"
        case RunLife.ENDED:
            return f"ended with exit code {run.exit_code}"


def _progress(status: StatusFacts) -> Iterator[str]:
    tally = status.overall
    yield percent(tally.percent_bytes)
    yield f"{format_size(tally.done_bytes)} of {format_size(tally.total_bytes)}"
    yield f"{format_count(tally.done_files)} of {several(tally.total_files, 'file')}"
    if status.rate is not None:
        yield format_rate(status.rate.rate_bytes_per_s)
    if status.estimates:
        yield f"about {format_duration(status.estimates[0].left_s)} left"


def _batches_and_users(status: StatusFacts) -> Iterator[_Told]:
    for batch in status.batches:
        bad = f", {several(batch.attention.bad, 'bad file')}" if batch.attention.bad else ""
        words = f"{batch.state.value}{bad}"
        yield _Told(subject=f"batch {batch.number}", state=words, words=words)
    for tree in status.trees:
        words = tree.state.value.replace("-", " ")
        yield _Told(subject=f"user {tree.tree.user}, {show(tree.tree.path)}", state=words, words=words)
    for cutover in status.cutovers:
        subject = f"cutover of {cutover.tree.user}, {show(cutover.tree.path)}"
        yield _Told(subject=subject, state=f"{cutover.attempt} {cutover.state.value}", words=cutover.state.value)


def _bricks(status: StatusFacts) -> Iterator[_Told]:
    for drain in status.drains:
        left = "" if drain.left_files is None else f", {several(drain.left_files, 'file')} left"
        words = f"{drain.state.value}{left}{_bad(drain.failures, drain.skipped)}"
        yield _Told(subject=f"drain of {_names(drain.bricks)}", state=words, words=words)
    for added in status.additions:
        moved = f", {several(added.moved_files, 'file')} moved"
        words = f"{added.state.value}{moved}{_bad(added.failures, added.skipped)}"
        yield _Told(subject=f"addition of {_names(added.bricks)}", state=words, words=words)


def _names(bricks: Sequence[str]) -> str:
    return " ".join(bricks)


def _bad(failures: int, skipped: int) -> str:
    words = f", {several(failures, 'failure')}" if failures else ""
    return f"{words}, {format_count(skipped)} skipped" if skipped else words
