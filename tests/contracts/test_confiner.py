"""Which of the two confines the streams of a host."""

import asyncio
import os
from pathlib import Path

import pytest

from migrator.adapters.executors.confining import Confiner
from migrator.adapters.executors.local_host import LocalHost
from tests.jails import COMPILED, SCRIPT, twin_argv
from tests.native_builds import missing_for_native

pytestmark = pytest.mark.needs_root

needs_compiler = pytest.mark.skipif(missing_for_native() is not None, reason=str(missing_for_native()))


@needs_compiler
def test_the_compiled_one_is_taken_where_it_runs(scratch: Path) -> None:
    (compiled, word), (python, *_, script) = twin_argv(COMPILED), twin_argv(SCRIPT)
    old, foreign = scratch / "old", scratch / "foreign"
    old.write_bytes(b"#!/bin/sh\necho usage >&2\nexit 2\n")  # of a build that could not confine yet
    foreign.write_bytes(b"\x7fELF of another machine")
    for file in (old, foreign):
        file.chmod(0o755)

    async def chosen(program: bytes | None) -> tuple[bytes, ...]:
        async def place() -> bytes:
            if program is None:
                raise OSError(28, "no room")
            return program

        host = LocalHost()
        confiner = Confiner(host, script_path=script, compiled=place)
        words = await confiner.prefix(await host.identity())
        assert words == await confiner.prefix(await host.identity())
        return words

    assert asyncio.run(chosen(compiled)) == (compiled, word)
    for path in (None, b"/no/such/program", os.fsencode(old), os.fsencode(foreign)):
        assert asyncio.run(chosen(path)) == (python, b"-I", b"-S", script), path
