"""Tables of a report that no other document has."""

from collections.abc import Iterator, Sequence

from migrator.adapters.output.document import Block, facts, figure, paragraph, paths, table, text, wide
from migrator.adapters.output.reap_document import plan_reap_blocks
from migrator.adapters.output.wording import NONE, when
from migrator.domain.incidents import Incident
from migrator.domain.report import ReportFacts, TreeFacts
from migrator.domain.report_parts import BrickOutlook, ServerOutlook
from migrator.domain.units import format_count, format_size, several


def incident_table(incidents: Sequence[Incident], *, limit: int | None) -> Block:
    """What went wrong, and what became of it: first what nothing has ended."""
    return table(
        "Warnings and errors by what they are about",
        [
            text("first"),
            text("last"),
            figure("times"),
            text("severity"),
            paths("subject"),
            paths("what (the last time)"),
            wide("what became of it"),
        ],
        (
            (
                when(one.first_at_s),
                when(one.last_at_s),
                format_count(one.count),
                one.severity.value,
                one.subject,
                one.message,
                _end(one),
            )
            for one in incidents
        ),
        limit=limit,
    )


def _end(one: Incident) -> str:
    if one.resolved_at_s is None:
        return "no event says that it is over"
    return f"{one.resolution}, {when(one.resolved_at_s)}"


def users_standing(trees: Sequence[TreeFacts]) -> Block:
    """How many user trees are done, in work and left. One of which nothing is copied yet is left, begun or not."""
    done = sum(bool(tree.tally.done_users) for tree in trees)
    in_work = sum(not tree.tally.done_users and tree.tally.done_files > 0 for tree in trees)
    left = len(trees) - done - in_work
    return paragraph(
        f"Of {several(len(trees), 'user tree')} {format_count(done)} are copied, {format_count(in_work)} are in work, and "
        f"{format_count(left)} are left. In the plan's order of weight:"
    )


def brick_table(bricks: Sequence[BrickOutlook]) -> Block:
    """Every brick: how far it is, and when it is free."""
    return table(
        "Bricks of the source, and when they are free",
        [wide("brick"), text("state"), figure("files left"), figure("bytes left"), text("free"), wide("by what")],
        (
            (
                one.brick,
                one.state,
                NONE if one.left_files is None else format_count(one.left_files),
                NONE if one.left_bytes is None else format_size(one.left_bytes),
                when(one.free_at_s),
                one.basis,
            )
            for one in bricks
        ),
    )


def server_table(servers: Sequence[ServerOutlook]) -> Block:
    """Every server: how many of its bricks are free, and when all of them are."""
    return table(
        "Servers of the source, and when they are free",
        [paths("server"), figure("bricks"), figure("free now"), text("free on"), wide("by what")],
        (
            (
                one.server,
                format_count(one.bricks),
                format_count(one.free_bricks),
                when(one.free_at_s),
                one.basis,
            )
            for one in servers
        ),
    )


def reaped_blocks(report: ReportFacts, rows: int | None) -> Iterator[Block]:
    """What is not moved as it is: bytes and inodes, and what became of it."""
    del rows
    reaped = report.reaped
    if reaped is None:
        return
    yield facts(
        [
            (
                "to be archived",
                f"{format_size(reaped.to_archive_bytes)} in {several(reaped.to_archive_inodes, 'inode')}",
            ),
            (
                "archived and proven",
                f"{format_size(reaped.archived_bytes)} in {several(reaped.archived_files, 'file')}, which take "
                f"{format_size(reaped.archive_bytes)} in {several(reaped.archives, 'archive')}",
            ),
            ("skipped", f"{format_size(reaped.skipped_bytes)} in {several(reaped.skipped_inodes, 'inode')}"),
            ("given up for deletion", several(reaped.released, "path or glob", "paths and globs")),
        ]
    )
    if report.plan is not None and report.plan.reap is not None:
        yield from plan_reap_blocks(report.plan.reap)
