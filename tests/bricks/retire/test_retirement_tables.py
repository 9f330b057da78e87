"""What people are shown of retiring the source volume."""

from migrator.bricks.retire import model as retire
from migrator.bricks.retire import rules as retirement_words
from migrator.bricks.view import retirement_document, retirement_facts
from migrator.core.units import GIB
from migrator.render.document import Document, Section
from migrator.render.text import to_markdown

RECORD = retire.RetirementRecord(
    id=1,
    volume="vol1",
    volume_id="v",
    state=retire.RetirementState.RETIRED,
    intended_at_s=1_750_000_000.0,
    ended_at_s=1_750_000_060.0,
    catalog="c",
    files=3,
    size_bytes=GIB,
)
COVER = retire.CoverFound(
    catalog="c",
    catalog_at_s=1_750_000_000.0,
    proven=retire.PathSum(paths=3, size_bytes=GIB),
    uncovered={
        retire.UncoveredKind.OUTSIDE: retire.PathSum(paths=1, size_bytes=0),
        retire.UncoveredKind.NEW: retire.PathSum(paths=1, size_bytes=5),
    },
    examples=(
        retire.Uncovered(
            path=b"a\n\x1b[31m", kind=retire.UncoveredKind.OUTSIDE, size_bytes=0, words="lies in no user tree"
        ),
    ),
    list_file="/state/runs/x/uncovered.tsv",
)


def shown(summary: retire.RetirementSummary) -> str:
    return to_markdown(retirement_document(summary))


def test_what_is_uncovered_is_counted_and_shown_escaped_with_the_way_out() -> None:
    found = shown(
        retirement_words.uncovered("vol1", COVER, dry_run=False, reasons=("alice: the manifest m is missing",))
    )
    for words in (
        "2 paths (5 B) are not",
        "in no user tree",
        "a\\\\x0a",
        "uncovered.tsv",
        "manifest m is missing",
        "Next:",
    ):
        assert words in found
    assert "\x1b" not in found


def test_what_was_done_says_that_nothing_is_deleted() -> None:
    for summary in (
        retirement_words.done(RECORD, COVER),
        retirement_words.done_before(RECORD, dry_run=False),
    ):
        assert "gluster volume delete" in shown(summary)
        assert "vol1 is retired" in shown(summary)
    assert "dry run" in shown(retirement_words.would_be_done("vol1", COVER))
    assert "confirm vol1" in shown(retirement_words.would_be_done("vol1", COVER))


def test_every_state_has_its_words_in_the_status() -> None:
    for state in retire.RetirementState:
        record = retire.RetirementRecord(
            id=1,
            volume="vol1",
            volume_id="v",
            state=state,
            intended_at_s=1.0,
            ended_at_s=None,
            catalog="c",
            files=1,
            size_bytes=1,
            failure="no",
        )
        section = Section(title="", blocks=(retirement_facts(record),))
        text = to_markdown(Document(title="", subtitle="", sections=(section,)))
        assert "vol1" in text
        assert ("retired: stopped for good" in text) is (state is retire.RetirementState.RETIRED)
