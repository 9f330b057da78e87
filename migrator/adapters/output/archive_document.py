"""What was archived, and what was put back from archives."""

from collections.abc import Iterator, Sequence

from migrator.adapters.output.document import Block, Document, Section, figure, paragraph, paths, table, text
from migrator.domain.archives import Restored, TreeArchived
from migrator.domain.paths import show
from migrator.domain.units import format_count, format_size


def archived_document(trees: Sequence[TreeArchived]) -> Document:
    """What `reap archive` did."""
    return Document(
        title="Archives", subtitle="", sections=(Section(title="What was archived", blocks=tuple(_archived(trees))),)
    )


def restored_document(trees: Sequence[Restored]) -> Document:
    """What `reap restore` did."""
    return Document(
        title="Restored from archives",
        subtitle="",
        sections=(Section(title="What was put back", blocks=tuple(_restored(trees))),),
    )


def _archived(trees: Sequence[TreeArchived]) -> Iterator[Block]:
    columns = [
        paths("user"),
        paths("tree"),
        figure("archives"),
        figure("files"),
        figure("content"),
        figure("on the target"),
        figure("archived before"),
        figure("left out"),
    ]
    yield table("", columns, [_archived_row(tree) for tree in trees])
    for tree in trees:
        if tree.skipped:
            yield paragraph(f"{show(tree.tree)}: nothing is archived: {tree.skipped}", alert=True)
    left = [(show(one.path), one.reason.value, one.detail) for tree in trees for one in tree.examples]
    if left:
        yield paragraph(
            "What changed since the plan moves as every other file, with the next delta pass. What is fresh or unreadable "
            "stays on the source alone until this command has archived it."
        )
        yield table("Left out, some of them", [paths("path"), text("reason"), text("detail")], left)


def _archived_row(tree: TreeArchived) -> tuple[str, ...]:
    return (
        tree.user,
        show(tree.tree),
        format_count(tree.archives),
        format_count(tree.members),
        format_size(tree.content_bytes),
        format_size(tree.archive_bytes),
        format_count(tree.already),
        format_count(sum(tree.left_out.values())),
    )


def _restored(trees: Sequence[Restored]) -> Iterator[Block]:
    columns = [paths("tree"), figure("files"), figure("content"), figure("not restored")]
    yield table(
        "",
        columns,
        [
            (
                show(tree.tree),
                format_count(tree.restored),
                format_size(tree.size_bytes),
                format_count(tree.not_restored),
            )
            for tree in trees
        ],
    )
    left = [(show(one.path), one.reason) for tree in trees for one in tree.examples]
    if left:
        yield table("Not restored, some of them", [paths("path"), paths("reason")], left)
