"""Many streams of short chunks: what the program itself takes for a chunk, and whether its loop and its heartbeats keep time.

The hosts are far ends on this machine over the real protocol; the streams are real ones of rsync, confined.
"""

import asyncio
import dataclasses
import io
import os
import resource
import shutil
import sqlite3
import statistics
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest import mock

from msgspec import structs

from bench.options import Options
from bench.program import Program
from bench.results import Rate, Section, Table
from bench.timing import Run, Series, say
from bench.trees import TREE, describe, fill, small_users, tally
from migrator import app
from migrator.app.hosts import reached
from migrator.app.transfer import HostConnector, StreamRoots, run_request, run_world
from migrator.hosts.ports import HostLost
from migrator.hosts.process import Duplex
from migrator.hosts.remote import RemoteHost
from migrator.render.progress import open_progress
from migrator.site.load import load_site
from migrator.transfer.routes import HostLane
from migrator.transfer.run import run_batches

NAME = "streams"
HOSTS, STREAMS = 4, 16
FILES, CHUNK_FILES = 12_000, 16
LEASE_S, BEATS = 8.0, 4
HELD_S, HELD_AFTER_S = 10.0, 5.0
TICK_S = 0.02


@dataclass(slots=True, kw_only=True)
class Measured:
    """One run. Lateness: of a heartbeat after the one before, and of the event loop's own timer, beyond what was due."""

    chunks: int = 0
    elapsed_s: float = 0.0
    processor_s: float = 0.0
    beats_s: list[float] = field(default_factory=list)
    loop_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Here:
    """The `Transport` of a host that is this machine."""

    host: str
    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": os.environ["PATH"]})

    def argv(self, arguments: tuple[str, ...]) -> tuple[bytes, ...]:
        return tuple(os.fsencode(word) for word in (sys.executable, *arguments))

    def explain(self, stderr: bytes, exit_code: int | None, *, connected: bool) -> HostLost:  # noqa: ARG002 (the port)
        return HostLost(f"{self.host} ended with {exit_code}: {stderr!r}")


def streams(options: Options) -> Section:
    place = options.directory.with_name(f"{options.directory.name}-{NAME}")
    try:
        return _section(options, place)
    finally:
        if not options.keep:
            shutil.rmtree(place, ignore_errors=True)


def _section(options: Options, place: Path) -> Section:
    source = place / "source"
    if not source.exists():
        source.mkdir(parents=True)
        fill(source, small_users(options.count(FILES, 1000), options.seed))
    free, held = (
        Series(name="a ledger of its own"),
        Series(name=f"a ledger that another process holds for {HELD_S:g} s"),
    )
    found: dict[str, list[Measured]] = {free.name: [], held.name: []}
    for _ in range(options.rounds(1)):
        for series, hold_s in ((free, 0.0), (held, HELD_S)):
            load = os.getloadavg()[0]
            measured = asyncio.run(_measure(_prepared(place), hold_s))
            found[series.name].append(measured)
            series.runs.append(Run(elapsed_s=measured.elapsed_s, load_before=load))
            say(f"{series.name}: {measured.chunks / measured.elapsed_s:.1f} chunks/s; {_words([measured])}")
    return Section(
        name=NAME,
        title=f"{HOSTS * STREAMS} streams on {HOSTS} hosts",
        facts={"tree": f"{describe(tally(source / TREE))}, in chunks of {CHUNK_FILES} files"},
        tables=(Table(title="One pass", series=(free, held)),),
        rates=[_rate(f"chunks, with {name}", rounds) for name, rounds in found.items()],
        notes=[
            *(f"With {name}: {_words(rounds)}." for name, rounds in found.items()),
            "The hosts are far ends on this machine, over the real protocol, and share its cores with their streams; "
            f"the lease is {LEASE_S:g} s. Heartbeats are to be late by 1 s at most. Source and target are directories; caches stay.",
        ],
    )


def _rate(name: str, rounds: list[Measured]) -> Rate:
    found = [one.chunks / one.elapsed_s for one in rounds]
    return Rate(name=name, median=statistics.median(found), lowest=min(found), highest=max(found))


