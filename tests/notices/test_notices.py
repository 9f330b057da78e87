"""Notices to users: their content, and the files."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.core.entry import UserTree
from migrator.core.units import DAY_S
from migrator.core.windows import OpenTimes, Window
from migrator.cutover.model import CutoverRecord, CutoverState
from migrator.cutover.model_announce import AnnouncementRecord
from migrator.fs.model import SurpriseKind
from migrator.notices.files import AnnouncedNotices, file_name, read_facts, write_notices
from migrator.notices.model import CALENDAR, USERS, MoveState, NoticeFacts, NoticePlace, TreeNotice, UserNotice
from migrator.notices.rules import FOR_OPERATORS, user_notices
from migrator.notices.view import notice_document
from migrator.plan import model as plan
from migrator.plan.schedule.model import BatchStep, Schedule, ScheduleOutcome
from migrator.reap.model import PlanReap, ReapedTree
from migrator.render.html import to_html
from migrator.render.text import to_plain_text
from migrator.report import model as report
from migrator.report.status import read_status
from migrator.site.model import ReapAction
from tests.notices.test_calendar import read
from tests.render.test_hostile import HOSTILE, Page, assert_safe_text, html_is_safe, text_of
from tests.support.facts import convergence
from tests.support.making import made
from tests.support.plans import small_plan
from tests.support.report_world import Weeks

NOW_S = 1000 * DAY_S
ALICE, BOB = UserTree(path=b"home/alice", user="alice"), UserTree(path=b"home/bob", user="bob")
PLACE = NoticePlace(site="gl", site_id="5e1f", source_root=b"/mnt/gl", target_root=b"/mnt/new", link="/home/{user}")
FORECAST = made(
    report.CopyForecast,
    made_at_s=NOW_S,
    likely_at_s=NOW_S + 9 * DAY_S,
    earliest_at_s=NOW_S + 6 * DAY_S,
    latest_at_s=NOW_S + 12 * DAY_S,
)


def tree(
    of: UserTree, batch: int, state: report.TreeState = report.TreeState.PLANNED, done: int = 0
) -> report.TreeStatus:
    tally = report.ProgressCounts(total_bytes=1000, done_bytes=done, total_files=0)
    return report.TreeStatus(tree=of, plan="plan", batch=batch, rank=batch, state=state, tally=tally)


def facts(
    *trees: report.TreeStatus,
    forecast: report.CopyForecast | None = FORECAST,
    told: tuple[AnnouncementRecord, ...] = (),
    cutovers: tuple[CutoverRecord, ...] = (),
    document: plan.Plan | None = None,
    batches: tuple[report.BatchStatus, ...] = (),
) -> NoticeFacts:
    """Of two batches: copying the first takes a third of the time, by default."""
    status = report.MigrationStatus(
        at_s=NOW_S,
        site="gl",
        plan=made(report.PlanFacts, name="plan"),
        trees=trees or (tree(ALICE, 1, done=500), tree(BOB, 2)),
        batches=batches,
        forecast=forecast,
    )
    newest = {one.tree.path: one for one in cutovers}
    own = document or small_plan()
    return NoticeFacts(place=PLACE, status=status, plan=own, announcements=told, cutovers=newest)


def notices(given: NoticeFacts) -> dict[str, UserNotice]:
    return {one.user: one for one in user_notices(given)}


def of(user: str, given: NoticeFacts) -> TreeNotice:
    (found,) = notices(given)[user].trees
    return found


def announced(begins_at_s: float, at_s: float = NOW_S - DAY_S, of_tree: UserTree = ALICE) -> AnnouncementRecord:
    return AnnouncementRecord(plan="plan", tree=of_tree.path, begins_at_s=begins_at_s, at_s=at_s)


def attempt(state: CutoverState, at_s: float, **more: Any) -> CutoverRecord:
    return made(CutoverRecord, tree=ALICE, state=state, times={state: at_s}, **more)


def scheduled(*days: float) -> plan.Plan:
    steps = tuple(made(BatchStep, batch=number, moved_day=day) for number, day in enumerate(days, 1))
    outcome = made(ScheduleOutcome, obstacle=None, batches=steps)
    return replace(small_plan(), created_at_s=NOW_S, schedule=made(Schedule, problem=None, outcome=outcome))


# --- When


def test_a_batch_is_expected_at_its_share_of_the_copying() -> None:
    first, second = (of(user, facts()) for user in ("alice", "bob"))
    assert (first.state, second.state) == (MoveState.WAITING, MoveState.WAITING)
    days = [(one.at_s or 0) - NOW_S for one in (first, second)]
    assert days == pytest.approx([3 * DAY_S, 9 * DAY_S])
    assert (second.earliest_at_s, second.latest_at_s) == (FORECAST.earliest_at_s, FORECAST.latest_at_s)


def test_nobody_is_expected_before_the_schedule_has_them() -> None:
    document = scheduled(5, 7)
    first, second = (of(user, facts(document=document)) for user in ("alice", "bob"))
    assert (first.at_s, first.earliest_at_s, first.latest_at_s) == (NOW_S + 5 * DAY_S, None, None)
    assert (second.at_s, second.earliest_at_s) == (FORECAST.likely_at_s, NOW_S + 7 * DAY_S)
    alone = of("alice", facts(document=document, forecast=None))
    assert (alone.at_s, alone.earliest_at_s) == (NOW_S + 5 * DAY_S, None)


def test_users_are_expected_while_freezes_may_begin() -> None:
    given = facts()
    fifth = OpenTimes(
        windows=(Window(days=(5,), start_minute=0, end_minute=24 * 60),),
        local_time=lambda at_s: (int((at_s - NOW_S) // DAY_S) % 7, int(at_s % DAY_S // 60)),
    )
    given = replace(given, place=replace(given.place, times=fifth))
    first, second = (of(user, given) for user in ("alice", "bob"))
    assert first.at_s == NOW_S + 5 * DAY_S
    assert (second.at_s, second.earliest_at_s, second.latest_at_s) == (
        NOW_S + 12 * DAY_S,
        NOW_S + 12 * DAY_S,
        NOW_S + 12 * DAY_S,
    )
    # An announced time was agreed on.
    assert of("alice", replace(given, announcements=(announced(NOW_S + DAY_S),))).at_s == NOW_S + DAY_S


def test_without_forecast_and_schedule_the_reason_is_given() -> None:
    waiting = of("bob", facts(forecast=None))
    assert waiting.at_s is None
    assert waiting.unknown
    copied = of("alice", facts(tree(ALICE, 1, report.TreeState.VERIFIED, done=1000), tree(BOB, 2)))
    assert (copied.state, copied.at_s, copied.unknown) == (MoveState.COPIED, None, "")


def test_the_announced_time_is_the_time() -> None:
    told = (announced(NOW_S + 2 * DAY_S), announced(NOW_S + DAY_S))
    found = of("alice", facts(told=told))
    assert (found.state, found.at_s, found.earliest_at_s) == (MoveState.ANNOUNCED, NOW_S + DAY_S, None)


@pytest.mark.parametrize(
    ("begins_s", "cutovers", "state"),
    [
        (-2 * DAY_S, (), MoveState.WAITING),
        (-3600, (), MoveState.ANNOUNCED),
        (-3600, (attempt(CutoverState.REVERTED, NOW_S - 60),), MoveState.WAITING),
        (3600, (attempt(CutoverState.REVERTED, NOW_S - 60),), MoveState.ANNOUNCED),
        (-3600, (attempt(CutoverState.VERIFYING, NOW_S - 60, frozen_at_s=NOW_S - 90),), MoveState.MOVING),
        (-3600, (attempt(CutoverState.RETAINED, NOW_S - 60, thawed_at_s=NOW_S - 70),), MoveState.MOVED),
    ],
)
def test_an_announced_time_counts_until_a_cutover_tried_or_missed_it(
    begins_s: float, cutovers: tuple[CutoverRecord, ...], state: MoveState
) -> None:
    found = of("alice", facts(told=(announced(NOW_S + begins_s),), cutovers=cutovers))
    assert found.state is state


def test_the_freeze_is_the_prediction_of_the_batch() -> None:
    batch = made(report.BatchStatus, number=1, convergence=convergence())
    given = facts(batches=(batch,), told=(announced(NOW_S + DAY_S),))
    assert (of("alice", given).freeze_s, of("bob", given).freeze_s) == (1200.0, None)
    (event,) = notices(given)["alice"].events
    assert event.duration_s == 1200.0


def test_only_users_with_a_source_have_a_notice() -> None:
    states = (report.TreeState.PURGED, report.TreeState.EXCLUDED)
    assert notices(facts(*(tree(one, 1, state) for one, state in zip((ALICE, BOB), states, strict=True)))) == {}
    (found,) = notices(facts(tree(ALICE, 1), replace(tree(BOB, 2), tree=replace(BOB, user="alice")))).values()
    assert [(one.old_path, one.new_path, one.link) for one in found.trees] == [
        (b"/mnt/gl/home/alice", b"/mnt/new/home/alice", b"/home/alice"),
        (b"/mnt/gl/home/bob", b"/mnt/new/home/bob", b"/home/alice"),
    ]


# --- Surprises, losses, clean-ups


def test_every_surprise_is_for_users_or_for_operators() -> None:
    only_verified = {SurpriseKind.SKIPPED, SurpriseKind.ARCHIVED, SurpriseKind.NAMES_IN_TRASH}
    surprises = tuple(
        made(
            plan.Surprise, kind=kind, tree=ALICE.path, count=3, detail=f"detail of {kind}", examples=(b"home/alice/x",)
        )
        for kind in SurpriseKind
        if kind not in only_verified
    )
    given = facts(document=replace(small_plan(), surprises=surprises))
    found = of("alice", given)
    assert {one.kind for one in found.surprises} == set(SurpriseKind) - only_verified - FOR_OPERATORS
    assert of("bob", given).surprises == ()
    tables = [block for section in notice_document(notices(given)["alice"]).sections for block in section.blocks]
    assert sum(len(block.rows) for block in tables if hasattr(block, "rows")) == len(found.surprises)


def test_reaped_files_and_gains_are_in_the_notice() -> None:
    gain = plan.CleanUp(tree=ALICE.path, kind=plan.CleanUpKind.TINY, files=20_000, size_bytes=0, earlier_s=7200.0)
    tiny = plan.TinyDirectory(tree=ALICE.path, path=b"home/alice/runs", files=19_000)
    for action in ReapAction:
        one = made(ReapedTree, tree=ALICE, action=action, rule="files below 1 KiB", files=17)
        document = replace(small_plan(), clean_ups=(gain,), tiny=(tiny,), reap=made(PlanReap, trees=(one,)))
        given = facts(document=document)
        found = of("alice", given)
        assert (found.clean_ups, found.tiny, found.reaped) == ((gain,), (tiny,), one)
        text = to_plain_text(notice_document(notices(given)["alice"]))
        assert ("files below 1 KiB" in text) is (action is not ReapAction.LIST)
        assert "runs (19,000)" in text
        assert "2 h" in text
        copied = facts(tree(ALICE, 1, report.TreeState.COPIED, done=1000), document=document)
        assert of("alice", copied).clean_ups == ()


# --- Calendar


def test_a_new_time_moves_the_entry_of_a_tree() -> None:
    times = (DAY_S, DAY_S, 2 * DAY_S, DAY_S)
    told = tuple(announced(NOW_S + begins_s, at_s=NOW_S - 10 + turn) for turn, begins_s in enumerate(times))
    found = [notices(facts(told=told[: turn + 1]))["alice"].events[0] for turn in range(4)]
    assert [one.sequence for one in found] == [0, 0, 1, 2]
    assert [one.begins_at_s - NOW_S for one in found] == list(times)
    assert len({one.uid for one in found}) == 1
    other = notices(facts(told=(announced(NOW_S, of_tree=BOB),)))["bob"].events[0]
    assert other.uid != found[0].uid
    assert notices(facts(told=told))["bob"].events == ()


# --- Files


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NoticeFacts]:
    """Weeks into a migration, with hostile names of users and paths."""
    directory = tmp_path_factory.mktemp("ledger")
    made_of = Weeks(users=24, names=[name.replace(b"/", b"_").replace(b"\0", b"") for name in HOSTILE], moved=3)
    made_of.fill(directory / "ledger.db")
    surprise = plan.Surprise(
        kind=SurpriseKind.SYMLINK_INTO_SOURCE, tree=None, count=1, size_bytes=0, detail="d", examples=()
    )
    document = replace(
        made_of.plan,
        surprises=tuple(replace(surprise, tree=one.path, examples=(one.path + b"/x",)) for one in made_of.trees),
    )
    with MigrationLedger.open(directory / "ledger.db") as ledger:
        for one in made_of.trees:
            ledger.announcements.record(announced(made_of.now_s + DAY_S, made_of.now_s, one))
        status = read_status(ledger, now_s=made_of.now_s)
        yield read_facts(ledger, status, document, replace(PLACE, site=text_of(HOSTILE[1])))


def test_every_user_has_a_page_a_text_and_a_calendar(world: NoticeFacts, tmp_path: Path) -> None:
    assert write_notices(tmp_path, world) == [f"{USERS}/", CALENDAR]
    files = sorted(os.listdir(tmp_path / USERS))
    users = {one.tree.user for one in world.status.trees}
    assert files == sorted(f"{file_name(user)}{suffix}" for user in users for suffix in (".html", ".ics", ".txt"))
    for name in files:
        content = (tmp_path / USERS / name).read_bytes()
        if name.endswith(".html"):
            html_is_safe(Page(content.decode("utf-8")))
        else:
            assert_safe_text(content.decode("utf-8").replace("\r\n", "\n"))
    every = read((tmp_path / CALENDAR).read_bytes())
    assert len({one["UID"] for one in every}) == len(world.status.trees)
    one_user = next(iter(sorted(users)))
    assert read((tmp_path / USERS / f"{file_name(one_user)}.ics").read_bytes())[0] in every


def test_notices_that_are_over_are_removed(world: NoticeFacts, tmp_path: Path) -> None:
    write_notices(tmp_path, world)
    (tmp_path / USERS / "README").touch()
    one = world.status.trees[-1]
    left = replace(world, status=replace(world.status, trees=(one,)), announcements=())
    assert write_notices(tmp_path, left) == [f"{USERS}/"]
    name = file_name(one.tree.user)
    assert sorted(os.listdir(tmp_path / USERS)) == sorted(["README", f"{name}.html", f"{name}.txt"])
    assert sorted(os.listdir(tmp_path)) == [USERS]


def test_an_announced_user_gets_the_files_before_the_ledger_has_the_time(world: NoticeFacts, tmp_path: Path) -> None:
    own = next(one.tree for one in world.status.trees if one.state is report.TreeState.COPYING)
    place = AnnouncedNotices(tmp_path / "notices", world)
    text = place.write(own, [announced(world.status.at_s + 2 * DAY_S, world.status.at_s, own)])
    assert text is not None
    assert text.read_text(encoding="utf-8").count("announced for") == 1
    (event,) = read(text.with_suffix(".ics").read_bytes())
    assert event["SEQUENCE"] == "0"
    assert text.with_suffix(".html").exists()
    assert place.write(UserTree(path=b"home/none", user="none"), []) is None


@pytest.mark.parametrize(
    "user", [".", "..", ".htaccess", "a/b", "x" * 255, "\udcff" * 255, "\x1b[31m\n", "", "a b", "alice"]
)
def test_a_name_of_a_user_is_a_name_of_a_file(user: str, tmp_path: Path) -> None:
    name = file_name(user)
    file = tmp_path / f"{name}.html.tmp"
    file.touch()
    assert file.parent.resolve() == tmp_path.resolve()
    assert not name.startswith(".")
    assert name.isascii()
    assert name.isprintable()


def test_names_of_users_stay_apart() -> None:
    users = [*map(text_of, HOSTILE), ".", "%2E", "%2e", "x" * 200, "x" * 201, "x" * 202, "a", "A", "%41"]
    assert len({file_name(user) for user in users}) == len(users)


def test_the_page_and_the_text_have_the_same_sections() -> None:
    document = notice_document(notices(facts(told=(announced(NOW_S + DAY_S),)))["alice"])
    page, text = "".join(Page(to_html(document)).text), to_plain_text(document)
    for section in document.sections:
        assert section.title in page
        assert section.title in text
    assert text.startswith(f"{document.title}\n")
    assert max(map(len, text.splitlines())) <= 76
