"""The `Workloads` port: the script is sent to a host and asked one question at a time."""

import json
import os
import platform
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from migrator.adapters.benchmarks.reports import read_report
from migrator.adapters.far_source import far_argv, far_source
from migrator.domain.benchmark import BENCH_NAME, Background, Lane, Program, Step
from migrator.domain.errors import ToolFailed
from migrator.domain.paths import show
from migrator.ports.benchmarks import LaneSeen, RootSeen, StepSeen, WorkDirectory
from migrator.ports.hosts import Host, Hosts
from migrator.ports.processes import Command

_ASK_TIMEOUT_S = 600.0
_GRACE_S = 5.0

_MODULES = ("far_content", "far_work", "far_lanes", "far_main")
"""In the order in which they are loaded: each imports only earlier ones."""


_Answer = TypeVar("_Answer")


class _Look(msgspec.Struct, frozen=True):
    device: int
    filesystem: str
    free_bytes: int
    free_inodes: int | None
    is_root: bool
    left: list[str]
    programs: list[str]


class _Background(msgspec.Struct, frozen=True):
    span_s: float
    load_average: float | None
    disk_bytes_per_s: float | None
    network_bytes_per_s: float | None


class _Lane(msgspec.Struct, frozen=True):
    elapsed_s: float
    problem: str = ""
    details: dict[str, float] = {}
    output: str = ""


class _Performed(msgspec.Struct, frozen=True):
    began_at_s: float
    late_s: float
    elapsed_s: float
    lanes: list[_Lane]


class _Dropped(msgspec.Struct, frozen=True):
    dropped: bool


class _Nothing(msgspec.Struct, frozen=True):
    problem: str = ""


@cache
def script() -> bytes:
    """The script as one Python source in ASCII."""
    return far_source(__package__, _MODULES)


class HostWorkloads:
    """Over the hosts of a site."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._clock_offsets_s: dict[str, float] = {}

    async def look(self, host: str, root: bytes, programs: Collection[str]) -> RootSeen:
        """As the port says."""
        question = {"do": "look", "root": _text(root), "own": _text(BENCH_NAME), "programs": sorted(programs)}
        seen = await self._ask(host, question, _Look)
        return RootSeen(
            device=seen.device,
            filesystem=seen.filesystem,
            free_bytes=seen.free_bytes,
            free_inodes=seen.free_inodes,
            is_root=seen.is_root,
            left=tuple(seen.left),
            programs=frozenset(seen.programs),
        )

    async def make(self, directory: WorkDirectory) -> None:
        """As the port says."""
        await self._ask(directory.host, {"do": "make", **_place(directory)}, _Nothing)

    async def remove(self, directory: WorkDirectory) -> None:
        """As the port says. It may take as long as it takes: trees are large."""
        await self._ask(directory.host, {"do": "remove", **_place(directory)}, _Nothing, timeout_s=None)

    async def background(self, host: str, span_s: float) -> Background:
        """As the port says."""
        question = {"do": "background", "span_s": span_s}
        seen = await self._ask(host, question, _Background, timeout_s=span_s + _ASK_TIMEOUT_S)
        return Background(
            host=host,
            span_s=seen.span_s,
            load_average=seen.load_average,
            disk_bytes_per_s=seen.disk_bytes_per_s,
            network_bytes_per_s=seen.network_bytes_per_s,
        )

    async def drop_caches(self, directory: WorkDirectory, programs: Collection[str]) -> bool:
        """As the port says."""
        question = {"do": "drop", **_place(directory), "programs": sorted(programs)}
        found = await self._ask(directory.host, question, _Dropped, timeout_s=None)
        return found.dropped

    async def perform(
        self, directory: WorkDirectory, step: Step, *, seed: int, start_at_s: float | None, token: str
    ) -> StepSeen:
        """As the port says."""
        facts = await (await self._hosts.reach(directory.host)).identity()
        # What the clock was when the host was reached says little hours later.
        offset_s = self._clock_offsets_s.get(directory.host, facts.clock_offset_s)
        question = {
            "do": "perform",
            **_place(directory),
            "lanes": [_lane(lane) for lane in step.lanes],
            "seed": seed,
            "start_at": None if start_at_s is None else start_at_s + offset_s,
            "synced": step.synced,
        }
        seen = await self._ask(directory.host, question, _Performed, token=token, timeout_s=None)
        return StepSeen(
            host=directory.host,
            began_at_s=seen.began_at_s - offset_s,
            late_s=seen.late_s,
            elapsed_s=seen.elapsed_s,
            lanes=tuple(_seen(lane, found) for lane, found in zip(step.lanes, seen.lanes, strict=True)),
        )

    async def round_trip_s(self, host: str) -> float:
        """As the port says."""
        facts = await (await self._hosts.reach(host)).facts()
        self._clock_offsets_s[host] = facts.clock_offset_s
        return facts.round_trip_s

    async def end(self, host: str, token: str) -> bool:
        """As the port says."""
        return await (await self._hosts.reach(host)).processes.end(token, grace_s=_GRACE_S)

    async def _ask(
        self,
        name: str,
        question: Mapping[str, Any],
        kind: type[_Answer],
        *,
        token: str | None = None,
        timeout_s: float | None = _ASK_TIMEOUT_S,
    ) -> _Answer:
        host = await self._hosts.reach(name)
        command = Command(
            argv=far_argv((await host.identity()).python, script()),
            stdin=json.dumps({**question, "dies_with": await _parent(host)}).encode(),
            token=token,
            timeout_s=timeout_s,
        )
        completed = await host.processes.run(command)
        problem = f"exit code {completed.exit_code}: {show(completed.stderr.strip()[-300:])}"
        if completed.timed_out:
            problem = f"no answer within {timeout_s:.0f} s"
        try:
            if found := msgspec.json.decode(completed.stdout, type=_Nothing).problem:
                raise ToolFailed(f"host {name}: {found}")
            return msgspec.json.decode(completed.stdout, type=kind)
        except msgspec.DecodeError as error:
            raise ToolFailed(
                f"the benchmark on host {name} broke off: {problem}", cause="it was ended, or fails there"
            ) from error


async def _parent(host: Host) -> int | None:
    """The process that ends take the script along, where it is this one. Elsewhere the far end sees to that."""
    facts = await host.identity()
    own = facts.process_id == os.getpid() and facts.node_name == platform.node()
    return facts.process_id if own else None


def _lane(lane: Lane) -> Mapping[str, Any]:
    if isinstance(lane, Program):
        return {"argv": [_text(argument) for argument in lane.argv], "report": lane.report}
    return {
        "kind": lane.kind.value,
        "path": _text(lane.path),
        "count": lane.count,
        "size_bytes": lane.size_bytes,
        "directories": lane.directories,
        "threads": lane.threads,
        "duration_s": lane.duration_s,
    }


def _seen(lane: Lane, found: _Lane) -> LaneSeen:
    details, problem = found.details, found.problem
    if not problem and isinstance(lane, Program) and lane.report:
        try:
            details = {**details, **read_report(lane.report, found.output)}
        except ValueError as error:
            problem = str(error)
    return LaneSeen(elapsed_s=found.elapsed_s, problem=problem, details=details)


def _place(directory: WorkDirectory) -> Mapping[str, str]:
    return {"root": _text(directory.root), "own": _text(BENCH_NAME), "name": directory.name, "part": directory.part}


def _text(path: bytes) -> str:
    return path.decode("latin-1")
