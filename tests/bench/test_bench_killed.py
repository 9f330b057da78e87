"""`bench run` is killed, or stopped, in the middle of a step."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.bench.model import BenchmarkRecord, BenchmarkState
from migrator.hosts.proc import carriers
from migrator.hosts.process import LocalProcesses
from migrator.ledger.ledger import open_ledger
from tests.bench.bench_world import cli_site
from tests.support.cli_site import Site
from tests.support.waiting import wait_for

pytestmark = pytest.mark.exhaustive

DEADLINE_S = 600.0
READERS = 17


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return cli_site(tmp_path)


def records(site: Site) -> list[BenchmarkRecord]:
    with open_ledger(site.directory / "state/ledger.db", read_only=True) as ledger:
        return list(ledger.benchmarks.all())


@pytest.fixture
def running(site: Site) -> Iterator["subprocess.Popen[bytes]"]:
    """A call whose readers read for minutes, when they do."""
    argv = [sys.executable, "-m", "migrator", "--site", str(site.file), "bench", "run", "--suite", "latency"]
    program = subprocess.Popen([*argv, "--on", "target", "--scale", "100", "--runs", "1"])
    try:
        wait_for(lambda: len(records(site)) == 1)
        token = records(site)[0].token
        # The script and all the readers.
        wait_for(lambda: len(carriers([token]).get(token, ())) >= READERS + 1)
        yield program
    finally:
        program.kill()
        program.wait()
        for record in records(site):
            assert asyncio.run(LocalProcesses().end(record.token, grace_s=0.0))


def left(site: Site) -> list[str]:
    return [name for name in os.listdir(site.target) if name != ".migrator-sentinel"]


def test_killed_its_processes_die_with_it_and_the_next_call_takes_away_the_rest(
    site: Site, running: "subprocess.Popen[bytes]"
) -> None:
    (record,) = records(site)
    running.send_signal(signal.SIGKILL)
    running.wait()
    wait_for(lambda: not carriers([record.token]))
    assert left(site) == [".migrator-bench"]
    site.works("bench", "run", "--suite", "latency", "--on", "source", "--scale", "0.001", "--runs", "1")
    assert left(site) == []
    assert [one.state for one in records(site)] == [BenchmarkState.INTERRUPTED, BenchmarkState.DONE]


def test_stopped_it_takes_everything_away_itself(site: Site, running: "subprocess.Popen[bytes]") -> None:
    (record,) = records(site)
    running.send_signal(signal.SIGINT)
    assert running.wait(DEADLINE_S) == 130
    assert not carriers([record.token])
    assert left(site) == []
    assert [one.state for one in records(site)] == [BenchmarkState.INTERRUPTED]
