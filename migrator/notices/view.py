"""The notice of a user as a document."""

from collections.abc import Iterator, Mapping

from migrator.core.paths import name, show
from migrator.core.units import MINUTE_S, format_count, format_duration, format_size, several
from migrator.fs.model import SurpriseKind
from migrator.notices.model import MoveState, TreeNotice, UserNotice
from migrator.plan.model import CleanUp, CleanUpKind, Surprise
from migrator.render import document
from migrator.site.model import ReapAction

_EXAMPLES = 3

_ADVICE: Mapping[SurpriseKind, tuple[str, str]] = {
    SurpriseKind.HARD_LINKS_BROKEN: (
        "files with further names in other directories: each directory gets a copy of its own",
        "keep one name, or ask us to move these directories together",
    ),
    SurpriseKind.SYMLINK_CROSSES_TREE: (
        "symbolic links that lead out of your directory",
        "check them after the move: the files that they lead to may not be there",
    ),
    SurpriseKind.SYMLINK_INTO_SOURCE: (
        "symbolic links to absolute paths of the old file system: they will break",
        "replace them by relative links, or correct them after the move",
    ),
}
"""Links that change their meaning, and what their user can do. All other surprises are losses."""


def notice_document(notice: UserNotice) -> document.Document:
    """The page and the mail of one user."""
    moved = all(tree.state is MoveState.MOVED for tree in notice.trees)
    heading = "your files have moved" if moved else "your files move to the new file system"
    return document.Document(
        title=document.clean(f"{notice.site}: {heading}"),
        subtitle=document.clean(f"for {notice.user}, as of {document.when(notice.made_at_s)}"),
        sections=tuple(section for tree in notice.trees for section in _tree(tree, alone=len(notice.trees) == 1)),
    )


def _tree(tree: TreeNotice, *, alone: bool) -> Iterator[document.Section]:
    of = "" if alone else f" ({document.clean(show(tree.old_path))})"
    yield document.Section(title=f"When{of}", blocks=tuple(_when(tree)))
    if tree.state is MoveState.MOVED:
        return
    yield from document.sections(
        (f"Before the move{of}", _to_do(tree)),
        (f"Clean up{of}", _to_clean(tree) if tree.clean_ups else ()),
        (f"Losses{of}", _lost(tree)),
    )


# --- When


def _when(tree: TreeNotice) -> Iterator[document.Block]:
    afterwards = show(tree.link or tree.new_path)
    pairs = [
        ("directory", show(tree.old_path)),
        ("content", f"{several(tree.files, 'file')}, {format_size(tree.size_bytes)}"),
        ("moves", _moves(tree)),
    ]
    if tree.state is MoveState.MOVED:
        yield document.facts([*pairs, ("path", afterwards)])
        yield document.paragraph(f"Do not use {show(tree.old_path)} any more: changes there are lost.", alert=True)
        return
    yield document.facts([*pairs, ("you cannot work there", _freeze(tree)), ("path afterwards", afterwards)])
    if tree.state is MoveState.ANNOUNCED:
        yield document.paragraph(
            "Save your work and end your programs before it begins, also those in the background and on other machines. "
            "Use the path above afterwards, in your scripts too.",
            alert=True,
        )


def _moves(tree: TreeNotice) -> str:
    match tree.state:
        case MoveState.MOVED:
            return f"moved on {document.when(tree.at_s)}"
        case MoveState.MOVING:
            return f"now, since {document.when(tree.at_s)}"
        case MoveState.ANNOUNCED:
            return f"announced for {document.when(tree.at_s)}"
        case MoveState.WAITING | MoveState.COPIED:
            return _expected(tree)


def _expected(tree: TreeNotice) -> str:
    copied = "your files are copied; " if tree.state is MoveState.COPIED else ""
    if tree.at_s is None:
        why = f": {tree.unknown}" if tree.unknown else ""
        return f"{copied}no date yet{why}. The time will be announced"
    between = (
        f", between {document.when(tree.earliest_at_s)} and {document.when(tree.latest_at_s)}"
        if tree.earliest_at_s is not None
        else ""
    )
    return f"{copied}expected on {document.when(tree.at_s)}{between}. The time will be announced"


def _freeze(tree: TreeNotice) -> str:
    if tree.freeze_s is None:
        return "during the move; how long is measured once your files are copied"
    return f"during the move, for about {format_duration(max(round(tree.freeze_s / MINUTE_S), 1) * MINUTE_S)}"


# --- Advice and losses


def _to_do(tree: TreeNotice) -> Iterator[document.Block]:
    cells: document.Cells[Surprise] = (
        (document.wide("links and files"), lambda one: _ADVICE[one.kind][0]),
        (document.figure("paths"), lambda one: format_count(one.count)),
        (document.wide("you can"), lambda one: _ADVICE[one.kind][1]),
        (document.paths("for example"), _examples),
    )
    yield document.records("", cells, [one for one in tree.surprises if one.kind in _ADVICE])


def _lost(tree: TreeNotice) -> Iterator[document.Block]:
    cells: document.Cells[tuple[str, int, str]] = (
        (document.wide("loss"), lambda one: one[0]),
        (document.figure("paths"), lambda one: format_count(one[1])),
        (document.paths("for example"), lambda one: one[2]),
    )
    found = [(one.detail, one.count, _examples(one)) for one in tree.surprises if one.kind not in _ADVICE]
    reaped = tree.reaped
    if reaped is not None and reaped.action is ReapAction.SKIP:
        found.insert(0, (f"skipped, not copied: {reaped.rule}", reaped.files, ""))
    if reaped is not None and reaped.action is ReapAction.ARCHIVE:
        found.insert(0, (f"packed into archives on the new file system: {reaped.rule}", reaped.files, ""))
    yield document.records("", cells, found)


def _examples(one: Surprise) -> str:
    return ", ".join(map(show, one.examples[:_EXAMPLES]))


# --- Clean-ups


def _to_clean(tree: TreeNotice) -> Iterator[document.Block]:
    cells: document.Cells[CleanUp] = (
        (document.paths("clean-up"), lambda one: _clean_up(tree, one)),
        (document.figure("copied earlier by"), lambda one: _earlier(one.earlier_s)),
        (document.figure("files"), lambda one: format_count(one.files)),
        (document.figure("frees"), lambda one: format_size(one.size_bytes) if one.size_bytes else document.NONE),
    )
    if tree.state is MoveState.WAITING:
        yield document.paragraph("You move earlier if less has to be copied.")
    yield document.records("", cells, tree.clean_ups, note="Each by itself: a file may be in several.")


def _clean_up(tree: TreeNotice, one: CleanUp) -> str:
    match one.kind:
        case CleanUpKind.LISTED:
            rule = "old or tiny files" if tree.reaped is None else tree.reaped.rule
            return f"delete what you do not need of the {rule}"
        case CleanUpKind.OLD:
            return "delete or archive files that were not changed for a year"
        case CleanUpKind.TINY:
            named = ", ".join(
                f"{show(name(found.path)) if found.path != tree.tree.path else 'the top'} ({format_count(found.files)})"
                for found in tree.tiny
            )
            return f"pack files below 4 KiB into archives{f': most are in {named}' if named else ''}"


def _earlier(earlier_s: float) -> str:
    """Less than a minute is nothing to a user."""
    return f"about {format_duration(earlier_s)}" if earlier_s >= MINUTE_S else document.NONE
