"""What a lost connection has left on a host: found also where it slips away while it is ended."""

import os
import secrets
import subprocess
import sys
from contextlib import suppress

from migrator.hosts.far_end import predecessors
from migrator.hosts.far_looks import Snapshot, carriers
from migrator.hosts.proc import TOKEN_VARIABLE

FAR_END = """
import os, subprocess, sys
# Starts another one, and ends, as soon as it is told to.
environment = {**os.environ, sys.argv[2]: sys.argv[3]}
child = subprocess.Popen(["sh", "-c", "read line; sleep 1000 & exit"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
print("up", flush=True)
sys.stdin.readline()
child.stdin.close()
child.wait()
"""


def test_a_lost_far_end_and_all_that_it_started_are_found_and_no_others() -> None:
    token = secrets.token_hex(16)
    prefix = f"migrator-test-predecessor-{token}-"

    def find(own: str, prefix: str, tokens: list[bytes]) -> set[int]:
        return {look.pid for look in predecessors(own.encode(), prefix.encode(), tokens)(Snapshot())}

    argv = (sys.executable, "-c", FAR_END, f"{prefix}1", TOKEN_VARIABLE, token)
    lost = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert lost.stdout is not None
        assert lost.stdout.readline() == b"up\n"
        (started,) = carriers([token])[token]
        assert find(f"{prefix}2", prefix, []) == {lost.pid, started.pid}
        assert find(f"{prefix}1", prefix, []) == find("another-2", "another-", []) == set()
        # What was started starts another one, and ends; then the far end ends itself.
        lost.communicate(b"go\n")
        (left,) = carriers([token])[token]
        assert find(f"{prefix}2", prefix, [token.encode()]) == {left.pid}
    finally:
        lost.kill()
        lost.communicate()
        for look in carriers([token]).get(token, ()):
            with suppress(ProcessLookupError):
                os.kill(look.pid, 9)
