"""Which users were told that they will be moved, for people."""

from migrator.adapters.output.document import Document, Section, clean, figure, paragraph, paths, table, text
from migrator.adapters.output.wording import NONE, when
from migrator.domain.announcing import Announced, Announcement, AnnounceSummary
from migrator.domain.paths import show
from migrator.domain.units import format_duration, several

_WORDS = {
    Announced.TOLD: "told",
    Announced.WOULD_TELL: "would be told",
    Announced.BEFORE: "told before",
    Announced.SKIPPED: "skipped",
    Announced.NOT_DUE: "not to be told",
    Announced.FAILED: "failed",
}


def announce_document(summary: AnnounceSummary) -> Document:
    """What `announce` did, or would do."""
    columns = [figure("batch"), paths("user"), paths("tree"), text("announcement"), figure("freeze"), paths("why")]
    told = sum(one.outcome in (Announced.TOLD, Announced.WOULD_TELL) for one in summary.announcements)
    words = f"{several(told, 'user tree')} of {len(summary.announcements)}: "
    words += "their users would be told." if summary.dry_run else "their users were told."
    section = Section(
        title="Announcements",
        blocks=(table("", columns, [_row(one) for one in summary.announcements]), paragraph(words)),
    )
    return Document(
        title="Announcement",
        subtitle=clean(f"plan {summary.plan}: the move begins at {when(summary.begins_at_s)}"),
        sections=(section,),
    )


def _row(one: Announcement) -> tuple[str, ...]:
    return (
        str(one.batch),
        one.tree.user,
        show(one.tree.path),
        _WORDS[one.outcome],
        NONE if one.freeze_s is None else format_duration(one.freeze_s),
        one.reason or NONE,
    )
