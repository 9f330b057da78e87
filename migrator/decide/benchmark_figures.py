"""From what hosts saw of a step to its figure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from migrator.domain.benchmark import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFigures:
    """One host's part of a step: how long it took, and what each of its lanes measured beside."""

    host: str
    elapsed_s: float
    lanes: tuple[Mapping[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`value` in the step's unit, each host's own, and what else is known."""

    value: float
    by_host: Mapping[str, float]
    details: Mapping[str, float]


def figure(unit: Unit, hosts: Sequence[HostFigures], *, size_bytes: int) -> Figure:
    """The figure of a step over all hosts. Raises ValueError where it was not measured.

    Times are the mean over the hosts. Rates of bytes are all bytes over the longest time, or the sum of what programs
    reported; rates of operations are sums. Latencies are the mean over all operations.
    """
    if not hosts:
        raise ValueError("no host took part")
    details = _together([lane for host in hosts for lane in host.lanes])
    match unit:
        case Unit.SECONDS:
            by_host = {host.host: host.elapsed_s for host in hosts}
            value = math.fsum(by_host.values()) / len(by_host)
            if size_bytes:
                longest_s = max(by_host.values())
                details = {**details, "bytes_per_s": size_bytes * len(hosts) / max(longest_s, 1e-9)}
        case Unit.BYTES_PER_S:
            by_host = {host.host: _rate(host, size_bytes) for host in hosts}
            reported = all("bytes_per_s" in lane for host in hosts for lane in host.lanes)
            value = math.fsum(by_host.values())
            if not reported:
                value = size_bytes * len(hosts) / max(_busy_s(host) for host in hosts)
        case Unit.OPERATIONS_PER_S:
            by_host = {host.host: _sum(host, "operations_per_s") for host in hosts}
            value = math.fsum(by_host.values())
        case Unit.MILLISECONDS:
            by_host = {host.host: _mean_ms(host.lanes) for host in hosts}
            value = _mean_ms([lane for host in hosts for lane in host.lanes])
            details = {**details, "mean_ms": value}
    return Figure(value=value, by_host=by_host, details=details)


def _busy_s(host: HostFigures) -> float:
    busy = [lane["busy_s"] for lane in host.lanes if "busy_s" in lane]
    return max(max(busy) if busy else host.elapsed_s, 1e-9)


def _rate(host: HostFigures, size_bytes: int) -> float:
    if all("bytes_per_s" in lane for lane in host.lanes):
        return _sum(host, "bytes_per_s")
    return size_bytes / _busy_s(host)


def _sum(host: HostFigures, name: str) -> float:
    known = [lane[name] for lane in host.lanes if name in lane]
    if not known:
        raise ValueError(f"host {host.host} did not measure {name}")
    return math.fsum(known)


def _mean_ms(lanes: Sequence[Mapping[str, float]]) -> float:
    known = [(lane["mean_ms"], lane.get("reads", 1.0)) for lane in lanes if "mean_ms" in lane]
    if not known:
        raise ValueError("no latency was measured")
    return math.fsum(mean * reads for mean, reads in known) / math.fsum(reads for _, reads in known)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _together(lanes: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """Percentiles and maxima of the slowest, counts and rates as sums."""
    names = {name for lane in lanes for name in lane}
    found = {}
    for name in sorted(names):
        how: Callable[[Sequence[float]], float] = math.fsum
        if name == "mean_ms":
            how = _mean
        elif name.endswith("_ms") or name in ("busy_s", "fastest_file_bytes_per_s"):
            how = max
        elif name == "slowest_file_bytes_per_s":
            how = min
        found[name] = how([lane[name] for lane in lanes if name in lane])
    return found
