"""The live view: what stands in a window of which size, and that nothing ever leaves it."""

import io
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.screen import Screen

from migrator.core.states import BatchState, PassKind, PassState
from migrator.cutover.model import CutoverState
from migrator.render.document import Bar
from migrator.report.model import Blocker, RunLife, StatusFacts, Tally, WatchFacts
from migrator.report.view_status import bars
from migrator.report.view_watch import screen
from tests.render.test_hostile import HOSTILE
from tests.render.test_hostile import text_of as decoded
from tests.support.facts import AT_S
from tests.support.watch_facts import stream, watched


def drawn(facts: WatchFacts, width: int, height: int, problem: str = "") -> str:
    """What a terminal of this size shows."""
    stream = io.StringIO()
    console = Console(file=stream, width=width, height=height, color_system=None)
    console.print(Screen(screen(facts, problem, height=height)))
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().split("\n")[:height])


def changed(facts: WatchFacts, **fields: object) -> WatchFacts:
    return replace(facts, status=replace(facts.status, **fields))  # type: ignore[arg-type]


@given(
    width=st.integers(20, 260),
    height=st.integers(4, 70),
    name=st.one_of(
        st.binary(min_size=1, max_size=40), st.text(min_size=1).map(lambda text: text.encode("utf-8", "replace"))
    ),
)
def test_nothing_leaves_a_window_of_any_size(width: int, height: int, name: bytes) -> None:
    lines = drawn(watched(b"home/" + name, decoded(name)), width, height, decoded(name)).split("\n")[:-1]
    assert len(lines) == height
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_text_and_nothing_else(name: bytes) -> None:
    for line in drawn(watched(b"home/" + name, decoded(name)), 200, 50, decoded(name)).split("\n"):
        for character in line:
            assert unicodedata.category(character)[0] != "C", hex(ord(character))


def test_wide_characters_are_measured_by_their_cells() -> None:
    lines = drawn(watched("home/漢字漢字漢字漢字漢字漢字漢字漢字".encode(), "漢字" * 40), 80, 24).splitlines()
    assert max(map(cell_len, lines)) <= 80
    assert any("漢" in line for line in lines)


def test_a_run_that_gives_no_sign_of_life_is_told_in_red() -> None:
    facts = watched()
    run = replace(facts.status.runs[0], life=RunLife.SILENT, silent_s=200.0)
    stream = io.StringIO()
    console = Console(file=stream, width=80, height=24, force_terminal=True, color_system="standard")
    console.print(screen(changed(facts, runs=(run,)), height=24))
    line = stream.getvalue().splitlines()[1]
    assert "\x1b[1;31mrun (process 4711): no heartbeat for 3 min 20 s" in line


def test_of_empty_files_alone_the_share_is_that_of_files_everywhere() -> None:
    facts = watched()
    tally = Tally(total_files=4, done_files=3, total_users=1)
    seen = changed(replace(facts, streams=()), overall=tally)
    (line,) = [line for line in drawn(seen, 80, 24).splitlines() if line.startswith("copied")]
    assert "75.0 %  0 B of 0 B, 3 of 4 files" in line
    assert line.count("█") == pytest.approx(3 * line.count("░"), abs=3)
    (bar,) = [one for one in bars(seen.status) if isinstance(one, Bar) and one.label == "copied"]
    assert (bar.share, bar.text) == (0.75, "75.0 % of the files copied, 3 of 4")


def test_whoever_goes_back_stands_first_with_how_long_he_cannot_work() -> None:
    facts = watched()
    back = replace(facts.status.cutovers[0], state=CutoverState.CARRYING_BACK, frozen_since_s=facts.status.at_s - 90.0)
    lines = drawn(changed(facts, cutovers=(back,)), 80, 40).splitlines()
    assert any("carrying-back" in line and "frozen for 1 min 30 s" in line for line in lines)


