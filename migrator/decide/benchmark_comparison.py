"""What benchmarks say of file systems beside each other, and beside what others have published."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import harmonic_mean

from migrator.decide.benchmark_cautions import SideFigure, cautions
from migrator.decide.benchmark_statistics import Factor, Series, paired_factor, series, unpaired_factor
from migrator.decide.benchmark_suites import suite
from migrator.domain.benchmark import Step, SuiteName, Unit
from migrator.domain.benchmark_reference import Reference, references_of
from migrator.domain.benchmark_run import BenchmarkResult
from migrator.domain.units import several


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One file system's figures of a step: `figures` sums up its runs; `details` are the means of what else was measured."""

    label: str
    figures: Series
    details: Mapping[str, float]
    cold: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """How many times as fast `other` is as `base`: above 1, `other` is the faster one, whatever the unit counts."""

    base: str
    other: str
    speed: Factor

    @property
    def verdict(self) -> str:
        """Whether that is more than noise, as a sentence."""
        speed = self.speed
        factor = speed.factor if speed.factor >= 1 else 1 / speed.factor
        faster, slower = (self.other, self.base) if speed.factor >= 1 else (self.base, self.other)
        said = f"{faster} was {_times(factor)} times as fast as {slower}"
        how = f"{speed.count} pairs" if speed.paired else f"{speed.count} runs or more of each"
        if speed.low is None or speed.high is None or speed.beyond_noise is None:
            return f"{said}; whether that is more than noise cannot be told from so few runs ({how})"
        low, high = (speed.low, speed.high) if speed.factor >= 1 else (1 / speed.high, 1 / speed.low)
        interval = f"95 %: {_times(low)} to {_times(high)}, {how}"
        if speed.beyond_noise:
            return f"{said} ({interval}): beyond the noise"
        return f"no difference beyond the noise between {self.base} and {self.other} ({interval})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepComparison:
    """One step on every side. `contrasts` are between any two that were measured together; between benchmarks, of what has the
    same label in both, and of what was never measured together.
    """

    step: str
    title: str
    unit: Unit
    sides: tuple[Side, ...]
    contrasts: tuple[Contrast, ...]
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """What hosts did just before the runs on one side: load average and bytes per second of disks and network."""

    label: str
    load: Series | None
    disk_bytes_per_s: Series | None
    network_bytes_per_s: Series | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteComparison:
    """A suite. `benchmarks` are the numbers of what is compared; `cautions` are what weakens it, `notes` what else was
    written down, above all what was left out.
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
    """A side with what it is of: which of the benchmarks, which place, and the value of each run."""

    number: int
    place: str
    side: Side
    values: Mapping[int, float]


def compare(results: Sequence[BenchmarkResult]) -> tuple[SuiteComparison, ...]:
    """Suite by suite and scale by scale: what was measured together is paired run by run, what was not is not.

    Of several benchmarks at the same suite and scale, each side carries its benchmark's number.
    """
    groups: dict[tuple[SuiteName, float], list[BenchmarkResult]] = {}
    for result in results:
        groups.setdefault((result.record.suite, result.record.scale), []).append(result)
    return tuple(_suite(name, scale, group) for (name, scale), group in groups.items())


def statements(comparison: SuiteComparison) -> tuple[str, ...]:
    """A sentence for every pair: in which tests they differ beyond the noise, and of how many that cannot be said."""
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
    same = sum(speed.beyond_noise is False for _, speed in every)
    unknown = sum(speed.beyond_noise is None for _, speed in every)
    said = f"beyond the noise, {other} is {' and '.join(parts)}" if parts else ""
    rest = [
        words
        for count, words in (
            (same, f"{several(same, 'test')} without a difference beyond the noise"),
            (unknown, f"{several(unknown, 'test')} with too few runs to tell"),
        )
        if count
    ]
    if not said:
        said = f"nothing between {base} and {other} is beyond the noise"
        # That says it already.
        rest = rest if unknown else []
    return "; ".join([said, *rest])


def _times(factor: float) -> str:
    """How many times, to three digits: `0.85`, `2.24`, `17.4`, `103`."""
    decimals = 2 if factor < 10 else 1 if factor < 100 else 0
    return f"{factor:,.{decimals}f}"


def _suite(name: SuiteName, scale: float, group: Sequence[BenchmarkResult]) -> SuiteComparison:
    planned = suite(name, scale)
    measured = [step for step in planned.steps if step.unit is not None]
    steps = tuple(found for step in measured if (found := _step(step, name, group)) is not None)
    figures = [
        SideFigure(step=step.step, title=step.title, label=side.label, mean=side.figures.mean, cold=side.cold)
        for step in steps
        for side in step.sides
    ]
    return SuiteComparison(
        suite=name,
        title=planned.title,
        benchmarks=tuple(result.record.id for result in group),
        scale=scale,
        sizes=planned.sizes,
        runs=max(result.record.runs for result in group),
        hosts=group[0].record.hosts,
        started_at_s=group[0].record.started_at_s,
        steps=steps,
        background=tuple(busy for result in group for busy in _background(result, several=len(group) > 1)),
        cautions=tuple(cautions(group, planned, figures)),
        notes=tuple(dict.fromkeys(note for result in group for note in result.record.notes)),
    )


def _step(step: Step, name: SuiteName, group: Sequence[BenchmarkResult]) -> StepComparison | None:
    if step.unit is None:
        return None
    sides: list[_Measured] = []
    for number, result in enumerate(group):
        for place in result.record.places:
            found = [one for one in result.measurements if one.step == step.name and one.place == place.label]
            if not found:
                continue
            names = {detail for one in found for detail in one.details}
            side = Side(
                label=_label(place.label, result, several=len(group) > 1),
                figures=series([one.value for one in found]),
                details={
                    detail: _mean_detail(
                        detail, [one.details[detail] for one in found if detail in one.details], step.unit
                    )
                    for detail in sorted(names)
                },
                cold=None if all(one.cold is None for one in found) else all(one.cold is not False for one in found),
            )
            values = {one.run: one.value for one in found}
            sides.append(_Measured(number=number, place=place.label, side=side, values=values))
    if not sides:
        return None
    return StepComparison(
        step=step.name,
        title=step.title,
        unit=step.unit,
        sides=tuple(one.side for one in sides),
        contrasts=tuple(_contrasts(step.unit, sides)),
        references=tuple(one for one in references_of(name) if one.step == step.name),
    )


def _mean_detail(name: str, values: Sequence[float], unit: Unit) -> float:
    """Over the runs. The rate of a step that is timed is that of its mean time: of equal work, the harmonic mean."""
    if name == "bytes_per_s" and unit is Unit.SECONDS and min(values) > 0:
        return harmonic_mean(values)
    return series(values).mean


def _contrasts(unit: Unit, sides: Sequence[_Measured]) -> list[Contrast]:
    pairs = list(combinations(sides, 2))
    together = {frozenset((one.place, two.place)) for one, two in pairs if one.number == two.number}
    found = []
    for base, other in pairs:
        paired = base.number == other.number
        if not paired and base.place != other.place and frozenset((base.place, other.place)) in together:
            continue
        # Speed goes with a rate, and against a time.
        ones, twos = (base.values, other.values) if unit.more_is_better else (other.values, base.values)
        if paired:
            runs = sorted(ones.keys() & twos.keys())
            speed = paired_factor([ones[run] for run in runs], [twos[run] for run in runs])
        else:
            speed = unpaired_factor(list(ones.values()), list(twos.values()))
        if speed is not None:
            found.append(Contrast(base=base.side.label, other=other.side.label, speed=speed))
    return found


def _label(label: str, result: BenchmarkResult, *, several: bool) -> str:
    return f"{label} #{result.record.id}" if several else label


def _background(result: BenchmarkResult, *, several: bool) -> list[Busy]:
    found = []
    for place in result.record.places:
        seen = {
            (one.run, look.host): look
            for one in result.measurements
            if one.place == place.label
            for look in one.background
        }
        looks = list(seen.values())
        found.append(
            Busy(
                label=_label(place.label, result, several=several),
                load=_known([look.load_average for look in looks]),
                disk_bytes_per_s=_known([look.disk_bytes_per_s for look in looks]),
                network_bytes_per_s=_known([look.network_bytes_per_s for look in looks]),
            )
        )
    return found


def _known(values: Sequence[float | None]) -> Series | None:
    known = [value for value in values if value is not None]
    return series(known) if known else None
