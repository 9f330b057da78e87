"""The plan as a document: a first page for management, then the details."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from migrator.core.paths import show
from migrator.core.units import format_age, format_count, format_duration, format_size, several
from migrator.plan.model import Batch, EmptyingCurve, Plan, Surprise, SurpriseKind, TreeUsage
from migrator.reap.view import plan_reap_blocks, savings_words
from migrator.render import document
from migrator.schedule.view import schedule_blocks, schedule_summary

if TYPE_CHECKING:
    from migrator.plan.stage import PlanResult

RANKING_ROWS = 20
AGE_ROWS = 10
_EXAMPLES = 3
_USERS_NAMED = 6
_HEAVIEST = 8
_WARNINGS = 6
_CURVE_SHARES = (0.25, 0.5, 0.75, 0.9, 1.0)


def plan_document(plan: Plan, *, ranking_rows: int = RANKING_ROWS, age_rows: int = AGE_ROWS) -> document.Document:
    """A first page for management, then the details: the first rows of long tables, and surprises by kind. A report and
    `--json` have all of it.
    """
    return document.Document(
        title=document.clean(f"Plan {plan.name} for {plan.site}"),
        subtitle=f"made {document.when(plan.created_at_s)}, {plan.order.value} first",
        sections=tuple(_sections(plan, ranking_rows, age_rows)),
    )


def _sections(plan: Plan, ranking_rows: int, age_rows: int) -> Iterator[document.Section]:
    warnings = [document.paragraph(problem, alert=True) for problem in plan.problems]
    if not plan.catalog_whole:
        words = "The scan behind this plan is not whole: there may be more on the source than is planned here."
        warnings.insert(0, document.paragraph(words, alert=True))
    short = (*warnings[:_WARNINGS], _short(plan), _heaviest(plan))
    yield document.Section(title="In short", blocks=short, first_page=True)
    if warnings[_WARNINGS:]:
        yield document.Section(title="More problems", blocks=tuple(warnings[_WARNINGS:]))
    ranking = ranking_blocks(plan, rows=ranking_rows, age_rows=age_rows)
    yield document.Section(title="Who holds what", blocks=tuple(ranking))
    yield document.Section(title="Batches", blocks=(_batches(plan.batches),))
    if plan.reap is not None:
        yield document.Section(title="What is reaped", blocks=tuple(plan_reap_blocks(plan.reap)))
    if plan.surprises:
        yield document.Section(title="What will surprise", blocks=(surprise_kinds(plan.surprises),))
    if plan.emptying:
        yield document.Section(title="How each order would empty the source", blocks=(emptying_table(plan.emptying),))
    yield from schedule_section(plan)


def standing_words(result: "PlanResult") -> str:
    """Whether verbs use the plan, and its differences from the plan that is or was active."""
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
    named = ", ".join(map(show, trees[:_USERS_NAMED])) + (", ..." if len(trees) > _USERS_NAMED else "")
    return f"{several(len(trees), 'user tree')} ({named})"


def schedule_section(plan: Plan) -> Iterator[document.Section]:
    """The conversion schedule, if the source has bricks."""
    if plan.schedule is not None:
        blocks = schedule_blocks(plan.schedule, plan.created_at_s)
        yield document.Section(title="When bricks can be cleared", blocks=tuple(blocks))


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
        pairs.append(("reaping saves", savings_words(plan.reap.saved)))
    if plan.surprises:
        kinds = several(len({one.kind for one in plan.surprises}), "kind")
        paths_found = several(sum(one.count for one in plan.surprises), "path")
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
    every = sorted(plan.ranking, key=lambda usage: (-usage.size_bytes, usage.tree.path))
    rows = []
    for usage in every[:_HEAVIEST]:
        number, after_s = done_after.get(usage.tree.path, (None, None))
        rows.append(
            (
                usage.tree.user,
                format_size(usage.size_bytes),
                document.percent(100 * usage.size_bytes / plan.size_bytes) if plan.size_bytes else document.NONE,
                format_count(usage.files),
                document.NONE if number is None else str(number),
                document.NONE if after_s is None else format_duration(after_s),
            )
        )
    return document.table(
        "Heaviest user trees",
        [
            document.paths("user"),
            document.figure("bytes"),
            document.figure("share"),
            document.figure("files"),
            document.figure("batch"),
            document.figure("copied after"),
        ],
        rows,
    )


def ranking_blocks(plan: Plan, *, rows: int | None, age_rows: int | None) -> Iterator[document.Block]:
    """User trees by weight, with their ages; and all paths outside."""
    every = sorted(plan.ranking, key=lambda usage: (-usage.size_bytes, usage.tree.path))
    yield document.table(
        "User trees by bytes",
        [document.figure("rank"), document.paths("user"), document.paths("tree"), *map(document.figure, _OF_A_TREE)],
        (_usage_row(rank, usage, plan.size_bytes) for rank, usage in enumerate(every, 1)),
        limit=rows,
    )
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


_OF_A_TREE = ("bytes", "share", "files", "directories", "tiny files", "largest file", "link groups", "median age")


def _usage_row(rank: int, usage: TreeUsage, all_bytes: int) -> tuple[str, ...]:
    tiny = document.percent(100 * usage.tiny_files / usage.files) if usage.files else document.NONE
    return (
        str(rank),
        usage.tree.user,
        show(usage.tree.path),
        format_size(usage.size_bytes),
        document.percent(100 * usage.size_bytes / all_bytes) if all_bytes else document.NONE,
        format_count(usage.files),
        format_count(usage.directories),
        f"{format_count(usage.tiny_files)} ({tiny})",
        format_size(usage.largest_bytes),
        format_count(usage.link_groups),
        format_age(usage.median_age_s),
    )


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
    elapsed_s = 0.0
    rows = []
    for batch in batches:
        elapsed_s += batch.forecast_s
        rows.append(
            (
                str(batch.number),
                format_count(len(batch.trees)),
                _named([tree.user for tree in batch.trees]),
                format_size(batch.size_bytes),
                format_count(batch.files),
                format_count(batch.chunks),
                format_duration(batch.forecast_s),
                format_duration(elapsed_s),
                "" if batch.fits else "no room on the target yet",
            )
        )
    sums = map(document.figure, ("bytes", "files", "chunks", "takes", "done after"))
    return document.table(
        "",
        [document.figure("batch"), document.figure("trees"), document.paths("users"), *sums, document.wide("remark")],
        rows,
    )


def _named(users: Sequence[str]) -> str:
    different = list(dict.fromkeys(users))
    named = ", ".join(different[:_USERS_NAMED])
    return named if len(different) <= _USERS_NAMED else f"{named} and {len(different) - _USERS_NAMED} more"


def surprise_kinds(surprises: Sequence[Surprise]) -> document.Block:
    """Surprises by kind over all trees, with the first examples of each."""
    by_kind: dict[SurpriseKind, list[Surprise]] = {}
    for one in surprises:
        by_kind.setdefault(one.kind, []).append(one)
    return document.table(
        "",
        [
            document.text("what"),
            document.figure("trees"),
            document.figure("paths"),
            document.figure("bytes"),
            document.paths("detail"),
            document.paths("for example"),
        ],
        (
            (
                kind.value,
                _count(len({one.tree for one in found} - {None})),
                format_count(sum(one.count for one in found)),
                _size(sum(one.size_bytes for one in found)),
                _details(found),
                ", ".join(show(example) for example in [path for one in found for path in one.examples][:_EXAMPLES]),
            )
            for kind, found in by_kind.items()
        ),
        note="Tree by tree: `migrator report`, or --json." if len(by_kind) < len(surprises) else "",
    )


def _count(count: int) -> str:
    return format_count(count) if count else document.NONE


def _details(found: Sequence[Surprise]) -> str:
    different = list(dict.fromkeys(one.detail for one in found if one.detail))
    more = f" (and {several(len(different) - 1, 'other detail')})" if len(different) > 1 else ""
    return f"{different[0]}{more}" if different else ""


def surprise_table(surprises: Sequence[Surprise], *, limit: int | None) -> document.Block:
    """Findings that users need before the move."""
    return document.table(
        "",
        [
            document.text("what"),
            document.paths("tree"),
            document.figure("paths"),
            document.figure("bytes"),
            document.paths("detail"),
            document.paths("for example"),
        ],
        (
            (
                one.kind.value,
                document.NONE if one.tree is None else show(one.tree),
                format_count(one.count),
                format_size(one.size_bytes),
                one.detail,
                ", ".join(show(example) for example in one.examples[:_EXAMPLES]),
            )
            for one in surprises
        ),
        limit=limit,
    )


def emptying_table(curves: Sequence[EmptyingCurve]) -> document.Block:
    """The share of the bytes that has left the source over time, for each order."""
    return document.table(
        "",
        [document.text("order"), *(document.figure(f"{share:.0%} free after") for share in _CURVE_SHARES)],
        ((curve.order.value, *(_reached(curve, share) for share in _CURVE_SHARES)) for curve in curves),
    )


def _reached(curve: EmptyingCurve, share: float) -> str:
    if not curve.points:
        return document.NONE
    wanted = share * curve.points[-1].freed_bytes
    return next(
        (format_duration(point.elapsed_s) for point in curve.points if point.freed_bytes >= wanted), document.NONE
    )