def test_the_streams_of_a_killed_run_are_what_it_left() -> None:
    facts = watched()
    killed = replace(facts.status.runs[0], life=RunLife.KILLED, silent_s=7.0)
    said = drawn(changed(facts, runs=(killed,)), 80, 24)
    assert "was killed 7.0 s ago" in said
    assert "was 3.0 MiB/s" in said


def test_after_the_end_the_last_call_is_named() -> None:
    facts = watched()
    ended = replace(facts.status.runs[0], life=RunLife.ENDED, finished_at_s=AT_S - 60, exit_code=3)
    said = drawn(replace(changed(facts, runs=(ended,)), streams=()), 80, 24)
    assert "nothing; run (process 4711) ended 1 min ago with exit code 3" in said
    assert "\nstreams" not in said


def test_who_was_being_copied_when_a_pass_was_stopped_is_stopped() -> None:
    facts = watched()
    [batch] = facts.status.batches
    stopped = replace(batch, passes=(replace(batch.passes[0], state=PassState.STOPPED),))
    said = drawn(changed(facts, batches=(stopped,)), 80, 24)
    assert "users      2 stopped;" in said
    assert "alice   home/alice   stopped" in said


def test_each_verb_at_work_has_a_line_of_its_own() -> None:
    facts = watched()
    first = facts.status.runs[0]
    drain = replace(first, id=2, verb="brick-drain", pid=4712)
    older = replace(first, id=0, pid=4000, life=RunLife.KILLED)
    said = drawn(changed(facts, runs=(drain, first, older)), 80, 24)
    assert "brick-drain (process 4712)" in said
    assert "run (process 4711)" in said
    assert "4000" not in said


def test_many_streams_share_the_room_with_what_waits() -> None:
    facts = replace(watched(), streams=tuple(stream(number) for number in range(1, 33)))
    blocked = tuple(Blocker(subject=f"batch {number}", on="differences", hint="h") for number in range(9))
    said = drawn(changed(facts, blocked=blocked), 80, 24).splitlines()
    first = next(number for number, line in enumerate(said) if line.startswith("streams 32"))
    assert any(line.startswith("waits") for line in said)
    assert said[first + 4].split() == ["and", "28", "more"]


def test_streams_of_several_passes_name_theirs() -> None:
    facts = replace(watched(), streams=(stream(1), stream(2, batch=2, pass_kind=PassKind.DELTA, pass_number=3)))
    assert "batch 2 delta 3" in drawn(facts, 120, 24)


def test_of_old_events_the_date_is_said() -> None:
    facts = watched()
    old = replace(facts.status.events[0], at_s=AT_S - 3 * 86400)
    said = drawn(changed(facts, events=(facts.status.events[0], old)), 80, 30)
    assert "events     00:53:20 error" in said
    assert "           2025-11-17 00:53:20 error" in said


def test_batches_at_work_come_before_those_that_wait_and_those_that_are_over() -> None:
    facts = watched()
    [batch] = facts.status.batches
    copied = replace(batch.passes[0], state=PassState.RUNNING)
    states = (BatchState.VERIFIED, BatchState.PLANNED, BatchState.SEEDED)
    others = [replace(batch, number=number, state=state) for number, state in enumerate(states, 1)]
    others = [replace(one, passes=()) for one in others]
    running = replace(batch, number=4, state=BatchState.SEEDING, passes=(copied,))
    said = drawn(changed(facts, batches=(*others, running)), 80, 40).splitlines()
    first = next(number for number, line in enumerate(said) if line.startswith("batches"))
    assert [line.split()[0] for line in said[first + 1 : first + 5]] == ["4", "3", "2", "1"]


def test_a_look_that_failed_leaves_the_last_one_and_says_why() -> None:
    said = drawn(watched(), 80, 24, problem="not read anew: the disk is full").splitlines()
    assert said[1] == "not read anew: the disk is full"
    assert said[2].startswith("at work")
    assert len(said) == 24


def test_an_empty_ledger_has_a_view_too() -> None:
    said = drawn(WatchFacts(status=StatusFacts(at_s=AT_S, site=None)), 80, 24)
    assert "nothing, and nothing was yet" in said
    assert "there is no plan yet" in said
