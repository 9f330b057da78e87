"""The head of a report: what a manager reads if nothing else."""

from dataclasses import replace

from migrator.core.entry import UserTree
from migrator.cutover.model import CutoverState
from migrator.render.document import Chart, Facts
from migrator.report.model import FARTHEST_S, ReportFacts, Tally, TreeState
from migrator.report.view import burn_down, headline_blocks
from tests.support.facts import AT_S, report


def told(facts: ReportFacts) -> dict[str, str]:
    (found,) = [block for block in headline_blocks(facts) if isinstance(block, Facts)]
    return dict(found.pairs)


def with_tally(tally: Tally, state: TreeState = TreeState.COPYING) -> ReportFacts:
    made = report()
    trees = (replace(made.status.trees[0], tally=tally, state=state),)
    return replace(made, forecast=None, status=replace(made.status, overall=tally, trees=trees))


def test_where_only_empty_files_are_planned_no_share_of_bytes_is_told() -> None:
    found = told(with_tally(Tally(total_files=4, done_files=1, total_users=1)))
    assert found["moved"] == "25.0 % of the files"
    assert found["expected end of copying"] == "not known: too little was copied to tell"


def test_where_users_have_nothing_but_directories_all_is_copied_in_the_end() -> None:
    assert told(with_tally(Tally(total_users=2)))["expected end of copying"].startswith("not known")
    found = told(with_tally(Tally(total_users=2, done_users=2)))
    assert found["moved"] == "nothing is planned to be copied"
    assert found["expected end of copying"] == "everything that is planned was copied"


def test_what_waits_for_people_has_no_expected_end() -> None:
    tally = Tally(total_bytes=100, done_bytes=99, total_files=10, done_files=9, total_users=1)
    words = "everything that is planned was copied, apart from 1 file that needs attention"
    assert told(with_tally(tally, TreeState.ATTENTION))["expected end of copying"] == words
    assert told(with_tally(tally))["expected end of copying"].startswith("not known")


def test_who_moved_by_an_earlier_plan_is_not_in_the_figures_and_that_is_said() -> None:
    made = report()
    here = replace(made.status.cutovers[0], state=CutoverState.RETAINED, tree=made.status.trees[0].tree)
    gone = replace(here, tree=UserTree(path=b"home/zoe", user="zoe"), plan="week0")
    back = replace(gone, tree=UserTree(path=b"home/yan", user="yan"), state=CutoverState.ROLLED_BACK)
    facts = replace(made, status=replace(made.status, cutovers=(here, back)))
    assert told(facts)["users"].endswith("1 user tree works on the target")
    facts = replace(made, status=replace(made.status, cutovers=(here, gone, back)))
    assert "2 user trees work on the target, 1 of them by earlier plans: they are not in" in told(facts)["users"]


def test_an_end_that_no_forecast_reaches_is_no_date() -> None:
    made = report()
    assert made.forecast is not None
    end_s = AT_S + FARTHEST_S
    far = replace(made.forecast, made_at_s=AT_S, latest_at_s=end_s)
    assert "and a time more than 100 years ahead" in told(replace(made, forecast=far))["expected end of copying"]
    assert [chart.title for chart in burn_down(made) if isinstance(chart, Chart)] == ["Bytes left, and the forecast"]
    never = replace(far, likely_at_s=end_s, earliest_at_s=end_s)
    assert told(replace(made, forecast=never))["expected end of copying"] == "a time more than 100 years ahead"
    # A century on its axis would leave no room for what has been.
    (chart,) = burn_down(replace(made, forecast=never))
    assert isinstance(chart, Chart)
    assert (chart.title, chart.series, chart.band) == ("Bytes left", (), ())
