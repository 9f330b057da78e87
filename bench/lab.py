"""The labs of the benchmarks: each a real volume that is filled once and measured again and again.

A scan reads a volume whole, so every job has a volume of its own that holds what the job is about.
"""

import asyncio
import json
import os
import shutil
import stat
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.options import Options
from bench.timing import call, say
from bench.trees import Tally, UserSpec, fill
from migrator.core.clock import SystemClock
from migrator.core.errors import MigratorError
from migrator.core.units import GIB
from migrator.fs.model import SENTINEL_NAME
from migrator.hosts.process import LocalProcesses
from migrator.lab import cluster
from migrator.lab.down import lab_down
from migrator.lab.machine import LabTools, why_no_cluster
from migrator.lab.model import LabKind, LabPhase, LabSpec, LabState
from migrator.lab.record import read_record
from migrator.lab.up import lab_up

_FILLED = "filled.json"
_LINK_TO_MODE = stat.S_IFREG | stat.S_ISVTX
_OVERHEAD_BYTES = 2 * GIB

OUTSIDE_FILES = 3
"""What every lab has beside its users' trees."""

VOLUME = "distribute, 3 hosts with 2 bricks each (XFS on loop devices); the target is XFS on a loop device"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchLab:
    """A lab that is up and filled. Paths of bricks are as this machine sees them."""

    state: LabState
    users: tuple[UserSpec, ...]
    copied: dict[str, Path] = field(default_factory=dict)
    """Groups of which `migrator` made a finished copy that is on the target now, and the site.toml of each."""

    @property
    def directory(self) -> Path:
        return _path(self.state.spec.directory)

    @property
    def source(self) -> Path:
        return _path(self.state.source)

    @property
    def target(self) -> Path:
        return _path(self.state.target)

    @property
    def work(self) -> Path:
        """Where the benchmarks keep sites, lists and logs: none of it on the volume or the target."""
        place = self.directory / "bench"
        place.mkdir(exist_ok=True)
        return place

    @property
    def bricks(self) -> tuple[Path, ...]:
        return tuple(
            Path(f"/proc/{self.state.hosts[brick.host - 1].holder_pid}/root{cluster.brick_path(brick.number)}")
            for brick in self.state.bricks
        )

    @property
    def site(self) -> dict[str, Any]:
        """The lab's own site.toml."""
        return tomllib.loads(_path(self.state.site_file).read_text())

    def empty_target(self) -> None:
        """Nothing on the target, and nothing that waits to be written."""
        self.copied.clear()
        for entry in self.target.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        os.sync()

    def forget_site(self) -> None:
        """Let the next site be the first one: takes away the sentinel that `init` left on the volume."""
        (self.source / os.fsdecode(SENTINEL_NAME)).unlink(missing_ok=True)

    def settle(self, *, cold: bool) -> None:
        """What is before everything that is timed: nothing left to write; with `cold` no cache that knows anything.

        The volume is mounted with a new client then, and the page cache, also that of bricks and target, is dropped. What
        the contestants' own programs are made of is read again: it is the data that shall be cold.
        """
        os.sync()
        if cold:
            call(["umount", self.source])
            Path("/proc/sys/vm/drop_caches").write_text("3\n")
            tools = LabTools(LocalProcesses(), self.state.token)
            asyncio.run(cluster.mount_source(self.state, tools, SystemClock()))
            call(
                [
                    sys.executable,
                    "-c",
                    "import migrator.cli.main, migrator.cli.run, migrator.cli.scan, migrator.cli.plan, duckdb, pyarrow.parquet, sqlalchemy",
                ]
            )
            for program in ("rsync", "tar", "cp", "find"):
                if shutil.which(program):
                    call([program, "--version"])

    def data_files(self, group: str) -> Iterator[tuple[Path, Path]]:
        """The files of a directory of the volume as they lie on the bricks: the path within it, and the file."""
        for brick in self.bricks:
            top = brick / group
            for place, _, names in os.walk(top):
                for name in names:
                    file = Path(place, name)
                    status = file.lstat()
                    if status.st_mode != _LINK_TO_MODE or status.st_size:
                        yield file.relative_to(top), file

    def tally(self, group: str) -> Tally:
        """What a directory of the volume holds, counted on the bricks."""
        files = size_bytes = 0
        directories: set[str] = set()
        for brick in self.bricks:
            top = os.fspath(brick / group)
            directories.update(place[len(top) :] for place, _, _ in os.walk(top))
        for _, file in self.data_files(group):
            files += 1
            size_bytes += file.lstat().st_size
        return Tally(files=files, directories=len(directories) - 1, size_bytes=size_bytes)

    def fullest_share(self, group: str) -> float:
        """The bytes on the fullest brick, as a multiple of those on the average one."""
        sizes = dict.fromkeys(self.bricks, 0)
        for path, file in self.data_files(group):
            brick = file.parents[len(path.parts) + len(Path(group).parts) - 1]
            sizes[brick] += file.lstat().st_size
        return max(sizes.values()) * len(sizes) / max(sum(sizes.values()), 1)


