"""The overview of a report: its order, the timeline, charts and their figures, and the table of users."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.bricks.add.model import AdditionStanding, AdditionState
from migrator.bricks.drain.model import DrainStanding, DrainState
from migrator.core.entry import UserTree
from migrator.cutover.model import CutoverRecord, CutoverState
from migrator.plan.schedule.rules import scheduled_outcome
from migrator.render.document import (
    Block,
    Chart,
    Document,
    Span,
    SpanStyle,
    Table,
    Timeline,
    contents,
    figures,
    first_page,
)
from migrator.render.text import to_markdown
from migrator.report import model
from migrator.report.model import Goal, ReportFacts, TreeState
from migrator.report.report import read_report
from migrator.report.rules import expected_copying, expected_purges
from migrator.report.view import report_document
from migrator.report.view_timeline import MOST_BATCH_LANES, timeline_blocks
from tests.support.facts import report
from tests.support.making import made
from tests.support.report_world import BRICKS, DAY_S, OnePlan, Weeks, facts_of

OVERVIEW = ["Timeline", "Users moved", "Bytes left", "Capacity", "Bricks cleared", "Users"]


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> ReportFacts:
    return facts_of(tmp_path_factory.mktemp("late"), days=30, share=0.6)


def blocks(document: Document, title: str) -> tuple[Block, ...]:
    (section,) = [one for one in document.sections if one.title == title and one.overview]
    return section.blocks


def chart(facts: ReportFacts, title: str) -> Chart:
    (found,) = [block for block in blocks(report_document(facts), title) if isinstance(block, Chart)]
    return found


def timeline(facts: ReportFacts) -> Timeline:
    (found,) = timeline_blocks(facts)
    assert isinstance(found, Timeline)
    return found


def lanes(facts: ReportFacts) -> dict[str, dict[SpanStyle, Span]]:
    return {lane.label: {span.style: span for span in lane.spans} for lane in timeline(facts).lanes}


def test_the_overview_is_between_the_first_page_and_the_details(late: ReportFacts) -> None:
    document = report_document(late)
    parts = [(one.first_page, one.overview) for one in document.sections]
    assert parts == sorted(parts, key=[(True, False), (False, True), (False, False)].index)
    assert [one.title for one in document.sections if one.overview] == OVERVIEW
    assert list(contents(document)[: len(OVERVIEW)]) == OVERVIEW
    assert not any(one.overview for one in first_page(document, "more").sections)
    # The sample of a mail cuts the text here.
    first, _, more = to_markdown(document).partition("\n## Details\n")
    assert "## Timeline" in more
    assert "## Timeline" not in first


# --- The timeline


def test_each_goal_has_its_promise_behind_it_and_its_range(late: ReportFacts) -> None:
    found, now_s = lanes(late), late.status.at_s
    assert late.promise is not None
    promised = [one for one in late.milestones if one.promised_at_s is not None]
    assert {Goal.COPIED, Goal.MOVED, Goal.CLEARED} <= {one.goal for one in promised}
    for one in promised:
        spans = found[one.goal.value]
        assert (spans[SpanStyle.PLAN].from_s, spans[SpanStyle.PLAN].to_s) == (late.promise.at_s, one.promised_at_s)
        assert spans[SpanStyle.DONE].to_s == now_s
    copied = late.milestones[0]
    spans = found["copied"]
    assert (spans[SpanStyle.EXPECTED].from_s, spans[SpanStyle.EXPECTED].to_s) == (now_s, copied.at_s)
    assert (spans[SpanStyle.RANGE].from_s, spans[SpanStyle.RANGE].to_s) == (copied.earliest_at_s, copied.latest_at_s)


def test_a_batch_has_its_copying_its_cutover_and_what_is_expected(late: ReportFacts) -> None:
    found, now_s = lanes(late), late.status.at_s
    first, last = found["batch 1"], found["batch 24"]
    (cutover,) = [one for one in late.status.cutovers if one.batch == 1]
    assert first[SpanStyle.FIRST].to_s == late.status.batches[0].passes[0].finished_at_s
    assert (first[SpanStyle.SECOND].from_s, first[SpanStyle.SECOND].to_s) == (cutover.frozen_at_s, cutover.thawed_at_s)
    assert (first[SpanStyle.PALE].from_s, first[SpanStyle.PALE].to_s) == (cutover.thawed_at_s, now_s)
    assert set(last) == {SpanStyle.PLAN, SpanStyle.EXPECTED}
    assert late.status.forecast is not None
    # The migration is late: the last batch is copied when everything is, and purged three days later.
    assert last[SpanStyle.EXPECTED].to_s == pytest.approx(late.status.forecast.likely_at_s + 3 * DAY_S)
    # Its retain time is over.
    assert SpanStyle.EXPECTED not in first


def test_batches_are_expected_one_after_the_other_until_the_end_of_the_forecast(late: ReportFacts) -> None:
    found = expected_copying(late.status, late.plan)
    assert late.status.forecast is not None
    times = [at_s for span in found.values() for at_s in span]
    assert times[0] == late.status.at_s
    assert times[-1] == pytest.approx(late.status.forecast.likely_at_s)
    assert times[1:-1:2] == times[2::2]
    assert list(found) == [batch.number for batch in late.status.batches if batch.tally.left_bytes]


def test_without_a_forecast_the_schedule_has_the_dates(late: ReportFacts) -> None:
    found = expected_copying(replace(late.status, forecast=None), late.plan)
    # The others should have begun by now.
    assert list(found) == list(range(13, 25))
    assert late.plan is not None
    outcome = scheduled_outcome(late.plan)
    assert outcome is not None
    step = outcome.batches[-1]
    assert found[24] == tuple(late.plan.created_at_s + day * DAY_S for day in (step.begins_day, step.moved_day))
    assert expected_copying(replace(late.status, forecast=None), None) == {}


def cutover(path: bytes, state: CutoverState, *, plan: str = "week1", batch: int = 7, **times: float) -> CutoverRecord:
    at = {CutoverState(name): at_s for name, at_s in times.items()}
    own = UserTree(path=path, user=path.decode())
    known = {"frozen_at_s": at.get(CutoverState.FREEZING), "thawed_at_s": at.get(CutoverState.THAWED)}
    return made(CutoverRecord, tree=own, plan=plan, batch=batch, state=state, times=at, **known)


def with_cutovers(facts: ReportFacts, *cutovers: CutoverRecord) -> dict[str, dict[SpanStyle, Span]]:
    return lanes(replace(facts, status=replace(facts.status, cutovers=cutovers)))


def test_purges_end_the_time_in_which_sources_are_retained(late: ReportFacts) -> None:
    now_s = late.status.at_s
    purged = cutover(b"a", CutoverState.PURGED, freezing=10.0, thawed=20.0, purging=30.0, purged=40.0)
    purging = cutover(b"b", CutoverState.PURGING, freezing=11.0, thawed=21.0, purging=35.0)
    spans = with_cutovers(late, purged, purging)["batch 7"]
    times = {
        style: (spans[style].from_s, spans[style].to_s) for style in (SpanStyle.SECOND, SpanStyle.PALE, SpanStyle.THIRD)
    }
    assert times == {SpanStyle.SECOND: (10.0, 21.0), SpanStyle.PALE: (20.0, 35.0), SpanStyle.THIRD: (30.0, now_s)}


def test_cutovers_that_were_undone_are_not_drawn(late: ReportFacts) -> None:
    undone = cutover(b"a", CutoverState.REVERTED, freezing=10.0, thawed=20.0)
    back = cutover(b"b", CutoverState.ROLLED_BACK, freezing=10.0, thawed=20.0)
    assert SpanStyle.SECOND not in with_cutovers(late, undone, back)["batch 7"]


def test_users_whom_an_earlier_plan_moved_have_a_lane(late: ReportFacts) -> None:
    moved = cutover(b"a", CutoverState.RETAINED, plan="week0", freezing=10.0, thawed=20.0)
    assert with_cutovers(late, moved)["earlier plans"][SpanStyle.SECOND].to_s == 20.0


def test_bricks_have_their_drains_and_additions(late: ReportFacts) -> None:
    found, now_s = lanes(late), late.status.at_s
    (drain,) = late.status.drains
    assert found[BRICKS[0]][SpanStyle.FIRST].to_s == drain.since_s
    assert SpanStyle.EXPECTED not in found[BRICKS[0]]
    assert found[BRICKS[3]][SpanStyle.EXPECTED].to_s > now_s
    under_way = replace(drain, bricks=("gl9:/b", "gl9:/c"), state=DrainState.DRAINING, started_at_s=now_s - 50)
    added = made(AdditionStanding, bricks=BRICKS[:1], state=AdditionState.SETTLED, since_s=drain.since_s + 5)
    status = replace(late.status, drains=(drain, under_way), additions=(added,))
    coming = [
        made(model.BrickOutlook, brick=brick, state="draining", free_at_s=now_s + 500) for brick in under_way.bricks
    ]
    found = lanes(replace(late, status=status, bricks=(*late.bricks, *coming)))
    spans = found["gl9:/b and 1 brick"]
    assert (spans[SpanStyle.FIRST].from_s, spans[SpanStyle.FIRST].to_s) == (now_s - 50, now_s)
    assert (spans[SpanStyle.EXPECTED].from_s, spans[SpanStyle.EXPECTED].to_s) == (now_s, now_s + 500)
    assert found[BRICKS[0]][SpanStyle.SECOND].to_s == drain.since_s + 5


def test_many_batches_share_lanes_and_lose_no_time(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, days=30, share=0.6, users=300)
    found = next(group.lanes for group in timeline(facts).groups if group.title == "Batches")
    assert len(found) <= MOST_BATCH_LANES
    assert (found[0].label, found[-1].label) == ("batch 1 to batch 11", "batch 298 to batch 300")
    assert facts.plan is not None
    outcome = scheduled_outcome(facts.plan)
    assert outcome is not None
    freed_day = max(step.freed_day for step in outcome.batches)
    ends = [span.to_s for lane in found for span in lane.spans if span.style is SpanStyle.PLAN]
    assert max(ends) == facts.plan.created_at_s + freed_day * DAY_S


@pytest.mark.parametrize("back_days", [1.0, 25.0, 400.0])
def test_a_clock_that_was_set_back(tmp_path: Path, back_days: float) -> None:
    weeks = Weeks()
    weeks.fill(tmp_path / "ledger.db")
    with MigrationLedger.open(tmp_path / "ledger.db", read_only=True) as ledger:
        facts = read_report(ledger, OnePlan(plan=weeks.plan), now_s=weeks.now_s - back_days * DAY_S)
    drawn = timeline(facts)
    assert all(span.from_s <= span.to_s for lane in drawn.lanes for span in lane.spans)
    assert sum(value for _, value in chart(facts, "Users moved").points) == facts.status.moved.done_users
    to_markdown(report_document(facts))


def test_a_range_of_years_does_not_squeeze_the_drawing(late: ReportFacts) -> None:
    far_s = late.status.at_s + 36500 * DAY_S
    dates = (replace(late.milestones[0], latest_at_s=far_s), *late.milestones[1:])
    drawn = timeline(replace(late, milestones=dates))
    assert drawn.until_s < late.status.at_s + 365 * DAY_S
    assert any("2125" in cell for row in figures(drawn).rows for cell in row)


def test_no_plan_no_timeline(tmp_path: Path) -> None:
    with MigrationLedger.open(tmp_path / "ledger.db", create=True) as ledger:
        facts = read_report(ledger, OnePlan(plan=Weeks().plan), now_s=Weeks().now_s)
    assert list(timeline_blocks(facts)) == []
    assert not any(section.overview for section in report_document(facts).sections)


# --- Charts


def test_the_last_week_of_the_chart_is_that_of_the_first_page(late: ReportFacts) -> None:
    found = chart(late, "Users moved")
    counts = [value for _, value in found.points]
    assert counts[-2:] == [late.weeks[1].users_moved, late.weeks[0].users_moved][: len(counts)]
    assert sum(counts) == late.status.moved.done_users
    assert found.points[-1][0] == late.status.at_s


def test_bricks_rise_from_none_to_those_out_of_the_source(late: ReportFacts) -> None:
    found = chart(late, "Bricks cleared")
    assert (found.points[0][1], found.points[-1]) == (0.0, (late.status.at_s, 1.0))
    planned, expected = found.series
    assert planned.points[-1][1] == len(BRICKS)
    assert expected.points[-1][1] == len(BRICKS)
    assert found.limit == ("all bricks", 4.0)


def test_the_source_shrinks_by_the_purges_that_are_to_come(late: ReportFacts) -> None:
    expected = chart(late, "Capacity").series[-1]
    (_, first), *after = expected.points
    coming = expected_purges(late.status, late.plan)
    assert [at_s for at_s, _ in after] == sorted(coming.values())
    assert first - after[-1][1] == sum(one.tally.total_bytes for one in late.status.batches if one.number in coming)
    assert late.capacity[-2].used_bytes == first


@pytest.mark.parametrize("title", ["Users moved", "Bytes left", "Capacity", "Bricks cleared"])
def test_each_chart_has_its_figures(late: ReportFacts, title: str) -> None:
    found = chart(late, title)
    rows = figures(found).rows
    drawn = {at_s for points in (found.points, *(one.points for one in found.series)) for at_s, _ in points}
    assert len(rows) == len(drawn | {at_s for at_s, _, _ in found.band})
    value = found.points[-1][1]
    assert found.shown(value) in {cell for row in rows for cell in row}


def test_users_are_counted_by_state_and_all_listed(late: ReportFacts) -> None:
    facts, table = blocks(report_document(late), "Users")
    assert isinstance(table, Table)
    assert len(table.rows) == len(late.status.trees)
    assert dict(facts.pairs)[TreeState.MOVED.value] == "5 user trees"  # type: ignore[union-attr]


def test_hostile_names_are_shown_as_text() -> None:
    brick = "gl1:/<b>\x1b[31m\udcff`x"
    drain = made(DrainStanding, bricks=(brick,), state=DrainState.DRAINING, started_at_s=1.0, left_s=5.0)
    facts = report()
    found = timeline(replace(facts, status=replace(facts.status, drains=(drain,))))
    assert any("gl1:" in lane.label for lane in found.lanes)
    assert all(lane.label.isprintable() for lane in found.lanes)
