"""Migrations over the bricks of a real cluster: who copies what, and what a host that is not fit does not do."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster.brick_runs import BrickRuns, brick_runs, work_trees
from tests.support.cluster.fixtures import with_ssh
from tests.support.cluster.handle import LabHandle
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root]


@pytest.fixture(scope="module")
def work(lab: LabHandle) -> Iterator[LabHandle]:
    with_ssh(lab)
    with work_trees(lab) as made:
        yield made


@pytest.fixture
def runs(work: LabHandle, scratch: Path) -> Iterator[BrickRuns]:
    with brick_runs(work, scratch / "site") as made:
        yield made


def addresses(lab: LabHandle) -> set[str]:
    return {host.address for host in lab.state.hosts}


def test_a_whole_migration_runs_on_the_brick_servers(work: LabHandle, scratch: Path) -> None:
    with brick_runs(work, scratch / "site", trees="home/*", range_size="5MiB", chunk_size="16MiB") as runs:
        planned = sum(batch["size_bytes"] for batch in runs.prepare()["batches"])
        summaries = runs.run()["batches"]
        assert [summary["bad"] for summary in summaries] == [[]] * len(summaries)
        assert {host for host, _, _ in runs.attempts()} <= addresses(work) | {"localhost"}
        from_bricks = [attempt for attempt in runs.attempts() if attempt[0] != "localhost"]
        assert {host for host, _, _ in from_bricks} == addresses(work)
        assert {(engine, state) for _, engine, state in from_bricks} == {("direct", "succeeded")}
        assert runs.attempts("ranges"), "the big files were copied in ranges"
        assert runs.events("chunk-retried", "host-lost", "bricks-unfit") == []
        assert sum(summary["size_bytes"] for summary in summaries) == planned
        runs.assert_equal()


def test_what_the_mount_shows_otherwise_than_the_bricks_arrives_as_the_mount_shows_it(
    work: LabHandle, runs: BrickRuns
) -> None:
    tree = work.source / "work/ann/odd"
    (tree / "old").mkdir(parents=True)
    for number in range(4):
        (tree / f"both-{number}").write_text("setgid and sticky")
        (tree / f"both-{number}").chmod(0o3755)
        (tree / f"closed-{number}").write_bytes(bytes(5000))
        (tree / f"closed-{number}").chmod(0o1000)
    os.utime(tree / "old", ns=(0, -631_152_000 * 10**9))
    # The kernel shows the time that was set until its cache ends.
    wait_for(lambda: (tree / "old").stat().st_mtime_ns == 0, "Gluster shows its own time")
    plan = runs.prepare()
    assert any("4 files have both the setgid and the sticky bit" in problem for problem in plan["problems"])
    runs.run()
    copy = runs.site.target / "work/ann/odd"
    modes = {path.name: path.stat().st_mode & 0o7777 for path in copy.iterdir()}
    assert modes == {"old": 0o755} | {
        f"{kind}-{n}": mode for kind, mode in (("both", 0o755), ("closed", 0o1000)) for n in range(4)
    }
    assert (copy / "old").stat().st_mtime_ns == (tree / "old").stat().st_mtime_ns == 0
    assert {(copy / f"closed-{number}").stat().st_size for number in range(4)} == {5000}
    runs.site.json("verify", "--all")
    shutil.rmtree(tree)


@pytest.mark.guarantee("far-target")
def test_where_the_target_is_not_mounted_nothing_is_written(runs: BrickRuns, work: LabHandle) -> None:
    host = work.state.hosts[0]
    runs.prepare()
    with work.target_unmounted(host):
        runs.run()
        # Seen as the host sees it: the directory beneath its mount.
        assert work.on_host(host, "ls", "-A", work.state.target).stdout == b""
    assert runs.hosts_of() == (addresses(work) - {host.address}) | {"localhost"}
    # Told again where the run lasts for so long that the host is tried again.
    assert {"the target is not mounted" in said for said in runs.events("host-lost")} == {True}
    runs.assert_equal()


_HIDING = """#!/bin/sh
exec unshare -m --propagation private sh -c 'mount -t tmpfs none {path} && exec python3 "$@"' sh "$@"
"""


@pytest.mark.exhaustive
def test_what_lies_in_a_bricks_place_is_not_read(runs: BrickRuns, work: LabHandle) -> None:
    """The file system of a brick is not mounted where those look that come over ssh (its own process sees it)."""
    brick = work.bricks[1]
    host = work.host_of(brick)
    runs.prepare()
    hiding = runs.site.directory / "hiding"
    hiding.write_text(_HIDING.format(path=brick.name.partition(":")[2]))
    hiding.chmod(0o755)
    section = f'[source.hosts."{host.address}"]\n'
    runs.site.file.write_text(runs.site.file.read_text().replace(section, f'{section}python = "{hiding}"\n'))
    refused = runs.site.call("scan", "--via", "bricks")
    assert refused.returncode == 4
    assert f"{brick.name} is no root of a brick" in refused.stderr
    assert runs.site.json("scan")["via"] == "mount"
    runs.run("--plan", "plan-0001")
    assert runs.hosts_of() == addresses(work) | {"localhost"}
    of_scan, of_run = runs.events("bricks-unfit")
    assert of_scan.startswith("the mount is read")
    assert f"brick {brick.name} is not read" in of_run
    assert runs.events("host-lost") == []
    bricks = runs.rows(
        "select distinct brick from chunks join attempts on chunk_id = chunks.id where host = ?", host.address
    )
    assert brick.name not in {name for (name,) in bricks}
    runs.assert_equal()
