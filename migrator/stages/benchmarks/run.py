"""`bench run`: suite by suite, run by run, the file systems in turn."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from migrator.decide.benchmark_room import room_problems
from migrator.decide.benchmark_suites import suite
from migrator.domain.benchmark import BenchmarkState, Program, Step, Suite
from migrator.domain.benchmark_run import (
    BenchmarkRequest,
    BenchmarkResult,
    BenchmarkSummary,
    PlaceRoom,
    PlannedStep,
)
from migrator.domain.errors import MigratorError, Refused, UsageError
from migrator.domain.events import EventKind, Severity
from migrator.domain.paths import show
from migrator.ports.benchmarks import RootSeen
from migrator.stages.benchmarks.cleaning import take_away
from migrator.stages.benchmarks.context import LOCK, BenchmarkWorld
from migrator.stages.benchmarks.measuring import Bench


async def run_benchmarks(request: BenchmarkRequest, world: BenchmarkWorld) -> BenchmarkSummary:
    """Run suites on file systems, A B A B, and write every figure down; a dry run only looks.

    What killed calls have left is taken away first. A suite that fails does not keep the others from being run; it is in the
    summary. Raises UsageError, Refused (no room; not the file system that was recorded), LockHeld, HostLost, ToolFailed.
    """
    if request.runs < 1 or not request.places or not request.suites or not request.hosts:
        raise UsageError("nothing to run", hint="name a suite and a file system, and at least one run")
    suites = tuple(suite(name, request.scale) for name in dict.fromkeys(request.suites))
    with nullcontext() if request.dry_run else world.locks.hold(LOCK, "benchmarks"):
        await _check(request, world)
        left = () if request.dry_run else await _taken_away(request, world)
        programs = {name for planned in suites for step in planned.steps for name in step.programs}
        seen = {
            (host, place.label): await world.workloads.look(host, place.root, programs)
            for host in request.hosts
            for place in request.places
        }
        room = _room(request, suites, seen)
        missing = _missing(programs, seen)
        summary = BenchmarkSummary(scale=request.scale, dry_run=request.dry_run, room=room, removed=left)
        if request.dry_run:
            problems = _room_problems(request, room)
            return replace(summary, steps=tuple(_planned(suites, missing)), notes=problems)
        if problems := _room_problems(request, room):
            raise Refused(
                "; ".join(problems),
                cause="the suites are too large for what is free",
                hint="give a smaller --scale, fewer suites, or --accept-unknown-inodes where that is what is not told",
            )
        places = tuple(
            replace(place, filesystem=seen[request.hosts[0], place.label].filesystem) for place in request.places
        )
        devices = {where: look.device for where, look in seen.items()}
        return await _run_all(replace(request, places=places), suites, missing, summary, world, devices=devices)


async def _check(request: BenchmarkRequest, world: BenchmarkWorld) -> None:
    """An empty mount point would be filled in the place of the file system, and measured. Raises Refused."""
    for place in request.places:
        there = {host: await world.not_there(host, place) for host in request.hosts}
        found = [*world.not_expected(place), *(f"host {host}: {problem}" for host, problem in there.items() if problem)]
        if found:
            raise Refused(
                f"{place.shown} is not the file system that was recorded: {'; '.join(found)}",
                hint="mount it, or name another directory with --on",
            )


async def _taken_away(request: BenchmarkRequest, world: BenchmarkWorld) -> tuple[str, ...]:
    cleaning = await take_away(request.places, request.hosts[0], world)
    for problem in cleaning.left:
        world.say(EventKind.BENCHMARK_LEFT, "bench", f"was left: {problem}", Severity.WARNING)
    return cleaning.removed


async def _run_all(
    request: BenchmarkRequest,
    suites: Sequence[Suite],
    missing: Mapping[str, str],
    summary: BenchmarkSummary,
    world: BenchmarkWorld,
    *,
    devices: Mapping[tuple[str, str], int],
) -> BenchmarkSummary:
    results, failures = [], []
    for planned in suites:
        record = world.records.start(
            suite=planned.name,
            scale=planned.scale,
            seed=request.seed,
            runs=request.runs,
            places=request.places,
            hosts=request.hosts,
            token=world.tokens(),
            at_s=world.clock.now_s(),
        )
        notes = tuple(f"left out: {step.title}: {why}" for step in planned.steps if (why := _why_not(step, missing)))
        steps = tuple(step for step in planned.steps if not _why_not(step, missing))
        try:
            bench = Bench(
                record=record,
                suite=replace(planned, steps=steps),
                world=world,
                watch_s=request.watch_s,
                devices=devices,
            )
            await _run_suite(bench, request)
        except MigratorError as error:
            failures.append(f"{planned.name}: {error.message}")
            world.say(EventKind.BENCHMARK_FAILED, planned.name, error.message, Severity.ERROR)
            record = world.records.finish(
                record.id, BenchmarkState.FAILED, at_s=world.clock.now_s(), notes=(*notes, error.message)
            )
        except asyncio.CancelledError:
            world.records.finish(record.id, BenchmarkState.INTERRUPTED, at_s=world.clock.now_s(), notes=notes)
            raise
        else:
            record = world.records.finish(record.id, BenchmarkState.DONE, at_s=world.clock.now_s(), notes=notes)
        measurements = tuple(world.records.measurements(record.id))
        results.append(BenchmarkResult(record=record, measurements=measurements))
    return replace(summary, results=tuple(results), failures=tuple(failures))


async def _run_suite(bench: Bench, request: BenchmarkRequest) -> None:
    for run in range(1, request.runs + 1):
        for place in request.places:
            words = f"run {run} of {request.runs} on {place.shown}: {bench.suite.sizes}"
            bench.world.say(EventKind.BENCHMARK_RUN, bench.suite.name, words)
            await bench.measure(place, run)


def _room(
    request: BenchmarkRequest, suites: Sequence[Suite], seen: Mapping[tuple[str, str], RootSeen]
) -> tuple[PlaceRoom, ...]:
    """By the host with the least room: a path may be another file system on each."""
    need_bytes = max(planned.need_bytes for planned in suites) * len(request.hosts)
    need_inodes = max(planned.need_inodes for planned in suites) * len(request.hosts)
    found = []
    for place in request.places:
        looks = [seen[host, place.label] for host in request.hosts]
        inodes = [look.free_inodes for look in looks if look.free_inodes is not None]
        found.append(
            PlaceRoom(
                place=place,
                need_bytes=need_bytes,
                free_bytes=min(look.free_bytes for look in looks),
                need_inodes=need_inodes,
                free_inodes=min(inodes) if inodes else None,
            )
        )
    return tuple(found)


def _room_problems(request: BenchmarkRequest, room: Sequence[PlaceRoom]) -> tuple[str, ...]:
    return tuple(
        problem
        for one in room
        for problem in room_problems(
            one,
            inodes_free=request.inodes_free.get(one.place.label),
            accept_unknown_inodes=request.accept_unknown_inodes,
        )
    )


def _missing(programs: Iterable[str], seen: Mapping[tuple[str, str], RootSeen]) -> Mapping[str, str]:
    """Why a program cannot be used: some host does not have it."""
    without = {
        name: sorted({host for (host, _), look in seen.items() if name not in look.programs}) for name in programs
    }
    return {name: f"{name} is not installed on {', '.join(hosts)}" for name, hosts in without.items() if hosts}


def _why_not(step: Step, missing: Mapping[str, str]) -> str:
    return "; ".join(missing[name] for name in step.programs if name in missing)


def _planned(suites: Sequence[Suite], missing: Mapping[str, str]) -> list[PlannedStep]:
    return [
        PlannedStep(
            suite=planned.name,
            sizes=planned.sizes,
            step=step.title,
            does=tuple(_does(step)),
            unit=step.unit.value if step.unit is not None else "",
            left_out=_why_not(step, missing),
        )
        for planned in suites
        for step in planned.steps
    ]


def _does(step: Step) -> list[str]:
    """The lanes in words: equal ones once, with their number."""
    said = [
        show(b" ".join(lane.argv)) if isinstance(lane, Program) else f"{lane.kind.value} {show(lane.path)}"
        for lane in step.lanes
    ]
    return [said[0], *([f"and {len(said) - 1} more at once"] if len(said) > 1 else [])]
