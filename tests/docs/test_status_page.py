"""docs/status.md names the parts of the live view."""

import re
from pathlib import Path

from migrator.adapters.output.watch_layout import LABEL_CELLS, text_of
from migrator.adapters.output.watch_view import watch_lines
from tests.unit.output.watch_facts import watched

PAGE = (Path(__file__).parents[2] / "docs" / "status.md").read_text(encoding="utf-8")


def test_every_part_of_the_view_is_explained_and_no_other() -> None:
    table = PAGE.partition("| --- | --- |")[2].partition("\n\n")[0]
    explained = {name for row in re.findall(r"^\| ([^|]+) \|", table, flags=re.MULTILINE) for name in row.split(", ")}
    lines = [text_of(line) for line in watch_lines(watched(), width=100, height=60)][1:-1]
    shown = {re.sub(r"\d+$", "", line[:LABEL_CELLS].strip()).strip() for line in lines} - {""}
    assert shown == explained
