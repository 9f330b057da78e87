"""Figures, comparisons and cautions from measurements. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import fsum
from statistics import fmean, median

from msgspec import Struct
from msgspec.structs import replace

from migrator.bench.model import BenchmarkResult, BenchmarkState, FigureUnit, HostRun, Reference, Step, Suite, SuiteName
from migrator.bench.suites import suite
from migrator.core.statistics import Factor, Series, factor_between, series
from migrator.core.units import format_count, format_factor

# Comparison of file systems with each other and with published figures


_SHORT_S = 0.1
"""Programs start in a few milliseconds, which is at least a few percent of such a step."""
_APART_S = 0.1
"""Hosts whose starts are further apart did not start together."""


class StepFigures(Struct, frozen=True, kw_only=True):
    """One file system's figures of a step."""

    label: str
    """Label of the file system."""
    figures: Series
    """The values of the runs."""
    load: Series
    """Load averages of its hosts before the runs."""
    details: Mapping[str, float]
    """Medians of the other figures; sums if the step is a check."""
    verdict: str = ""
    """Of a check of `consistency`: a sentence."""
    evidence: tuple[str, ...] = ()
    """Of a check of `consistency`: what it saw late or wrong."""


class Contrast(Struct, frozen=True, kw_only=True):
    """How many times as fast `other` is as `base`: above 1, `other` is faster, in any unit."""

    base: str
    """Label of one file system."""
    other: str
    """Label of the other."""
    speed: Factor
    """How many times as fast `other` is."""

    @property
    def verdict(self) -> str:
        """A sentence: whether the ratio is beyond the noise."""
        speed = self.speed
        sentence = f"{self.other} was {format_factor(speed.factor)} times as fast as {self.base}"
        if speed.low is None or speed.high is None:
            return f"{sentence}; too few runs to exclude noise ({speed.count})"
        beyond = "beyond the noise" if speed.beyond_noise else "not beyond the noise"
        return f"{sentence} ({format_factor(speed.low)} to {format_factor(speed.high)}): {beyond}"


class StepComparison(Struct, frozen=True, kw_only=True):
    """One step on every side, with the contrasts of each pair."""

    step: str
    """Name of the step."""
    title: str
    """Its name for people."""
    unit: FigureUnit
    """The unit of its figures."""
    sides: tuple[StepFigures, ...]
    """The figures of each file system."""
    contrasts: tuple[Contrast, ...]
    """The ratios."""
    published: tuple[Reference, ...]
    """Published tests of this step."""


class SuiteComparison(Struct, frozen=True, kw_only=True):
    """One suite on several file systems: `bench compare`."""

    suite: SuiteName
    """The suite."""
    title: str
    """Its name for people."""
    benchmarks: tuple[int, ...]
    """Numbers of the compared benchmarks."""
    scale: float
    """Factor of all sizes."""
    sizes: str
    """The sizes in words."""
    runs: int
    """Number of runs of each step."""
    hosts: tuple[str, ...]
    """The hosts that worked together."""
    started_at_s: float
    """When the first one began."""
    steps: tuple[StepComparison, ...]
    """The comparison of each step."""
    cautions: tuple[str, ...]
    """What weakens the comparison."""
    notes: tuple[str, ...]
    """Other remarks, mainly steps that were left out."""


def compare(results: Sequence[BenchmarkResult]) -> tuple[SuiteComparison, ...]:
    """Each suite at each scale. If several benchmarks have the same suite and scale, each side carries its benchmark's
    number.
    """
    groups: dict[tuple[SuiteName, float], list[BenchmarkResult]] = {}
    for result in results:
        groups.setdefault((result.record.suite, result.record.scale), []).append(result)
    return tuple(_suite(suite(name, scale), group) for (name, scale), group in groups.items())


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
        cautions=tuple(_cautions(group, planned, steps)),
        notes=tuple(dict.fromkeys(note for result in group for note in result.record.notes)),
    )


def _sides(group: Sequence[BenchmarkResult]) -> Iterator[tuple[str, BenchmarkResult, str]]:
    """The sides to compare: the shown label, the benchmark, and the label of the place in it."""
    for result in group:
        for place in result.record.places:
            yield f"{place.label} #{result.record.id}" if len(group) > 1 else place.label, result, place.label


def _step(step: Step, group: Sequence[BenchmarkResult]) -> StepComparison | None:
    sides = []
    for label, result, place in _sides(group):
        found = [one for one in result.measurements if one.step == step.name and one.place == place]
        if found:
            names = sorted({detail for one in found for detail in one.details})
            middle = fsum if step.is_check else median
            details = {name: middle(one.details[name] for one in found if name in one.details) for name in names}
            figures, load = series([one.value for one in found]), series([one.load_average for one in found])
            side = StepFigures(label=label, figures=figures, load=load, details=details)
            if step.is_check:
                evidence = tuple(f"run {one.run}: {words}" for one in found for words in one.evidence)
                side = replace(side, verdict=_verdict(side), evidence=evidence)
            sides.append(side)
    if not sides or step.unit is None:
        return None
    return StepComparison(
        step=step.name,
        title=step.title,
        unit=step.unit,
        sides=tuple(sides),
        contrasts=() if step.is_check else tuple(_contrasts(step.unit, sides)),
        published=step.published,
    )


