"""Benchmarks on hosts: a script is sent to each host, and answers one question at a time."""

import hashlib
import json
import os
import platform
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from migrator.bench.model import HostRun, MeasuredFileSystem, Step, host_of, mount_of
from migrator.bench.rules import read_fio
from migrator.core.errors import ToolFailed
from migrator.fs.model import BENCH_NAME
from migrator.hosts.ports import Command, Host, Hosts

_ASK_TIMEOUT_S = 600.0
_GRACE_S = 5.0

_Answer = TypeVar("_Answer")


class RootState(msgspec.Struct, frozen=True, kw_only=True):
    """A file system on a host: its type, and the room for users other than root. `free_inodes` is None if it does not
    report them. `device` is its number there until it is unmounted. `left` are the names in its directory of
    benchmarks; `programs` are the requested ones that the host has.
    """

    device: int
    filesystem: str
    free_bytes: int
    free_inodes: int | None
    left: tuple[str, ...]
    programs: frozenset[str]


class WorkDirectory(Struct, frozen=True, kw_only=True):
    """The work directory of one host: `part` in the directory `name` in the directory of benchmarks of a file system."""

    host: str
    place: MeasuredFileSystem
    name: str

    @property
    def part(self) -> str:
        """One for each host. A host name may contain characters that a file name must not."""
        return "host-" + hashlib.sha256(self.host.encode("utf-8", "surrogateescape")).hexdigest()[:32]


class _Problem(msgspec.Struct, frozen=True):
    problem: str = ""


class _Lane(msgspec.Struct, frozen=True):
    problem: str
    output: str


class _Performed(msgspec.Struct, frozen=True):
    began_at_s: float
    elapsed_s: float
    lanes: list[_Lane]


class ConsistencyResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of `consistency` saw: how much was right only later, by at most `seconds`, or stayed `wrong`.
    `outcomes` are error numbers by name, 0 for success.
    """

    checked: int = 0
    late: int = 0
    wrong: int = 0
    seconds: float = 0.0
    evidence: tuple[str, ...] = ()
    outcomes: Mapping[str, int] = {}


class HostWorkloads:
    """The hosts of a site; `HOST:/PATH` is another mount of the file system on a host. Every call raises HostLost, ToolFailed (also for errors of the file system), UsageError.
    `script` returns the command of the script for the Python of a host.
    """

    def __init__(self, hosts: Hosts, script: Callable[[bytes], tuple[bytes, ...]]) -> None:
        self._hosts = hosts
        self._script = script
        self._clock_offsets_s: dict[str, float] = {}

    async def read_root(self, host: str, root: bytes, programs: Collection[str]) -> RootState:
        """The file system, its room, leftovers in it, and which of the programs the host has."""
        question = {"do": "read_root", "root": mount_of(host, root).decode("latin-1"), "programs": sorted(programs)}
        return await self._ask(host, question, RootState)

    async def make(self, directory: WorkDirectory) -> float:
        """Make the directory, accessible to this user only; returns the host's load average. May be called again."""
        return (await self._ask(directory.host, {"do": "make", **_where(directory)}, dict[str, float]))["load_average"]

    async def remove(self, directory: WorkDirectory) -> None:
        """Remove all parts of `name`; a missing one is no error. Trees are large, so there is no timeout."""
        await self._ask(directory.host, {"do": "remove", **_where(directory)}, _Problem, timeout_s=None)

    async def drop_caches(self, directory: WorkDirectory, step: Step) -> bool:
        """Sync, and drop the host's caches, except the programs of the step; False if that is not permitted."""
        warm = [[program, "--version"] for program in step.programs] + ([step.warm] if step.warm else [])
        question = {"do": "drop", **_where(directory), "warm": warm}
        return (await self._ask(directory.host, question, dict[str, bool], timeout_s=None))["dropped"]

    async def perform(
        self, directory: WorkDirectory, step: Step, *, seed: int, start_at_s: float | None, token: str
    ) -> HostRun:
        """Run all lanes of a step, at a time of this machine's clock (None: at once). On cancellation all are ended."""
        seen, offset_s = await self._performed(
            {"keeps_output": step.fio, "synced": step.synced, "seed": seed, "lanes": step.lanes, **_where(directory)},
            directory.host,
            start_at_s,
            token,
        )
        return HostRun(
            host=directory.host,
            began_at_s=seen.began_at_s - offset_s,
            elapsed_s=seen.elapsed_s,
            lanes=tuple(_details(directory, step, lane) for lane in seen.lanes),
        )

    async def check(
        self, directory: WorkDirectory, lanes: Sequence[Sequence[str]], *, start_at_s: float | None, token: str
    ) -> list[ConsistencyResult]:
        """Run functions at once, as `perform`, in the directory that all hosts share."""
        question = {"keeps_output": True, "synced": False, "seed": 0, "lanes": lanes, **_where(directory), "part": "."}
        seen, _ = await self._performed(question, directory.host, start_at_s, token)
        if problem := next((lane.problem for lane in seen.lanes if lane.problem), ""):
            raise ToolFailed(f"host {directory.host}: {problem}")
        try:
            return [msgspec.json.decode(lane.output, type=ConsistencyResult) for lane in seen.lanes]
        except msgspec.DecodeError as error:
            raise ToolFailed(f"host {directory.host}: the answer of a check cannot be read: {error}") from error

    async def _performed(
        self, question: Mapping[str, Any], host: str, start_at_s: float | None, token: str
    ) -> tuple[_Performed, float]:
        """The answer, and the offset of the host's clock."""
        facts = await (await self._hosts.reach(host_of(host))).identity()
        # The clock offset from the time of the connection is inaccurate hours later.
        offset_s = self._clock_offsets_s.get(host, facts.clock_offset_s)
        start_at = None if start_at_s is None else start_at_s + offset_s
        asked = {"do": "perform", "start_at": start_at, **question}
        return await self._ask(host, asked, _Performed, token=token, timeout_s=None), offset_s

    async def round_trip_s(self, host: str) -> float:
        """The time of one question. It also reads the host's clock, to convert agreed times until the next call."""
        facts = await (await self._hosts.reach(host_of(host))).facts()
        self._clock_offsets_s[host] = facts.clock_offset_s
        return facts.round_trip_s

    async def end(self, host: str, token: str) -> bool:
        """End the processes with the token; False if one remains."""
        return await (await self._hosts.reach(host_of(host))).processes.end(token, grace_s=_GRACE_S)

    async def _ask(
        self,
        name: str,
        question: Mapping[str, Any],
        kind: type[_Answer],
        *,
        token: str | None = None,
        timeout_s: float | None = _ASK_TIMEOUT_S,
    ) -> _Answer:
        host = await self._hosts.reach(host_of(name))
        asked = {**question, "own": os.fsdecode(BENCH_NAME), "dies_with": await _parent(host)}
        command = Command(
            argv=self._script((await host.identity()).python),
            stdin=json.dumps(asked).encode(),
            token=token,
            timeout_s=timeout_s,
        )
        completed = await host.processes.run(command)
        try:
            if found := msgspec.json.decode(completed.stdout, type=_Problem).problem:
                raise ToolFailed(f"host {name}: {found}")
            return msgspec.json.decode(completed.stdout, type=kind)
        except msgspec.DecodeError as error:
            raise ToolFailed(
                f"the benchmark on host {name} broke off: {completed.failure or error}",
                cause="it was ended, or fails there",
            ) from error


async def _parent(host: Host) -> int | None:
    """The process whose end ends the script, if it is this one. On other hosts the far end does that."""
    facts = await host.identity()
    own = facts.process_id == os.getpid() and facts.node_name == platform.node()
    return facts.process_id if own else None


def _details(directory: WorkDirectory, step: Step, lane: _Lane) -> Mapping[str, float]:
    problem = lane.problem
    if not problem:
        try:
            if step.fio:
                return read_fio(lane.output)
            return msgspec.json.decode(lane.output or "{}", type=dict[str, float])
        except ValueError as error:
            problem = str(error)
    raise ToolFailed(
        f"{step.title} on {directory.place.shown} failed: host {directory.host}: {problem}",
        hint="`migrator bench run -n` shows the command",
    )


def _where(directory: WorkDirectory) -> Mapping[str, str]:
    root = mount_of(directory.host, directory.place.root)
    return {"root": root.decode("latin-1"), "name": directory.name, "part": directory.part}
