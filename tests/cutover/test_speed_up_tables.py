"""What people are told of speed-ups."""

import io
import re
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from migrator.core.entry import UserTree
from migrator.cutover.model import SpeedUp, TreeTest, UserSpeedUps, Verdict
from migrator.cutover.rules_speed import sums
from migrator.cutover.view import speed_up_blocks
from migrator.render.charts import bar_svg
from migrator.render.document import BarChart, Document, Section
from migrator.render.html import to_html
from migrator.render.terminal import print_document
from migrator.render.text import to_markdown

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"


def speed_up(factor: float, verdict: Verdict = Verdict.FASTER, test: TreeTest = TreeTest.LIST) -> SpeedUp:
    known = verdict is not Verdict.SINGLE
    return SpeedUp(
        test=test,
        verdict=verdict,
        factor=factor,
        low=factor * 0.9 if known else None,
        high=factor * 1.1 if known else None,
        before=2.0,
        after=2.0 / factor,
        unit="s",
        runs=5 if known else 1,
    )


def user(name: str, *every: SpeedUp) -> UserSpeedUps:
    return UserSpeedUps(
        tree=UserTree(path=b"home/x", user=name), plan="p", batch=1, at_s=1_760_000_000.0, speed_ups=every
    )


USERS = (
    user("ann", speed_up(4.0), speed_up(0.5, Verdict.SLOWER, TreeTest.READ)),
    user("ben", speed_up(8.0, Verdict.SINGLE)),
)


def document(*users: UserSpeedUps) -> Document:
    blocks = tuple(speed_up_blocks(users, sums(users)))
    return Document(title="t", subtitle="", sections=(Section(title="Speed-ups of users", blocks=blocks),))


def chart(*users: UserSpeedUps) -> BarChart:
    (found,) = [block for block in speed_up_blocks(users, sums(users)) if isinstance(block, BarChart)]
    return found


def printed(made: Document) -> str:
    console = Console(file=io.StringIO(), width=220, color_system=None)
    print_document(console, made)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_median_noise_and_single_runs_are_told_in_every_form() -> None:
    for text in (printed(document(*USERS)), to_markdown(document(*USERS)).replace("\\", "")):
        assert "ls -lR: 6.00 times as fast on the target (median of 2 users): 1 faster and 0 slower" in text
        assert "4.00 times as fast (3.60 to 4.40)" in text
        assert "8.00 times as fast (1 run: noise not known)" in text
        assert "250 ms" in text


def test_all_bars_have_one_scale_and_a_line_where_both_are_alike() -> None:
    root = ET.fromstring(str(bar_svg(chart(*USERS), "c")))
    bars = [float(bar.get("width", "0")) for bar in root.iter("rect")]
    assert bars[0] / bars[1] == pytest.approx(8.0, rel=0.02)
    assert bars[2] / bars[0] == pytest.approx(2.0, rel=0.02), "beside those of another user, too"
    (line,) = [one for one in root.iter("line") if one.get("class") == "limit"]
    start = float(next(root.iter("rect")).get("x", "0"))
    assert (float(line.get("x1", "0")) - start) / bars[0] == pytest.approx(0.25, rel=0.02)
    words = [node.text for node in root.iter("text")]
    assert {"ann", "ben", "8.00 times as fast (1 run: noise not known)", "as fast as the source"} <= set(words)
    summary = root.find("desc")
    assert summary is not None
    assert "Medians over all users: ls -lR 6.00, read a sample 0.50" in (summary.text or "")


def test_a_user_is_text_in_every_output() -> None:
    made = document(user(HOSTILE, speed_up(4.0)))
    page = to_html(made)
    assert "<script" not in page.lower()
    for text in (page, printed(made), to_markdown(made)):
        assert not re.search("[\u202e\x1b]", text)
