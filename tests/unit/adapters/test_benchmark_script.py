"""The script that is sent to hosts."""

import asyncio
import json
import os
import zlib
from pathlib import Path

import pytest

from migrator.adapters.benchmarks import far_content, far_lanes, far_main, far_work
from migrator.adapters.benchmarks.hosts import HostWorkloads
from migrator.domain.benchmark import Step
from migrator.ports.benchmarks import StepSeen, WorkDirectory
from migrator.ports.hosts import HostFacts
from migrator.ports.processes import Command, Completed


def test_equal_seeds_make_equal_trees_and_one_file_has_what_is_searched_for() -> None:
    work = {"count": 40, "size_bytes": 900, "directories": 12}
    made = dict(far_content.tree(work, 1))
    assert made == dict(far_content.tree(work, 1))
    assert made != dict(far_content.tree(work, 2))
    assert len(made) == 40
    assert len({path.rpartition("/")[0] for path in made}) == 12
    assert sum(b"zyzzyva" in content for content in made.values()) == 1
    assert max(len(content) for content in made.values()) <= 1800 + 10


def test_no_two_blocks_of_a_transfer_are_equal_and_sizes_are_exact() -> None:
    size = 2 * far_content.BLOCK_BYTES + 17
    pieces = [bytes(piece) for number in (0, 1) for piece in far_content.blocks(1, b"large", number, size)]
    assert sum(map(len, pieces)) == 2 * size
    assert len({piece[:17] for piece in pieces}) == len(pieces)
    assert [len(piece) for piece in far_content.blocks(1, b"small", 0, 3)] == [3]


def test_prints_and_large_writes_write_the_same_text(tmp_path: Path) -> None:
    """Zeros would be no work for a file system that compresses, and the two are held against each other."""
    size = 2 * far_content.BLOCK_BYTES + 50
    for kind in ("prints", "one-write"):
        far_work.do({"kind": kind, "path": os.fsencode(tmp_path / kind), "size_bytes": size}, 1)
    prints, large = ((tmp_path / kind).read_bytes() for kind in ("prints", "one-write"))
    assert len(prints) == len(large) == size
    assert abs(len(zlib.compress(large)) - len(zlib.compress(prints))) < 0.1 * len(zlib.compress(prints))
    assert set(large) == set(prints)


def test_what_a_compiler_starts_is_in_memory_before_it_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cc", "as", "ar", "sh", "rm", "dd"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/said\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("dd", "cc"):
        far_lanes.load(name)
    said = (tmp_path / "said").read_text().splitlines()
    assert said[0] == "dd --version"
    assert any(line.startswith("cc ") and " -S " in line for line in said), "the compiler proper is another program"
    assert {line.split()[0] for line in said} == {"dd", "cc", "as", "ar", "sh", "rm"}


def test_a_byte_that_goes_through_a_bond_and_its_devices_counts_once() -> None:
    lines = [
        "    lo: 500 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0",
        "  eth0: 30 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0",
        "  eth1: 20 1 0 0 0 0 0 0 3 1 0 0 0 0 0 0",
        " bond0: 50 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0",
    ]
    assert far_main.network_bytes(lines, lambda name: name == "bond0") == 60


class Asked:
    """A host on which nothing happens but the noting of what was asked."""

    def __init__(self) -> None:
        self.timeout_s: float | None = None
        self.question: dict[str, object] = {}
        self.processes = self
        self.clock_offset_s = 0.0

    async def reach(self, _name: str) -> "Asked":
        return self

    async def identity(self) -> HostFacts:
        return self._facts(0.0)

    async def facts(self) -> HostFacts:
        return self._facts(self.clock_offset_s)

    def _facts(self, clock_offset_s: float) -> HostFacts:
        return HostFacts(
            name="gl1",
            node_name="gl1",
            architecture="x86_64",
            python_version=(3, 11, 2),
            effective_uid=0,
            boot_id="",
            clock_offset_s=clock_offset_s,
            round_trip_s=0.0,
            python=b"python3",
            process_id=1,
        )

    async def run(self, command: Command) -> Completed:
        self.timeout_s = command.timeout_s
        self.question = json.loads(command.stdin or b"{}")
        answer = {"span_s": 1.0, "load_average": 1.0, "disk_bytes_per_s": None, "network_bytes_per_s": None}
        if self.question["do"] == "perform":
            answer = {"began_at_s": self.question["start_at"], "late_s": 0.0, "elapsed_s": 1.0, "lanes": []}  # type: ignore[dict-item]
        return Completed(exit_code=0, stdout=json.dumps(answer).encode(), stderr=b"", timed_out=False)


def test_a_host_may_be_watched_for_an_hour() -> None:
    host = Asked()
    asyncio.run(HostWorkloads(host).background("gl1", 3600.0))  # type: ignore[arg-type]
    assert host.timeout_s is not None
    assert host.timeout_s > 3600.0


def test_hosts_begin_by_clocks_that_were_looked_at_just_now() -> None:
    """A benchmark takes hours: what a clock was when the host was reached may be off by seconds."""
    host = Asked()
    workloads = HostWorkloads(host)  # type: ignore[arg-type]
    directory = WorkDirectory(host="gl1", root=b"/mnt", name="n", part="p")
    step = Step(name="s", title="s", lanes=())

    async def begin() -> StepSeen:
        await workloads.background("gl1", 0.0)
        host.clock_offset_s = 5.0
        await workloads.round_trip_s("gl1")
        return await workloads.perform(directory, step, seed=1, start_at_s=1000.0, token="t")

    seen = asyncio.run(begin())
    assert host.question["start_at"] == 1005.0
    assert seen.began_at_s == 1000.0
