"""What people are told of speed-ups."""

import io
import re

from rich.console import Console

from migrator.core.entry import UserTree
from migrator.cutover.model import SpeedUp, TreeTest, UserSpeedUps, Verdict
from migrator.cutover.rules_speed import sums
from migrator.cutover.view import speed_up_blocks
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


def test_a_user_is_text_in_every_output() -> None:
    made = document(user(HOSTILE, speed_up(4.0)))
    page = to_html(made)
    assert "<script" not in page.lower()
    for text in (page, printed(made), to_markdown(made)):
        assert not re.search("[\u202e\x1b]", text)
