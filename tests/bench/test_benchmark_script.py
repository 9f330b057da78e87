"""The script that is sent to hosts."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from migrator.bench import far_bench
from migrator.bench.hosts import HostWorkloads, WorkDirectory
from migrator.bench.model import HostRun, Place, Step
from migrator.hosts.ports import Command, Completed, HostFacts


def test_equal_seeds_make_equal_trees_and_one_file_has_what_is_searched_for() -> None:
    made = dict(far_bench._files(1, 40, 12, 900))
    assert made == dict(far_bench._files(1, 40, 12, 900))
    assert made != dict(far_bench._files(2, 40, 12, 900))
    assert len(made) == 40
    assert len({path.rpartition("/")[0] for path in made}) == 12
    assert sum(b"zyzzyva" in content for content in made.values()) == 1
    assert max(len(content) for content in made.values()) <= 1800 + 10


def test_no_two_blocks_of_a_transfer_are_equal_and_what_comes_back_is_compared(tmp_path: Path) -> None:
    size = 2 * far_bench._BLOCK_BYTES + 17
    far_bench.upload(1, str(tmp_path / "up"), 2, size)
    files = [(tmp_path / "up" / name).read_bytes() for name in ("000000", "000001")]
    assert [len(content) for content in files] == [size, size]
    starts = {content[at : at + 17] for content in files for at in range(0, size, far_bench._BLOCK_BYTES)}
    assert len(starts) == 6
    far_bench.compare(1, str(tmp_path / "up"), 2, size)
    with (tmp_path / "up/000001").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(bytes([files[1][-1] ^ 1]))
    with pytest.raises(ValueError, match="another content"):
        far_bench.compare(1, str(tmp_path / "up"), 2, size)


def test_prints_and_large_writes_write_the_same_text(tmp_path: Path) -> None:
    """Zeros would be no work for a file system that compresses, and the two are held against each other."""
    size = 2 * far_bench._BLOCK_BYTES + 50
    for record in (100, far_bench._BLOCK_BYTES):
        far_bench.write(1, str(tmp_path / str(record)), size, record)
    prints, large = ((tmp_path / str(record)).read_bytes() for record in (100, far_bench._BLOCK_BYTES))
    assert len(prints) == len(large) == size
    assert set(large) == set(prints)
    assert 0 not in prints


class Asked:
    """A host on which nothing happens but the noting of what was asked."""

    def __init__(self) -> None:
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
        self.question = json.loads(command.stdin or b"{}")
        answer = {"load_average": 1.0, "disk_bytes_per_s": 0.0, "network_bytes_per_s": 0.0, "dropped": True}
        if self.question["do"] == "perform":
            answer = {"began_at_s": self.question["start_at"], "elapsed_s": 1.0, "lanes": []}  # type: ignore[dict-item]
        return Completed(exit_code=0, stdout=json.dumps(answer).encode(), stderr=b"", timed_out=False)


def test_hosts_begin_by_clocks_that_were_looked_at_just_now() -> None:
    """A benchmark takes hours: what a clock was when the host was reached may be off by seconds."""
    host = Asked()
    workloads = HostWorkloads(host, lambda python: (python,))  # type: ignore[arg-type]
    directory = WorkDirectory(host="gl1", place=Place(label="/mnt", root=b"/mnt"), name="n")
    step = Step(name="s", title="s", lanes=())

    async def begin() -> HostRun:
        await workloads.background("gl1", 0.0)
        host.clock_offset_s = 5.0
        await workloads.round_trip_s("gl1")
        return await workloads.perform(directory, step, seed=1, start_at_s=1000.0, token="t")

    seen = asyncio.run(begin())
    assert host.question["start_at"] == 1005.0
    assert seen.began_at_s == 1000.0
