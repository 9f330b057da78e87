"""Results of scans, runs and verifications as documents."""

from collections.abc import Iterator, Mapping
from itertools import groupby

from migrator.catalog.model import BrickWalk, CatalogRecord, VerificationRecord
from migrator.core.paths import show
from migrator.core.units import format_count, format_duration, format_rate, format_size, several
from migrator.render import document as doc
from migrator.report.rules_blockers import after_differences
from migrator.report.view_status import BAD_FILE, scan_blocks
from migrator.transfer.model_runs import BatchSummary, RunSummary, TreeWork
from migrator.transfer.rules import AFTERWARDS
from migrator.transfer.view import delta_blocks, describe_follow_up

BAD_ROWS = 50


def catalog_document(record: CatalogRecord) -> doc.Document:
    """The result of a scan."""
    blocks = list(scan_blocks(record))
    blocks.extend(doc.paragraph(f"Found on the bricks: {finding}") for finding in record.findings)
    blocks.extend(doc.paragraph(f"The bricks were not read: {reason}") for reason in record.way_reasons)
    parts = (("Scan", blocks), ("The bricks", [doc.records("", _WALK, record.bricks)]))
    return doc.page(f"Scan {record.name}", *parts, subtitle=doc.when(record.finished_at_s))


_WALK: doc.Cells[BrickWalk] = (
    (doc.text("brick"), lambda walk: walk.brick),
    # Every brick has the directories, so the table adds up to more than the volume has.
    (doc.figure("entries"), lambda walk: format_count(walk.rows + walk.directories)),
    (doc.figure("entries/s"), lambda walk: f"{walk.rows_per_s:,.0f}"),
    (doc.text("whole"), lambda walk: "yes" if walk.whole else "incomplete"),
)


def verification_document(record: VerificationRecord) -> doc.Document:
    """The result of a verification."""
    title = f"Verification of batch {record.batch} of {record.plan}"
    part = ("Comparison", verification_blocks(record))
    return doc.page(title, part, subtitle=doc.when(record.finished_at_s))


def verification_blocks(record: VerificationRecord) -> Iterator[doc.Block]:
    """The facts of one verification, its differences and its expected losses by kind."""
    policy = record.policy
    digests = f"all files, {policy.algorithm}"
    if policy.share <= 0.0:
        digests = "no file: attributes only (type, size, times, owner, mode, ACLs)"
    elif policy.share < 1.0:
        digests = f"a sample of {doc.percent(policy.share * 100)} of the files, {policy.algorithm}, seed {policy.seed}"
    ended_at_s = record.finished_at_s
    yield doc.facts(
        [
            ("batch", str(record.batch)),
            *([("user trees", ", ".join(map(show, record.trees)))] if record.trees else []),
            ("ended", doc.when(ended_at_s)),
            ("took", doc.NONE if ended_at_s is None else format_duration(max(ended_at_s - record.started_at_s, 0.0))),
            ("paths compared", f"{format_count(record.paths)}, {format_size(record.size_bytes)}"),
            ("paths equal", f"{format_count(record.equal_paths)} of {format_count(record.paths)}"),
            ("content to be compared", digests),
            (
                "content read on both sides and equal",
                f"{format_count(record.digested_files)} of {several(record.files, 'file')}, "
                f"{format_size(record.digested_bytes)} of {format_size(record.size_bytes)}"
                + ("" if record.carried_files else f" ({doc.percent(record.percent_content)})"),
            ),
            *_carried(record),
            ("result", _result(record)),
            ("proven gone from the source", format_count(record.proven_gone)),
            ("differences", format_count(sum(record.differences.values()))),
            ("expected losses", format_count(sum(record.expected.values()))),
            ("whole", doc.yes(record.whole)),
            ("manifest", record.manifest or doc.NONE),
            ("digest of the manifest", record.manifest_digest or doc.NONE),
            (
                "list of all differences",
                record.differences_file or doc.NONE if any(record.differences.values()) else doc.NONE,
            ),
        ]
    )
    for reason in record.reasons:
        yield doc.paragraph(f"Not whole: {reason}", alert=True)
    if any(record.differences.values()):
        yield _counts("Differences by kind", record.differences)
        if record.examples:
            yield doc.table(
                "The first differences of each kind",
                [doc.text("kind"), doc.paths("path"), doc.paths("source"), doc.paths("target")],
                ((one.kind.value, show(one.path), one.source, one.target) for one in record.examples),
            )
        yield doc.paragraph(
            "As long as users work on the source, every change after the copy is a difference. That is expected until the "
            "cutover."
        )
        yield doc.paragraph(f"Next: {after_differences(record)}.")
    if any(record.expected.values()):
        yield _counts("Expected: attributes that the target does not keep", record.expected)


