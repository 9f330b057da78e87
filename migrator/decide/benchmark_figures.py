"""From what the lanes of a step reported to its figure. Pure.

Formats of reports: fio 3.33 `--output-format=json`; mdtest 1.9.3 to 4.0; IOR 3 and 4.
"""

import json
import re
from collections.abc import Mapping, Sequence
from math import fsum
from statistics import fmean
from typing import Any

from migrator.domain.benchmark import HostRun, Step, Unit

_MIB = 1 << 20
_NS_PER_MS = 1e6
_PERCENTILES = (("p50_ms", "50.000000"), ("p99_ms", "99.000000"), ("p999_ms", "99.900000"))
_MDTEST_CREATION = re.compile(r"^\s*File creation\s*:?\s+[\d.]+\s+[\d.]+\s+([\d.]+)", re.MULTILINE)
_IOR_RATE = re.compile(r"^Max (?:Write|Read):\s+([\d.]+) MiB/sec", re.MULTILINE)


def read_report(kind: str, text: str) -> Mapping[str, float]:
    """What a program reported, by names with their unit. Raises ValueError where it is none of its reports."""
    match kind:
        case "fio":
            return _fio(text)
        case "mdtest":
            found = _MDTEST_CREATION.search(text)
            if found is None or not float(found[1]):
                raise ValueError("mdtest's report has no rate of file creation")
            return {"operations_per_s": float(found[1])}
        case _:
            # What was not asked for has a line too, with a rate of 0.
            rates = [rate for rate in map(float, _IOR_RATE.findall(text)) if rate]
            if len(rates) != 1:
                raise ValueError("IOR's report does not have exactly one rate")
            return {"bytes_per_s": rates[0] * _MIB}


def _fio(text: str) -> Mapping[str, float]:
    try:
        # Warnings may stand before the document.
        (job,) = json.loads(text[max(text.find("{"), 0) :])["jobs"]
        failed = job["error"]
        (one,) = (job[direction] for direction in ("read", "write") if job[direction]["total_ios"])
        figures = _fio_direction(one)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"fio's report has no figures of one job in one direction: {error}") from error
    if failed:
        raise ValueError(f"fio reports error {failed}")
    return figures


def _fio_direction(one: Mapping[str, Any]) -> Mapping[str, float]:
    latency = one["clat_ns"]
    percentiles = latency.get("percentile", {})
    return {
        "operations_per_s": one["iops"],
        "bytes_per_s": one["bw_bytes"],
        "mean_ms": latency["mean"] / _NS_PER_MS,
        "max_ms": latency["max"] / _NS_PER_MS,
        **{name: percentiles[key] / _NS_PER_MS for name, key in _PERCENTILES if key in percentiles},
    }


def figure(step: Step, hosts: Sequence[HostRun]) -> tuple[float, Mapping[str, float], Mapping[str, float]]:
    """The figure of a step over all hosts, each host's own, and what else was measured. Raises ValueError where it was not measured.

    Times are the mean over the hosts. Rates of bytes are all bytes over the longest time, or the sum of what programs
    reported; rates of operations are sums. Latencies are the mean over all reads.
    """
    lanes = [lane for host in hosts for lane in host.lanes]
    details = _together(lanes)
    longest_s = max(host.elapsed_s for host in hosts)
    moved = step.size_bytes * len(hosts) / max(longest_s, 1e-9)
    match step.unit:
        case Unit.SECONDS:
            by_host = {host.host: host.elapsed_s for host in hosts}
            value = fmean(by_host.values())
            if step.size_bytes:
                details["bytes_per_s"] = moved
        case Unit.BYTES_PER_S if not step.report:
            by_host = {host.host: step.size_bytes / max(host.elapsed_s, 1e-9) for host in hosts}
            value = moved
        case Unit.BYTES_PER_S | Unit.OPERATIONS_PER_S:
            name = "bytes_per_s" if step.unit is Unit.BYTES_PER_S else "operations_per_s"
            by_host = {host.host: _together(host.lanes).get(name, 0.0) for host in hosts}
            value = fsum(by_host.values())
        case _:
            by_host = {host.host: _together(host.lanes).get("mean_ms", 0.0) for host in hosts}
            value = details.get("mean_ms", 0.0)
    if not all(by_host.values()):
        raise ValueError("nothing was measured")
    return value, by_host, details


def _together(lanes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Percentiles and maxima of the slowest, the mean over all reads, counts and rates as sums."""
    found = {}
    for name in sorted({name for lane in lanes for name in lane}):
        values = [(lane[name], lane.get("reads", 1.0)) for lane in lanes if name in lane]
        if name == "mean_ms":
            found[name] = fsum(value * reads for value, reads in values) / fsum(reads for _, reads in values)
        else:
            found[name] = (max if name.endswith("_ms") else fsum)(value for value, _ in values)
    return found
