"""What the live view reads of a ledger: the streams at work, and what is new."""

import pytest

from migrator.core.events import Event, EventKind, Severity
from migrator.core.states import ChunkKind, PassKind
from migrator.ledger.ledger import Ledger
from migrator.transfer.model import Sample
from tests.support.records import attempt, begin, end, files, waiting

FULL_S = 1e9


def sample(ledger: Ledger, pass_id: int, at_s: float, attempt_id: int | None, size_bytes: int = 100) -> None:
    one = Sample(at_s=at_s, interval_s=5.0, attempt_id=attempt_id, streams=1, files=1, size_bytes=size_bytes)
    ledger.samples.add(pass_id, [one])


def event(at_s: float, severity: Severity = Severity.INFO) -> Event:
    return Event(at_s=at_s, kind=EventKind.CHUNK_RETRIED, severity=severity, subject="s", message=f"m{at_s:.0f}")


class TestStreams:
    def test_are_the_attempts_that_have_not_ended(self, ledger: Ledger) -> None:
        pass_id = begin(ledger, [files(1, 300, count=3), files(2, 200), files(3, 100)])
        first, second, _ = waiting(ledger, pass_id)
        ended = attempt(ledger, first.id, "t1")
        at_work = attempt(ledger, second.id, "t2")
        end(ledger, ended)
        [stream] = ledger.watching.streams(recent_s=FULL_S)
        assert stream.attempt_id == at_work
        assert (stream.host, stream.chunk, stream.kind, stream.tree) == ("here", 2, ChunkKind.FILES, b"home/alice")
        assert (stream.batch, stream.pass_kind, stream.pass_number) == (1, PassKind.SEED, 0)
        assert (stream.files, stream.size_bytes, stream.brick, stream.started_at_s) == (1, 200, None, 6.0)

    def test_have_done_what_their_own_samples_say(self, ledger: Ledger) -> None:
        pass_id = begin(ledger, [files(1, 300), files(2, 200)])
        mine, other = (attempt(ledger, chunk.id, f"t{chunk.id}") for chunk in waiting(ledger, pass_id))
        for at_s in (10.0, 15.0, 20.0):
            sample(ledger, pass_id, at_s, None, 5000)
            sample(ledger, pass_id, at_s, mine, 100)
        sample(ledger, pass_id, 20.0, other, 7)
        found = {stream.attempt_id: stream for stream in ledger.watching.streams(recent_s=6.0)}
        assert (found[mine].done_files, found[mine].done_bytes) == (3, 300)
        assert (found[mine].recent_bytes, found[mine].recent_s) == (200, 10.0)
        assert found[mine].rate_bytes_per_s == pytest.approx(20.0)
        assert found[other].done_bytes == 7
        assert found[other].rate_bytes_per_s == pytest.approx(1.4)

    def test_have_no_rate_before_the_first_sample(self, ledger: Ledger) -> None:
        pass_id = begin(ledger, [files(1, 300)])
        attempt(ledger, waiting(ledger, pass_id)[0].id)
        [stream] = ledger.watching.streams(recent_s=FULL_S)
        assert stream.rate_bytes_per_s is None
        assert not stream.confirming

    def test_are_to_be_confirmed_once_their_pass_is_sampled_without_them(self, ledger: Ledger) -> None:
        pass_id = begin(ledger, [files(1, 300)])
        mine = attempt(ledger, waiting(ledger, pass_id)[0].id)
        sample(ledger, pass_id, 10.0, None)
        sample(ledger, pass_id, 10.0, mine)
        assert not ledger.watching.streams(recent_s=FULL_S)[0].confirming
        sample(ledger, pass_id, 15.0, None)
        assert ledger.watching.streams(recent_s=FULL_S)[0].confirming

    def test_of_another_pass_are_not_to_be_confirmed_by_its_samples(self, ledger: Ledger) -> None:
        one = begin(ledger, [files(1, 300)])
        other = ledger.passes.start(
            plan="p", batch=2, kind=PassKind.SEED, catalog="c", chunk_list="l", chunks=[files(1, 1)], at_s=5.0
        ).id
        attempt(ledger, waiting(ledger, one)[0].id)
        sample(ledger, other, 15.0, None)
        assert not ledger.watching.streams(recent_s=FULL_S)[0].confirming


class TestEvents:
    def test_none_are_new_in_an_empty_ledger(self, ledger: Ledger) -> None:
        assert ledger.watching.last_event() == 0
        assert list(ledger.watching.events_after(0, 10)) == []

    def test_after_one_are_told_oldest_first_with_their_numbers(self, ledger: Ledger) -> None:
        ledger.events.add(event(1.0))
        last = ledger.watching.last_event()
        ledger.events.add(event(2.0, Severity.ERROR))
        ledger.events.add(event(3.0))
        found = ledger.watching.events_after(last, 10)
        assert [one.message for _, one in found] == ["m2", "m3"]
        assert found[-1][0] == ledger.watching.last_event()

    def test_of_too_many_the_newest_are_told(self, ledger: Ledger) -> None:
        for at_s in range(5):
            ledger.events.add(event(float(at_s)))
        assert [one.message for _, one in ledger.watching.events_after(0, 2)] == ["m3", "m4"]