def _carried(record: VerificationRecord) -> Iterator[tuple[str, str]]:
    if record.carried_files:
        carried = f"{format_count(record.carried_files)} of {several(record.files, 'file')}"
        yield (
            "content read before, and nothing changed since",
            f"{carried}, {format_size(record.carried_bytes)} of {format_size(record.size_bytes)}",
        )
        proven = f"{format_size(record.proven_bytes)} of {format_size(record.size_bytes)}"
        yield "content proven equal", f"{proven} ({doc.percent(record.percent_content)})"


def _result(record: VerificationRecord) -> str:
    if not record.whole:
        return "not whole: no proof"
    if any(record.differences.values()):
        return "not verified: there are differences"
    return doc.format_verified_share(record.percent_content)


def run_document(summary: RunSummary) -> doc.Document:
    """The result of a run, batch by batch."""
    directory = f"its log is in {summary.directory}" if summary.directory else ""
    subtitle = "nothing was changed" if summary.dry_run else directory
    parts = ((f"Batch {batch.batch}", _batch(batch, dry_run=summary.dry_run)) for batch in summary.batches)
    return doc.page("Dry run" if summary.dry_run else f"Run {summary.run_id}", *parts, subtitle=subtitle)


_WORK: doc.Cells[TreeWork] = (
    (doc.paths("tree"), lambda work: show(work.tree)),
    (doc.figure("chunks"), lambda work: format_count(work.chunks)),
    (doc.figure("files"), lambda work: format_count(work.files)),
    (doc.figure("bytes"), lambda work: format_size(work.size_bytes)),
)


def _batch(batch: BatchSummary, *, dry_run: bool) -> Iterator[doc.Block]:
    if batch.stopped is not None:
        yield doc.paragraph("Stopped: see the error below.", alert=True)
        if batch.stopped.unended:
            yield doc.paragraph(f"Still running: {', '.join(batch.stopped.unended)}", alert=True)
    for finding in batch.guards:
        for problem in finding.problems:
            yield doc.paragraph(f"Refused by the guard {finding.guard}: {problem}", alert=True)
    if batch.refusal is not None:
        yield doc.paragraph(f"Refused: {batch.refusal.message}", alert=True)
        yield doc.paragraph(f"Next: {batch.refusal.hint}.")
    if batch.left_alone:
        trees = ", ".join(map(show, batch.left_alone))
        yield doc.paragraph(f"Omitted, because the users work on the target or are being cut over: {trees}")
    if batch.set_apart:
        # One reason may concern many trees.
        for reason, apart in groupby(batch.set_apart, key=lambda one: one.reason):
            trees = ", ".join(show(one.tree) for one in apart)
            yield doc.paragraph(
                f"Set apart, and left unchanged on the target: {trees}: {reason}. The same command scans it again.",
                alert=True,
            )
    if batch.skipped:
        yield doc.paragraph(f"Skipped: {batch.skipped}", alert=True)
    if batch.hooks:
        yield doc.paragraph(f"Hooks that would be called: {', '.join(batch.hooks)}")
    if batch.refusal is not None:
        return
    if batch.nothing_to_do:
        yield doc.paragraph("Nothing to do: the batch is copied.")
    elif not (dry_run or batch.skipped):
        rate = format_rate(batch.written_bytes / batch.elapsed_s) if batch.elapsed_s > 0 else doc.NONE
        yield doc.facts(
            [
                ("chunks done", format_count(batch.chunks)),
                ("files", format_count(batch.files)),
                ("bytes", format_size(batch.size_bytes)),
                ("bytes written", format_size(batch.written_bytes)),
                ("took", format_duration(batch.elapsed_s)),
                ("mean rate", rate),
                ("deleted by users meanwhile", format_count(batch.vanished)),
                ("files that need attention", format_count(len(batch.bad))),
            ]
        )
    yield from delta_blocks(batch.deltas)
    if batch.deltas_to_follow:
        yield doc.paragraph(describe_follow_up(batch.deltas_to_follow))
    for tree in batch.trees_gone:
        yield doc.paragraph(f"Deleted from the source since the scan: {show(tree)}", alert=True)
    yield doc.records("Would be done" if dry_run else "Left to do", _WORK, batch.left)
    yield doc.records("Files that need attention", BAD_FILE, batch.bad, limit=BAD_ROWS, note=AFTERWARDS)


def _counts(title: str, counts: Mapping[str, int]) -> doc.Block:
    rows = sorted(((str(kind), count) for kind, count in counts.items() if count), key=lambda row: (-row[1], row[0]))
    return doc.table(
        title, [doc.text("kind"), doc.figure("paths")], ((kind, format_count(count)) for kind, count in rows)
    )
