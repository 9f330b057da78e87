"""Notices as files: for each user a page, a mail text and a calendar, and one calendar of all announced cutovers."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from migrator.core.durable import replacing, sync, write_durably
from migrator.core.entry import UserTree
from migrator.core.paths import percent_escape
from migrator.cutover.model_announce import AnnouncementRecord
from migrator.notices.model import CALENDAR, USERS, CalendarEvent, NoticeFacts, NoticePlace, UserNotice
from migrator.notices.rules import user_notices
from migrator.notices.rules_calendar import to_calendar
from migrator.notices.view import notice_document
from migrator.plan.model import Plan
from migrator.render.html import to_html
from migrator.render.text import to_plain_text
from migrator.report.model import MigrationStatus

if TYPE_CHECKING:
    from migrator.report.records import ReportLedger

_TEXT, _PAGE, _CALENDAR = ".txt", ".html", ".ics"
_LONGEST_NAME = 200


def read_facts(ledger: "ReportLedger", status: MigrationStatus, plan: Plan | None, place: NoticePlace) -> NoticeFacts:
    """The facts of all notices, as of a status. `plan` is the document of its plan, None if it cannot be read."""
    return NoticeFacts(
        place=place,
        status=status,
        plan=plan,
        announcements=ledger.announcements.all(),
        cutovers={one.tree.path: one for one in status.cutovers},
    )


def file_name(user: str) -> str:
    """The name of a user's files without their suffix: percent-escaped, never hidden, and short enough for any suffix."""
    raw = user.encode("utf-8", "surrogateescape")
    escaped = percent_escape(raw).replace("/", "%2F")
    if escaped.startswith("."):
        escaped = f"%2E{escaped[1:]}"
    if len(escaped) > _LONGEST_NAME:
        escaped = f"{escaped[: _LONGEST_NAME - 33]}-{blake2b(raw, digest_size=16).hexdigest()}"
    return escaped


def write_notices(directory: Path, facts: NoticeFacts) -> list[str]:
    """Write the files of all users to `users/` in a directory, which belongs to this function: it removes those of users
    without a notice. The calendar of all lies beside it. Returns the names. Raises OSError.

    The files are replaced one by one, and can be made again, so they are synced together and not each by itself.
    """
    users = directory / USERS
    users.mkdir(parents=True, exist_ok=True)
    written: set[str] = set()
    events: list[CalendarEvent] = []
    for notice in user_notices(facts):
        for name, content in _forms(notice):
            with replacing(users / name, synced=False) as stream:
                stream.write(content)
            written.add(name)
        events += notice.events
    for file in users.iterdir():
        if file.name not in written and file.suffix in (_TEXT, _PAGE, _CALENDAR):
            file.unlink()
    sync(users)
    if not events:
        (directory / CALENDAR).unlink(missing_ok=True)
        return [f"{USERS}/"]
    write_durably(directory / CALENDAR, to_calendar(sorted(events, key=lambda event: (event.begins_at_s, event.uid))))
    return [f"{USERS}/", CALENDAR]


class AnnouncedNotices:
    """The files of users whom `announce` tells of a plan's cutovers, in a directory of their own."""

    def __init__(self, directory: Path, facts: NoticeFacts) -> None:
        self._directory, self._facts = directory, facts

    def write(self, tree: UserTree, announced: Sequence[AnnouncementRecord]) -> Path | None:
        """Write the files of the tree's user with these announcements, and return the mail text; None if the plan has no such
        tree. Raises OSError.
        """
        facts = replace(self._facts, announcements=announced)
        self._directory.mkdir(parents=True, exist_ok=True)
        for notice in user_notices(facts, only=tree.user):
            for name, content in _forms(notice):
                write_durably(self._directory / name, content)
            return self._directory / f"{file_name(notice.user)}{_TEXT}"
        return None


def _forms(notice: UserNotice) -> Iterator[tuple[str, bytes]]:
    name, document = file_name(notice.user), notice_document(notice)
    yield name + _TEXT, to_plain_text(document).encode("utf-8")
    yield name + _PAGE, to_html(document).encode("utf-8")
    if notice.events:
        yield name + _CALENDAR, to_calendar(notice.events)
