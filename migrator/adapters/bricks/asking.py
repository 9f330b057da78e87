"""Asking a script about a brick: it is sent to the brick's host with every question, and runs there over its connection."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from migrator.adapters.far_source import far_argv, far_source
from migrator.domain.brick import Brick
from migrator.domain.paths import show
from migrator.domain.transfer import ProcessIdentity
from migrator.ports.hosts import Hosts
from migrator.ports.processes import Command, OnOutput

_SAID_BYTES = 300


async def ask_brick(
    hosts: Hosts,
    brick: Brick,
    modules: tuple[str, ...],
    question: Mapping[str, Any],
    *,
    volume_id: str,
    take: OnOutput,
) -> str | None:
    """Have a script answer a question about a brick of a volume: these `modules`, each of which imports only earlier ones,
    and `far_brick`. Its output is taken as it comes. Returns why it failed, None where it came to its end. Raises MigratorError where the host cannot be reached.
    """
    host = await hosts.reach(brick.host)
    python = (await host.identity()).python
    asked = {**question, "root": brick.path.decode("latin-1"), "volume_id": volume_id}
    stderr: list[bytes] = []
    completed = await host.processes.stream(
        Command(argv=far_argv(python, _script(modules)), stdin=json.dumps(asked).encode(), timeout_s=None),
        on_start=_nobody_asks,
        on_stdout=take,
        on_stderr=stderr.append,
    )
    if completed.exit_code == 0:
        return None
    return show(b"".join(stderr).strip()[-_SAID_BYTES:]) or f"exit code {completed.exit_code}"


@cache
def _script(modules: tuple[str, ...]) -> bytes:
    return far_source(__package__, ("far_brick", *modules))


def _nobody_asks(_: ProcessIdentity) -> None:
    """It ends with its connection."""
