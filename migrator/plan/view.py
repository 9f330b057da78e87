"""The plan as a document: a first page for management, then the details."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from migrator.beegfs.model import LostLimit, MetadataForecast
from migrator.core.paths import show
from migrator.core.units import first_of, format_age, format_count, format_duration, format_rate, format_size, several
from migrator.fs.model import SurpriseKind
from migrator.plan.model import (
    EMPTYING_PERCENT,
    SMALL_RANGES,
    Batch,
    CleanUp,
    CleanUpKind,
    EmptyingCurve,
    Plan,
    Surprise,
    TreeUsage,
    UsageDifference,
    UsageRanking,
    UserUsage,
)
from migrator.plan.rules_what_if import CopyTime, Sizing
from migrator.plan.schedule.view import schedule_blocks, schedule_summary
from migrator.reap.view import describe_savings, plan_reap_blocks
from migrator.render import document

if TYPE_CHECKING:
    from migrator.plan.limits import LimitReading, LimitReadings
    from migrator.plan.plan import PlanResult

RANKING_ROWS = 20
AGE_ROWS = 10
_EXAMPLES = 3
_HEAVIEST = 8
_WARNINGS = 6


def plan_document(plan: Plan, *, ranking_rows: int = RANKING_ROWS) -> document.Document:
    """A first page for management, then the details: the first rows of long tables, and surprises by kind. A report and
    `--json` have all of it.
    """
    return document.Document(
        title=document.clean(f"Plan {plan.name} for {plan.site}"),
        subtitle=f"made {document.when(plan.created_at_s)}, {plan.order.value} first",
        sections=tuple(_sections(plan, ranking_rows)),
    )


def _sections(plan: Plan, ranking_rows: int) -> Iterator[document.Section]:
    warnings = [document.paragraph(problem, alert=True) for problem in plan.problems]
    if not plan.catalog_whole:
        words = "The scan behind this plan is not whole: there may be more on the source than is planned here."
        warnings.insert(0, document.paragraph(words, alert=True))
    short = (*warnings[:_WARNINGS], _short(plan), _heaviest(plan))
    yield document.Section(title="In short", blocks=short, first_page=True)
    yield from document.sections(
        ("More problems", warnings[_WARNINGS:]),
        ("Users by size", ranking_blocks(plan, rows=ranking_rows, age_rows=AGE_ROWS)),
        ("Batches", [_batches(plan.batches)]),
        ("Inodes of metadata targets", [_metadata(plan.metadata)]),
        ("Reaping", () if plan.reap is None else plan_reap_blocks(plan.reap)),
        ("Surprises", [surprise_kinds(plan.surprises)]),
        ("Gains of users who clean up", [clean_up_table(plan.clean_ups, limit=ranking_rows)]),
        ("The source by order of users", [emptying_table(plan.emptying)]),
    )
    yield from schedule_section(plan)


def usage_document(ranking: UsageRanking) -> document.Document:
    """Users as Robinhood counted them."""
    total = sum(one.size_bytes for one in ranking.users)
    sums = accumulate(one.size_bytes for one in ranking.users)
    cells: document.Cells[tuple[int, UserUsage, int]] = (
        (document.figure("rank"), lambda ranked: str(ranked[0])),
        (document.wide("user"), lambda ranked: ranked[1].user),
        (document.figure("bytes"), lambda ranked: format_size(ranked[1].size_bytes)),
        (document.figure("share"), lambda ranked: document.share(ranked[1].size_bytes, total)),
        (document.figure("so far"), lambda ranked: document.share(ranked[2], total)),
        (document.figure("files"), lambda ranked: format_count(ranked[1].files)),
        (document.figure("directories"), lambda ranked: format_count(ranked[1].directories)),
        (document.figure("below 32 KiB"), lambda ranked: _small(ranked[1])),
    )
    rows = zip(range(1, len(ranking.users) + 1), ranking.users, sums, strict=True)
    table = document.records("Users", cells, rows, note=_usage_note(ranking))
    words = f"{ranking.order.value} first, from {ranking.source}; no plan: `migrator scan` and `migrator plan` make one"
    return document.page("Ranking by Robinhood", ("", [table]), subtitle=words)


def sizing_document(sizing: Sizing) -> document.Document:
    """The answer to `plan --what-if`."""
    asked = sizing.asked
    limit = f" at most {format_rate(asked.rate_bytes_per_s)} together," if asked.rate_bytes_per_s else ""
    cells: document.Cells[CopyTime] = (
        (document.figure("hosts"), lambda time: str(time.hosts)),
        (document.figure("streams"), lambda time: str(time.streams)),
        (document.figure("copying takes"), lambda time: format_duration(time.duration_s)),
        (document.text("limited by"), lambda time: "the given rate" if time.limited_by_rate else "the streams"),
    )
    note = f"{sizing.cost.basis}. Hosts are taken not to slow each other down before they reach the given rate."
    facts = document.facts(
        (
            ("state directory", format_size(sizing.state_bytes)),
            ("and for one query", f"up to {format_size(sizing.spill_bytes)}, if one batch had all files"),
        )
    )
    words = (
        f"{format_size(asked.size_bytes)} in {format_count(asked.files)} files,{limit} {asked.streams} streams a host"
    )
    return document.page(
        "What if", ("", [document.records("Seed passes", cells, sizing.times, note=note), facts]), subtitle=words
    )


def _small(usage: UserUsage) -> str:
    small = sum(count for title, count in usage.by_size.items() if title in SMALL_RANGES)
    return f"{format_count(small)} ({document.share(small, usage.files)})" if usage.by_size else document.NONE


def _usage_note(ranking: UsageRanking) -> str:
    only = "Only the top users; " if ranking.partial else ""
    return f"{only}Robinhood counts by owner, and a scan by user tree."


def usage_blocks(
    ranking: UsageRanking, rows: Sequence[UsageDifference], *, limit: int | None
) -> Iterator[document.Block]:
    """A ranking that was made before the scan, beside it."""
    cells: document.Cells[UsageDifference] = (
        (document.wide("user"), lambda one: one.user),
        (document.figure("bytes, Robinhood"), lambda one: document.known(one.counted_bytes, format_size)),
        (document.figure("bytes, scan"), lambda one: document.known(one.scanned_bytes, format_size)),
        (document.figure("difference"), _difference),
        (document.figure("files, Robinhood"), lambda one: document.known(one.counted_files, format_count)),
        (document.figure("files, scan"), lambda one: document.known(one.scanned_files, format_count)),
    )
    when = f"Robinhood: {ranking.source}, read {document.when(ranking.at_s)}. {_usage_note(ranking)}"
    yield document.records("Users by Robinhood and by the scan", cells, rows, limit=limit, note=when)


def _difference(one: UsageDifference) -> str:
    if not one.counted_bytes or one.scanned_bytes is None:
        return document.NONE
    return f"{100 * (one.scanned_bytes - one.counted_bytes) / one.counted_bytes:+.1f} %"


def limits_document(seen: "LimitReadings") -> document.Document:
    """The limits of the source, as limits of owners on the target."""
    cells: document.Cells[LimitReading] = (
        (document.figure("uid"), lambda one: str(one.limit.uid)),
        (document.paths("users"), lambda one: _named(one.users)),
        (document.figure("trees"), lambda one: format_count(len(one.limit.trees))),
        (document.figure("limit"), lambda one: format_size(one.limit.size_bytes)),
        (document.figure("used"), lambda one: _size(one.used_bytes or 0)),
        (document.figure("limit there"), lambda one: _size(one.there_bytes or 0)),
        (document.text("state"), lambda one: one.state.value),
        (document.text("confirmed"), lambda one: "yes" if one.confirmed else "no"),
    )
    lost: document.Cells[LostLimit] = (
        (document.paths("directory"), lambda one: show(one.directory) or "/"),
        (document.figure("limit"), lambda one: format_size(one.size_bytes)),
        (document.wide("cannot be set on BeeGFS"), lambda one: one.reason),
    )
    more = (
        [document.paragraph(f"The limits of the target are unknown: {seen.problem}", alert=True)]
        if seen.problem
        else []
    )
    if not all(one.confirmed for one in seen.limits):
        more.append(document.paragraph("With --confirm, each limit is set when the owner's users work on the target."))
    if not seen.limits:
        more.append(document.paragraph("The source has no limit that can be set on the target."))
    return document.Document(
        title=document.clean(f"Limits of {seen.plan}"),
        subtitle="",
        sections=tuple(
            document.sections(
                ("On the target", [*more, document.records("", cells, seen.limits)]),
                ("Directories", [document.records("", lost, seen.lost)]),
            )
        ),
    )


def describe_plan_state(result: "PlanResult") -> str:
    """The state of the plan (active or not), and its differences from the plan that is or was active."""
    name, difference = result.plan.name, result.difference
    if result.active:
        words = f"{name} is the active plan: all verbs work by it."
    else:
        active = "" if difference is None else difference.active
        words = f"{name} is a draft: verbs work by {active}. To work by it: `migrator plan --activate {name}`."
    if difference is None:
        return words
    counts = (("more", difference.new), ("fewer", difference.gone), ("in another batch", difference.other_batch))
    parts = [f"{_trees(trees)} {which}" for which, trees in counts if trees]
    if difference.size_bytes or difference.files:
        more = "more" if difference.size_bytes > 0 or (not difference.size_bytes and difference.files > 0) else "less"
        parts.append(f"{format_size(abs(difference.size_bytes))} and {several(abs(difference.files), 'file')} {more}")
    return f"{words}\nAgainst {difference.active}: {'; '.join(parts) or 'the same user trees in the same batches'}."


def _trees(trees: Sequence[bytes]) -> str:
    return f"{several(len(trees), 'user tree')} ({first_of(list(map(show, trees)))})"


def schedule_section(plan: Plan, before: Sequence[document.Block] = ()) -> Iterator[document.Section]:
    """The conversion schedule after other blocks, if the source has bricks."""
    if plan.schedule is not None:
        blocks = (*before, *schedule_blocks(plan.schedule, plan.created_at_s))
        yield document.Section(title="Dates for clearing bricks", blocks=tuple(blocks))


def _short(plan: Plan) -> document.Block:
    streams = several(plan.cost.streams, "stream")
    inodes = "unknown" if plan.target.free_inodes is None else format_count(plan.target.free_inodes)
    waiting = sum(not batch.fits for batch in plan.batches)
    pairs = [
        ("to move", f"{format_size(plan.size_bytes)} in {several(plan.files, 'file')}"),
        ("directories", format_count(plan.directories)),
        ("user trees", f"{format_count(len(plan.ranking))} in {several(len(plan.batches), 'batch', 'batches')}"),
        ("copying takes", f"{format_duration(plan.forecast_s)} with {streams} ({plan.cost.basis})"),
        ("free on the target", f"{format_size(plan.target.free_bytes)}, inodes: {inodes}"),
        ("room", f"{several(waiting, 'batch waits', 'batches wait')} for it" if waiting else "for every batch"),
        ("catalog", f"{plan.catalog} (whole: {document.yes(plan.catalog_whole)})"),
    ]
    if plan.reap is not None:
        pairs.append(("reaping saves", describe_savings(plan.reap.saved)))
    if surprises := [one for one in plan.surprises if one.kind is not SurpriseKind.LAYOUT]:
        kinds = several(len({one.kind for one in surprises}), "kind")
        paths_found = several(sum(one.count for one in surprises), "path")
        pairs.append(("surprises", f"{paths_found} of {kinds}: discuss them with the users first"))
    if plan.schedule is not None:
        pairs.append(("bricks", schedule_summary(plan.schedule, plan.created_at_s)))
    return document.facts(pairs)


def _heaviest(plan: Plan) -> document.Block:
    """The heaviest user trees, with their batches and when these are copied."""
    done_after: dict[bytes, tuple[int, float]] = {}
    elapsed_s = 0.0
    for batch in plan.batches:
        elapsed_s += batch.forecast_s
        done_after |= {tree.path: (batch.number, elapsed_s) for tree in batch.trees}
    none: tuple[None, None] = (None, None)
    cells: document.Cells[TreeUsage] = (
        (document.paths("user"), lambda usage: usage.tree.user),
        (document.figure("bytes"), lambda usage: format_size(usage.size_bytes)),
        (document.figure("share"), lambda usage: document.share(usage.size_bytes, plan.size_bytes)),
        (document.figure("files"), lambda usage: format_count(usage.files)),
        (document.figure("batch"), lambda usage: str(done_after.get(usage.tree.path, (document.NONE,))[0])),
        (
            document.figure("copied after"),
            lambda usage: document.known(done_after.get(usage.tree.path, none)[1], format_duration),
        ),
    )
    return document.records("Heaviest user trees", cells, _by_bytes(plan)[:_HEAVIEST])


def _by_bytes(plan: Plan) -> list[TreeUsage]:
    return sorted(plan.ranking, key=lambda usage: (-usage.size_bytes, usage.tree.path))


def ranking_blocks(plan: Plan, *, rows: int | None, age_rows: int | None) -> Iterator[document.Block]:
    """User trees by weight, with their ages; and all paths outside."""
    every = _by_bytes(plan)
    cells: document.Cells[tuple[int, TreeUsage]] = (
        (document.figure("rank"), lambda ranked: str(ranked[0])),
        (document.paths("user"), lambda ranked: ranked[1].tree.user),
        (document.paths("tree"), lambda ranked: show(ranked[1].tree.path)),
        (document.figure("bytes"), lambda ranked: format_size(ranked[1].size_bytes)),
        (document.figure("share"), lambda ranked: document.share(ranked[1].size_bytes, plan.size_bytes)),
        (document.figure("files"), lambda ranked: format_count(ranked[1].files)),
        (document.figure("directories"), lambda ranked: format_count(ranked[1].directories)),
        (document.figure("tiny files"), lambda ranked: _tiny(ranked[1])),
        (document.figure("largest file"), lambda ranked: format_size(ranked[1].largest_bytes)),
        (document.figure("link groups"), lambda ranked: format_count(ranked[1].link_groups)),
        (document.figure("median age"), lambda ranked: format_age(ranked[1].median_age_s)),
    )
    yield document.records("User trees by bytes", cells, enumerate(every, 1), limit=rows)
    if every:
        yield _age_table("Bytes by age of last change, by user", every, "by_mtime", limit=age_rows)
        yield _age_table(
            "Bytes by age of last reading, by user (if the source keeps access times; Gluster by default does not)",
            every,
            "by_atime",
            limit=age_rows,
        )
    if plan.outside is not None and (plan.outside.files or plan.outside.directories):
        outside = plan.outside
        yield document.paragraph(
            f"Outside every user tree lie {several(outside.files, 'file')} with {format_size(outside.size_bytes)} "
            f"in {several(outside.directories, 'directory', 'directories')}. They do not move.",
            alert=True,
        )


def _tiny(usage: TreeUsage) -> str:
    return f"{format_count(usage.tiny_files)} ({document.share(usage.tiny_files, usage.files)})"


def _age_table(title: str, every: Sequence[TreeUsage], which: str, *, limit: int | None) -> document.Block:
    labels = list(dict.fromkeys(bucket.label for usage in every for bucket in getattr(usage, which)))

    def row(usage: TreeUsage) -> tuple[str, ...]:
        sizes: Counter[str] = Counter()
        for bucket in getattr(usage, which):
            sizes[bucket.label] += bucket.size_bytes
        return (usage.tree.user, *(_size(sizes[label]) for label in labels))

    return document.table(
        title,
        [document.paths("user"), *(document.figure(document.clean(label)) for label in labels)],
        map(row, every),
        limit=limit,
    )


def _size(size_bytes: int) -> str:
    return format_size(size_bytes) if size_bytes else document.NONE


def _batches(batches: Sequence[Batch]) -> document.Block:
    after_s = accumulate(batch.forecast_s for batch in batches)
    cells: document.Cells[tuple[Batch, float]] = (
        (document.figure("batch"), lambda found: str(found[0].number)),
        (document.figure("trees"), lambda found: format_count(len(found[0].trees))),
        (document.paths("users"), lambda found: _named([tree.user for tree in found[0].trees])),
        (document.figure("bytes"), lambda found: format_size(found[0].size_bytes)),
        (document.figure("files"), lambda found: format_count(found[0].files)),
        (document.figure("chunks"), lambda found: format_count(found[0].chunks)),
        (document.figure("takes"), lambda found: format_duration(found[0].forecast_s)),
        (document.figure("done after"), lambda found: format_duration(found[1])),
        (document.wide("remark"), lambda found: "" if found[0].fits else "no room on the target yet"),
    )
    return document.records("", cells, zip(batches, after_s, strict=True))


def _metadata(forecast: Sequence[MetadataForecast]) -> document.Block:
    cells: document.Cells[MetadataForecast] = (
        (document.text("metadata target"), lambda one: one.name),
        (document.text("node"), lambda one: one.node),
        (document.figure("free"), lambda one: format_count(one.free_inodes)),
        (document.figure("expected"), lambda one: format_count(one.expected_inodes)),
        (document.figure("share"), lambda one: document.share(one.expected_inodes, one.free_inodes)),
    )
    return document.records("", cells, forecast)


def _named(users: Sequence[str]) -> str:
    return first_of(list(dict.fromkeys(users)))


def surprise_kinds(surprises: Sequence[Surprise]) -> document.Block:
    """Surprises by kind over all trees, with the first examples of each."""
    by_kind: dict[SurpriseKind, list[Surprise]] = {}
    for one in surprises:
        by_kind.setdefault(one.kind, []).append(one)
    cells: document.Cells[tuple[SurpriseKind, list[Surprise]]] = (
        (document.text("what"), lambda found: found[0].value),
        (document.figure("trees"), lambda found: _count(len({one.tree for one in found[1]} - {None}))),
        (document.figure("paths"), lambda found: format_count(sum(one.count for one in found[1]))),
        (document.figure("bytes"), lambda found: _size(sum(one.size_bytes for one in found[1]))),
        (document.paths("detail"), lambda found: _details(found[1])),
        (document.paths("for example"), lambda found: _examples([path for one in found[1] for path in one.examples])),
    )
    note = "Tree by tree: `migrator report`, or --json." if len(by_kind) < len(surprises) else ""
    return document.records("", cells, by_kind.items(), note=note)


def _examples(paths: Sequence[bytes]) -> str:
    return ", ".join(map(show, paths[:_EXAMPLES]))


def _count(count: int) -> str:
    return format_count(count) if count else document.NONE


def _details(found: Sequence[Surprise]) -> str:
    different = list(dict.fromkeys(one.detail for one in found if one.detail))
    more = f" (and {several(len(different) - 1, 'other detail')})" if len(different) > 1 else ""
    return f"{different[0]}{more}" if different else ""


_SURPRISE: document.Cells[Surprise] = (
    (document.text("what"), lambda one: one.kind.value),
    (document.paths("tree"), lambda one: document.known(one.tree, show)),
    (document.figure("paths"), lambda one: format_count(one.count)),
    (document.figure("bytes"), lambda one: format_size(one.size_bytes)),
    (document.paths("detail"), lambda one: one.detail),
    (document.paths("for example"), lambda one: _examples(one.examples)),
)


def surprise_table(surprises: Sequence[Surprise], *, limit: int | None) -> document.Block:
    """Findings that users need before the move."""
    return document.records("", _SURPRISE, surprises, limit=limit)


def clean_up_table(clean_ups: Sequence[CleanUp], *, limit: int | None) -> document.Block:
    """Clean-ups, those that gain the most time first."""
    cells: document.Cells[CleanUp] = (
        (document.paths("tree"), lambda one: show(one.tree)),
        (document.wide("clean-up"), lambda one: _CLEAN_UPS[one.kind]),
        (document.figure("files"), lambda one: format_count(one.files)),
        (document.figure("frees"), lambda one: _size(one.size_bytes)),
        (document.figure("moves earlier by"), lambda one: format_duration(one.earlier_s)),
    )
    most_first = sorted(clean_ups, key=lambda one: (-one.earlier_s, -one.size_bytes, one.tree, one.kind))
    note = "Each by itself: a file may be in several lines." if clean_ups else ""
    return document.records("", cells, most_first, limit=limit, note=note)


_CLEAN_UPS = {
    CleanUpKind.LISTED: "delete what the reap rule lists",
    CleanUpKind.OLD: "delete files not changed for a year",
    CleanUpKind.TINY: "pack files below 4 KiB",
}


def emptying_table(curves: Sequence[EmptyingCurve]) -> document.Block:
    """The share of the bytes that has left the source over time, for each order."""
    return document.table(
        "",
        [document.text("order"), *(document.figure(f"{percent}% free after") for percent in EMPTYING_PERCENT)],
        ((curve.order.value, *map(format_duration, curve.reached_s)) for curve in curves),
    )
