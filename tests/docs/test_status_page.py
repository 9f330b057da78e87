"""docs/reports.md names the parts of the live view."""

import re
from pathlib import Path

from tests.report.test_watch_view import drawn
from tests.support.watch_facts import watched

PAGE = (Path(__file__).parents[2] / "docs" / "reports.md").read_text(encoding="utf-8")


def test_every_part_of_the_view_is_explained_and_no_other() -> None:
    table = PAGE.partition("| --- | --- |")[2].partition("\n\n")[0]
    explained = {name for row in re.findall(r"^\| ([^|]+) \|", table, flags=re.MULTILINE) for name in row.split(", ")}
    labels = [line[:11].strip() for line in drawn(watched(), 100, 60).splitlines()[1:-1]]
    shown = {re.sub(r"\d+$", "", label).strip() for label in labels} - {""}
    assert shown == explained
