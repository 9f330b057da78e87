"""The document that shows a purge."""

from collections.abc import Callable, Iterator

from migrator.core.paths import show
from migrator.core.units import format_count, format_duration, format_size, several
from migrator.cutover.model import PurgeSum
from migrator.purge.model import CONFIRM_CHARACTERS, PurgeOutcome, PurgeSummary, Reread, TreePurge
from migrator.render import document as doc

_FINDINGS_SHOWN = 20
_OUTCOMES = {
    PurgeOutcome.PURGED: "freed",
    PurgeOutcome.WOULD_PURGE: "would be freed",
    PurgeOutcome.KEPT: "not all of it is freed",
    PurgeOutcome.REFUSED: "refused",
    PurgeOutcome.LATER: "not now",
    PurgeOutcome.DONE_BEFORE: "freed before",
}


def purge_document(summary: PurgeSummary) -> doc.Document:
    """The result of a purge or of its dry run."""
    return doc.page("Purge, dry run" if summary.dry_run else "Purge", ("", _blocks(summary)))


def _of_sum(shown: Callable[[PurgeSum], str]) -> Callable[[TreePurge], str]:
    return lambda tree: doc.known(tree.sum, shown)


_TREE: doc.Cells[TreePurge] = (
    (doc.paths("user"), lambda tree: tree.tree.user),
    (doc.paths("tree"), lambda tree: show(tree.tree.path)),
    (doc.text("source"), lambda tree: _OUTCOMES[tree.outcome]),
    (doc.figure("names"), _of_sum(lambda known: format_count(known.names))),
    (doc.figure("inodes"), _of_sum(lambda known: format_count(known.inodes))),
    (doc.figure("size"), _of_sum(lambda known: format_size(known.size_bytes))),
    (doc.figure("read again"), lambda tree: format_count(tree.read_again)),
    (doc.figure("changed on the target since"), lambda tree: format_count(tree.changed)),
    (doc.figure("removed there since"), lambda tree: format_count(tree.gone)),
    (doc.text("kept until"), lambda tree: doc.when(tree.due_at_s)),
)


def _blocks(summary: PurgeSummary) -> Iterator[doc.Block]:
    wanted = summary.require_archive
    archives: doc.Cells[TreePurge] = (
        (doc.paths(f"archives (of {wanted})"), lambda tree: ", ".join(tree.archives) or doc.NONE),
    )
    yield doc.records("", (*_TREE, *(archives if wanted else ())), summary.trees)
    for tree in summary.trees:
        yield from _tree_blocks(tree)
    lacking = [
        tree.tree.user
        for tree in summary.trees
        if len(tree.archives) < wanted and tree.outcome is PurgeOutcome.WOULD_PURGE
    ]
    if lacking:
        yield doc.paragraph(
            f"The pre-purge hooks have to make archives of {', '.join(lacking)} yet: [cutover] require_archive demands {wanted}.",
            alert=True,
        )
    if summary.dry_run and any(tree.outcome is PurgeOutcome.WOULD_PURGE for tree in summary.trees):
        yield doc.paragraph(
            f"The checksum of this purge is {summary.checksum}. To free what is listed, give the same command without --dry-run "
            f"and with `--confirm {summary.checksum[:CONFIRM_CHARACTERS]}`. A purge cannot be undone."
        )


def _tree_blocks(tree: TreePurge) -> Iterator[doc.Block]:
    user = tree.tree.user
    if tree.outcome in (PurgeOutcome.LATER, PurgeOutcome.KEPT):
        yield doc.paragraph(f"{user}: {tree.words}", alert=tree.outcome is PurgeOutcome.KEPT)
    for reason in tree.reasons:
        yield doc.paragraph(f"{user}: {reason}", alert=True)
    if tree.reread is not None and tree.outcome is PurgeOutcome.WOULD_PURGE:
        yield doc.paragraph(f"{user}: {_describe_reread(tree.reread)}")
    if tree.outside:
        yield doc.paragraph(
            f"{user}: {several(tree.outside, 'file')} {'has' if tree.outside == 1 else 'have'} names outside the tree too: they "
            "stay under these, and their bytes are not freed."
        )
    if tree.findings:
        rows = [(show(finding.path), finding.words) for finding in tree.findings]
        unlisted = tree.open_paths - len(tree.findings)
        note = f"Of {unlisted:,} more only the number is known." if unlisted else ""
        columns = [doc.paths("path"), doc.paths("reason")]
        yield doc.table(f"Paths of {user} without proof on the target", columns, rows, limit=_FINDINGS_SHOWN, note=note)
    if tree.kept_in is not None:
        yield doc.paragraph(
            f"The remaining paths are in {show(tree.kept_in)} of the source, which only root can enter. Check each path, copy by hand "
            "those that are missing on the target, and remove them there; then run the same command again."
        )


def _describe_reread(reread: Reread) -> str:
    known = reread.age_s is not None and reread.proven_at_s is not None
    age = (
        f"up to {format_duration(reread.age_s or 0)} old ({doc.when(reread.proven_at_s)})"
        if known
        else "of unknown age"
    )
    read = f"{several(reread.files, 'file')} ({format_size(reread.size_bytes)}) that have not changed on the target"
    if not reread.wanted:
        return f"the proofs are {age}. The content of {read} is not read again, by [cutover] reread."
    return (
        f"the proofs are {age}. Before anything is freed, the content of {read} is read there again: about "
        f"{format_duration(reread.expected_s)} at the rate of verifications."
    )
