"""The content of notices: dates, surprises and clean-ups of each user's trees. Pure."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.entry import UserTree
from migrator.core.paths import join, show
from migrator.core.units import DAY_S
from migrator.core.windows import OpenTimes
from migrator.cutover.model import SETTLED_STATES
from migrator.cutover.model_announce import AnnouncementRecord
from migrator.fs.model import SurpriseKind
from migrator.notices.model import CalendarEvent, MoveState, NoticeFacts, NoticePlace, TreeNotice, UserNotice
from migrator.plan.model import Plan
from migrator.plan.rules_forecast import copy_s
from migrator.plan.schedule.rules import scheduled_outcome
from migrator.render.document import clean
from migrator.report.model import MigrationStatus, TreeState, TreeStatus
from migrator.site.rules_links import link_path, naming_problem

_K = SurpriseKind

FOR_OPERATORS = frozenset(
    {
        *(_K.HARD_LINKS_IN_BATCH, _K.QUOTA, _K.LAYOUT, _K.OUTSIDE_TREES, _K.MANY_GROUPS, _K.NO_USER, _K.NO_GROUP),
        *(_K.LEFT, _K.UNKNOWN_ACCOUNTS, _K.LONG_PATH, _K.SYMLINK_REWRITTEN),
    }
)
"""Surprises that change nothing for a user, or that only an operator can resolve."""

_MISSED_S = DAY_S
"""An announced cutover that was not begun so long after its time is not expected any more."""

_WITHOUT_NOTICE = (TreeState.PURGED, TreeState.EXCLUDED)
_COPIED = (TreeState.COPIED, TreeState.ATTENTION, TreeState.VERIFIED)


def user_notices(facts: NoticeFacts, *, only: str | None = None) -> Iterator[UserNotice]:
    """The notice of each user with a tree that is not purged, in order of name; or that of one user."""
    trees: dict[str, list[TreeStatus]] = defaultdict(list)
    for one in facts.status.trees:
        if one.state not in _WITHOUT_NOTICE and only in (None, one.tree.user):
            trees[one.tree.user].append(one)
    known = _Known(facts)
    for user, own in sorted(trees.items()):
        events = [known.event(one) for one in own]
        yield UserNotice(
            user=user,
            site=facts.place.site,
            made_at_s=facts.status.at_s,
            trees=tuple(known.notice(one) for one in own),
            events=tuple(event for event in events if event is not None),
        )


class _OfTree(Protocol):
    @property
    def tree(self) -> bytes | None: ...


T = TypeVar("T", bound=_OfTree)


def _by_tree(found: Iterable[T]) -> Mapping[bytes | None, list[T]]:
    by_tree: dict[bytes | None, list[T]] = defaultdict(list)
    for one in found:
        by_tree[one.tree].append(one)
    return by_tree


class _Known:
    """The facts by tree."""

    def __init__(self, facts: NoticeFacts) -> None:
        plan, self._facts = facts.plan, facts
        self._told = _by_tree(facts.announcements)
        self._surprises = _by_tree(one for one in plan.surprises if one.kind not in FOR_OPERATORS) if plan else {}
        self._clean_ups = _by_tree(plan.clean_ups) if plan else {}
        self._tiny = _by_tree(plan.tiny) if plan else {}
        self._reaped = {one.tree.path: one for one in plan.reap.trees} if plan and plan.reap else {}
        self._freezes = {
            batch.number: batch.convergence.prediction.freeze_s
            for batch in facts.status.batches
            if batch.convergence is not None
        }
        self._dates = dict(_dates(facts.status, plan, facts.place.times))

    def notice(self, one: TreeStatus) -> TreeNotice:
        place, path = self._facts.place, one.tree.path
        state, at_s = self._standing(one)
        dates = _Dates(at_s=at_s)
        if state in (MoveState.WAITING, MoveState.COPIED):
            dates = self._dates.get(path, _Dates(unknown="this directory is in no batch of the plan"))
        return TreeNotice(
            tree=one.tree,
            state=state,
            old_path=join(place.source_root, path),
            new_path=join(place.target_root, path),
            link=_link(place, one.tree),
            files=one.tally.total_files,
            size_bytes=one.tally.total_bytes,
            at_s=dates.at_s,
            earliest_at_s=dates.earliest_at_s,
            latest_at_s=dates.latest_at_s,
            unknown=dates.unknown,
            freeze_s=self._freeze_s(one),
            surprises=tuple(self._surprises.get(path, ())),
            reaped=self._reaped.get(path),
            clean_ups=() if one.state in _COPIED else tuple(self._clean_ups.get(path, ())),
            tiny=tuple(self._tiny.get(path, ())),
        )

    def event(self, one: TreeStatus) -> CalendarEvent | None:
        """The announced cutover of a tree, also one that is over."""
        announcements = self._told.get(one.tree.path, ())
        return _event(self._facts.place, one.tree, announcements, self._freeze_s(one)) if announcements else None

    def _freeze_s(self, one: TreeStatus) -> float | None:
        status = self._facts.status
        return self._freezes.get(one.batch) if status.plan is not None and one.plan == status.plan.name else None

    def _standing(self, one: TreeStatus) -> tuple[MoveState, float | None]:
        """The state of a tree, and the time that is certain: that of its move, or the announced one."""
        newest, announcements = self._facts.cutovers.get(one.tree.path), self._told.get(one.tree.path, ())
        if newest is not None and newest.state in SETTLED_STATES:
            return MoveState.MOVED, newest.let_in_s
        if newest is not None and newest.under_way:
            return MoveState.MOVING, newest.frozen_since_s
        # A time that was missed, or an attempt that was given up after it, needs a new announcement.
        missed_s = self._facts.status.at_s - _MISSED_S
        if announcements and announcements[-1].begins_at_s > max(missed_s, -inf if newest is None else newest.since_s):
            return MoveState.ANNOUNCED, announcements[-1].begins_at_s
        return MoveState.COPIED if one.state in _COPIED else MoveState.WAITING, None


def _link(place: NoticePlace, tree: UserTree) -> bytes | None:
    return None if place.link is None or naming_problem(place.link, tree) else link_path(place.link, tree)


# --- Expected dates


class _Dates(Struct, frozen=True, kw_only=True):
    at_s: float | None = None
    earliest_at_s: float | None = None
    latest_at_s: float | None = None
    unknown: str = ""


def _dates(status: MigrationStatus, plan: Plan | None, times: OpenTimes) -> Iterator[tuple[bytes, _Dates]]:
    """When the tree of each batch of the plan can move: once its batch is copied, not before the schedule has it, and while
    `times` are open.

    Batches are copied in their order, so a batch has its share of the time until everything is copied, by the cost of what
    is left. The range is that of the forecast of all copying.
    """
    if plan is None or status.plan is None or plan.name != status.plan.name:
        return
    left_s = {one.tree.path: copy_s(one.tally.left_files, one.tally.left_bytes, plan.cost) for one in status.trees}
    total_s = sum(left_s.get(tree.path, 0.0) for batch in plan.batches for tree in batch.trees)
    scheduled = _scheduled(plan)
    so_far_s = 0.0
    for batch in plan.batches:
        own_s = sum(left_s.get(tree.path, 0.0) for tree in batch.trees)
        so_far_s += own_s
        share = so_far_s / total_s if own_s > 0 else None
        dates = _opened(_of_batch(status, share, scheduled.get(batch.number)), times)
        yield from ((tree.path, dates) for tree in batch.trees)


def _opened(dates: _Dates, times: OpenTimes) -> _Dates:
    ends = {name: getattr(dates, name) for name in ("at_s", "earliest_at_s", "latest_at_s")}
    return replace(dates, **{name: at_s if at_s is None else times.from_(at_s) for name, at_s in ends.items()})


def _of_batch(status: MigrationStatus, share: float | None, scheduled_at_s: float | None) -> _Dates:
    """`share` of the work that is left until this batch is copied; None: it is copied already."""
    forecast, now_s = status.forecast, status.at_s
    is_ahead = scheduled_at_s is not None and scheduled_at_s > now_s
    least_s = scheduled_at_s if is_ahead and scheduled_at_s is not None else now_s
    if share is not None and forecast is not None:
        ends = (forecast.likely_at_s, forecast.earliest_at_s, forecast.latest_at_s)
        likely_s, earliest_s, latest_s = (max(now_s + share * (end - now_s), least_s) for end in ends)
        has_range = earliest_s < latest_s
        return _Dates(
            at_s=likely_s,
            earliest_at_s=earliest_s if has_range else None,
            latest_at_s=latest_s if has_range else None,
        )
    if is_ahead:
        return _Dates(at_s=scheduled_at_s)
    return _Dates(unknown="" if share is None else "too little was copied for a forecast")


def _scheduled(plan: Plan) -> Mapping[int, float]:
    """When the users of each batch move, by the schedule of the plan."""
    outcome = scheduled_outcome(plan)
    steps = () if outcome is None else outcome.batches
    return {step.batch: plan.created_at_s + step.moved_day * DAY_S for step in steps}


# --- Calendar events


def _event(
    place: NoticePlace, tree: UserTree, announcements: Sequence[AnnouncementRecord], freeze_s: float | None
) -> CalendarEvent:
    times = [one.begins_at_s for one in announcements]
    old_path, new_path = (clean(show(join(root, tree.path))) for root in (place.source_root, place.target_root))
    user = clean(tree.user)
    return CalendarEvent(
        uid=f"{_event_id(place.site_id, tree.path)}@migrator",
        sequence=sum(one != before for before, one in pairwise(times)),
        stamp_at_s=announcements[-1].at_s,
        begins_at_s=times[-1],
        duration_s=freeze_s,
        summary=f"{clean(place.site)}: {user} moves to the new file system",
        description=f"{old_path} moves to {new_path}. {user} cannot work there until it is done.",
    )


def _event_id(site_id: str, tree: bytes) -> str:
    """The same for each plan of the site, so that a new time moves the entry in a calendar instead of adding one."""
    return hashlib.blake2b(site_id.encode() + b"\0" + tree, digest_size=16).hexdigest()
