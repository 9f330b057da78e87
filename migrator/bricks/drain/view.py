"""Documents of drains."""

from collections.abc import Iterator, Sequence
from operator import itemgetter

from migrator.bricks.drain.model import DrainStanding, DrainSummary
from migrator.bricks.drain.model_preflight import DrainCheck
from migrator.bricks.drain.rules_preflight import describe_retained
from migrator.bricks.model import CallEnding
from migrator.bricks.view_cells import UNKNOWN, count_text, progress_cells, size_text
from migrator.core.paths import show
from migrator.core.units import format_count, format_size
from migrator.gluster.model import BrickRoom
from migrator.render import document
from migrator.render.document import figure, paths, text, wide

_GOOD = (CallEnding.DONE, CallEnding.TAKEN_BACK, CallEnding.PLANNED)


def drain_document(summary: DrainSummary) -> document.Document:
    """Show the result of a call, or of a dry run."""
    title = "Stopped drain" if summary.back else "Drain"
    standing = summary.standing if summary.standing is not None and summary.standing.id else None
    return document.page(
        f"{title}, a dry run: nothing was changed" if summary.dry_run else title,
        ("Result", _result(summary)),
        ("Preflight checks", () if summary.check is None else _check(summary.check)),
        ("Progress", [drain_table(() if standing is None else (standing,))]),
        subtitle=f"{', '.join(summary.bricks)} of volume {summary.volume}",
    )


_DRAIN: document.Cells[DrainStanding] = (
    (wide("bricks"), lambda one: ", ".join(one.bricks)),
    (text("state"), lambda one: one.state.value),
    (text("since"), lambda one: document.when(one.since_s)),
    (figure("moved"), lambda one: format_count(one.moved_files)),
    (figure("bytes"), lambda one: format_size(one.moved_bytes)),
    (figure("files left"), lambda one: count_text(one.left_files)),
    (figure("bytes left"), lambda one: size_text(one.left_bytes)),
    *progress_cells("last poll"),
)


def drain_table(drains: Sequence[DrainStanding]) -> document.Block:
    """Show the progress of each drain."""
    return document.records("", _DRAIN, drains)


def _result(summary: DrainSummary) -> Iterator[document.Block]:
    yield document.paragraph(summary.words, alert=summary.ending not in _GOOD)
    for reason in summary.reasons:
        yield document.paragraph(reason, alert=True)
    if summary.left_behind:
        yield document.table("Left on the bricks", [paths("path")], [(show(path),) for path in summary.left_behind])
        if summary.left_file is not None:
            yield document.paragraph(f"All of them, brick by brick: {summary.left_file}")
        if summary.commands_file is not None:
            yield document.paragraph(f"The evidence and the commands for each: {summary.commands_file}")
        yield document.paragraph(
            "Gluster's rebalance log on the host has the reason for each file. Fix it, and run the same command again: it drains the "
            "rest. Or stop the drain with `migrator brick stop`. Never commit with force."
        )
    if summary.hint:
        yield document.paragraph(f"Next: {summary.hint}.")
    if summary.confirm is not None and summary.dry_run:
        yield document.paragraph(f"The confirmation word for the pre-wipe hooks: {summary.confirm}.")
    for problem in summary.wipe_problems:
        yield document.paragraph(f"Hooks may not wipe it: {problem}.", alert=True)


def _check(check: DrainCheck) -> Iterator[document.Block]:
    versions = [f"{host}: {version or UNKNOWN}" for host, version in sorted(check.versions.items())]
    links, retained = check.linked_symlinks, check.retained
    yield document.facts(
        [
            ("on the disks", size_text(check.used_bytes, UNKNOWN)),
            ("inodes in use", count_text(check.used_inodes, UNKNOWN)),
            ("files", count_text(check.files, UNKNOWN)),
            ("bytes", size_text(check.size_bytes, UNKNOWN)),
            ("largest file", size_text(check.largest_bytes, UNKNOWN)),
            (
                "by catalog",
                document.NONE if check.catalog is None else f"{check.catalog}, {document.when(check.catalog_at_s)}",
            ),
            ("cluster.min-free-disk", check.min_free_disk or UNKNOWN),
            ("GlusterFS", ", ".join(versions) or UNKNOWN),
            ("open files", count_text(check.open_files, UNKNOWN)),
            ("symlinks with several names", format_count(len(links))),
            (
                "sources of users on the target",
                f"{describe_retained(retained)}: they are moved for nothing" if retained else "none",
            ),
        ]
    )
    if links:
        yield document.table(
            "Symlinks that cannot be moved", [paths("path")], [(show(path),) for path in links], limit=40
        )
        yield document.paragraph(
            "Give each of these names a symlink of its own: `cp -P NAME NAME.new`, then `mv -T NAME.new NAME`."
        )
    if check.rooms:
        cells: document.Cells[tuple[str, BrickRoom]] = (
            (wide("brick that stays"), lambda found: found[0]),
            (figure("size"), lambda found: size_text(found[1].total_bytes, UNKNOWN)),
            (figure("free"), lambda found: size_text(found[1].free_bytes, UNKNOWN)),
            (figure("free inodes"), lambda found: count_text(found[1].free_inodes, UNKNOWN)),
        )
        yield document.records("", cells, sorted(check.rooms.items(), key=itemgetter(0)))