@contextmanager
def bench_lab(options: Options, name: str, users: tuple[UserSpec, ...], *, hosts: int = 3) -> Iterator[BenchLab]:
    """A lab that holds these users and nothing else, taken down at the end unless it is to be kept.

    One that was kept is used again where it was filled with the same. Ends the program where none can be built here.
    """
    if reason := why_no_cluster():
        raise SystemExit(f"bench: a Gluster cluster cannot run here: {reason}")
    directory = options.directory.with_name(f"{options.directory.name}-{name}")
    try:
        yield _kept(directory, users, hosts) or _new(directory, users, hosts)
    finally:
        if options.keep:
            say(f"the lab is up; remove it with: migrator lab down --dir {directory}")
        else:
            asyncio.run(lab_down(os.fsencode(directory), LocalProcesses(), SystemClock()))


def _kept(directory: Path, users: tuple[UserSpec, ...], hosts: int) -> BenchLab | None:
    """The lab that is there, where it is what is wanted; any other one is taken down."""
    try:
        state = read_record(os.fsencode(directory))
    except MigratorError:
        return None
    mark = directory / _FILLED
    up = state.phase is LabPhase.UP and len(state.hosts) == hosts
    if up and mark.exists() and json.loads(mark.read_text()) == _mark(users):
        return BenchLab(state=state, users=users)
    say("the lab that was kept holds something else: it is taken down")
    asyncio.run(lab_down(os.fsencode(directory), LocalProcesses(), SystemClock()))
    return None


def _new(directory: Path, users: tuple[UserSpec, ...], hosts: int) -> BenchLab:
    # XFS takes 4 KiB at least for a small file, and Gluster some more for its own facts.
    total = sum(user.small * 16384 + sum(user.sizes_bytes) for user in users)
    largest = max((size for user in users for size in user.sizes_bytes), default=0)
    spec = LabSpec(
        directory=os.fsencode(directory),
        kind=LabKind.GLUSTER,
        hosts=hosts,
        bricks_per_host=2,
        brick_size_bytes=total // (hosts * 2) + largest * 2 + _OVERHEAD_BYTES,
        target_size_bytes=total + _OVERHEAD_BYTES,
        users=1,
        files=0,
        data_bytes=0,
        odd=False,
    )
    state = asyncio.run(lab_up(spec, LocalProcesses(), SystemClock(), on_step=lambda step: say(f"lab: {step}")))
    lab = BenchLab(state=state, users=users)
    begun_s = time.monotonic()
    fill(lab.source, users)
    files = sum(user.small + len(user.sizes_bytes) for user in users)
    say(f"lab: {files:,} files are written ({time.monotonic() - begun_s:.0f} s)")
    os.sync()
    (directory / _FILLED).write_text(json.dumps(_mark(users)))
    return lab


def _mark(users: tuple[UserSpec, ...]) -> object:
    return json.loads(json.dumps([asdict(user) for user in users]))


def _path(path: bytes) -> Path:
    return Path(os.fsdecode(path))
