"""The ledger's benchmarks."""

from dataclasses import replace

import pytest

from migrator.bench.model import Background, BenchmarkRecord, BenchmarkState, Measurement, Place, SuiteName, Unit
from migrator.core.errors import UsageError
from migrator.ledger.ledger import Ledger

PLACES = (
    Place(label="source", root=b"/mnt/\xff gluster", filesystem="fuse.glusterfs"),
    Place(label="/scratch", root=b"/scratch", filesystem="xfs"),
)
MEASUREMENT = Measurement(
    place="source",
    run=2,
    step="ls",
    unit=Unit.SECONDS,
    value=1.5,
    by_host={"gl1": 1.0, "gl2": 2.0},
    at_s=20.0,
    details={"cpu_s": 0.25},
    background=(Background(host="gl1", load_average=0.5, disk_bytes_per_s=0.0, network_bytes_per_s=1e6),),
    cold=False,
    skew_s=0.01,
)


def begin(ledger: Ledger) -> BenchmarkRecord:
    return ledger.benchmarks.start(
        BenchmarkRecord(
            id=0,
            suite=SuiteName.RECURSIVE,
            scale=0.01,
            seed=7,
            runs=3,
            places=PLACES,
            hosts=("gl1", "gl2"),
            token="f00dbabe0001",
            state=BenchmarkState.RUNNING,
            started_at_s=10.0,
        )
    )


def test_a_benchmark_is_read_as_it_was_written(ledger: Ledger) -> None:
    record = begin(ledger)
    assert record.id > 0
    assert (record.places, record.hosts, record.state) == (PLACES, ("gl1", "gl2"), BenchmarkState.RUNNING)
    assert ledger.benchmarks.read(record.id) == record
    assert list(ledger.benchmarks.all()) == [record]


def test_measurements_come_in_order_and_the_same_one_again_replaces_the_first(ledger: Ledger) -> None:
    record, other = begin(ledger), begin(ledger)
    ledger.benchmarks.measured(record.id, replace(MEASUREMENT, value=9.0))
    ledger.benchmarks.measured(record.id, replace(MEASUREMENT, run=1, at_s=12.0))
    ledger.benchmarks.measured(record.id, MEASUREMENT)
    assert list(ledger.benchmarks.measurements(record.id)) == [replace(MEASUREMENT, run=1, at_s=12.0), MEASUREMENT]
    assert list(ledger.benchmarks.measurements(other.id)) == []


def test_the_first_end_counts(ledger: Ledger) -> None:
    record = begin(ledger)
    ended = ledger.benchmarks.finish(record.id, BenchmarkState.FAILED, at_s=30.0, notes=["fio is not there"])
    assert (ended.state, ended.ended_at_s, ended.notes) == (BenchmarkState.FAILED, 30.0, ("fio is not there",))
    assert ledger.benchmarks.finish(record.id, BenchmarkState.DONE, at_s=40.0) == ended


def test_a_benchmark_that_is_not_there_is_a_mistake_of_the_user(ledger: Ledger) -> None:
    with pytest.raises(UsageError, match="no benchmark 12"):
        ledger.benchmarks.read(12)
