"""From what hosts saw to figures, and from room to refusals."""

import pytest

from migrator.decide.benchmark_figures import HostFigures, figure
from migrator.decide.benchmark_room import room_problems
from migrator.domain.benchmark import Place, Unit
from migrator.domain.benchmark_run import PlaceRoom
from migrator.domain.units import GIB


def host(name: str, elapsed_s: float, *lanes: dict[str, float]) -> HostFigures:
    return HostFigures(host=name, elapsed_s=elapsed_s, lanes=lanes or ({},))


def test_a_time_is_the_mean_over_the_hosts() -> None:
    found = figure(Unit.SECONDS, [host("a", 2.0, {"cpu_s": 1.0}), host("b", 4.0, {"cpu_s": 0.5})], size_bytes=100)
    assert found.value == 3.0
    assert found.by_host == {"a": 2.0, "b": 4.0}
    assert found.details == {"cpu_s": 1.5, "bytes_per_s": 50.0}


def test_a_rate_is_all_bytes_over_the_longest_time() -> None:
    found = figure(Unit.BYTES_PER_S, [host("a", 2.0), host("b", 4.0)], size_bytes=100)
    assert found.value == 50.0
    assert found.by_host == {"a": 50.0, "b": 25.0}


def test_what_was_checked_meanwhile_does_not_count() -> None:
    assert figure(Unit.BYTES_PER_S, [host("a", 9.0, {"busy_s": 4.0})], size_bytes=100).value == 25.0


def test_what_programs_report_counts_instead() -> None:
    lanes = ({"bytes_per_s": 30.0}, {"bytes_per_s": 12.0})
    assert figure(Unit.BYTES_PER_S, [host("a", 9.0, *lanes)], size_bytes=100).value == 42.0
    hosts = [host("a", 1.0, {"operations_per_s": 5.0}), host("b", 1.0, {"operations_per_s": 7.0})]
    assert figure(Unit.OPERATIONS_PER_S, hosts, size_bytes=0).value == 12.0


def test_a_latency_is_the_mean_over_all_reads_and_percentiles_are_the_worst_hosts() -> None:
    hosts = [
        host("a", 1.0, {"mean_ms": 1.0, "reads": 300.0, "p99_ms": 5.0}),
        host("b", 1.0, {"mean_ms": 5.0, "reads": 100.0, "p99_ms": 9.0}),
    ]
    found = figure(Unit.MILLISECONDS, hosts, size_bytes=0)
    assert found.value == 2.0
    assert found.details["mean_ms"] == 2.0
    assert found.details["p99_ms"] == 9.0
    assert found.details["reads"] == 400.0


@pytest.mark.parametrize("unit", [Unit.MILLISECONDS, Unit.OPERATIONS_PER_S])
def test_what_was_not_measured_has_no_figure(unit: Unit) -> None:
    with pytest.raises(ValueError, match="measure"):
        figure(unit, [host("a", 1.0)], size_bytes=0)


def room(**changes: int | None) -> PlaceRoom:
    values = {"need_bytes": 6 * GIB, "free_bytes": 10 * GIB, "need_inodes": 600, "free_inodes": 1000} | changes
    return PlaceRoom(place=Place(label="target", root=b"/mnt"), **values)  # type: ignore[arg-type]


def problems(one: PlaceRoom, *, inodes_free: int | None = None, accept: bool = False) -> str:
    return "; ".join(room_problems(one, inodes_free=inodes_free, accept_unknown_inodes=accept))


def test_room_is_enough_with_a_margin_of_a_half_in_nine_tenths() -> None:
    assert problems(room()) == ""
    assert "10.0 GiB free" in problems(room(need_bytes=6 * GIB + 1))
    assert "1,000 more files" in problems(room(need_inodes=601))


def test_inodes_that_are_not_told_must_be_told_or_accepted() -> None:
    assert "does not tell" in problems(room(free_inodes=None))
    assert problems(room(free_inodes=None), accept=True) == ""
    assert problems(room(free_inodes=None), inodes_free=5000) == ""
    assert "500 more files" in problems(room(free_inodes=None), inodes_free=500)


def test_site_toml_is_not_believed_where_the_file_system_tells() -> None:
    assert "10 more files" in problems(room(free_inodes=10), inodes_free=10**9)
