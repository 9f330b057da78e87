"""Figures, comparisons and cautions from measurements. Pure."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import fsum
from statistics import fmean, median
from typing import Any

from migrator.bench.model import BenchmarkResult, BenchmarkState, HostRun, Reference, Step, Suite, SuiteName, Unit
from migrator.bench.suites import suite
from migrator.core.statistics import Factor, Series, paired_factor, series, unpaired_factor
from migrator.core.units import format_factor, several
from migrator.fs.model import syncfs_reaches_disks

# Comparison of file systems with each other and with published figures


_SHORT_S = 0.1
"""Programs start in some milliseconds, which is at least a few percent of such a step."""
_APART_S = 0.1
"""Hosts whose starts are further apart did not start together."""
_UNCOMPRESSED = frozenset({"xfs", "ext2", "ext3", "ext4", "tmpfs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One file system's figures of a step: `details` are medians of the other measurements."""

    label: str
    figures: Series
    details: Mapping[str, float]
    cold: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """How many times as fast `other` is as `base`: above 1, `other` is faster, in any unit."""

    base: str
    other: str
    speed: Factor

    @property
    def verdict(self) -> str:
        """Whether that is beyond the noise, as a sentence."""
        speed = self.speed
        turned = speed.factor < 1
        faster, slower = (self.base, self.other) if turned else (self.other, self.base)
        factor = 1 / speed.factor if turned else speed.factor
        said = f"{faster} was {format_factor(factor)} times as fast as {slower}"
        how = f"{speed.count} pairs" if speed.paired else f"{speed.count} runs or more of each"
        if speed.low is None or speed.high is None:
            return f"{said}; whether that is more than noise cannot be told from so few runs ({how})"
        low, high = (1 / speed.high, 1 / speed.low) if turned else (speed.low, speed.high)
        interval = f"{format_factor(low)} to {format_factor(high)}, {how}"
        if speed.beyond_noise:
            return f"{said} ({interval}): beyond the noise"
        return f"no difference beyond the noise between {self.base} and {self.other} ({interval})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepComparison:
    """One step on every side. `contrasts` are between any two sides that were measured together; between benchmarks,
    of sides with the same label, and of sides that were never measured together.
    """

    step: str
    title: str
    unit: Unit
    sides: tuple[Side, ...]
    contrasts: tuple[Contrast, ...]
    published: tuple[Reference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """The load of hosts before the runs on one side: load average, and bytes per second of disks and network."""

    label: str
    load: Series
    disk_bytes_per_s: Series
    network_bytes_per_s: Series


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteComparison:
    """A suite. `benchmarks` are the numbers of the compared benchmarks; `cautions` weaken the comparison, `notes` are
    other remarks, mainly what was left out.
    """

    suite: SuiteName
    title: str
    benchmarks: tuple[int, ...]
    scale: float
    sizes: str
    runs: int
    hosts: tuple[str, ...]
    started_at_s: float
    steps: tuple[StepComparison, ...]
    background: tuple[Busy, ...]
    cautions: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """A side with its benchmark, its place, and the value of each run."""

    number: int
    place: str
    side: Side
    values: Mapping[int, float]


def compare(results: Sequence[BenchmarkResult]) -> tuple[SuiteComparison, ...]:
    """Each suite at each scale. Sides that were measured together are paired run by run, others are not. If several
    benchmarks have the same suite and scale, each side carries its benchmark's number.
    """
    groups: dict[tuple[SuiteName, float], list[BenchmarkResult]] = {}
    for result in results:
        groups.setdefault((result.record.suite, result.record.scale), []).append(result)
    return tuple(_suite(suite(name, scale), group) for (name, scale), group in groups.items())


def statements(comparison: SuiteComparison) -> tuple[str, ...]:
    """A sentence for every pair: the tests with differences beyond the noise, and the number of undecided ones."""
    pairs: dict[tuple[str, str], list[tuple[str, Factor]]] = {}
    for step in comparison.steps:
        for one in step.contrasts:
            pairs.setdefault((one.base, one.other), []).append((step.title, one.speed))
    return tuple(_statement(base, other, every) for (base, other), every in pairs.items())


def _statement(base: str, other: str, every: Sequence[tuple[str, Factor]]) -> str:
    faster = [title for title, speed in every if speed.beyond_noise and speed.factor > 1]
    slower = [title for title, speed in every if speed.beyond_noise and speed.factor <= 1]
    parts = [
        f"{words} {base} in {len(titles)} of {several(len(every), 'test')} ({'; '.join(titles)})"
        for words, titles in (("faster than", faster), ("slower than", slower))
        if titles
    ]
    said = f"beyond the noise, {other} is {' and '.join(parts)}" if parts else ""
    said = said or f"nothing between {base} and {other} is beyond the noise"
    if unknown := sum(speed.beyond_noise is None for _, speed in every):
        said += f"; {several(unknown, 'test')} with too few runs to tell"
    return said


def _suite(planned: Suite, group: Sequence[BenchmarkResult]) -> SuiteComparison:
    steps = tuple(found for step in planned.steps if (found := _step(step, group)) is not None)
    return SuiteComparison(
        suite=planned.name,
        title=planned.title,
        benchmarks=tuple(result.record.id for result in group),
        scale=planned.scale,
        sizes=planned.sizes,
        runs=max(result.record.runs for result in group),
        hosts=group[0].record.hosts,
        started_at_s=group[0].record.started_at_s,
        steps=steps,
        background=tuple(busy for result in group for busy in _background(result, several=len(group) > 1)),
        cautions=tuple(_cautions(group, planned, steps)),
        notes=tuple(dict.fromkeys(note for result in group for note in result.record.notes)),
    )


def _step(step: Step, group: Sequence[BenchmarkResult]) -> StepComparison | None:
    sides: list[_Measured] = []
    for number, result in enumerate(group):
        for place in result.record.places:
            found = [one for one in result.measurements if one.step == step.name and one.place == place.label]
            if not found:
                continue
            names = sorted({detail for one in found for detail in one.details})
            side = Side(
                label=_label(place.label, result, several=len(group) > 1),
                figures=series([one.value for one in found]),
                details={name: median(one.details[name] for one in found if name in one.details) for name in names},
                cold=all(one.cold for one in found),
            )
            values = {one.run: one.value for one in found}
            sides.append(_Measured(number=number, place=place.label, side=side, values=values))
    if not sides or step.unit is None:
        return None
    return StepComparison(
        step=step.name,
        title=step.title,
        unit=step.unit,
        sides=tuple(one.side for one in sides),
        contrasts=tuple(_contrasts(step.unit, sides)),
        published=step.published,
    )


def _contrasts(unit: Unit, sides: Sequence[_Measured]) -> Iterator[Contrast]:
    pairs = list(combinations(sides, 2))
    together = {frozenset((one.place, two.place)) for one, two in pairs if one.number == two.number}
    for base, other in pairs:
        paired = base.number == other.number
        if not paired and base.place != other.place and frozenset((base.place, other.place)) in together:
            continue
        # Speed is proportional to a rate, and inversely proportional to a time.
        ones, twos = (base.values, other.values) if unit.more_is_better else (other.values, base.values)
        if paired:
            runs = sorted(ones.keys() & twos.keys())
            speed = paired_factor([ones[run] for run in runs], [twos[run] for run in runs])
        else:
            speed = unpaired_factor(list(ones.values()), list(twos.values()))
        if speed is not None:
            yield Contrast(base=base.side.label, other=other.side.label, speed=speed)


def _label(label: str, result: BenchmarkResult, *, several: bool) -> str:
    return f"{label} #{result.record.id}" if several else label


def _background(result: BenchmarkResult, *, several: bool) -> Iterator[Busy]:
    for place in result.record.places:
        measured = [one for one in result.measurements if one.place == place.label]
        looks = list({(one.run, look.host): look for one in measured for look in one.background}.values())
        if looks:
            yield Busy(
                label=_label(place.label, result, several=several),
                load=series([look.load_average for look in looks]),
                disk_bytes_per_s=series([look.disk_bytes_per_s for look in looks]),
                network_bytes_per_s=series([look.network_bytes_per_s for look in looks]),
            )


def _cautions(group: Sequence[BenchmarkResult], planned: Suite, steps: Sequence[StepComparison]) -> Iterator[str]:
    """Cautions about benchmarks of one suite at one scale, as sentences without their full stops."""
    if not all(side.cold for step in steps for side in step.sides):
        yield "caches could not be dropped, which needs root: reads may have come from memory"
    measured = [step for step in planned.steps if any(one.step == step.name for one in steps)]
    sizes_bytes = {step.name: step.size_bytes * len(group[0].record.hosts) for step in measured}
    if over := [
        f"{step.title} on {side.label}"
        for step in steps
        for side in step.sides
        if _seconds(step.unit, side.figures.median, sizes_bytes[step.step]) < _SHORT_S
    ]:
        yield (
            f"over within {_SHORT_S:g} s, so that the start of programs is a good part of it: {', '.join(over)}; "
            "a larger --scale says more"
        )
    if any(step.synced for step in measured) and (named := _named(group, lambda kind: not syncfs_reaches_disks(kind))):
        yield (
            f"of {named} no client can sync everything on the servers: what was unpacked there had left "
            "this host when the time ended, and some of it may have been in their memory"
        )
    zeros = any("if=/dev/zero" in lane for step in measured for lane in step.lanes)
    if zeros and (named := _named(group, lambda kind: kind not in _UNCOMPRESSED)):
        yield f"dd writes zeros: where the disks behind {named} compress, its figures say nothing of others' data"
    if len({result.record.hosts for result in group}) > 1:
        yield "the benchmarks ran on different hosts"
    if len(group) > 1:
        yield "they were not measured at the same time: what else the file systems did may have been different"
    for result in group:
        if result.record.state is not BenchmarkState.DONE:
            yield f"benchmark {result.record.id} is {result.record.state.value}: not every run is there"
        late_s = max((one.skew_s for one in result.measurements), default=0.0)
        if late_s > _APART_S:
            yield f"benchmark {result.record.id}: hosts began up to {late_s:.1f} s apart"


def _seconds(unit: Unit, value: float, size_bytes: int) -> float:
    """The duration of a step, if its figure shows it."""
    if unit is Unit.SECONDS:
        return value
    return size_bytes / value if unit is Unit.BYTES_PER_S else math.inf


def _named(group: Iterable[BenchmarkResult], chosen: Callable[[str], bool]) -> str:
    """The places whose type of file system is known."""
    places = {place for result in group for place in result.record.places}
    return ", ".join(
        sorted({f"{one.label} ({one.filesystem})" for one in places if one.filesystem and chosen(one.filesystem)})
    )


# Figures from the reports of lanes: fio 3.33 `--output-format=json`, mdtest 1.9.3 to 4.0, IOR 3 and 4


_MIB = 1 << 20
_NS_PER_MS = 1e6
_PERCENTILES = (("p50_ms", "50.000000"), ("p99_ms", "99.000000"), ("p999_ms", "99.900000"))
_MDTEST_CREATION = re.compile(r"^\s*File creation\s*:?\s+[\d.]+\s+[\d.]+\s+([\d.]+)", re.MULTILINE)
_IOR_RATE = re.compile(r"^Max (?:Write|Read):\s+([\d.]+) MiB/sec", re.MULTILINE)


def read_report(kind: str, text: str) -> Mapping[str, float]:
    """The values in a program's report, by names with their unit. Raises ValueError for other output."""
    match kind:
        case "fio":
            return _fio(text)
        case "mdtest":
            found = _MDTEST_CREATION.search(text)
            if found is None or not float(found[1]):
                raise ValueError("mdtest's report has no rate of file creation")
            return {"operations_per_s": float(found[1])}
        case _:
            # Tests that were not run have a line too, with a rate of 0.
            rates = [rate for rate in map(float, _IOR_RATE.findall(text)) if rate]
            if len(rates) != 1:
                raise ValueError("IOR's report does not have exactly one rate")
            return {"bytes_per_s": rates[0] * _MIB}


def _fio(text: str) -> Mapping[str, float]:
    try:
        # Warnings may precede the document.
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
    """The figure of a step over all hosts, each host's own, and the other measurements. Raises ValueError if it is
    missing.

    Times are means over the hosts. Rates of bytes are all bytes over the longest time, or the sum of the programs'
    reports; rates of operations are sums. Latencies are means over all reads.
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
    """Percentiles and maxima of the slowest, means over all reads, sums of counts and rates."""
    found = {}
    for name in sorted({name for lane in lanes for name in lane}):
        values = [(lane[name], lane.get("reads", 1.0)) for lane in lanes if name in lane]
        if name == "mean_ms":
            found[name] = fsum(value * reads for value, reads in values) / fsum(reads for _, reads in values)
        else:
            found[name] = (max if name.endswith("_ms") else fsum)(value for value, _ in values)
    return found
