"""Tables in the width that there is."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from migrator.cli.invocation import output_width
from migrator.render.document import NONE, Block, Column, Document, Section, figure, paths, table, wide
from migrator.render.terminal import column_widths, print_document

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


@pytest.mark.parametrize(
    ("columns", "is_terminal", "width"),
    [("80", False, 80), ("80", True, 80), (None, False, 132), (None, True, None), ("0", False, 132), ("x", True, None)],
)
def test_columns_are_honoured(columns: str | None, is_terminal: bool, width: int | None) -> None:
    environment = {} if columns is None else {"COLUMNS": columns}
    assert output_width(environment, is_terminal=is_terminal) == width
