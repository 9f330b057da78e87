"""The governor over several hosts: a target that serves one request at a time becomes slow under their streams."""

import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from migrator.core.units import KIB
from migrator.ledger.ledger import open_ledger
from migrator.transfer.model import Bound, GovernorRecord
from tests.support.beegfs_like import beegfs_like, missing_for_fuse
from tests.support.cluster.handle import LabHandle, wait_until
from tests.support.cluster.shared_mount import seen_by_hosts
from tests.support.cluster.site import LabSite, lab_site

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

WORK = "governed"
FILES = 700
IN_A_DIRECTORY = 4
JOBS = 2
LATENCY_MS = 120
THROTTLED, EASED, QUICK = "0.01", "0.001", "0"
"""How long each name and each write takes: with three streams at work a probe waits for longer than the limit, or with six for
much less.
"""


@dataclass(frozen=True)
class Governed:
    """A site over the bricks of the lab, whose target takes as long for a write as `slow` says."""

    site: LabSite
    slow: Path
    hosts: frozenset[str]

    def throttle(self, seconds: str) -> None:
        """In one step, as the server reads it whenever it likes."""
        new = self.slow.with_name("new")
        new.write_text(seconds)
        new.replace(self.slow)

    @property
    def records(self) -> Sequence[GovernorRecord]:
        with open_ledger(self.site.directory / "state/ledger.db", read_only=True) as ledger:
            run = ledger.runs.latest("run")
            return [] if run is None else list(ledger.governor.of_run(run.id))

    def on_hosts(self, record: GovernorRecord) -> set[int]:
        """How many streams the brick servers may have."""
        return {streams for host, streams in record.hosts if host in self.hosts}

    def newest(self) -> GovernorRecord | None:
        with suppress(sqlite3.OperationalError):
            return self.records[-1] if self.records else None
        return None

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        file = self.site.directory / "state/ledger.db"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=600.0)) as database:
            return database.execute(query).fetchall()

    def metric(self, name: str, label: str = "") -> dict[str, float]:
        """The values of a metric by one of its labels."""
        found = re.findall(rf"^migrator_{name}(?:{{(.*)}})? (\S+)$", self.site.call("metrics").stdout, re.MULTILINE)
        return {dict(re.findall(r'(\w+)="(.*?)"', labels)).get(label, ""): float(value) for labels, value in found}


@pytest.fixture
def governed(lab: LabHandle, scratch: Path) -> Iterator[Governed]:
    if not lab.state.ssh_config:
        pytest.skip("the lab has no sshd: " + "; ".join(lab.state.notes))
    if reason := missing_for_fuse():
        pytest.skip(f"needs FUSE: {reason}")
    slow = scratch / "slow"
    slow.write_text(QUICK)
    (scratch / "fuse").mkdir()
    try:
        # Few files in a directory: who makes names in the same one waits there, and not for the server.
        for number in range(FILES):
            directory = lab.source / WORK / "ann" / f"{number // IN_A_DIRECTORY:03}"
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"file-{number:04}").write_bytes(os.urandom(4 * KIB))
        with (
            beegfs_like(scratch / "fuse", slow=slow, slow_names=True) as target,
            seen_by_hosts(lab, target),
            lab_site(lab, scratch / "site", target, via="auto", hosts=True) as site,
        ):
            text = site.file.read_text().replace('trees = ["home/*"]', f'trees = ["{WORK}/*"]')
            text = text.replace("chunk_files = 20", "chunk_files = 2").replace("jobs = 3", f"jobs = {JOBS}")
            text = text.replace('[target]\nkind = "posix"', '[target]\nkind = "posix"\ninodes_free = 100000')
            governor = f'[governor]\nstreams = "fixed"\nmax_latency = "{LATENCY_MS}ms"\nprobe_interval = "1s"\n'
            site.file.write_text(f"{text}\n{governor}")
            site.json("init")
            scanned = site.json("scan")
            assert scanned["via"] == "bricks", scanned["way_reasons"]
            site.json("plan")
            yield Governed(site, slow, frozenset(host.address for host in lab.state.hosts))
    finally:
        shutil.rmtree(lab.source / WORK)


def test_streams_of_all_hosts_go_while_the_target_is_slow_and_come_back(governed: Governed) -> None:
    run = governed.site.start("run", "--all", "--deltas", "0")
    try:
        wait_until(lambda: at_work(governed).keys() >= governed.hosts, "streams are at work on every host")
        governed.throttle(THROTTLED)
        wait_until(lambda: held_back(run, governed), "one stream is left on each host")
        assert governed.metric("host_allowed_streams", "host").items() >= dict.fromkeys(governed.hosts, 1.0).items()
        assert governed.metric("governor_bound", "bound") == {Bound.LATENCY.value: 1.0}
        assert governed.metric("probe_latency_limit_seconds") == {"": LATENCY_MS / 1000}
        loads = governed.metric("host_load", "host")
        assert loads.keys() & governed.hosts
        wait_until(lambda: at_work(governed) == dict.fromkeys(governed.hosts, 1), "what had been begun has ended")
        governed.throttle(EASED)
        wait_until(lambda: recovered(run, governed), "all streams may be at work again")
        governed.throttle(QUICK)
        assert run.wait(timeout=800) == 0
    finally:
        run.terminate()
        run.wait()

    records = [record for record in governed.records if governed.on_hosts(record)]
    bounds = [record.bound for record in records]
    middle = bounds[1:-1]
    assert (bounds[0], set(middle), bounds[-1]) == (Bound.JOBS, {Bound.LATENCY}, Bound.JOBS)
    assert "small operations on the target take long: the newest probe took " in records[1].reason
    allowed = [governed.on_hosts(record) for record in records]
    lowest = allowed.index({1})
    assert allowed[0] == allowed[-1] == {JOBS}
    assert [record.streams for record in records[: lowest + 1]] == sorted(
        {one.streams for one in records}, reverse=True
    )
    streams = [record.streams for record in records[lowest:]]
    assert streams == sorted(set(streams))

    # Nothing was ended for it.
    assert governed.rows("select distinct state from attempts") == [("succeeded",)]
    assert governed.rows("select max(number) from attempts") == [(1,)]
    (verified,) = governed.site.json("verify", "--all")
    assert verified["whole"]
    assert verified["differences"] == {}


def held_back(run: "subprocess.Popen[bytes]", governed: Governed) -> bool:
    assert run.poll() is None, run.returncode
    newest = governed.newest()
    return newest is not None and governed.on_hosts(newest) == {1}


def at_work(governed: Governed) -> dict[str, int]:
    """Streams by host in the newest sample."""
    query = (
        "select host, count(*) from samples join attempts on attempts.id = attempt_id"
        " where at_s = (select max(at_s) from samples) group by host"
    )
    return dict(governed.rows(query))


def recovered(run: "subprocess.Popen[bytes]", governed: Governed) -> bool:
    assert run.poll() is None, f"it has ended, with {run.returncode}: {[one.hosts for one in governed.records]}"
    newest = governed.newest()
    return newest is not None and newest.bound is Bound.JOBS
