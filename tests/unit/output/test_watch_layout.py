"""Columns, cuts and parts in the room that there is."""

import pytest

from migrator.adapters.output.watch_layout import (
    Field,
    Line,
    Part,
    Rank,
    Span,
    arranged,
    cells_of,
    cut,
    fitted,
    grid,
    sides,
    text_of,
)

FIELDS = (Field(flexible=True, least=12), Field(right=True), Field(drop=2), Field(drop=1))
ROW = (Span("home/alexandria"), Span("7"), Span("often"), Span("seldom"))


def part(label: str, count: int, rank: Rank, least: int = 1) -> Part:
    lines: tuple[Line, ...] = tuple((Span(f"{label}{number}"),) for number in range(count))
    return Part(label=label, lines=lines, rank=rank, least=least)


def shown(parts: list[Part], height: int) -> list[str]:
    return [text_of(line).split()[-1] if line else "" for line in arranged(parts, 40, height)[0]]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (40, "home/alexandria  7  often  seldom"),
        (33, "home/alexandria  7  often  seldom"),
        (32, "home/al…andria  7  often  seldom"),
        (24, "home/a…andria  7  seldom"),
        (21, "home/…dria  7  seldom"),
        (20, "home/alexandria  7"),
        (15, "home/a…ndria  7"),
        (10, "home/…dri…"),
    ],
)
def test_columns_are_left_out_or_cut_by_their_importance(width: int, expected: str) -> None:
    [line] = grid(FIELDS, [ROW], width)
    assert text_of(line).rstrip() == expected
    assert cells_of(line) <= width


def test_a_column_that_nobody_fills_takes_no_room() -> None:
    lines = grid((Field(), Field(), Field()), [(Span("a"), Span(""), Span("b")), (Span("c"), Span(""), Span("d"))], 9)
    assert [text_of(line) for line in lines] == ["a  b", "c  d"]


@pytest.mark.parametrize(
    ("text", "cells", "expected"),
    [("abcdef", 6, "abcdef"), ("abcdef", 5, "ab…ef"), ("abcdef", 1, "…"), ("abcdef", 0, ""), ("漢字漢字", 6, "漢…字")],
)
def test_cut_takes_the_middle(text: str, cells: int, expected: str) -> None:
    assert cut(text, cells) == expected


def test_fitted_never_splits_a_wide_character() -> None:
    assert text_of(fitted((Span("漢字漢字"),), 4)) == "漢…"


def test_the_right_side_stays_whole() -> None:
    assert text_of(sides((Span("a long title"),), (Span("12:00"),), 14)) == "a long…  12:00"


def test_the_least_of_every_part_comes_before_more_of_any() -> None:
    parts = [part("a", 9, Rank.STREAMS), part("b", 9, Rank.WAITS, 2), part("c", 9, Rank.EVENTS)]
    assert shown(parts, 4) == ["a0", "b0", "b1", "c0"]
    assert shown(parts, 6) == ["a0", "a1", "b0", "b1", "b2", "c0"]


def test_what_finds_no_room_is_named() -> None:
    parts = [part("a", 1, Rank.EVENTS), part("b", 2, Rank.WAITS, 2), part("empty", 0, Rank.RUN)]
    assert arranged(parts, 40, 2)[1] == ("a",)


def test_hidden_lines_are_counted() -> None:
    lines, _ = arranged([part("a", 9, Rank.RUN)], 40, 3)
    assert text_of(lines[-1]).startswith("+6 more")


def test_blank_lines_come_only_where_everything_fits() -> None:
    parts = [part("a", 1, Rank.RUN), part("b", 1, Rank.LEFT)]
    assert shown(parts, 2) == ["a0", "b0"]
    assert shown(parts, 3) == ["a0", "", "b0"]
