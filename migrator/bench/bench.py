"""`bench run` and `bench clean`."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import combinations

from msgspec import Struct
from msgspec.structs import replace

from migrator.bench import model
from migrator.bench.consistency import PATIENCE_MS, Checks
from migrator.bench.hosts import HostWorkloads, RootState, WorkDirectory
from migrator.bench.records import BenchmarkRecords
from migrator.bench.rules import figure
from migrator.bench.suites import room_problems, suite
from migrator.core.clock import Clock
from migrator.core.errors import MigratorError, Refused, ToolFailed, UsageError
from migrator.core.events import Event, EventKind, Severity
from migrator.core.paths import show
from migrator.core.progress import Progress
from migrator.core.tasks import task_group, to_the_end
from migrator.fs.model import BENCH_NAME
from migrator.ledger.locks import Locks

LOCK = "bench"
"""One measuring call at a time: two would distort each other's figures."""
_LEAD_S = 0.5
_ROUND_TRIPS = 4
"""The agreed start is this many round trips ahead: until then the script must be sent and started on every host."""


class BenchmarkPorts(Struct, frozen=True, kw_only=True):
    """The ports. `not_expected` returns why a place's file system is not the recorded one: nothing is written then.
    `not_there` does so for a host, and returns None if it is; it raises HostLost, ToolFailed, UsageError.
    """

    workloads: HostWorkloads
    records: "BenchmarkRecords"
    locks: Locks
    progress: Progress
    clock: Clock
    not_expected: Callable[[model.MeasuredFileSystem], tuple[str, ...]]
    not_there: Callable[[str, model.MeasuredFileSystem], Awaitable[str | None]]
    tokens: Callable[[], str]
    patience_ms: int = PATIENCE_MS

    def report(self, kind: EventKind, subject: str, message: str, severity: Severity = Severity.INFO) -> None:
        self.progress.event(
            Event(at_s=self.clock.now_s(), kind=kind, severity=severity, subject=subject, message=message)
        )


async def run_benchmarks(request: model.BenchmarkRequest, ports: BenchmarkPorts) -> model.BenchmarkSummary:
    """Run suites on file systems, A B A B, and record every figure; a dry run only checks.

    Leftovers of killed calls are removed first. A failed suite does not prevent the others; it is in the summary.
    Raises UsageError, Refused (no room; not the recorded file system), LockHeld, HostLost, ToolFailed.
    """
    if request.runs < 1 or not request.places or not request.suites or not request.hosts:
        raise UsageError("nothing to run", hint="name a suite and a file system, and at least one run")
    suites = [suite(name, request.scale) for name in dict.fromkeys(request.suites)]
    if any(":/" in host for host in request.hosts) and len(request.places) > 1:
        raise UsageError("HOST:/PATH is a mount of one file system", hint="give one --on")
    if model.SuiteName.CONSISTENCY in request.suites and len(request.hosts) < 2:
        raise UsageError(
            "the suite consistency needs two clients of the file system",
            hint="give two of site.toml, as --hosts gl1,gl2, or a second mount of this machine, as --hosts localhost --hosts "
            "localhost:/mnt/second",
        )
    with nullcontext() if request.dry_run else ports.locks.hold("benchmarks", LOCK):
        await _require_recorded(request, ports)
        removed = () if request.dry_run else await _remove_left(request, ports)
        programs = {name for planned in suites for step in planned.steps for name in step.programs}
        seen = {
            (host, place.label): await ports.workloads.read_root(host, place.root, programs)
            for host in request.hosts
            for place in request.places
        }
        room = _room(request, suites, seen)
        summary = model.BenchmarkSummary(scale=request.scale, dry_run=request.dry_run, room=room, removed=removed)
        problems = tuple(
            problem
            for one in room
            for problem in room_problems(
                one,
                inodes_free=request.inodes_free.get(one.place.label),
                accept_unknown_inodes=request.accept_unknown_inodes,
            )
        )
        possible = [_without_missing(planned, seen) for planned in suites]
        if request.dry_run:
            left_out = (f"{planned.name}: {note}" for planned, notes in possible for note in notes)
            return replace(summary, suites=tuple(planned for planned, _ in possible), notes=(*problems, *left_out))
        if problems:
            raise Refused(
                "; ".join(problems),
                cause="the suites are too large for what is free",
                hint="give a smaller --scale, fewer suites, or --accept-unknown-inodes if only the free inodes are unknown",
            )
        places = tuple(
            replace(place, filesystem=seen[request.hosts[0], place.label].filesystem) for place in request.places
        )
        devices = {where: look.device for where, look in seen.items()}
        results, failures = [], []
        for planned, notes in possible:
            record = ports.records.start(
                model.BenchmarkRecord(
                    id=0,
                    suite=planned.name,
                    scale=planned.scale,
                    seed=request.seed,
                    runs=request.runs,
                    places=places,
                    hosts=request.hosts,
                    token=ports.tokens(),
                    state=model.BenchmarkState.RUNNING,
                    started_at_s=ports.clock.now_s(),
                )
            )
            bench = _Bench(record=record, suite=planned, ports=ports, devices=devices)
            record, failure = await _recorded(bench, (*notes, *_same_mounts(planned, request, devices)))
            failures += [f"{planned.name}: {failure}"] if failure else []
            measurements = tuple(ports.records.measurements(record.id))
            results.append(model.BenchmarkResult(record=record, measurements=measurements))
        return replace(summary, results=tuple(results), failures=tuple(failures))


