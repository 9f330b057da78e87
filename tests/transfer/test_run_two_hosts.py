"""Runs over brick servers that do not have the target: other hosts write what they read."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from migrator.core.units import MIB
from tests.support.cluster.brick_runs import BrickRuns, brick_runs, work_trees
from tests.support.cluster.fixtures import with_ssh
from tests.support.cluster.handle import LabHandle

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root]


@pytest.fixture(scope="module")
def work(lab: LabHandle) -> Iterator[LabHandle]:
    with_ssh(lab)
    with work_trees(lab) as made:
        yield made


@pytest.fixture
def runs(work: LabHandle, scratch: Path) -> Iterator[BrickRuns]:
    """A site whose last brick server alone has the target, and writes for the others by turns with this machine."""
    *_, last = work.state.hosts
    with brick_runs(work, scratch / "site") as made, ExitStack() as unmounted:
        text = made.site.file.read_text()
        sections = re.split(r"(?m)^(?=\[)", text)
        own = next(one for one in sections if one.startswith(f'[source.hosts."{last.address}"]'))
        without = [
            re.sub(r"(?m)^target = .*\n", "", one) if one.startswith("[source.hosts.") and one != own else one
            for one in sections
        ]
        writer = own.replace("[source.hosts.", "[target.hosts.")
        target = next(line for line in own.splitlines() if line.startswith("target = "))
        here = f"\n[target.hosts.localhost]\n{target}\n"
        made.site.file.write_text("".join(without) + "\n" + writer + here)
        for host in work.state.hosts[:-1]:
            unmounted.enter_context(work.target_unmounted(host))
        yield made


def test_a_migration_with_one_brick_server_that_has_the_target(runs: BrickRuns, work: LabHandle) -> None:
    first, *_, last = (host.address for host in work.state.hosts)
    runs.prepare()
    # It takes some seconds, so that there is a middle.
    process = runs.start("--bwlimit", str(3 * MIB), "--jobs", "2")
    pair = f"{first}>{last}"
    with runs.held_stream_on(process, pair):
        process.kill()
        process.wait()
    runs.run()
    assert runs.hosts_of() >= {pair, last}
    assert {host for host in runs.hosts_of() if ">" not in host} <= {last, "localhost"}
    assert runs.events("host-lost") == []
    for host in work.state.hosts[:-1]:
        assert work.on_host(host, "ls", "-A", work.state.target).stdout == b""
    runs.assert_equal()
