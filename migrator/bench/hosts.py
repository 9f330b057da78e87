"""Running steps of a suite on hosts."""

import json
import os
import platform
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from migrator.bench.model import BENCH_NAME, Background, HostRun, Place, Step
from migrator.bench.rules import read_report
from migrator.core.errors import ToolFailed
from migrator.core.paths import show
from migrator.hosts.ports import Command, Host, Hosts

# ---
# Benchmarks on hosts: a script is sent to each host, and asked one question at a time.


_ASK_TIMEOUT_S = 600.0
_GRACE_S = 5.0

_Answer = TypeVar("_Answer")


class RootSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A file system as a host sees it: its type, and the room for whoever is not root. `free_inodes` None: it does not tell.
    `device` is its number there as long as it is mounted.

    `left` are the names in its directory of benchmarks; `programs` those that the host has of the ones that were asked for.
    """

    device: int
    filesystem: str
    free_bytes: int
    free_inodes: int | None
    left: tuple[str, ...]
    programs: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDirectory:
    """Where one host works: `part` in the directory `name` in the directory of benchmarks of a file system."""

    host: str
    place: Place
    name: str

    @property
    def part(self) -> str:
        """Each host's own. Names of hosts may hold what names of files may not."""
        return "host-" + self.host.encode("utf-8", "surrogateescape").hex()


class _Problem(msgspec.Struct, frozen=True):
    problem: str = ""


class _Load(msgspec.Struct, frozen=True):
    load_average: float
    disk_bytes_per_s: float
    network_bytes_per_s: float


class _Dropped(msgspec.Struct, frozen=True):
    dropped: bool


class _Lane(msgspec.Struct, frozen=True):
    problem: str
    output: str


class _Performed(msgspec.Struct, frozen=True):
    began_at_s: float
    elapsed_s: float
    lanes: list[_Lane]


class HostWorkloads:
    """Over the hosts of a site. Every call raises HostLost, ToolFailed (also for what the file system refuses), UsageError.

    `script` is what the script is called by, given the Python of a host.
    """

    def __init__(self, hosts: Hosts, script: Callable[[bytes], tuple[bytes, ...]]) -> None:
        self._hosts = hosts
        self._script = script
        self._clock_offsets_s: dict[str, float] = {}

    async def look(self, host: str, root: bytes, programs: Collection[str]) -> RootSeen:
        """What a file system is, what room it has, what was left in it, and which of the programs the host has."""
        question = {"do": "look", "root": root.decode("latin-1"), "programs": sorted(programs)}
        return await self._ask(host, question, RootSeen)

    async def make(self, directory: WorkDirectory) -> None:
        """Make the directory, which only this user can enter. May be called again."""
        await self._ask(directory.host, {"do": "make", **_where(directory)}, _Problem)

    async def remove(self, directory: WorkDirectory) -> None:
        """Remove everything of `name`, all parts. Nothing being there is no error. Trees are large: there is no timeout."""
        await self._ask(directory.host, {"do": "remove", **_where(directory)}, _Problem, timeout_s=None)

    async def background(self, host: str, span_s: float) -> Background:
        """What the host does by itself, watched for so long."""
        question = {"do": "background", "span_s": span_s}
        seen = await self._ask(host, question, _Load, timeout_s=span_s + _ASK_TIMEOUT_S)
        return Background(host=host, **msgspec.structs.asdict(seen))

    async def drop_caches(self, directory: WorkDirectory, step: Step) -> bool:
        """Write everything out and empty the host's caches, of all but the programs of the step; False where that is not allowed."""
        warm = [[program, "--version"] for program in step.programs] + ([step.warm] if step.warm else [])
        question = {"do": "drop", **_where(directory), "warm": warm}
        return (await self._ask(directory.host, question, _Dropped, timeout_s=None)).dropped

    async def perform(
        self, directory: WorkDirectory, step: Step, *, seed: int, start_at_s: float | None, token: str
    ) -> HostRun:
        """All lanes of a step, beginning at a time of this machine's clock (None: at once). On cancellation all is ended."""
        facts = await (await self._hosts.reach(directory.host)).identity()
        # What the clock was when the host was reached says little hours later.
        offset_s = self._clock_offsets_s.get(directory.host, facts.clock_offset_s)
        question = {
            "do": "perform",
            **_where(directory),
            "lanes": step.lanes,
            "report": step.report,
            "seed": seed,
            "start_at": None if start_at_s is None else start_at_s + offset_s,
            "synced": step.synced,
        }
        seen = await self._ask(directory.host, question, _Performed, token=token, timeout_s=None)
        return HostRun(
            host=directory.host,
            began_at_s=seen.began_at_s - offset_s,
            elapsed_s=seen.elapsed_s,
            lanes=tuple(_details(directory, step, lane) for lane in seen.lanes),
        )

    async def round_trip_s(self, host: str) -> float:
        """How long a question takes. The host's clock is read, too: agreed times are converted by that until the next call."""
        facts = await (await self._hosts.reach(host)).facts()
        self._clock_offsets_s[host] = facts.clock_offset_s
        return facts.round_trip_s

    async def end(self, host: str, token: str) -> bool:
        """End what still carries the token; False where something is left."""
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
        asked = {**question, "own": os.fsdecode(BENCH_NAME), "dies_with": await _parent(host)}
        command = Command(
            argv=self._script((await host.identity()).python),
            stdin=json.dumps(asked).encode(),
            token=token,
            timeout_s=timeout_s,
        )
        completed = await host.processes.run(command)
        problem = f"exit code {completed.exit_code}: {show(completed.stderr.strip()[-300:])}"
        if completed.timed_out:
            problem = f"no answer within {timeout_s:.0f} s"
        try:
            if found := msgspec.json.decode(completed.stdout, type=_Problem).problem:
                raise ToolFailed(f"host {name}: {found}")
            return msgspec.json.decode(completed.stdout, type=kind)
        except msgspec.DecodeError as error:
            raise ToolFailed(
                f"the benchmark on host {name} broke off: {problem}", cause="it was ended, or fails there"
            ) from error


async def _parent(host: Host) -> int | None:
    """The process whose end takes the script along, where it is this one. Elsewhere the far end sees to that."""
    facts = await host.identity()
    own = facts.process_id == os.getpid() and facts.node_name == platform.node()
    return facts.process_id if own else None


def _details(directory: WorkDirectory, step: Step, lane: _Lane) -> Mapping[str, float]:
    problem = lane.problem
    if not problem:
        try:
            if step.report:
                return read_report(step.report, lane.output)
            return msgspec.json.decode(lane.output or "{}", type=dict[str, float])
        except ValueError as error:
            problem = str(error)
    raise ToolFailed(
        f"{step.title} on {directory.place.shown} failed: host {directory.host}: {problem}",
        hint="`migrator bench run -n` shows the command",
    )


def _where(directory: WorkDirectory) -> Mapping[str, str]:
    return {"root": directory.place.root.decode("latin-1"), "name": directory.name, "part": directory.part}