async def clean_up(places: Sequence[model.MeasuredFileSystem], host: str, ports: BenchmarkPorts) -> model.Cleaning:
    """Remove leftovers of killed calls of this site from these file systems, and from all that the ledger has. `host`
    reads the places. May be called again. Raises LockHeld.
    """
    with ports.locks.hold("remove what benchmarks have left", LOCK):
        return await _clean(places, host, ports)


async def _require_recorded(request: model.BenchmarkRequest, ports: BenchmarkPorts) -> None:
    """Raises Refused if a file system is not the recorded one. Otherwise a run would fill and measure the directory
    below an unmounted one.
    """
    for place in request.places:
        there = {host: await ports.not_there(host, place) for host in request.hosts}
        found = [*ports.not_expected(place), *(f"host {host}: {problem}" for host, problem in there.items() if problem)]
        if found:
            raise Refused(
                f"{place.shown} is not the file system that was recorded: {'; '.join(found)}",
                hint="mount it, or name another directory with --on",
            )


async def _remove_left(request: model.BenchmarkRequest, ports: BenchmarkPorts) -> tuple[str, ...]:
    cleaning = await _clean(request.places, request.hosts[0], ports)
    for problem in cleaning.left:
        ports.report(EventKind.BENCHMARK_LEFT, "bench", f"was left: {problem}", Severity.WARNING)
    return cleaning.removed


def _room(
    request: model.BenchmarkRequest, suites: Sequence[model.Suite], seen: Mapping[tuple[str, str], RootState]
) -> tuple[model.PlaceRoom, ...]:
    """The room on the host with the least: a path may be another file system on each."""
    found = []
    for place in request.places:
        looks = [seen[host, place.label] for host in request.hosts]
        inodes = [look.free_inodes for look in looks if look.free_inodes is not None]
        found.append(
            model.PlaceRoom(
                place=place,
                need_bytes=max(planned.need_bytes for planned in suites) * len(request.hosts),
                free_bytes=min(look.free_bytes for look in looks),
                need_inodes=max(planned.need_inodes for planned in suites) * len(request.hosts),
                free_inodes=min(inodes) if inodes else None,
            )
        )
    return tuple(found)


def _without_missing(
    planned: model.Suite, seen: Mapping[tuple[str, str], RootState]
) -> tuple[model.Suite, tuple[str, ...]]:
    """The suite without steps whose programs a host lacks, and the names of these."""
    kept, notes = [], []
    for step in planned.steps:
        without = {
            name: sorted({host for (host, _), look in seen.items() if name not in look.programs})
            for name in step.programs
        }
        missing = [f"{name} is not installed on {', '.join(hosts)}" for name, hosts in without.items() if hosts]
        if not missing:
            kept.append(step)
        elif step.unit is not None:
            notes.append(f"left out: {step.title}: {'; '.join(missing)}")
    return replace(planned, steps=tuple(kept)), tuple(notes)


def _same_mounts(
    planned: model.Suite, request: model.BenchmarkRequest, devices: Mapping[tuple[str, str], int]
) -> tuple[str, ...]:
    """Views of a host that are one mount, whose caches they share, as sentences."""
    if planned.name is not model.SuiteName.CONSISTENCY:
        return ()
    return tuple(
        f"{one} and {other} are one mount of {place.label}: their agreement proves nothing"
        for place in request.places
        for one, other in combinations(request.hosts, 2)
        if model.host_of(one) == model.host_of(other) and devices[one, place.label] == devices[other, place.label]
    )


