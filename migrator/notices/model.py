"""Notices as values. Times are seconds since the epoch. Pure."""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from migrator.core.entry import UserTree
from migrator.core.windows import ALWAYS, OpenTimes
from migrator.cutover.model import CutoverRecord
from migrator.cutover.model_announce import AnnouncementRecord
from migrator.plan.model import CleanUp, Plan, Surprise, TinyDirectory
from migrator.reap.model import ReapedTree
from migrator.report.model import MigrationStatus

USERS = "users"
"""The directory of the notices to all users, beside a report."""

CALENDAR = "cutovers.ics"
"""The calendar of all announced cutovers, beside a report."""


class MoveState(StrEnum):
    """The progress of a tree: `waiting` for its copy, `copied` and waiting for an announcement, `announced`, `moving`
    (its user may be frozen), `moved`.
    """

    WAITING = "waiting"
    COPIED = "copied"
    ANNOUNCED = "announced"
    MOVING = "moving"
    MOVED = "moved"


class NoticePlace(Struct, frozen=True, kw_only=True):
    """The site in notices: absolute roots of both sides, and the path that is switched, with `{user}` or `{tree}` in it (None
    if a hook makes the switch). `times`: when freezes may begin.
    """

    site: str
    site_id: str
    source_root: bytes
    target_root: bytes
    link: str | None
    times: OpenTimes = ALWAYS


class NoticeFacts(Struct, frozen=True, kw_only=True):
    """The facts behind all notices. `plan` is None if its document cannot be read. `announcements` are those of all plans,
    oldest first; `cutovers` has the newest attempt of each tree.
    """

    place: NoticePlace
    status: MigrationStatus
    plan: Plan | None
    announcements: Sequence[AnnouncementRecord]
    cutovers: Mapping[bytes, CutoverRecord]


class TreeNotice(Struct, frozen=True, kw_only=True):
    """The part of a notice about one tree. `at_s` is the announced time, the time of the move if it is over, or else the
    expected one, with a range if it is known; `unknown` is the reason why there is none. `freeze_s` is predicted.
    `surprises` are those of the tree that concern its user; `clean_ups` are empty once the tree is copied.
    """

    tree: UserTree
    state: MoveState
    old_path: bytes
    new_path: bytes
    link: bytes | None
    files: int
    size_bytes: int
    at_s: float | None = None
    earliest_at_s: float | None = None
    latest_at_s: float | None = None
    unknown: str = ""
    freeze_s: float | None = None
    surprises: tuple[Surprise, ...] = ()
    reaped: ReapedTree | None = None
    clean_ups: tuple[CleanUp, ...] = ()
    tiny: tuple[TinyDirectory, ...] = ()


class CalendarEvent(Struct, frozen=True, kw_only=True):
    """An announced cutover. `uid` is the same for every announcement of the tree; `sequence` counts the changes of its time.
    `stamp_at_s` is when it was announced, `duration_s` the predicted freeze.
    """

    uid: str
    sequence: int
    stamp_at_s: float
    begins_at_s: float
    duration_s: float | None
    summary: str
    description: str


class UserNotice(Struct, frozen=True, kw_only=True):
    """The notice of one user, with the announced cutovers of their trees."""

    user: str
    site: str
    made_at_s: float
    trees: tuple[TreeNotice, ...]
    events: tuple[CalendarEvent, ...] = ()