def _words(rounds: list[Measured]) -> str:
    """The processor time of a chunk as the median of the rounds, the latenesses over all of them."""
    chunk_ms = statistics.median(1000 * one.processor_s / one.chunks for one in rounds)
    late = [sorted(s for one in rounds for s in one.beats_s), sorted(s for one in rounds for s in one.loop_s)]
    beats, loop = (
        f"{1000 * some[-1]:.0f} ms at most, {1000 * some[len(some) * 99 // 100]:.0f} ms 99 of 100"
        if some
        else "a time that is not known, the run was too short"
        for some in late
    )
    return f"{chunk_ms:.1f} ms of processor time of the program a chunk; heartbeats late by {beats}; the event loop by {loop}"


def _prepared(place: Path) -> Path:
    """A new site, planned, with an empty target."""
    for name in ("target", "site"):
        shutil.rmtree(place / name, ignore_errors=True)
        (place / name).mkdir()
    site = place / "site" / "site.toml"
    site.write_text(
        f'[site]\nname = "bench"\nstate_dir = "state"\n[source]\nkind = "posix"\nmount = "{place}/source"\n[target]\n'
        f'kind = "posix"\nmount = "{place}/target"\n[users]\ntrees = ["{TREE}/*"]\n'
        f'[transfer]\nchunk_files = {CHUNK_FILES}\nlease = "{LEASE_S:g}s"\nreserve = "16MiB"\n'
    )
    program = Program(site_file=site)
    program.verb("init")
    program.scan()
    program.plan()
    os.sync()
    return site


async def _measure(site_file: Path, hold_s: float) -> Measured:
    site = load_site(site_file)
    wiring, measured = app.Wiring(site), Measured()
    hosts = [RemoteHost(Here(f"host-{number}"), lease_s=LEASE_S) for number in range(HOSTS)]
    ticking, last = asyncio.create_task(_tick(measured.loop_s)), dict[Duplex, float]()
    write_aside = Duplex.write_aside

    def beat(duplex: Duplex, content: bytes) -> None:
        write_aside(duplex, content)
        now_s = time.monotonic()
        if duplex in last:
            measured.beats_s.append(max(now_s - last[duplex] - LEASE_S / BEATS, 0.0))
        last[duplex] = now_s

    with (
        wiring.ledger() as ledger,
        wiring.source() as source,
        wiring.target(ledger.site.read()) as target,
        open_progress(io.StringIO(), wiring.clock) as progress,
        mock.patch.object(Duplex, "write_aside", beat),
    ):
        (name,) = ledger.plans.names()
        ports = partial(
            run_world, wiring, source, target, ledger=ledger, progress=progress, engine="rsync", jobs=STREAMS
        )
        async with reached(wiring.site) as of_site, ports(hosts=of_site) as own:
            connect = HostConnector(ledger.site.required(), source, target, engine="rsync").connect
            places = StreamRoots(source=wiring.source_root, target=wiring.target_root)

            async def reach(name: str) -> RemoteHost:
                return next(host for host in hosts if host.name == name)

            lanes = [
                HostLane(host.name, STREAMS, reads_mount=True, reach=reach, prepare=partial(connect, places=places))
                for host in hosts
            ]
            world = structs.replace(own, lanes=[dataclasses.replace(own.lanes[0], jobs=0), *lanes])
            holding = threading.Thread(target=_hold, args=(site.ledger_file, hold_s))
            holding.start()
            before, began_s = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
            request = run_request(site, name, [1], engine="rsync", jobs=STREAMS)
            summary = await run_batches(request, world, files=wiring.run_files(), hooks=wiring.hooks())
        measured.elapsed_s, after = time.monotonic() - began_s, resource.getrusage(resource.RUSAGE_SELF)
        measured.processor_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        measured.chunks = sum(batch.chunks for batch in summary.batches)
        holding.join()
    ticking.cancel()
    for host in hosts:
        await host.close()
    return measured


def _hold(ledger_file: Path, hold_s: float) -> None:
    """As a tool that keeps a transaction open."""
    if hold_s:
        time.sleep(HELD_AFTER_S)
        with closing(sqlite3.connect(ledger_file, isolation_level=None, timeout=60)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(hold_s)
            connection.execute("ROLLBACK")


async def _tick(late_s: list[float]) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + TICK_S
        await asyncio.sleep(TICK_S)
        late_s.append(max(loop.time() - due_s, 0.0))
