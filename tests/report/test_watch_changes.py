"""The live view without a terminal: a line for each change, and none without."""

from dataclasses import replace

import pytest

from migrator.core.probe import Probe, ProbeSide
from migrator.core.states import BatchState
from migrator.report.model import Blocker, RunLife, WatchFacts
from migrator.report.view_watch import change_lines
from tests.render.test_hostile import HOSTILE, assert_safe_text, text_of
from tests.support.facts import AT_S
from tests.support.watch_facts import DRAIN, watched

FIRST = """\
00:53:20 run (run 1, process 4711): at work since 2025-11-20 00:36 UTC
00:53:20 copied: 41.3 %, 620 B of 1.5 KiB, 4 of 15 files, 1.0 MiB/s, about 1 h left
00:53:20 batch 1: seeded, 7 bad files
00:53:20 user alice, home/alice: copying
00:53:20 user alice2, home/alice2: copying
00:53:20 cutover of alice, home/alice: reverted
00:53:20 drain of gl1:/alice: draining, 3,766 files left, 3 failures
00:53:20 addition of gl2:/srv/b9/data gl3:/srv/b9/data: balancing, 17 files moved, 2 skipped
00:53:20 probe of the source: answers
00:53:20 probe of the target: no answer
00:53:20 streams that may be at work: 3 of 8: more do not help alice
00:53:20 waits: alice: on alice"""


def without_news(facts: WatchFacts) -> WatchFacts:
    return replace(facts, news=())


def later(facts: WatchFacts, **fields: object) -> WatchFacts:
    return replace(facts, news=(), status=replace(facts.status, at_s=AT_S + 2, **fields))  # type: ignore[arg-type]


def lines(before: WatchFacts | None, now: WatchFacts) -> list[str]:
    return list(change_lines(before, now))


def test_the_first_look_says_everything() -> None:
    assert "\n".join(lines(None, without_news(watched()))) == FIRST


def test_where_only_time_has_passed_nothing_is_said() -> None:
    before = watched()
    run = replace(before.status.runs[0], silent_s=4.0)
    estimate = replace(before.status.estimates[0], left_s=3598.0)
    assert before.status.rate is not None
    rate = replace(before.status.rate, size_bytes=7)
    assert before.status.governing.governor is not None
    governor = replace(before.status.governing.governor, at_s=AT_S + 1, reason="other figures")
    governing = replace(before.status.governing, governor=governor)
    now = later(before, runs=(run,), estimates=(estimate,), rate=rate, governing=governing)
    assert lines(before, now) == []


@pytest.mark.parametrize("life", [RunLife.SILENT, RunLife.KILLED, RunLife.ENDED])
def test_a_run_that_is_no_longer_at_work_is_one_line(life: RunLife) -> None:
    before = watched()
    run = replace(before.status.runs[0], life=life, exit_code=0 if life is RunLife.ENDED else None)
    assert len(lines(before, later(before, runs=(run,)))) == 1


def test_each_change_is_a_line() -> None:
    before = watched()
    batch = replace(before.status.batches[0], state=BatchState.VERIFIED)
    drain = replace(DRAIN, bricks=("gl1:/alice",), moved_files=4999)
    probes = (before.status.probes[0], Probe(side=ProbeSide.TARGET, at_s=AT_S, failure="Permission denied"))
    overall = replace(before.status.overall, done_files=5)
    said = lines(before, later(before, batches=(batch,), drains=(drain,), probes=probes, overall=overall))
    assert [line.split(" ", 1)[1] for line in said] == [
        "copied: 41.3 %, 620 B of 1.5 KiB, 5 of 15 files, 1.0 MiB/s, about 1 h left",
        "batch 1: verified, 7 bad files",
        "drain of gl1:/alice: draining, 1 file left, 3 failures",
        "probe of the target: failed: Permission denied",
    ]


def test_what_begins_to_wait_and_what_no_longer_does() -> None:
    before = watched()
    silent = Blocker(subject="run", on="process 7 has given no heartbeat for 31 s", hint="h")
    waits = later(before, blocked=(silent,))
    assert [line.split(" ", 1)[1] for line in lines(before, waits)] == [
        "waits: run: process 7 has given no heartbeat for 31 s",
        "waits: alice: no longer",
    ]
    longer = replace(silent, on="process 7 has given no heartbeat for 33 s")
    assert lines(waits, later(before, blocked=(longer,))) == []


def test_events_are_said_once() -> None:
    before = watched()
    now = replace(later(before), news=before.news)
    assert lines(before, now) == ["00:53:20 error: alice: m alice"]


@pytest.mark.parametrize("name", HOSTILE)
def test_lines_are_plain(name: bytes) -> None:
    for line in lines(None, watched(b"home/" + name, text_of(name))):
        assert "\n" not in line
        assert_safe_text(line)