def _verdict(side: StepFigures) -> str:
    """What a check found over all runs."""
    checked, late, wrong = (round(side.details[name]) for name in ("checked", "late", "wrong"))
    if wrong:
        return f"wrong for good or lost: {format_count(wrong)} of {format_count(checked)}"
    if late:
        return f"late by up to {side.figures.most:.1f} s: {format_count(late)} of {format_count(checked)}"
    return f"at once: all {format_count(checked)}"


def _contrasts(unit: FigureUnit, sides: Sequence[StepFigures]) -> Iterator[Contrast]:
    for base, other in combinations(sides, 2):
        # Speed is proportional to a rate, and inversely proportional to a time.
        ones, twos = (base, other) if unit.more_is_better else (other, base)
        speed = factor_between(ones.figures.values, twos.figures.values)
        if speed is not None:
            yield Contrast(base=base.label, other=other.label, speed=speed)


def _cautions(group: Sequence[BenchmarkResult], planned: Suite, steps: Sequence[StepComparison]) -> Iterator[str]:
    """Cautions about benchmarks of one suite at one scale, as sentences without their full stops."""
    if not all(one.cold for result in group for one in result.measurements):
        yield "caches could not be dropped, which needs root: reads may have come from memory"
    sizes_bytes = {step.name: step.size_bytes * len(group[0].record.hosts) for step in planned.steps}
    if over := [
        f"{step.title} on {side.label}"
        for step in steps
        for side in step.sides
        if not side.verdict and _is_short(step.unit, side.figures.median, sizes_bytes[step.step])
    ]:
        yield (
            f"over within {_SHORT_S:g} s, so that the start of programs is a good part of it: {', '.join(over)}; "
            "a larger --scale is more precise"
        )
    if len(group) > 1:
        yield "they were not measured at the same time: what else the file systems did may have been different"
    for result in group:
        if result.record.state is not BenchmarkState.DONE:
            yield f"benchmark {result.record.id} is {result.record.state.value}: not every run is there"
        late_s = max((one.skew_s for one in result.measurements), default=0.0)
        if late_s > _APART_S:
            yield f"benchmark {result.record.id}: hosts began up to {late_s:.1f} s apart"


def _is_short(unit: FigureUnit, value: float, size_bytes: int) -> bool:
    """Whether the figure of a step shows that it ended almost at once."""
    if unit is FigureUnit.SECONDS:
        return value < _SHORT_S
    return unit is FigureUnit.BYTES_PER_S and size_bytes < value * _SHORT_S


# Figures


_NS_PER_MS = 1e6
_PERCENTILES = (("p50_ms", "50.000000"), ("p99_ms", "99.000000"), ("p999_ms", "99.900000"))


def read_fio(text: str) -> Mapping[str, float]:
    """The values in a report of fio 3.33 with `--output-format=json`, by names with their unit. Raises ValueError for
    other output.
    """
    try:
        # Warnings may precede the document.
        (job,) = json.loads(text[max(text.find("{"), 0) :])["jobs"]
        failed = job["error"]
        (one,) = (job[direction] for direction in ("read", "write") if job[direction]["total_ios"])
        latency = one["clat_ns"]
        percentiles = latency.get("percentile", {})
        figures = {
            "operations_per_s": one["iops"],
            "bytes_per_s": one["bw_bytes"],
            "mean_ms": latency["mean"] / _NS_PER_MS,
            "max_ms": latency["max"] / _NS_PER_MS,
            **{name: percentiles[key] / _NS_PER_MS for name, key in _PERCENTILES if key in percentiles},
        }
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"fio's report has no figures of one job in one direction: {error}") from error
    if failed:
        raise ValueError(f"fio reports error {failed}")
    return figures


def figure(step: Step, hosts: Sequence[HostRun]) -> tuple[float, Mapping[str, float], Mapping[str, float]]:
    """The figure of a step over all hosts, each host's own, and the other measurements. Raises ValueError if it is
    missing.

    Times are means over the hosts. Rates of bytes are all bytes over the longest time; rates of operations are sums.
    Latencies are means over all reads.
    """
    details = _together([lane for host in hosts for lane in host.lanes])
    moved = step.size_bytes * len(hosts) / max(1e-9, *(host.elapsed_s for host in hosts))
    match step.unit:
        case FigureUnit.SECONDS:
            by_host = {host.host: host.elapsed_s for host in hosts}
            value = fmean(by_host.values())
            if step.size_bytes:
                details["bytes_per_s"] = moved
        case FigureUnit.BYTES_PER_S:
            by_host = {host.host: step.size_bytes / max(host.elapsed_s, 1e-9) for host in hosts}
            value = moved
        case _:
            name = "operations_per_s" if step.unit is FigureUnit.OPERATIONS_PER_S else "mean_ms"
            by_host = {host.host: _together(host.lanes).get(name, 0.0) for host in hosts}
            value = details.get(name, 0.0)
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
