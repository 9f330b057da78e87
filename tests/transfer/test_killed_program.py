"""The program itself is killed while it runs a stream."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from migrator.core.units import MIB
from migrator.hosts.proc import carriers
from migrator.hosts.process import LocalProcesses
from tests.support.streams import make_trees

pytestmark = pytest.mark.needs_root

TREE = b"home/alice"
DEADLINE_S = 600.0

_PROGRAM = """
import asyncio, sys
from pathlib import Path
from tests.support.streams import Streams, engine_of
streams = Streams(engine_of(), Path(sys.argv[1]), Path(sys.argv[2]))
asyncio.run(streams.copy(
    [b"home/alice/big"], bwlimit_bytes_per_s=256 * 1024, token=sys.argv[3],
    on_stdout=lambda _: print("moving", flush=True),
))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_program_takes_its_streams_with_it(scratch: Path, number: signal.Signals) -> None:
    source, _ = make_trees(scratch / "source", scratch / "target", tree=TREE)
    (source / "big").write_bytes(os.urandom(16 * MIB))
    token = secrets.token_hex(16)
    processes = LocalProcesses()
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(scratch / "source"), str(scratch / "target"), token],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    try:
        with program:
            assert program.stdout is not None
            assert program.stdout.readline() == b"moving\n"
            assert len(carriers([token])[token]) >= 4
            program.send_signal(number)
            program.wait(DEADLINE_S)
        deadline = time.monotonic() + DEADLINE_S
        while carriers([token]):
            assert time.monotonic() < deadline, "the stream outlives the program"
            time.sleep(0.01)
    finally:
        program.kill()
        assert asyncio.run(processes.end(token, grace_s=0.0))