async def _recorded(bench: "_Bench", notes: tuple[str, ...]) -> tuple[model.BenchmarkRecord, str]:
    """Run a suite and record its result; returns why it failed, or an empty text."""
    ports, record = bench.ports, bench.record
    state, failure = model.BenchmarkState.DONE, ""
    try:
        await bench.run()
    except MigratorError as error:
        state, failure = model.BenchmarkState.FAILED, error.message
        ports.report(EventKind.BENCHMARK_FAILED, bench.suite.name, failure, Severity.ERROR)
        notes = (*notes, failure)
    except asyncio.CancelledError:
        ports.records.finish(record.id, model.BenchmarkState.INTERRUPTED, at_s=ports.clock.now_s(), notes=notes)
        raise
    return ports.records.finish(record.id, state, at_s=ports.clock.now_s(), notes=notes), failure


class _Bench(Struct, frozen=True, kw_only=True):
    """The runs of one benchmark. `devices` are the file systems at its start, by host and label of the place."""

    record: model.BenchmarkRecord
    suite: model.Suite
    ports: BenchmarkPorts
    devices: Mapping[tuple[str, str], int]

    async def run(self) -> None:
        """Measure each file system in turn. Raises HostLost, ToolFailed, Refused (the file system has changed)."""
        for run in range(1, self.record.runs + 1):
            for place in self.record.places:
                words = f"run {run} of {self.record.runs} on {place.shown}: {self.suite.sizes}"
                self.ports.report(EventKind.BENCHMARK_RUN, self.suite.name, words)
                await self._measure(place, run)

    async def _measure(self, place: model.MeasuredFileSystem, run: int) -> None:
        """Run each step once, and record it at once. All files are removed again, also after an error or
        cancellation.
        """
        workloads = self.ports.workloads
        directories = [WorkDirectory(host=host, place=place, name=self.record.directory) for host in self.record.hosts]
        await self._require_same(place)
        try:
            # One after the other: the first one creates the shared directory.
            load_average = max([await workloads.make(directory) for directory in directories])
            for step in self.suite.steps:
                if step.is_check:
                    await self._check(step, run, directories, load_average)
                else:
                    await self._step(step, run, directories, load_average)
        finally:
            await to_the_end(self._remove(directories))

    async def _require_same(self, place: model.MeasuredFileSystem) -> None:
        """A file system may have been unmounted in the hours since the start; the directory below would be filled and
        measured.
        """
        problems = [*self.ports.not_expected(place)]
        for host in self.record.hosts:
            seen = await self.ports.workloads.read_root(host, place.root, ())
            if seen.device != self.devices[host, place.label]:
                problems.append(f"on host {host} another file system is mounted there")
        if problems:
            raise Refused(
                f"{place.shown} is not what it was when this benchmark began: {'; '.join(problems)}",
                cause="it was unmounted, or mounted anew",
                hint="mount it, then give the same command again; `migrator bench clean` removes what is left on it",
            )

    async def _step(
        self, step: model.Step, run: int, directories: Sequence[WorkDirectory], load_average: float
    ) -> None:
        if step.unit is None:
            await self._perform(step, directories, None)
            return
        workloads, start_at_s = self.ports.workloads, None
        dropping = (workloads.drop_caches(directory, step) for directory in directories)
        cold = all(await asyncio.gather(*dropping))
        if len(directories) > 1:
            start_at_s = await self._start_at_s(directories)
        hosts = await self._perform(step, directories, start_at_s)
        place = directories[0].place
        try:
            value, by_host, details = figure(step, hosts)
        except ValueError as error:
            raise ToolFailed(f"{step.title} on {place.shown}: {error}") from error
        begun = [one.began_at_s for one in hosts]
        self.ports.records.measured(
            self.record.id,
            model.Measurement(
                place=place.label,
                run=run,
                step=step.name,
                unit=step.unit,
                value=value,
                by_host=by_host,
                at_s=self.ports.clock.now_s(),
                details=details,
                load_average=load_average,
                cold=cold,
                skew_s=max(begun) - min(begun),
            ),
        )

    async def _start_at_s(self, directories: Sequence[WorkDirectory]) -> float:
        """The next time at which all hosts can start."""
        round_trip_s = self.ports.workloads.round_trip_s
        trips = await asyncio.gather(*(round_trip_s(directory.host) for directory in directories))
        return self.ports.clock.now_s() + _LEAD_S + _ROUND_TRIPS * max(trips)

    async def _check(
        self, step: model.Step, run: int, directories: Sequence[WorkDirectory], load_average: float
    ) -> None:
        """Check what hosts see of each other's changes. In each run another host is the first, which makes changes."""
        first = (run - 1) % len(directories)
        views = (*directories[first:], *directories[:first])
        checks = Checks(
            workloads=self.ports.workloads,
            views=views,
            run=run,
            token=self.record.token,
            starts=lambda: self._start_at_s(directories),
            patience_ms=self.ports.patience_ms,
        )
        found = await checks.check(step.lanes[0])
        self.ports.records.measured(
            self.record.id,
            model.Measurement(
                place=views[0].place.label,
                run=run,
                step=step.name,
                unit=model.FigureUnit.SECONDS,
                value=found.seconds,
                by_host={},
                at_s=self.ports.clock.now_s(),
                details={"checked": found.checked, "late": found.late, "wrong": found.wrong},
                load_average=load_average,
                evidence=found.evidence,
            ),
        )
        if step.lanes[0][1] == "create" and found.wrong == found.checked:
            raise ToolFailed(
                f"no other host sees any file that {views[0].host} made: {'; '.join(found.evidence[:2])}",
                cause="it is another file system there, or its clients do not share files at all",
                hint="compare the mounts of both",
            )

    async def _perform(
        self, step: model.Step, directories: Sequence[WorkDirectory], start_at_s: float | None
    ) -> list[model.HostRun]:
        seed, token = self.record.seed, self.record.token
        perform = self.ports.workloads.perform
        async with task_group() as group:
            tasks = [
                group.create_task(perform(one, step, seed=seed, start_at_s=start_at_s, token=token))
                for one in directories
            ]
        return [task.result() for task in tasks]

    async def _remove(self, directories: Sequence[WorkDirectory]) -> None:
        """Remove the directories on every host: a path may be another file system on each. The next call removes any
        leftovers.
        """
        for directory in directories:
            try:
                await self.ports.workloads.remove(directory)
            except MigratorError as error:
                self.ports.report(
                    EventKind.BENCHMARK_LEFT,
                    self.suite.name,
                    f"the work directory cannot be removed: {error.message}; `migrator bench clean` tries again",
                    Severity.WARNING,
                )


