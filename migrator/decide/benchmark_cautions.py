"""What weakens what benchmarks say, as sentences without their full stops. Pure."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from migrator.decide.syncing import syncfs_reaches_disks
from migrator.domain.benchmark import Program, Suite, Unit
from migrator.domain.benchmark_run import BenchmarkResult
from migrator.domain.paths import show

_SHORT_S = 0.1
"""Programs begin in some milliseconds: of what is over within this, that is a few percent at least."""
_APART_S = 0.1
"""Hosts that began so far apart did not begin together."""
_UNCOMPRESSED = frozenset({"xfs", "ext2", "ext3", "ext4", "tmpfs"})
_ZEROS = b"if=/dev/zero"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFigure:
    """The mean of a step on one file system, in the step's unit; `cold` False: caches could not be dropped before it."""

    step: str
    title: str
    label: str
    mean: float
    cold: bool | None


def cautions(group: Sequence[BenchmarkResult], planned: Suite, figures: Sequence[SideFigure]) -> Iterator[str]:
    """Of benchmarks of one suite, at one scale."""
    if any(one.cold is False for one in figures):
        yield "caches could not be dropped, which needs root: reads may have come from memory"
    if over := _over_at_once(planned, figures, hosts=len(group[0].record.hosts)):
        yield (
            f"over within {_SHORT_S:g} s, so that the start of programs is a good part of it: {', '.join(over)}; "
            "a larger --scale says more"
        )
    yield from _unsynced(group, planned, figures)
    yield from _zeros(group, planned, figures)
    yield from _one_label_for_several(group)
    if len({result.record.hosts for result in group}) > 1:
        yield "the benchmarks ran on different hosts"
    if len(group) > 1:
        yield "they were not measured at the same time: what else the file systems did may have been different"
    for result in group:
        if result.record.state.value != "done":
            yield f"benchmark {result.record.id} is {result.record.state.value}: not every run is there"
        late_s = max((one.skew_s for one in result.measurements), default=0.0)
        if late_s > _APART_S:
            yield f"benchmark {result.record.id}: hosts began up to {late_s:.1f} s apart"


def _over_at_once(planned: Suite, figures: Sequence[SideFigure], *, hosts: int) -> list[str]:
    """Which tests took hardly any time, and on what."""
    steps = {step.name: step for step in planned.steps}
    found = []
    for one in figures:
        step, seconds = steps[one.step], math.inf
        if step.unit is Unit.SECONDS:
            seconds = one.mean
        elif step.unit is Unit.BYTES_PER_S:
            seconds = step.size_bytes * hosts / one.mean
        if seconds < _SHORT_S:
            found.append(f"{one.title} on {one.label}")
    return found


def _unsynced(group: Sequence[BenchmarkResult], planned: Suite, figures: Sequence[SideFigure]) -> Iterator[str]:
    """What was unpacked is synced with syncfs(2), which reaches the disks of not all servers."""
    measured = {one.step for one in figures}
    if not any(step.synced and step.name in measured for step in planned.steps):
        return
    named = _named(group, lambda kind: not syncfs_reaches_disks(kind))
    if named:
        yield (
            f"of {named} no client can sync everything on the servers: what was unpacked there had left "
            "this host when the time ended, and some of it may have been in their memory"
        )


def _zeros(group: Sequence[BenchmarkResult], planned: Suite, figures: Sequence[SideFigure]) -> Iterator[str]:
    """What published tests write with dd is zeros."""
    measured = {one.step for one in figures}
    of_zeros = any(
        step.name in measured and isinstance(lane, Program) and _ZEROS in lane.argv
        for step in planned.steps
        for lane in step.lanes
    )
    if of_zeros and (named := _named(group, lambda kind: kind not in _UNCOMPRESSED)):
        yield f"dd writes zeros: where the disks behind {named} compress, its figures say nothing of others' data"


def _named(group: Sequence[BenchmarkResult], chosen: Callable[[str], bool]) -> str:
    """The places whose kind of file system is known and chosen."""
    return ", ".join(
        sorted(
            {
                f"{place.label} ({place.filesystem})"
                for result in group
                for place in result.record.places
                if place.filesystem and chosen(place.filesystem)
            }
        )
    )


def _one_label_for_several(group: Sequence[BenchmarkResult]) -> Iterator[str]:
    seen: dict[str, dict[str, list[int]]] = {}
    for result in group:
        for place in result.record.places:
            words = f"{place.filesystem or 'something'} at {show(place.root)}"
            seen.setdefault(place.label, {}).setdefault(words, []).append(result.record.id)
    for label, kinds in seen.items():
        if len(kinds) > 1:
            each = (f"{words} in {', '.join(map(str, numbers))}" for words, numbers in kinds.items())
            yield f"{label} is not one file system: {', '.join(each)}"
