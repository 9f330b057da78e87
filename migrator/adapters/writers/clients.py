"""Whose connections to bricks are this site's own mounts, or Gluster's own processes."""

import asyncio
import json
import os
import sys
from collections.abc import Collection, Mapping
from functools import cache

from migrator.adapters.far_source import far_argv, far_source
from migrator.domain.errors import MigratorError, ToolFailed
from migrator.domain.paths import show
from migrator.domain.retirement import Endpoint
from migrator.ports.hosts import Hosts
from migrator.ports.processes import Command, Processes

_TIMEOUT_S = 60.0


async def known_endpoints(
    hosts: Hosts, names: Collection[str], processes: Processes, *, volume: str, mount: bytes
) -> tuple[Mapping[str, Endpoint], tuple[str, ...]]:
    """By local end (`IP:PORT`) whose connections they are, on this machine and on hosts; and sentences about hosts that could
    not be asked. A connection that is not among them is another client's.
    """
    question = json.dumps({"volume": volume, "mount": os.fsdecode(mount)}).encode()
    looks = await asyncio.gather(
        _ask(processes, os.fsencode(sys.executable), "this machine", question),
        *(_on_host(hosts, name, question) for name in sorted(names)),
    )
    found: dict[str, Endpoint] = {}
    for ends, _ in looks:
        found.update(ends)
    return found, tuple(problem for _, problem in looks if problem)


async def _on_host(hosts: Hosts, name: str, question: bytes) -> tuple[Mapping[str, Endpoint], str]:
    try:
        host = await hosts.reach(name)
        return await _ask(host.processes, (await host.identity()).python, name, question)
    except MigratorError as error:
        return {}, f"{name}: {error.message}"


async def _ask(processes: Processes, python: bytes, where: str, question: bytes) -> tuple[Mapping[str, Endpoint], str]:
    command = Command(argv=far_argv(python, _script()), stdin=question, timeout_s=_TIMEOUT_S)
    try:
        done = await processes.run(command)
        if done.exit_code != 0 or done.timed_out:
            raise ToolFailed(show(done.stderr.strip()[-300:]) or f"exit code {done.exit_code}")
        return {end: Endpoint(kind) for kind, end in json.loads(done.stdout)}, ""
    except MigratorError as error:
        return {}, f"{where}: {error.message}"
    except ValueError:
        return {}, f"{where}: the answer is no JSON"


@cache
def _script() -> bytes:
    return far_source(__package__, ("far_clients",))
