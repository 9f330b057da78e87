"""The whole way of a brick, out of the volume and back with a new file system: while users write, rename and link and the program is
killed, on single bricks and on sets of three copies; and with glusterd killed at every step of the way.
"""

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator.core.clock import SystemClock
from migrator.core.units import MIB
from migrator.fs.model import SENTINEL_NAME
from migrator.hosts.process import LocalProcesses
from migrator.lab import cluster
from migrator.lab.machine import LabTools
from migrator.lab.model import LabBrick, VolumeType
from tests.bricks.drain.real_drains import SETTINGS, Drains
from tests.support.cluster.comparing import wait_until_is_there
from tests.support.cluster.fixtures import MakeLab, lab_of, with_ssh
from tests.support.cluster.handle import DEADLINE_S, LabHandle, is_alive
from tests.support.cluster.site import LabSite, lab_site
from tests.support.records import rows_of
from tests.support.waiting import wait_for
from tools.rehearsal import rehearse
from tools.tree_contents import everything

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

CHURN_PER_S = 3.0
"""What users rename or delete under Gluster counts as a failure, and the drain begins anew: some of that is enough."""

DRAIN_MARKS = ("start-before", "start-after", "look-before", "commit-before", "commit-after", "reset-after")
ADD_MARKS = ("add-after", "layout-after", "look-before", "even-before", "even-after")
KILLING_GLUSTERD = """#!/bin/sh
act=
case " $* " in
*" remove-brick "*" start ") act=start ;;
*" remove-brick "*" commit ") act=commit ;;
*" remove-brick "*" status " | *" rebalance "*" status ") act=look ;;
*" fix-layout start ") act=layout ;;
*" rebalance "*" start ") act=even ;;
*" add-brick "*) act=add ;;
*" volume reset "*) act=reset ;;
esac
dies() { [ -n "$act" ] && [ -e "%(marks)s/$act-$1" ] && rm "%(marks)s/$act-$1" && kill -9 "$(cat "%(pid)s")" && killed=1; }
killed=
dies before
"%(gluster)s" "$@"
code=$?
dies after
[ -z "$killed" ] || touch "%(marks)s/down"
exit $code
"""


def small(**fields: object) -> dict[str, object]:
    """What users have, on three hosts with two bricks each."""
    return {"hosts": 3, "bricks_per_host": 2, "users": 2, "files": 120, "data_bytes": 2 * MIB, "odd": False, **fields}


@pytest.fixture(scope="module")
def single_bricks(lab_parent: Path) -> Iterator[LabHandle]:
    with lab_of(lab_parent / "cycle", **small()) as made:
        yield with_ssh(made)


def rehearsed(lab: LabHandle, layout: VolumeType) -> None:
    """Nothing is missing or different, and all of it has happened."""
    line = rehearse(layout.value, Path(os.fsdecode(lab.state.spec.directory)), churn_per_s=CHURN_PER_S)
    (lab.source / os.fsdecode(SENTINEL_NAME)).unlink()
    assert line.complaints == ()
    assert (line.lost, line.different) == (0, 0)
    assert min(line.moved_files, line.churned, line.written) > 0


def test_a_single_brick_goes_and_comes_back_while_users_work(single_bricks: LabHandle) -> None:
    rehearsed(single_bricks, VolumeType.DISTRIBUTE)


def test_a_set_of_three_copies_goes_and_comes_back_while_users_work(make_lab: MakeLab) -> None:
    lab = make_lab(**small(files=60, volume_type=VolumeType.DISTRIBUTED_REPLICATE))
    rehearsed(with_ssh(lab), VolumeType.DISTRIBUTED_REPLICATE)


