"""The reports of fio, mdtest and IOR. Formats: fio 3.33 `--output-format=json`; mdtest 1.9.3 to 4.0; IOR 3 and 4."""

import re
from collections.abc import Callable, Mapping

import msgspec

_MIB = 1 << 20
_NS_PER_MS = 1e6
_MDTEST_LINE = re.compile(
    r"^\s*(File|Directory|Tree) (creation|stat|read|rename|removal)\s*:?\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)"
)
_IOR_LINE = re.compile(r"^Max (Write|Read):\s+([\d.]+) MiB/sec", re.MULTILINE)


class _Latencies(msgspec.Struct):
    mean: float = 0.0
    max: float = 0.0
    percentile: dict[str, int] = {}


class _Direction(msgspec.Struct):
    iops: float = 0.0
    bw_bytes: float = 0.0
    total_ios: int = 0
    clat_ns: _Latencies = msgspec.field(default_factory=_Latencies)


class _Job(msgspec.Struct):
    error: int = 0
    read: _Direction = msgspec.field(default_factory=_Direction)
    write: _Direction = msgspec.field(default_factory=_Direction)


class _Fio(msgspec.Struct):
    jobs: list[_Job]


def read_report(kind: str, text: str) -> Mapping[str, float]:
    """What a program reported, by names with their unit. Raises ValueError where it is none of its reports."""
    return _READERS[kind](text)


def _fio(text: str) -> Mapping[str, float]:
    # Warnings may stand before the document.
    begin = text.find("{")
    try:
        report = msgspec.json.decode(text[max(begin, 0) :].encode(), type=_Fio)
    except msgspec.DecodeError as error:
        raise ValueError(f"fio's report cannot be read: {error}") from error
    if not report.jobs or any(job.error for job in report.jobs):
        raise ValueError("fio reports errors")
    found: dict[str, float] = {}
    for direction in ("read", "write"):
        parts: list[_Direction] = [one for job in report.jobs if (one := getattr(job, direction)).total_ios]
        if not parts:
            continue
        total = sum(part.total_ios for part in parts)
        found["operations_per_s"] = found.get("operations_per_s", 0.0) + sum(part.iops for part in parts)
        found["bytes_per_s"] = found.get("bytes_per_s", 0.0) + sum(part.bw_bytes for part in parts)
        found["mean_ms"] = sum(part.clat_ns.mean * part.total_ios for part in parts) / total / _NS_PER_MS
        found["max_ms"] = max(part.clat_ns.max for part in parts) / _NS_PER_MS
        for name, percentile in (("p50_ms", "50.000000"), ("p99_ms", "99.000000"), ("p999_ms", "99.900000")):
            known = [part.clat_ns.percentile[percentile] for part in parts if percentile in part.clat_ns.percentile]
            if known:
                found[name] = max(known) / _NS_PER_MS
    if not found:
        raise ValueError("fio reports that it did nothing")
    return found


def _mdtest(text: str) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for line in text.splitlines():
        if match := _MDTEST_LINE.match(line):
            what, how, mean = match[1].lower(), match[2], float(match[5])
            if mean > 0:
                found[f"{what}_{how}_per_s"] = mean
    if "file_creation_per_s" not in found:
        raise ValueError("mdtest's report has no rate of file creation")
    return {"operations_per_s": found["file_creation_per_s"], **found}


def _ior(text: str) -> Mapping[str, float]:
    # What was not asked for has a line too, with a rate of 0.
    found = [float(rate) * _MIB for _, rate in _IOR_LINE.findall(text) if float(rate) > 0]
    if not found:
        raise ValueError("IOR's report has no rate")
    if len(found) > 1:
        raise ValueError("IOR reports writing and reading in one call: it would have read out of memory")
    return {"bytes_per_s": found[0]}


_READERS: dict[str, Callable[[str], Mapping[str, float]]] = {"fio": _fio, "mdtest": _mdtest, "ior": _ior}
