"""What killed calls have left: their processes are ended, then their directories removed."""

from collections.abc import Iterable, Sequence

from migrator.domain.benchmark import BENCH_NAME, BenchmarkRecord, BenchmarkState, Place
from migrator.domain.benchmark_run import Cleaning
from migrator.domain.errors import MigratorError
from migrator.domain.paths import show
from migrator.ports.benchmarks import WorkDirectory
from migrator.stages.benchmarks.context import LOCK, BenchmarkWorld, part_of


async def clean_up(places: Sequence[Place], host: str, world: BenchmarkWorld) -> Cleaning:
    """Take away what killed calls of this site have left: on these file systems, and wherever the ledger knows of one.

    `host` looks at the places. May be called again. Raises LockHeld.
    """
    with world.locks.hold(LOCK, "take away what benchmarks have left"):
        return await take_away(places, host, world)


async def take_away(places: Sequence[Place], host: str, world: BenchmarkWorld) -> Cleaning:
    """The same, where the lock is held."""
    removed: list[str] = []
    left: list[str] = []
    own = {record.directory: record for record in world.records.all()}
    for record in own.values():
        if record.state is BenchmarkState.RUNNING:
            left += await _ended(record, world, removed)
    for place in places:
        if reasons := world.not_expected(place):
            left.append("; ".join(reasons))
            continue
        try:
            seen = await world.workloads.look(host, place.root, ())
        except MigratorError as error:
            left.append(f"{place.shown}: {error.message}")
            continue
        for name in seen.left:
            shown = _shown(place, name)
            if name in own:
                await world.workloads.remove(WorkDirectory(host=host, root=place.root, name=name, part=""))
                removed.append(shown)
            elif shown not in left:
                left.append(f"{shown} is another site's")
    return Cleaning(removed=tuple(dict.fromkeys(removed)), left=tuple(left))


async def _ended(record: BenchmarkRecord, world: BenchmarkWorld, removed: list[str]) -> Iterable[str]:
    """What kept a benchmark from being brought to its end. Where its processes live on, its directory stays."""
    problems = []
    for host in record.hosts:
        try:
            if not await world.workloads.end(host, record.token):
                problems.append(f"benchmark {record.id}: a process on {host} cannot be ended")
                continue
            for place in record.places:
                if reasons := world.not_expected(place):
                    problems.append(f"benchmark {record.id}: {'; '.join(reasons)}")
                    continue
                seen = await world.workloads.look(host, place.root, ())
                if place.filesystem not in ("", seen.filesystem):
                    problems.append(
                        f"benchmark {record.id}: {place.shown} was {place.filesystem}, and is {seen.filesystem} on {host} now: "
                        "what was left there cannot be removed before it is mounted"
                    )
                    continue
                # Also where there is nothing in the directory of benchmarks: it may have been killed right then.
                directory = WorkDirectory(host=host, root=place.root, name=record.directory, part=part_of(host))
                await world.workloads.remove(directory)
                if record.directory in seen.left:
                    removed.append(_shown(place, record.directory))
        except MigratorError as error:
            problems.append(f"benchmark {record.id}: {error.message}")
    if not problems:
        world.records.finish(record.id, BenchmarkState.INTERRUPTED, at_s=world.clock.now_s())
    return problems


def _shown(place: Place, name: str) -> str:
    return f"{show(place.root)}/{show(BENCH_NAME)}/{name}"
