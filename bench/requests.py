"""Requests that a client sends to a network file system for each file: new, unchanged and changed ones.

The target is the file system of the tests that copies BeeGFS, by FUSE. It caches no names: each lookup is a request. Its fsync
can be made slow.
"""

import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench.options import Options
from bench.program import Program, planned_plain_site
from bench.results import Rate, Section
from bench.timing import say
from bench.trees import TREE, describe, fill, lengthen, small_users, tally
from tests.support.beegfs_like import CONTENT_REQUESTS, beegfs_like, metadata_requests, requests_of

NAME = "requests"
FILES, SLOW_FILES = 1_000, 500
FSYNC_S = 0.01
MOST, MOST_VERIFIED = 7, 4
CP = ("cp", "-r", "--preserve=ownership,timestamps,links")
"""With modes it fails here, as on BeeGFS: it removes ACLs."""

Job = Callable[[], object]


def requests(options: Options) -> Section:
    place = options.directory.with_name(f"{options.directory.name}-{NAME}")
    try:
        shutil.rmtree(place, ignore_errors=True)
        for name, files in (("few", FILES), ("slow", SLOW_FILES)):
            (place / name / "source").mkdir(parents=True)
            fill(place / name / "source", small_users(options.count(files, 200), options.seed))
        facts = _counted(place / "few")
        return Section(
            name=NAME,
            title="Requests to a network file system",
            facts=facts,
            tables=(),
            rates=_slow(place / "slow"),
            notes=(
                f"Metadata requests are all but {', '.join(CONTENT_REQUESTS)}. The least for a new small file are its creation, its "
                "owner and its time, with a lookup for the first and the last: it is closed before its time is set, so that no client "
                "sets one of its own; for its verification, a lookup and a list of attributes, and a lookup and an open to read it. "
                f" At most {MOST} are wanted, and {MOST_VERIFIED} for its verification.",
                f"With a sync of {FSYNC_S * 1000:g} ms: what `migrator` copies is on the disks when it says so; `cp` and `rsync` "
                "do not sync.",
            ),
        )
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _counted(place: Path) -> dict[str, str]:
    source = place / "source"
    files, directories = _count(source)
    facts = {"tree": describe(tally(source / TREE))}
    for name, copy in (
        ("cp", _cp),
        ("rsync -a", _rsync),
        ("migrator, direct", "direct"),
        ("migrator, rsync", "rsync"),
    ):
        with beegfs_like(_new(place / "mounted"), cached_s=1.0) as target:
            again = _program(place, target, copy) if isinstance(copy, str) else copy(source, target)
            for what in ("new", "unchanged", "one of ten changed"):
                if what.startswith("one"):
                    lengthen(source / TREE, every=10)
                before = requests_of(target)
                again()
                facts[f"{name}, {what}"] = _described(requests_of(target) - before, files, directories)
                say(f"{name}, {what}: {facts[f'{name}, {what}']}")
                if copy is _cp:
                    break
                if copy == "direct" and what == "new":
                    facts.update(_verified(place, target, files, directories))
    return facts


def _verified(place: Path, target: Path, files: int, directories: int) -> dict[str, str]:
    """The requests of the verification that follows a copy: it reads the content of the target."""
    program, before = Program(site_file=place / "site" / "site.toml"), requests_of(target)
    program.verb("verify", "--all")
    return {"migrator verify": _described(requests_of(target) - before, files, directories)}


def _described(found: Counter[str], files: int, directories: int) -> str:
    each = ", ".join(f"{kind} {count / files:.2f}" for kind, count in sorted(found.items()) if count > files / 100)
    return (
        f"{metadata_requests(found) / files:.2f} metadata requests a file, with {directories / files:.2f} directories; "
        f"{each or 'no requests'}"
    )


def _slow(place: Path) -> list[Rate]:
    rates: list[Rate] = []
    files, _ = _count(place / "source")
    for name, copy in (("cp, no sync", _cp), ("migrator, direct, one stream", "direct")):
        with beegfs_like(_new(place / "mounted"), fsync_s=FSYNC_S) as target:
            again = (
                _program(place, target, copy, "--jobs", "1")
                if isinstance(copy, str)
                else copy(place / "source", target)
            )
            begun_s = time.monotonic()
            again()
            rate = files / (time.monotonic() - begun_s)
        rates.append(
            Rate(name=f"files, {name}, fsync takes {FSYNC_S * 1000:g} ms", median=rate, lowest=rate, highest=rate)
        )
    return rates


def _count(source: Path) -> tuple[int, int]:
    """The number of files, and of directories."""
    found = [(len(names), len(directories)) for _, directories, names in os.walk(source)]
    return sum(files for files, _ in found), sum(directories for _, directories in found)


def _new(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory


def _cp(source: Path, target: Path) -> Job:
    return lambda: subprocess.run([*CP, str(source / TREE), str(target)], check=True)


def _rsync(source: Path, target: Path) -> Job:
    return lambda: subprocess.run(["rsync", "-a", str(source / TREE), f"{target}/"], check=True)


def _program(place: Path, target: Path, engine: str, *options: str) -> Job:
    """A run of a new site, after its scan and its plan; called again, a delta pass."""
    program = planned_plain_site(place / "site", place / "source", target, transfer='reserve = "16MiB"\n')
    done: list[object] = []

    def again() -> None:
        done.append(program.verb("run", "--all", "--engine", engine, "--deltas", "1" if done else "0", *options))

    return again
