"""The status and the findings of `doctor` as documents."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from migrator.beegfs.model import StorageSample, StorageState, StorageTarget, TargetKind
from migrator.beegfs.rules import describe_target_space, describe_target_state, target_problems
from migrator.bricks.add.view import addition_table
from migrator.bricks.drain.view import drain_table
from migrator.bricks.retire.view import retirement_facts
from migrator.catalog.model import CatalogRecord
from migrator.core.blocker import Blocker
from migrator.core.events import Finding, FindingStatus
from migrator.core.paths import show
from migrator.core.probe import Probe
from migrator.core.units import (
    DAY_S,
    first_of,
    format_count,
    format_duration,
    format_rate,
    format_size,
    percent_of,
    several,
)
from migrator.cutover.model import CutoverState
from migrator.cutover.rules_freezes import FrozenUser
from migrator.cutover.rules_states import FROZEN_CHECK
from migrator.cutover.view import cutover_blocks, frozen_blocks
from migrator.ledger.model import CALL, TREE, Holder
from migrator.plan.model import ThroughputPoint
from migrator.purge.model import SecondCopy
from migrator.render import document as doc
from migrator.report import model
from migrator.report.rules import left_to_people
from migrator.report.view_batches import batch_blocks, tree_table
from migrator.transfer.model import FileProblem
from migrator.transfer.rules import AFTERWARDS, advice
from migrator.transfer.view import governing_blocks

# --- Progress, rate and expected end


_COUNTED_STREAMS = 0.1


_BLOCKED_ROWS = 2
_STEP_ROWS = 3
_FROZEN_ROWS = 2
_LINE = 76
"""A line of a terminal of 80 characters."""
_LINES = 144
"""Two lines: words are not broken."""


def _first_sections(status: model.MigrationStatus) -> Iterator[doc.Section]:
    """A screen of 80 x 24: frozen users, what is going on, what is wrong, what to do next."""
    frozen = status.frozen[:_FROZEN_ROWS]
    blocked = status.blocked[: _BLOCKED_ROWS - bool(frozen)]
    steps = status.next_steps[: _STEP_ROWS - 2 * bool(blocked) - bool(frozen)]
    yield from doc.first_sections(
        (_counted_title("Frozen users", frozen, status.frozen), [_frozen_line(one, status.at_s) for one in frozen]),
        ("In short", _short(status)),
        (
            _counted_title("Blocked", blocked, status.blocked),
            [line for one in blocked for line in _lines(f"{one.subject}: {one.on}", one.hint, alert=True)],
        ),
        (
            _counted_title("Next steps", steps, status.next_steps),
            [line for one in steps for line in _lines(f"{one.subject}: {one.state}", one.hint)],
        ),
    )
    yield from doc.sections(
        ("Frozen", frozen_blocks(status.frozen, now_s=status.at_s)),
        ("Everything that is blocked", [blocker_table(status.blocked)]),
        ("All next steps", [step_table(status.next_steps)]),
    )


def _counted_title(title: str, shown: Sequence[object], found: Sequence[object]) -> str:
    return title if len(shown) == len(found) else f"{title}: the first {len(shown)} of {len(found):,}"


def _frozen_line(one: FrozenUser, now_s: float) -> doc.Block:
    end = "a command is at work" if one.at_work else f"no command is at work: {one.hint}"
    words = f"{doc.cut(one.tree.user, 20)} for {format_duration(max(now_s - one.since_s, 0.0))}, {end}"
    return doc.paragraph(doc.cut(words, _LINES), alert=not one.at_work)


def _lines(what: str, hint: str, *, alert: bool = False) -> tuple[doc.Block, doc.Block]:
    """The subject that waits, on one line, and the command on the next ones."""
    return doc.paragraph(doc.cut(what, _LINE), alert=alert), doc.paragraph(doc.cut(f"To do: {hint}", _LINES))


def _short(status: model.MigrationStatus) -> Iterator[doc.Block]:
    tally = status.overall
    if status.plan is None:
        yield doc.paragraph("There is no plan yet, so progress is unknown.")
    else:
        content = percent_of(status.verified_content_bytes, status.verified.done_bytes)
        yield _bar(tally, "copied", f" of {format_size(tally.total_bytes)}")
        yield _bar(status.verified, doc.format_verified_share(content))
        yield _bar(status.moved, "moved")
    runs = {run.pid: run.verb for run in status.runs if run.life in model.ALIVE}
    at_work = dict.fromkeys([*runs.values(), *(one.purpose for one in status.at_work if one.pid not in runs)])
    running = doc.cut(", ".join(at_work) or "nothing", _LINE // 3)
    pairs = [("running", running if status.rate is None else f"{running}: {describe_throughput(status.rate)}")]
    if status.plan is not None:
        waiting = several(status.attention_total, "file needs", "files need")
        bad = f"; {waiting} attention" if status.attention_total else ""
        pairs.append(("left", f"{format_size(tally.left_bytes)} in {several(tally.left_files, 'file')}{bad}"))
        pairs.append(("users", describe_moved_users(status)))
        pairs.append(("expected end", expected_end(status)))
        pairs += [("all done", _days(one, status.at_s)) for one in status.milestones if one.goal is model.Goal.COMPLETE]
    yield doc.facts(pairs)


def describe_throughput(rate: ThroughputPoint) -> str:
    """The rate now, on one line."""
    streams = f", {rate.streams:.1f} streams" if rate.streams >= _COUNTED_STREAMS else ""
    return f"{format_rate(rate.rate_bytes_per_s)}, {rate.rate_files_per_s:,.1f} files/s{streams}"


def describe_moved_users(status: model.MigrationStatus) -> str:
    """The number of users copied, and of those who work on the target."""
    copied, moved = status.overall, status.moved
    return f"{format_count(copied.done_users)} of {format_count(copied.total_users)} copied, {format_count(moved.done_users)} moved"


def progress_blocks(status: model.MigrationStatus) -> Iterator[doc.Block]:
    """Totals, rate and expected end."""
    if status.plan is None:
        return
    tally = status.overall
    content = percent_of(status.verified_content_bytes, status.verified.done_bytes)
    if status.verified.done_bytes > status.verified_content_bytes:
        yield doc.paragraph(
            f"Of the verified bytes the content of {format_size(status.verified_content_bytes)} "
            f"({doc.percent(content)}) was compared on both sides; of the rest only the attributes (type, size, times, owner, "
            "mode, ACLs)."
        )
    columns = [doc.text("what"), *map(doc.figure, ("total", "copied", "left", "copied, %", "verified", "moved"))]
    rows = [
        (
            what,
            *(shown(getattr(tally, f"{part}_{what}")) for part in ("total", "done", "left")),
            doc.percent(getattr(tally, f"percent_{what}")),
            *(shown(getattr(one, f"done_{what}")) for one in (status.verified, status.moved)),
        )
        for what, shown in (("bytes", format_size), ("files", format_count), ("users", format_count))
    ]
    yield doc.table(
        "Copied and left",
        columns,
        rows,
        note=f"The whole migration, by {status.plan.name} of {doc.when(status.plan.created_at_s)}. A file counts as "
        "done when its chunk is done, and as moved when its user works on the target.",
    )
    if status.rate is not None:
        yield doc.paragraph(f"Now: {_rate(status.rate)}.")
    elif status.last_rate is not None:
        yield doc.paragraph(
            f"No stream is copying now. Last rate, until {doc.when(status.last_rate.at_s)}: {_rate(status.last_rate)}."
        )
    yield doc.paragraph(f"Expected end of copying: {expected_end(status)}.")
    yield milestone_table(status.milestones)
    if status.forecast is not None:
        yield doc.paragraph(f"Computed from: {'; '.join(status.forecast.basis)}.")
    if status.vanished_total:
        yield doc.paragraph(
            f"Users deleted {several(status.vanished_total, 'listed file')} before they were copied. This is normal."
        )


def expected_end(status: model.MigrationStatus) -> str:
    """The expected end of the copying, with its range, in words."""
    forecast = status.forecast
    if forecast is None:
        return all_copied(status) or "unknown: too little was copied for a forecast"
    earliest, likely, latest = map(doc.when, (forecast.earliest_at_s, forecast.likely_at_s, forecast.latest_at_s))
    return f"{likely}; with a probability of {forecast.share * 100:.0f} % between {earliest} and {latest}"


GOALS = {
    model.Goal.COPIED: "everything copied",
    model.Goal.VERIFIED: "everything verified",
    model.Goal.MOVED: "last user moved",
    model.Goal.PURGED: "last source freed",
    model.Goal.CLEARED: "last brick cleared",
    model.Goal.ADDED: "last drained brick added to the target",
    model.Goal.COMPLETE: "all done",
}


def describe_milestone(one: model.Milestone) -> str:
    """The date of a goal with its range."""
    if one.done:
        return "done" if one.at_s is None else f"done, {doc.when(one.at_s)}"
    if one.at_s is None:
        return f"unknown: {one.unknown}"
    if one.earliest_at_s is None or one.latest_at_s is None:
        return doc.when(one.at_s)
    return f"{doc.when(one.at_s)}; between {doc.when(one.earliest_at_s)} and {doc.when(one.latest_at_s)}"


_MINUTES_MATTER_S = 3 * DAY_S


def day(at_s: float | None, now_s: float) -> str:
    """A date; a time only of what is near."""
    words = doc.when(at_s)
    return words if at_s is None or abs(at_s - now_s) < _MINUTES_MATTER_S else words.partition(" ")[0]


def _days(one: model.Milestone, now_s: float) -> str:
    """A milestone on one line of a terminal: times only of what is near, and then without the early end."""
    if one.done or one.at_s is None:
        return describe_milestone(one)
    words, earliest, latest = (day(at_s, now_s) for at_s in (one.at_s, one.earliest_at_s, one.latest_at_s))
    if one.latest_at_s is None:
        return words
    is_long = " " in words + earliest + latest
    return f"{words}, at the latest {latest}" if is_long else f"{words}; between {earliest} and {latest}"


def milestone_table(dates: Sequence[model.Milestone]) -> doc.Table:
    """All expected dates, with their source."""
    columns = [doc.text("date"), doc.wide("expected"), doc.wide("basis")]
    rows = ((GOALS[one.goal], describe_milestone(one), one.basis or doc.NONE) for one in dates)
    return doc.table(
        "Expected dates",
        columns,
        rows,
        note=f"The true date lies in the range in {model.RANGE_SHARE * 10:.0f} of 10 cases.",
    )


def all_copied(status: model.MigrationStatus) -> str:
    """A sentence if nothing is left to copy, or only files that need attention; otherwise empty."""
    tally, words = status.overall, "everything in the plan is copied"
    if left_to_people(status.trees):
        need = "needs" if tally.left_files == 1 else "need"
        return f"{words}, except {several(tally.left_files, 'file')} that {need} attention"
    is_all = tally.left_files <= 0 and tally.left_bytes <= 0
    return words if is_all and (tally.total_files > 0 or tally.done_users == tally.total_users) else ""


def _rate(rate: ThroughputPoint) -> str:
    streams = f" with {rate.streams:.1f} streams" if rate.streams >= _COUNTED_STREAMS else ""
    return (
        f"{format_rate(rate.rate_bytes_per_s)} and {rate.rate_files_per_s:,.1f} files/s{streams}, over "
        f"{format_duration(rate.busy_s)} of work within {format_duration(rate.span_s)}"
    )


def _bar(tally: model.ProgressCounts, done: str, more: str = "") -> doc.Bar:
    if not tally.total_bytes and tally.total_files:
        # Empty files are files too.
        share, what = tally.done_files / tally.total_files, f"{doc.percent(tally.percent_files)} of the files"
        counts = f"{format_count(tally.done_files)} of {format_count(tally.total_files)}"
    else:
        share = tally.done_bytes / tally.total_bytes if tally.total_bytes else 0.0
        what = f"{doc.percent(tally.percent_bytes)} of the bytes"
        counts = f"{format_size(tally.done_bytes)}{more}"
    return doc.Bar(label="", share=share, text=f"{what} {done}, {counts}")


# --- Findings of `doctor`


_WORDS = {FindingStatus.FAILURE: "FAILURE", FindingStatus.WARNING: "warning", FindingStatus.OK: "ok"}


def _finding(one: Finding) -> Iterator[doc.Block]:
    words = f"{_WORDS[one.status]}: {one.check}: {one.message}"
    yield doc.paragraph(words, alert=one.status is FindingStatus.FAILURE)
    if one.fix:
        yield doc.paragraph(f"To do: {one.fix}")


def finding_document(findings: Sequence[Finding]) -> doc.Document:
    """All findings: frozen users, then the worst first, otherwise in the order of the checks."""
    counts = {status: sum(finding.status is status for finding in findings) for status in _WORDS}
    ordered = sorted(findings, key=lambda one: (one.check != FROZEN_CHECK, list(_WORDS).index(one.status)))
    # As paragraphs, because commands to copy are broken in cells of a table.
    wrong = [paragraph for one in ordered if one.status is not FindingStatus.OK for paragraph in _finding(one)]
    fine = [(one.check, one.message) for one in ordered if one.status is FindingStatus.OK]
    found = doc.table("", [doc.text("ok"), doc.wide("finding")], fine)
    verdict = (
        f"{several(counts[FindingStatus.FAILURE], 'failure')}, {several(counts[FindingStatus.WARNING], 'warning')}, "
        f"{counts[FindingStatus.OK]:,} ok."
    )
    warn = [doc.paragraph("Fix the failures before you begin.", alert=True)] if counts[FindingStatus.FAILURE] else []
    return doc.page("Preflight", ("Findings", (*wrong, found, *warn)), subtitle=verdict)


# --- Probes


def _milliseconds(name: str) -> Callable[[Probe], str]:
    return lambda probe: doc.NONE if probe.times is None else f"{1000.0 * getattr(probe.times, f'{name}_s'):,.1f} ms"


def _otherwise(probe: Probe) -> str:
    if probe.waited_s is not None:
        return f"no answer within {probe.waited_s:,.0f} s"
    return f"it failed: {probe.failure}" if probe.failure else ""


_PROBE: doc.Cells[Probe] = (
    (doc.text("side"), lambda probe: probe.side.value),
    (doc.text("probed"), lambda probe: doc.when(probe.at_s)),
    *((doc.figure(name), _milliseconds(name)) for name in ("create", "write", "sync", "stat", "unlink", "readdir")),
    (doc.paths("otherwise"), _otherwise),
)


# --- Who is at work


def _holds(holder: Holder) -> str:
    others = [name for name in holder.names if not name.startswith((TREE, CALL))]
    return ", ".join([several(holder.trees, "user tree")] * bool(holder.trees) + others)


_HOLDER: doc.Cells[Holder] = (
    (doc.wide("at work"), lambda holder: holder.purpose),
    (doc.text("since"), lambda holder: doc.when(holder.since_s)),
    (doc.figure("process"), lambda holder: str(holder.pid)),
    (doc.paths("holds"), _holds),
)


# --- The document


TREE_ROWS = 40


def status_document(status: model.MigrationStatus, *, tree_rows: int | None = TREE_ROWS) -> doc.Document:
    """The current status: a first page, then the details."""
    return migration_document(status, f"as of {doc.when(status.at_s)}", _sections(status, tree_rows))


def migration_document(status: model.MigrationStatus, subtitle: str, sections: Iterable[doc.Section]) -> doc.Document:
    """A document about the whole migration."""
    title = doc.clean(f"Migration of {status.site}" if status.site is not None else "Migration")
    return doc.Document(title=title, subtitle=subtitle, sections=tuple(sections))


def _sections(status: model.MigrationStatus, tree_rows: int | None) -> Iterator[doc.Section]:
    yield from _first_sections(status)
    trees = tree_table(status.trees, status.batches, status.plan.name if status.plan else "", limit=tree_rows)
    yield from doc.sections(
        ("Progress", progress_blocks(status)),
        ("At work now", [doc.records("", _HOLDER, filter(_holds, status.at_work))]),
        ("Batches", batch_blocks(status.batches)),
        ("Users", [trees]),
        ("Limits and streams", governing_blocks(status.governing)),
        ("Latency of small operations", [doc.records("", _PROBE, status.probes)]),
        ("Bricks", brick_blocks(status)),
        ("Storage targets", storage_blocks(status.storage)),
        ("Cutovers", cutover_blocks(status.cutovers, now_s=status.at_s, limit=tree_rows)),
        ("Archives of moved users", archive_blocks(status)),
        ("Files that need attention", [attention_table(status.attention, status.attention_total)]),
        ("The newest scan", scan_blocks(status.scan)),
        ("Latest runs", [run_table(status.runs)]),
        ("Warnings and errors, newest first", [doc.records("", _EVENT, status.events)]),
    )


_ARCHIVE: doc.Cells[SecondCopy] = (
    (doc.paths("tree"), lambda one: show(one.tree)),
    (doc.paths("archive"), lambda one: one.name),
    (doc.paths("place"), lambda one: one.place),
    (doc.figure("files"), lambda one: format_count(one.files)),
    (doc.figure("size"), lambda one: format_size(one.size_bytes)),
    (doc.text("compared"), lambda one: doc.when(one.at_s)),
)


def archive_blocks(status: model.MigrationStatus) -> Iterator[doc.Block]:
    """The archives of trees, and which retained trees lack some."""
    held = Counter(one.tree for one in status.archives)
    retained = [one.tree for one in status.cutovers if one.state is CutoverState.RETAINED]
    lacking = [f"{tree.user} has {held[tree.path]}" for tree in retained if held[tree.path] < status.require_archive]
    yield doc.records("", _ARCHIVE, status.archives)
    if lacking:
        words = f"Before a purge each tree needs {status.require_archive} ([cutover] require_archive)"
        yield doc.paragraph(f"{words}: {first_of(lacking, TREE_ROWS)}.")


def brick_blocks(status: model.MigrationStatus) -> Iterator[doc.Block]:
    """Drains and additions of bricks, and the retirement of the volume."""
    yield drain_table(status.drains)
    yield addition_table(status.additions)
    if status.retirement is not None:
        yield retirement_facts(status.retirement)


def storage_blocks(samples: Sequence[StorageSample]) -> Iterator[doc.Block]:
    """The targets of the newest sample: imbalance, problems, room, and the change since the first sample."""
    if not samples:
        return
    first, newest = samples[0], samples[-1]
    before = {(one.kind, one.number): one.free_bytes for one in first.targets}
    free = [
        share for one in newest.targets if one.kind is TargetKind.STORAGE and (share := one.percent_free) is not None
    ]
    if free:
        words = (
            f"The fullest storage target has {doc.percent(min(free))} is free, of the emptiest {doc.percent(max(free))}"
        )
        yield doc.paragraph(f"{words}. Plans assume that storage targets fill evenly.")
    for problem in target_problems(StorageState(targets=newest.targets)):
        yield doc.paragraph(f"{problem}.", alert=True)

    def change(one: StorageTarget) -> str:
        free, was = one.free_bytes, before.get((one.kind, one.number))
        if free is None or was is None:
            return doc.NONE
        return f"{'+' if free >= was else '-'}{format_size(abs(free - was))}"

    cells = (*_TARGET, (doc.figure(f"since {doc.when(first.at_s)}"), change))
    yield doc.records("", cells, newest.targets, note=f"As of {doc.when(newest.at_s)}.")


_TARGET: doc.Cells[StorageTarget] = (
    (doc.wide("target"), lambda one: one.shown),
    (doc.text("state"), describe_target_state),
    (doc.wide("room"), describe_target_space),
    (doc.figure("free"), lambda one: doc.percent(one.percent_free)),
)


def blocker_table(blocked: Sequence[Blocker], *, note: str = "") -> doc.Block:
    """The blockers, with reasons and next steps."""
    columns = [doc.paths("blocked"), doc.paths("waits for"), doc.wide("next step")]
    return doc.table("", columns, [(one.subject, one.on, one.hint) for one in blocked], note=note)


def step_table(steps: Sequence[model.NextStep]) -> doc.Block:
    """Ordinary next steps."""
    columns = [doc.paths("waits"), doc.paths("state"), doc.wide("next step")]
    return doc.table("", columns, [(one.subject, one.state, one.hint) for one in steps])


BAD_FILE: doc.Cells[FileProblem] = (
    (doc.paths("path"), lambda problem: show(problem.path)),
    (doc.paths("reason"), lambda problem: problem.reason),
    (doc.wide("next step"), advice),
)


def attention_table(files: Sequence[model.AttentionFile], total: int) -> doc.Block:
    """Files that were not copied, with the reason and the next step."""
    note = f"{several(total, 'file')} in all"
    note += f", the first {len(files):,} are shown." if total > len(files) else "."
    columns = [doc.figure("batch"), *(column for column, _ in BAD_FILE)]
    rows = [(str(one.batch), *(shown(one.problem) for _, shown in BAD_FILE)) for one in files]
    return doc.table("", columns, rows, note=f"{note} {AFTERWARDS}")


def scan_blocks(scan: CatalogRecord | None) -> Iterator[doc.Block]:
    """Figures of a scan, and why it is not whole."""
    if scan is None:
        return
    yield doc.facts(
        [
            ("catalog", scan.name),
            ("via", scan.via),
            ("began", doc.when(scan.started_at_s)),
            ("took", _scan_took(scan)),
            ("user trees", format_count(len(scan.trees))),
            ("files", format_count(scan.files)),
            ("directories", format_count(scan.directories)),
            ("bytes, every name counted", format_size(scan.size_bytes)),
            ("unreadable", format_count(scan.problems)),
            ("whole", "in progress" if scan.finished_at_s is None else doc.yes(scan.whole)),
        ]
    )
    for reason in scan.reasons[:20]:
        yield doc.paragraph(f"Not whole: {reason}", alert=True)
    if len(scan.reasons) > 20:
        yield doc.paragraph(f"There are {len(scan.reasons) - 20:,} more reasons.", alert=True)


def _scan_took(record: CatalogRecord) -> str:
    """The time from the start of the command to the end of the catalog; a record starts only after the checks of the
    volume. A resumed scan of the mount counts from its first start.
    """
    if record.finished_at_s is None:
        return doc.NONE
    times = record.times
    whole_s = times.checks_s + times.walk_s + times.finish_s
    return format_duration(max(record.finished_at_s - record.started_at_s, whole_s))


_LIFE = {
    model.RunLife.AT_WORK: "at work",
    model.RunLife.SILENT: "silent: hangs?",
    model.RunLife.KILLED: "killed",
    model.RunLife.ENDED: "ended",
}
_RUN: doc.Cells[model.RunStatus] = (
    (doc.figure("run"), lambda run: str(run.id)),
    (doc.wide("verb"), lambda run: run.verb),
    (doc.figure("process"), lambda run: str(run.pid)),
    (doc.text("began"), lambda run: doc.when(run.started_at_s)),
    (doc.text("state"), lambda run: _LIFE[run.life]),
    (
        doc.text("last heartbeat"),
        lambda run: f"{format_duration(run.silent_s)} ago{' (old)' if run.life is model.RunLife.SILENT else ''}",
    ),
    (doc.figure("exit code"), lambda run: doc.known(run.exit_code, str)),
    (doc.wide("directory"), lambda run: run.directory),
)


def run_table(runs: Sequence[model.RunStatus]) -> doc.Block:
    """The last invocations of verbs that write."""
    return doc.records("", _RUN, runs)


_EVENT: doc.Cells[model.RecordedEvent] = (
    (doc.text("when"), lambda event: doc.when(event.at_s)),
    (doc.text("severity"), lambda event: event.severity.value),
    (doc.text("kind"), lambda event: event.kind.value),
    (doc.paths("subject"), lambda event: event.subject),
    (doc.paths("message"), lambda event: event.message),
    (doc.wide("over"), lambda event: event.resolution or "no"),
)
