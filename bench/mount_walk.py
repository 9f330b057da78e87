"""The walk of a mount: on a local disk against `find`, and on a file system each of whose calls takes its time."""

import os
import shlex
import shutil
import statistics
import subprocess
import time
from functools import partial
from pathlib import Path

from bench.options import Options
from bench.program import plain_site
from bench.results import Rate, Section, Table
from bench.scan import FIND_FORMAT
from bench.slow_mount import slow_mount
from bench.timing import Contestant, alternate, ratio, say, shell
from bench.trees import TREE, describe, fill, small_users, tally
from migrator.native.program import native_program

NAME = "mount-walk"
FILES, SLOW_FILES = 50_000, 3_000
LOCAL_TIMES = 1.0
SLOW = ((0.001, 2), (0.001, 16), (0.005, 16), (0.005, 64))
"""Seconds of a call, and workers."""
OF_THE_LEAST = 1 / 1.2
CACHED_S = 1.0


def mount_walk(options: Options) -> Section:
    """Raises ContestantFailed where this machine cannot."""
    place = options.directory.with_name(f"{options.directory.name}-{NAME}")
    shutil.rmtree(place, ignore_errors=True)
    try:
        source = place / "source"
        source.mkdir(parents=True)
        fill(source, small_users(options.count(FILES, 400), options.seed))
        facts = {"local disk": describe(tally(source / TREE)), "workers there": "16"}
        table = _local(place, options)
        rates = _slow(place / "slow", options)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return Section(
        name=NAME,
        title="The walk of a mount",
        facts=facts,
        tables=[table],
        rates=rates,
        notes=(
            "`find` reads no attributes; the walk reads them and the ACLs of every path.",
            "The least that a walk can take is calls x time of a call / workers. The calls are counted by the file system, which "
            "answers by FUSE; entries and attributes are cached for a second, as by the client of GlusterFS.",
        ),
    )


def _local(place: Path, options: Options) -> Table:
    (place / "target").mkdir()
    program = plain_site(place, place / "source", place / "target")

    def find() -> dict[str, float]:
        shell(f"find {shlex.quote(str(place / 'source'))} -printf {shlex.quote(FIND_FORMAT)} > {place}/find.out")
        return {}

    def walk() -> dict[str, float]:
        _walk(place / "source", workers=16, output=place / "walk.out")
        return {}

    def scan() -> dict[str, float]:
        return program.scan("mount")[1]

    works = {"find -printf": find, "the walk alone": walk, "migrator scan": scan}
    series = alternate(
        [
            Contestant(name=name, work=work, prepare=partial(_settle, cold=options.cold), rounds=options.rounds(5))
            for name, work in works.items()
        ],
        options.rounds(5),
    )
    times = {one.name: one.times_s for one in series}
    walks = [run.parts_s["walk_s"] for one in series if one.name == "migrator scan" for run in one.runs]
    return Table(
        title="A local disk, caches cold" if options.cold else "A local disk, caches warm",
        series=series,
        ratios=[
            *ratio("the walk alone against find", times["find -printf"], times["the walk alone"], LOCAL_TIMES),
            *ratio("migrator scan, its walk and its catalog, against find", times["find -printf"], walks),
            *ratio("migrator scan, all of the command, against find", times["find -printf"], times["migrator scan"]),
        ],
    )


def _settle(*, cold: bool) -> None:
    os.sync()
    if cold:
        Path("/proc/sys/vm/drop_caches").write_text("3\n")
        _read_programs()


def _read_programs() -> None:
    """What the contestants' own programs are made of is read again: it is the data that shall be cold."""
    Path(os.fsdecode(native_program().path)).read_bytes()
    subprocess.run(["find", "/dev/null"], check=True, stdout=subprocess.DEVNULL)


def _slow(place: Path, options: Options) -> list[Rate]:
    (place / "backing").mkdir(parents=True)
    fill(place / "backing", small_users(options.count(SLOW_FILES, 200), options.seed))
    rates: list[Rate] = []
    for call_s, workers in SLOW:
        mounted = place / f"{call_s}-{workers}"
        mounted.mkdir()
        shares: list[float] = []
        with slow_mount(mounted, place / "backing", call_s=call_s, cached_s=CACHED_S) as mount:
            for _ in range(options.rounds(3)):
                time.sleep(2 * CACHED_S)
                before = sum(mount.requests().values())
                begun_s = time.monotonic()
                _walk(mount.path, workers=workers, output=place / "walk.out")
                elapsed_s = time.monotonic() - begun_s
                calls = sum(mount.requests().values()) - before
                shares.append(calls * call_s / workers / elapsed_s)
                say(f"{call_s * 1000:g} ms a call, {workers} workers: {calls} calls in {elapsed_s:.2f} s")
        rates.append(
            Rate(
                name=f"of the speed that {workers} workers can have at {call_s * 1000:g} ms a call",
                median=statistics.median(shares),
                lowest=min(shares),
                highest=max(shares),
                at_least=OF_THE_LEAST,
            )
        )
    return rates


def _walk(root: Path, *, workers: int, output: Path) -> None:
    argv = [os.fsdecode(native_program().path), "walk", "--mount", str(root), "--listings", "--workers", str(workers)]
    with output.open("wb") as file:
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=file, check=True)
