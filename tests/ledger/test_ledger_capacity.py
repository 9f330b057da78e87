"""The ledger's knowledge of how full both sides were, and the sums that reports ask for."""

from migrator.core.events import Event, EventKind, Severity
from migrator.core.states import PassKind
from migrator.fs.model import CapacitySample, Side
from migrator.ledger.ledger import Ledger
from migrator.transfer.model import Sample
from tests.support.plans import small_plan


def sample(side: Side, at_s: float, free_bytes: int, free_inodes: int | None = None) -> CapacitySample:
    return CapacitySample(
        side=side,
        at_s=at_s,
        total_bytes=1000,
        free_bytes=free_bytes,
        total_inodes=None if free_inodes is None else 100,
        free_inodes=free_inodes,
    )


class TestCapacity:
    def test_in_order_of_time(self, ledger: Ledger) -> None:
        later, earlier = sample(Side.TARGET, 20.0, 5, 7), sample(Side.SOURCE, 10.0, 9)
        ledger.capacity.add([later, earlier])
        assert ledger.capacity.all() == [earlier, later]
        assert (later.used_bytes, later.used_inodes, earlier.used_inodes) == (995, 93, None)

    def test_the_last_of_each_side_in_a_span(self, ledger: Ledger) -> None:
        ledger.capacity.add([sample(Side.SOURCE, float(at_s), at_s) for at_s in range(0, 40, 5)])
        ledger.capacity.add([sample(Side.TARGET, 3.0, 1)])
        kept = [(one.side, one.at_s, one.free_bytes) for one in ledger.capacity.all(span_s=20.0)]
        assert kept == [(Side.TARGET, 3.0, 1), (Side.SOURCE, 15.0, 15), (Side.SOURCE, 35.0, 35)]

    def test_one_of_the_same_time_replaces(self, ledger: Ledger) -> None:
        ledger.capacity.add([sample(Side.SOURCE, 1.0, 5)])
        ledger.capacity.add([sample(Side.SOURCE, 1.0, 6)])
        ledger.capacity.add([])
        assert [one.free_bytes for one in ledger.capacity.all()] == [6]


class TestSums:
    def test_copied_by_seed_passes_alone(self, ledger: Ledger) -> None:
        ledger.plans.record(small_plan("week1"), path="p", checksum="c")
        made = {}
        for kind, number in ((PassKind.SEED, 0), (PassKind.DELTA, 1)):
            made[kind] = ledger.passes.start(
                plan="week1", batch=1, kind=kind, number=number, catalog="c", chunk_list="l", chunks=(), at_s=1.0
            ).id
        for kind, size_bytes in ((PassKind.SEED, 100), (PassKind.DELTA, 7000)):
            ledger.samples.add(
                made[kind],
                [
                    Sample(at_s=at_s, interval_s=5.0, attempt_id=attempt, streams=2, files=1, size_bytes=size_bytes)
                    for at_s in (12.0, 15.0, 47.0)
                    for attempt in (None, 1)
                ],
            )
        found = ledger.report_sums.copied("week1", span_s=10.0)
        assert [(point.at_s, point.files, point.size_bytes, point.streams) for point in found] == [
            (20.0, 2, 200, 2.0),
            (50.0, 1, 100, 2.0),
        ]
        assert ledger.report_sums.copied("week2", span_s=10.0) == []

    def test_events_by_kind_and_subject(self, ledger: Ledger) -> None:
        for at_s, kind, severity, subject in (
            (1.0, EventKind.HOST_LOST, Severity.WARNING, "host a"),
            (2.0, EventKind.HOST_LOST, Severity.WARNING, "host b"),
            (3.0, EventKind.HOST_FOUND, Severity.INFO, "host a"),
            (4.0, EventKind.HOST_LOST, Severity.WARNING, "host a"),
        ):
            event = Event(at_s=at_s, kind=kind, severity=severity, subject=subject, message=f"at {at_s}")
            ledger.events.add(event)
        groups = ledger.report_sums.event_groups(10)
        assert [(one.subject, one.count, one.first_at_s, one.last_at_s, one.message) for one in groups] == [
            ("host a", 2, 1.0, 4.0, "at 4.0"),
            ("host b", 1, 2.0, 2.0, "at 2.0"),
        ]
        assert len(ledger.report_sums.event_groups(1)) == 1
        (found,) = ledger.report_sums.latest_events([EventKind.HOST_FOUND.value])
        assert (found.subject, found.severity) == ("host a", Severity.INFO)
