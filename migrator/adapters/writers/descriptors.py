"""How many files clients have open on some bricks."""

from collections.abc import Sequence

from migrator.adapters.writers.asking import ask
from migrator.domain.brick import Brick
from migrator.domain.errors import MigratorError
from migrator.domain.freezing import OpenKind
from migrator.ports.hosts import Hosts


async def open_on_bricks(hosts: Hosts, bricks: Sequence[Brick], trees: Sequence[bytes]) -> int | None:
    """Files below user trees that a brick's process has open; None where a brick cannot be looked at. What was opened for
    reading and is not read yet may show on no brick (performance.open-behind).
    """
    found: set[tuple[str, bytes]] = set()
    for brick in bricks:
        try:
            host = await hosts.reach(brick.host)
            python = (await host.identity()).python
            answer = await ask(
                host.processes,
                python=python,
                way="brick",
                root=brick.path,
                trees=trees,
                host=brick.host,
                brick=brick.name,
            )
        except MigratorError:
            return None
        if not answer.served:
            return None
        found |= {(brick.name, one.path) for one in answer.open_files if one.kind is OpenKind.FILE}
    return len(found)
