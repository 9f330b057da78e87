"""Tables in the width that there is."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from migrator.cli.invocation import output_width
from migrator.plan.model import Surprise, SurpriseKind
from migrator.plan.view import plan_document, surprise_kinds
from migrator.render.document import NONE, Bar, Block, Column, Document, Section, Table, figure, paths, table, wide
from migrator.render.terminal import column_widths, print_document
from tests.support.plans import small_plan

COLUMNS = [figure("rank"), paths("tree"), figure("bytes"), figure("largest file"), wide("remark")]
ROWS = [
    ("1", "home/alice", "1,015.3 MiB", "67.5 MiB", "a remark of a few words that may be folded"),
    ("2", "home/" + "b" * 36, "10 B", NONE, ""),
]


def lines(block: Block, width: int) -> list[str]:
    stream = io.StringIO()
    print_document(
        Console(file=stream, width=width),
        Document(title="t", subtitle="", sections=(Section(title="s", blocks=(block,)),)),
    )
    return [line.rstrip() for line in stream.getvalue().splitlines()][2:]


@pytest.mark.parametrize("width", range(30, 160, 7))
def test_no_figure_is_ever_broken(width: int) -> None:
    shown = lines(table("", COLUMNS, ROWS), width)
    assert all(len(line) <= width for line in shown)
    assert any("1,015.3 MiB" in line for line in shown)
    assert any("67.5 MiB" in line for line in shown)


def test_columns_on_a_wide_terminal() -> None:
    shown = lines(table("", COLUMNS, ROWS), 132)
    assert shown[1].split() == ["rank", "tree", "bytes", "largest", "file", "remark"]
    assert "a remark of a few words that may be folded" in shown[3]


def test_rows_with_names_on_a_narrow_terminal() -> None:
    assert lines(table("", COLUMNS, ROWS), 60) == [
        " rank 1, tree home/alice, bytes 1,015.3 MiB,",
        "    largest file 67.5 MiB,",
        "    remark a remark of a few words that may be folded",
        " rank 2, tree home/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb,",
        "    bytes 10 B",
        "",
    ]


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_bar_stands_on_one_line_with_its_words(width: int) -> None:
    words = "12.3 % of the bytes, 1.0 MiB of 8.1 MiB"
    (line,) = lines(Bar(label="copied", share=0.5, text=words), width)
    assert line.startswith(" copied ")
    assert line.endswith(words)


@given(
    st.lists(
        st.tuples(
            st.builds(
                Column, name=st.text("ab ", max_size=12), right=st.booleans(), wide=st.booleans(), paths=st.just(False)
            ),
            st.text("xyz ", max_size=60),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(min_value=1, max_value=200),
)
def test_widths_fit_and_break_only_what_may_be_folded(cells: list[tuple[Column, str]], width: int) -> None:
    columns, row = [column for column, _ in cells], tuple(cell for _, cell in cells)
    widths = column_widths(columns, [row], width)
    if widths is None:
        assert 2 * len(cells) + sum(max(len(cell), len(column.name)) for column, cell in cells) > width
        return
    assert sum(widths) + 2 * len(widths) <= width
    for column, cell, given_width in zip(columns, row, widths, strict=True):
        assert given_width >= (min(len(cell), 24) if column.wide else len(cell))


def test_surprises_are_one_row_for_each_kind() -> None:
    def one(kind: SurpriseKind, tree: bytes | None, detail: str) -> Surprise:
        return Surprise(kind=kind, tree=tree, count=2, size_bytes=0, detail=detail, examples=(b"x", b"y"))

    block = surprise_kinds(
        [
            one(SurpriseKind.LONG_PATH, b"h/a", "long"),
            one(SurpriseKind.OUTSIDE_TREES, None, "outside"),
            one(SurpriseKind.LONG_PATH, b"h/b", "longer"),
            one(SurpriseKind.LONG_PATH, b"h/b", "long"),
        ]
    )
    assert isinstance(block, Table)
    assert block.rows == (
        ("long-path", "2", "6", NONE, "long (and 1 other detail)", "x, y, x"),
        ("outside-every-tree", NONE, "2", NONE, "outside", "x, y"),
    )
    assert "migrator report" in block.note


@pytest.mark.parametrize("width", [80, 140])
def test_a_plan_fits_the_terminal(width: int) -> None:
    stream = io.StringIO()
    print_document(Console(file=stream, width=width), plan_document(small_plan()))
    assert all(len(line) <= width for line in stream.getvalue().splitlines())


@pytest.mark.parametrize(
    ("columns", "is_terminal", "width"),
    [("80", False, 80), ("80", True, 80), (None, False, 132), (None, True, None), ("0", False, 132), ("x", True, None)],
)
def test_columns_are_honoured(columns: str | None, is_terminal: bool, width: int | None) -> None:
    environment = {} if columns is None else {"COLUMNS": columns}
    assert output_width(environment, is_terminal=is_terminal) == width
