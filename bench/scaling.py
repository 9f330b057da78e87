"""Scaling: labs of 1 and of 3 hosts with the same files, every brick's disk held to a fixed rate."""

from contextlib import ExitStack

from bench.bulk import whole_job
from bench.lab import BenchLab, bench_lab
from bench.options import Options
from bench.results import Section, Table
from bench.throttle import Throttle, throttle_kind, throttled
from bench.timing import Contestant, ContestantFailed, alternate, ratio
from bench.trees import describe, sized_users, tally
from migrator.core.units import KIB, MIB
from migrator.lab.machine import processes_in

HOSTS = (1, 3)
GROUP = "scaling"
WANTED = 2.7
FILES = 5000
FILE_BYTES = 200 * KIB
HOST_RATE_BYTES = 20 * MIB
"""One host reads all of it in 49 s: long beside the start of the program."""


def scaling(options: Options) -> Section:
    """A section without tables where this kernel cannot limit what is read."""
    kind = throttle_kind()
    title = "Scaling: 1 and 3 hosts with a fixed disk rate each"
    if kind is None:
        why = {"all of it": "this kernel has neither io.max nor blkio.throttle"}
        return Section(name="scaling", title=title, facts={}, tables=(), left_out=why)
    users = sized_users(GROUP, (FILE_BYTES,) * options.count(FILES, 8), options.seed)
    with ExitStack() as stack:
        labs = {hosts: stack.enter_context(bench_lab(options, f"hosts-{hosts}", users, hosts=hosts)) for hosts in HOSTS}
        bricks = 2  # a host
        devices = [brick.stat().st_dev for lab in labs.values() for brick in lab.bricks]
        throttle = stack.enter_context(throttled(devices, HOST_RATE_BYTES // bricks))
        for lab in labs.values():
            throttle.take(processes_in(tuple(host.namespace for host in lab.state.hosts)))
        contestants = [_contestant(lab, options, hosts, throttle) for hosts, lab in labs.items()]
        one, three = series = alternate(contestants, options.rounds(1))
        most = 3 / labs[3].fullest_share(GROUP) * labs[1].fullest_share(GROUP)
        expected = labs[1].tally(GROUP)
    of_one, of_three = ([run.parts_s.get("run_s", 0.0) for run in found.runs] for found in series)
    return Section(
        name="scaling",
        title=title,
        facts={
            "files": describe(expected),
            "a host": f"2 bricks, each on a disk of its own that is read at {HOST_RATE_BYTES // 2 // MIB} MiB/s at most",
            "limited by": kind,
            "most that can be had": f"{most:.2f} times with 3 hosts (the fullest brick is the last to end)",
        },
        tables=(
            Table(
                title="Hosts",
                series=series,
                ratios=[
                    *ratio("`run` with 3 hosts against 1", of_one, of_three, WANTED),
                    *ratio("whole job with 3 hosts against 1", one.times_s, three.times_s),
                ],
            ),
        ),
        notes=("All hosts share the cores and the target of this machine; only what they read is limited.",),
    )


def _contestant(lab: BenchLab, options: Options, hosts: int, throttle: Throttle) -> Contestant:
    expected = lab.tally(GROUP)

    def check() -> None:
        found = tally(lab.target / GROUP)
        if (found.files, found.size_bytes) != (expected.files, expected.size_bytes):
            raise ContestantFailed(f"{describe(found)} arrived, not {describe(expected)}")

    name = f"migrator, {hosts} host{'s' if hosts > 1 else ''}"
    return whole_job(lab, options, GROUP, check, name=name, before=throttle.join)
