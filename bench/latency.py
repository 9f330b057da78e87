"""Files per second on a target each of whose calls takes its time, as a network file system's do, against files in flight."""

import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.options import Options
from bench.program import planned_plain_site
from bench.results import Rate, Section
from bench.slow_mount import slow_mount
from bench.timing import say
from bench.trees import TREE, describe, fill, lengthen, small_users, tally
from migrator.native.program import native_program

NAME = "latency"
FILES = 2_000
CALLS_S = (0.0002, 0.001, 0.005)
FSYNC_S = 0.01
IN_FLIGHT = (1, 4, 16, 64)
JOBS = (1, 4)
IN_FLIGHT_OF_A_STREAM = 16
OF_LINEAR = 0.8
CHANGED_OF = 10


def latency(options: Options) -> Section:
    """Raises ContestantFailed where this machine cannot."""
    place = options.directory.with_name(f"{options.directory.name}-{NAME}")
    shutil.rmtree(place, ignore_errors=True)
    try:
        source = place / "source"
        source.mkdir(parents=True)
        fill(source, small_users(options.count(FILES, 200), options.seed))
        rates: list[Rate] = []
        for call_s in CALLS_S:
            rates += _copier(place, call_s, options)
            rates += _program(place, call_s, options)
        facts = {"tree": describe(tally(source / TREE)), "a sync": f"{FSYNC_S * 1000:g} ms, one for each file"}
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return Section(
        name=NAME,
        title="A target whose calls wait",
        facts=facts,
        tables=(),
        rates=rates,
        notes=(
            "The compiled copier alone has one stream. The share of linear is its rate against that of one file in flight, "
            "times the number of files in flight.",
            f"A stream of `migrator run` has {IN_FLIGHT_OF_A_STREAM} files in flight. Its start, about a second, is part of its time. "
            f"Changed is one file of {CHANGED_OF}; the rate counts all files.",
            "The kernel makes new names in a directory one by one. The file system of the bench shares the cores with the copier.",
        ),
    )


def _copier(place: Path, call_s: float, options: Options) -> list[Rate]:
    source, rates = place / "source" / TREE, []
    names = [os.fsencode(path.relative_to(source)) for path in sorted(source.rglob("*")) if not path.is_dir()]
    records = b"".join(b":" + name + b"\0" for name in names)
    alone: list[float] = []
    for in_flight in IN_FLIGHT:
        found: list[float] = []
        for _ in range(options.rounds(3)):
            with _mounted(place, call_s) as target:
                for directory in (path for path in sorted(source.rglob("*")) if path.is_dir()):
                    (place / "backing" / directory.relative_to(source)).mkdir(parents=True)
                begun_s = time.monotonic()
                _copy(source, target, records, in_flight)
                found.append(len(names) / (time.monotonic() - begun_s))
        alone = alone or found
        rates.append(_rate(f"files, the copier alone, {call_s * 1000:g} ms a call, {in_flight} in flight", found))
        if in_flight > 1:
            shares = [rate / (in_flight * statistics.median(alone)) for rate in found]
            rates.append(
                _rate(f"share of linear, {call_s * 1000:g} ms a call, {in_flight} in flight", shares, OF_LINEAR)
            )
    return rates


def _copy(source: Path, target: Path, records: bytes, in_flight: int) -> None:
    words = [
        "--kind",
        "files",
        "--privileged",
        "--fsync",
        "--own-names",
        "--hard-links",
        "--acls",
        "--user-xattrs",
        "--digest",
    ]
    argv = [os.fsdecode(native_program().path), "copy", "--source", str(source), "--target", str(target), *words]
    argv += ["--name-seed", "1", "--in-flight", str(in_flight)]
    subprocess.run(argv, input=records, stdout=subprocess.DEVNULL, check=True)


def _program(place: Path, call_s: float, options: Options) -> list[Rate]:
    rates = []
    files = sum(len(names) for _, _, names in os.walk(place / "source"))
    for jobs in JOBS:
        found: dict[str, list[float]] = {"new": [], "unchanged": [], "changed": []}
        for _ in range(options.rounds(1)):
            with _mounted(place, call_s) as target:
                program = planned_plain_site(
                    place / "site", place / "source", target, transfer='reserve = "16MiB"\nchunk_files = 125\n'
                )
                work: dict[str, tuple[Callable[[], object], str]] = {
                    "new": (lambda: None, "0"),
                    "unchanged": (lambda: None, "1"),
                    "changed": (lambda: lengthen(place / "source" / TREE, every=CHANGED_OF), "1"),
                }
                for kind, (prepare, deltas) in work.items():
                    prepare()
                    begun_s = time.monotonic()
                    program.verb("run", "--all", "--engine", "direct", "--deltas", deltas, "--jobs", str(jobs))
                    found[kind].append(files / (time.monotonic() - begun_s))
        rates += [
            _rate(f"files, {kind}, `migrator run`, {call_s * 1000:g} ms a call, {jobs} streams", every)
            for kind, every in found.items()
        ]
    return rates


@contextmanager
def _mounted(place: Path, call_s: float) -> Iterator[Path]:
    """An empty target, mounted."""
    for name in ("mounted", "backing"):
        shutil.rmtree(place / name, ignore_errors=True)
        (place / name).mkdir()
    with slow_mount(place / "mounted", place / "backing", call_s=call_s, fsync_s=FSYNC_S) as mount:
        yield mount.path


def _rate(name: str, found: list[float], at_least: float | None = None) -> Rate:
    rate = Rate(name=name, median=statistics.median(found), lowest=min(found), highest=max(found), at_least=at_least)
    say(f"{name}: {rate.median:.2f}")
    return rate