@dataclass
class Glusterd:
    """The glusterd that is asked: it is killed at marks, and started again by whoever looks after that machine."""

    lab: LabHandle
    site: LabSite
    brick: LabBrick
    marks: Path
    told: int = 0

    def bring(self, marks: Sequence[str], *words: str) -> list[str]:
        """A command, given again where it says so, until it is done and glusterd was killed at every mark; what it said."""
        for mark in marks:
            (self.marks / mark).touch()
        said: list[str] = []
        # Gluster may take long to know again what its processes do: the number of calls shows nothing.
        end_s = time.monotonic() + 10 * DEADLINE_S
        while True:
            code, output = self._call(*words)
            if code == 0:
                break
            # Gluster may have lost its own process: then a drain fails, and is to be begun again.
            told = ("the same command again", "the same command goes on", "the same command resumes", "and drain again")
            assert any(words in output for words in told), output
            said.append(output)
            assert time.monotonic() < end_s, said
        assert list(self.marks.iterdir()) == [], "it was killed at every mark"
        return said

    def _call(self, *words: str) -> tuple[int, str]:
        argv = self.site.argv("brick", *words)
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=subprocess.STDOUT, text=True) as one:
            end_s = time.monotonic() + 5 * DEADLINE_S
            while one.poll() is None:
                if time.monotonic() > end_s:
                    one.kill()
                self._start_again()
                self._do_as_told()
                time.sleep(0.2)
            output = one.stdout.read() if one.stdout else ""
        self._start_again()
        # Not before: the program may have it killed once more meanwhile.
        tools = LabTools(LocalProcesses(), self.lab.state.token)
        asyncio.run(cluster.wait_for_pool(self.lab.state, tools, SystemClock()))
        # It asks each brick anew whether it is up.
        wait_for(lambda: min(self.lab.brick_pids().values(), default=-1) > 0, "every brick is known to be up")
        return one.returncode, " ".join(output.split())

    def _do_as_told(self) -> None:
        """Where glusterd has lost the process that moves files, the program tells what gets it to begin another one."""
        [(told,)] = rows_of(self.site.directory, "select count(*) from events where message like '%rebalance/*.pid%'")
        host = self.lab.host_of(self.brick)
        if told == self.told or self.lab.movers(host):
            return
        self.told = told
        for file in self.lab.mover_pid_files(host):
            file.unlink()
        pid = self.lab.glusterd_pid(host)
        if pid is not None and is_alive(pid):
            self.lab.stop_glusterd(host)
            (self.marks / "down").touch()

    def _start_again(self) -> None:
        if not (self.marks / "down").exists():
            return
        (self.marks / "down").unlink()
        host = self.lab.host_of(self.brick)
        Path(f"/proc/{host.holder_pid}/root/run/glusterd.pid").unlink(missing_ok=True)
        tools = LabTools(LocalProcesses(), self.lab.state.token)
        asyncio.run(cluster.start_glusterd(host, tools, SystemClock()))


@pytest.fixture
def glusterd(single_bricks: LabHandle, tmp_path: Path) -> Iterator[Glusterd]:
    lab, target = single_bricks, single_bricks.target / "glusterd"
    target.mkdir()
    with lab_site(lab, tmp_path / "site", target, hosts=True, more=SETTINGS) as site:
        marks, wrapper = tmp_path / "marks", site.directory / "gluster"
        marks.mkdir()
        # On the host that is asked.
        brick = next(one for one in lab.bricks if one.host == 1)
        real = os.fsdecode(lab.state.gluster)
        pid = f"/proc/{lab.host_of(brick).holder_pid}/root/run/glusterd.pid"
        wrapper.write_text(KILLING_GLUSTERD % {"marks": marks, "gluster": real, "pid": pid})
        wrapper.chmod(0o755)
        hooks = os.fsdecode(lab.state.spec.directory) + "/hooks"
        text = site.file.read_text().replace(f'"{real}"', f'"{wrapper}"')
        site.file.write_text(text.replace('name = "test"', f'name = "test"\nhooks_dir = "{hooks}"'))
        site.json("init")
        site.json("scan", "--via", "bricks")
        yield Glusterd(lab, site, brick, marks)


def fill_side_by_side(root: Path) -> None:
    """Directories with one file after the other. The last one decides the mtime, and any brick may have it."""
    for directory in range(60):
        (root / f"{directory}").mkdir(parents=True)
    for file in range(6):
        for directory in range(60):
            (root / f"{directory}" / f"{file}").write_text("content")


def directory_times(root: Path) -> dict[str, int]:
    """The mtime of each directory but the root, which Gluster makes anew on a new brick."""
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*") if path.is_dir() and not path.is_symlink()}


def test_glusterd_is_killed_at_every_step_of_a_brick_that_goes_and_comes_back(glusterd: Glusterd) -> None:
    lab, brick = glusterd.lab, glusterd.brick
    drains = Drains(lab, glusterd.site, glusterd.marks)
    filled = lab.source / "side-by-side"
    fill_side_by_side(filled)
    before, times = everything(lab.source), directory_times(filled)
    drain = ("drain", brick.name, "--accept-open-files")
    word = glusterd.site.json("brick", *drain, "--dry-run")["confirm"]
    glusterd.bring(DRAIN_MARKS, *drain, "--confirm", word)
    assert (drains.state(), brick.name in drains.names(), drains.option()) == ("wiped", False, None)
    wait_until_is_there(lambda: everything(lab.source), before)
    (drained,) = glusterd.site.json("brick", "status")["drains"]
    assert (drained["times_kept"] > 0, drained["times_lost"]) == (True, 0)
    assert directory_times(filled) == times

    glusterd.bring(ADD_MARKS, "add", brick.name, "--to", "source")
    assert (brick.name in drains.names(), drains.option()) == (True, None)
    (told,) = glusterd.site.json("brick", "status")["additions"]
    assert (told["state"], told["failures"]) == ("settled", 0)
    assert everything(lab.source) == before
    assert {one["name"]: one["state"] for one in glusterd.site.json("brick", "list")["bricks"]}[brick.name] == "up"