async def _clean(places: Sequence[model.MeasuredFileSystem], host: str, ports: BenchmarkPorts) -> model.Cleaning:
    """End the processes of killed calls, then remove their directories. The caller holds the lock."""
    removed: list[str] = []
    left: list[str] = []
    own = {record.directory: record for record in ports.records.all()}
    for record in own.values():
        if record.state is model.BenchmarkState.RUNNING:
            left += await _end(record, ports, removed)
    for place in places:
        if reasons := ports.not_expected(place):
            left.append("; ".join(reasons))
            continue
        try:
            seen = await ports.workloads.read_root(host, place.root, ())
        except MigratorError as error:
            left.append(f"{place.shown}: {error.message}")
            continue
        for name in seen.left:
            shown = _shown(place, name)
            if name in own:
                await ports.workloads.remove(WorkDirectory(host=host, place=place, name=name))
                removed.append(shown)
            else:
                left.append(f"{shown} is another site's")
    return model.Cleaning(removed=tuple(dict.fromkeys(removed)), left=tuple(left))


async def _end(record: model.BenchmarkRecord, ports: BenchmarkPorts, removed: list[str]) -> list[str]:
    """The reason why a benchmark could not be ended. While its processes live, its directory stays."""
    problems = []
    for host in record.hosts:
        try:
            if not await ports.workloads.end(host, record.token):
                problems.append(f"benchmark {record.id}: a process on {host} cannot be ended")
                continue
            for place in record.places:
                if reasons := ports.not_expected(place):
                    problems.append(f"benchmark {record.id}: {'; '.join(reasons)}")
                    continue
                seen = await ports.workloads.read_root(host, place.root, ())
                if place.filesystem not in ("", seen.filesystem):
                    problems.append(
                        f"benchmark {record.id}: {place.shown} was {place.filesystem}, and is {seen.filesystem} on {host} now: "
                        "what was left there cannot be removed before it is mounted"
                    )
                    continue
                # Also if the directory of benchmarks is empty: the call may have been killed at that moment.
                await ports.workloads.remove(WorkDirectory(host=host, place=place, name=record.directory))
                if record.directory in seen.left:
                    removed.append(_shown(place, record.directory))
        except MigratorError as error:
            problems.append(f"benchmark {record.id}: {error.message}")
    if not problems:
        ports.records.finish(record.id, model.BenchmarkState.INTERRUPTED, at_s=ports.clock.now_s())
    return problems


def _shown(place: model.MeasuredFileSystem, name: str) -> str:
    return f"{show(place.root)}/{show(BENCH_NAME)}/{name}"
