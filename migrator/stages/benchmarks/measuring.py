"""One run of a suite on one file system: make, look around, each step on every host at once, remove."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migrator.decide.benchmark_figures import HostFigures, figure
from migrator.domain.benchmark import Background, BenchmarkRecord, Measurement, Place, Step, Suite
from migrator.domain.errors import MigratorError, Refused, ToolFailed
from migrator.domain.events import EventKind, Severity
from migrator.ports.benchmarks import StepSeen, WorkDirectory
from migrator.ports.cancelling import to_the_end
from migrator.stages.benchmarks.context import BenchmarkWorld, part_of

_LEAD_S = 0.5
_ROUND_TRIPS = 4
"""The agreed time lies so far ahead: the script has to be sent and started on every host until then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The runs of one benchmark. `devices` are the file systems that were there when it began, by host and label of the place."""

    record: BenchmarkRecord
    suite: Suite
    world: BenchmarkWorld
    watch_s: float
    devices: Mapping[tuple[str, str], int]

    async def measure(self, place: Place, run: int) -> None:
        """Measure all steps once, and write each down as soon as it is. Everything is removed again, also when it fails or is
        cancelled. Raises HostLost, ToolFailed, Refused (not the file system any more that was there at the beginning).
        """
        workloads = self.world.workloads
        directories = tuple(
            WorkDirectory(host=host, root=place.root, name=self.record.directory, part=part_of(host))
            for host in self.record.hosts
        )
        background = await self._background()
        await self._require_same(place)
        try:
            # One after the other: the first makes what all of them share.
            for directory in directories:
                await workloads.make(directory)
            for step in self.suite.steps:
                await self._step(step, place, run, directories, background)
        finally:
            await to_the_end(self._remove(directories))

    async def _require_same(self, place: Place) -> None:
        """Hours may have gone by, and an empty mount point would be measured in the place of the file system, and filled."""
        problems = [*self.world.not_expected(place)]
        for host in self.record.hosts:
            seen = await self.world.workloads.look(host, place.root, ())
            if seen.device != self.devices[host, place.label]:
                problems.append(f"on host {host} another file system is mounted there")
        if problems:
            raise Refused(
                f"{place.shown} is not what it was when this benchmark began: {'; '.join(problems)}",
                cause="it was unmounted, or mounted anew",
                hint="mount it, then give the same command again; `migrator bench clean` removes what is left on it",
            )

    async def _background(self) -> tuple[Background, ...]:
        looks = (self.world.workloads.background(host, self.watch_s) for host in self.record.hosts)
        return tuple(await asyncio.gather(*looks))

    async def _step(
        self,
        step: Step,
        place: Place,
        run: int,
        directories: Sequence[WorkDirectory],
        background: tuple[Background, ...],
    ) -> None:
        cold = None
        if step.unit is not None and step.cold:
            dropping = (self.world.workloads.drop_caches(directory, step.programs) for directory in directories)
            cold = all(await asyncio.gather(*dropping))
        seen = await self._perform(step, directories)
        _raise_problems(step, place, seen)
        if step.unit is None:
            return
        try:
            found = figure(
                step.unit,
                [
                    HostFigures(host=one.host, elapsed_s=one.elapsed_s, lanes=tuple(lane.details for lane in one.lanes))
                    for one in seen
                ],
                size_bytes=step.size_bytes,
            )
        except ValueError as error:
            raise ToolFailed(f"{step.title} on {place.shown}: {error}") from error
        begun = [one.began_at_s for one in seen]
        self.world.records.measured(
            self.record.id,
            Measurement(
                place=place.label,
                run=run,
                step=step.name,
                unit=step.unit,
                value=found.value,
                by_host=found.by_host,
                at_s=self.world.clock.now_s(),
                details=found.details,
                background=background,
                cold=cold,
                skew_s=max(begun) - min(begun),
            ),
        )

    async def _perform(self, step: Step, directories: Sequence[WorkDirectory]) -> Sequence[StepSeen]:
        workloads, start_at_s = self.world.workloads, None
        if len(directories) > 1 and step.unit is not None:
            trips = await asyncio.gather(*(workloads.round_trip_s(directory.host) for directory in directories))
            start_at_s = self.world.clock.now_s() + _LEAD_S + _ROUND_TRIPS * max(trips)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(
                        workloads.perform(
                            directory,
                            step,
                            seed=self.record.seed,
                            start_at_s=start_at_s,
                            token=self.record.token,
                        )
                    )
                    for directory in directories
                ]
        except BaseExceptionGroup as group_error:
            raise _first(group_error) from group_error
        return [task.result() for task in tasks]

    async def _remove(self, directories: Sequence[WorkDirectory]) -> None:
        """From every host: a path may be another file system on each. What stays is taken away by the next call."""
        for directory in directories:
            try:
                await self.world.workloads.remove(directory)
            except MigratorError as error:
                self.world.say(
                    EventKind.BENCHMARK_LEFT,
                    self.suite.name,
                    f"the work directory cannot be removed: {error.message}; `migrator bench clean` tries again",
                    Severity.WARNING,
                )


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to tell people: the first of the program's own, where there is nothing worse."""
    found, rest = group.split(MigratorError)
    return group if found is None or rest is not None else found.exceptions[0]


def _raise_problems(step: Step, place: Place, seen: Sequence[StepSeen]) -> None:
    problems = [f"host {one.host}: {lane.problem}" for one in seen for lane in one.lanes if lane.problem]
    if problems:
        more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise ToolFailed(f"{step.title} on {place.shown} failed: {problems[0]}{more}")
