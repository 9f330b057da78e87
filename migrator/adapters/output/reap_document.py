"""What is reaped, as tables."""

from collections.abc import Iterator

from migrator.adapters.output.document import (
    Block,
    Document,
    Section,
    clean,
    facts,
    figure,
    paragraph,
    paths,
    table,
    wide,
)
from migrator.adapters.output.wording import NONE, percent, when
from migrator.domain.paths import show
from migrator.domain.reap import PlanReap, ReapAction, ReapedTree, ReapReport, Released, Savings, UserReap
from migrator.domain.units import NS_PER_S, format_count, format_duration, format_size, several

_DIRECTORIES = 10


def reap_report_document(report: ReapReport) -> Document:
    """What `reap list` found."""
    return Document(
        title="Old and tiny files",
        subtitle=clean(f"in the catalog {report.catalog}, by the rules of {when(report.at_s)}"),
        sections=tuple(_sections(report)),
    )


def _sections(report: ReapReport) -> Iterator[Section]:
    if not report.users:
        yield Section(title="User by user", blocks=(paragraph("The rules match no file."),))
        return
    yield Section(title="User by user", blocks=tuple(_users(report)))
    biggest = sorted(
        ((user, one) for user in report.users for one in user.directories),
        key=lambda found: (-found[1].size_bytes, found[1].path),
    )
    rows = ((user.user, show(one.path), format_count(one.files), format_size(one.size_bytes)) for user, one in biggest)
    columns = [paths("user"), paths("directory"), figure("files"), figure("bytes")]
    yield Section(title="Where they lie", blocks=(table("", columns, rows, limit=_DIRECTORIES),))


def _users(report: ReapReport) -> Iterator[Block]:
    yield table(
        "",
        [
            paths("user"),
            paths("tree"),
            figure("files"),
            figure("bytes"),
            figure("share"),
            figure("oldest"),
            wide("what becomes of them"),
        ],
        (_tree_row(user, tree) for user in report.users for tree in user.trees),
    )
    for rule in dict.fromkeys(tree.rule for user in report.users for tree in user.trees):
        yield paragraph(f"Chosen: {rule}.")
    saved = Savings(
        size_bytes=sum(user.saves.size_bytes for user in report.users),
        inodes=sum(user.saves.inodes for user in report.users),
        seconds=sum(user.saves.seconds for user in report.users),
    )
    yield paragraph(f"That saves {savings_words(saved)} ({report.basis}).")


def _tree_row(user: UserReap, tree: ReapedTree) -> tuple[str, ...]:
    return (
        user.user,
        show(tree.tree.path),
        format_count(tree.files),
        format_size(tree.size_bytes),
        percent(100 * tree.size_bytes / user.all_bytes) if user.all_bytes else NONE,
        when(tree.oldest_ns / NS_PER_S),
        ACTION_WORDS[tree.action],
    )


ACTION_WORDS = {
    ReapAction.LIST: "listed, move as all others",
    ReapAction.ARCHIVE: "archived",
    ReapAction.SKIP: "not moved",
}


def savings_words(saved: Savings) -> str:
    """Bytes, inodes and hours."""
    return f"{format_size(saved.size_bytes)}, {several(saved.inodes, 'inode')} and {format_duration(saved.seconds)} of copying"


def plan_reap_blocks(reap: PlanReap) -> Iterator[Block]:
    """What a plan reaps, action by action, and what that saves."""
    rows = []
    for action in ReapAction:
        trees = [tree for tree in reap.trees if tree.action is action]
        if trees:
            rows.append(
                (
                    ACTION_WORDS[action],
                    format_count(len(trees)),
                    format_count(sum(tree.files for tree in trees)),
                    format_size(sum(tree.size_bytes for tree in trees)),
                )
            )
    yield table("", [wide("old and tiny files"), figure("trees"), figure("files"), figure("bytes")], rows)
    pairs = [("saves", savings_words(reap.saved))]
    if reap.listed.inodes:
        pairs.append(("would save, if skipped", savings_words(reap.listed)))
    yield facts(pairs)


def released_document(released: Released) -> Document:
    """What `reap release` gave up."""
    words = (
        f"{several(released.files, 'file')} of {released.user} with {format_size(released.size_bytes)}, which plan "
        f"{released.plan} skips, may be deleted with the source."
    )
    shown = (paragraph(words, alert=True), *(paragraph(show(path)) for path in released.examples))
    return Document(title="Given up", subtitle="", sections=(Section(title="With the source", blocks=shown),))
