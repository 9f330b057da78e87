"""Drains on a real cluster: what Gluster's status says, what an audit finds, and what is decided from both."""

import asyncio
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from migrator.bricks.drain import model as drain
from migrator.bricks.drain.audit import audit_bricks
from migrator.bricks.drain.rules import commit_problems, next_step, own_task
from migrator.catalog.brick_parts import paths_of
from migrator.gluster.model import Brick
from migrator.gluster.volume import GlusterCommands, GlusterSource
from migrator.gluster.walks import HostBrickWalks
from migrator.hosts.process import LocalProcesses
from migrator.lab.model import LabBrick
from migrator.native.program import native_program
from migrator.operations.model import Halt
from tests.support.cluster.covers import brick_covered
from tests.support.cluster.fixtures import MakeLab
from tests.support.cluster.handle import DEADLINE_S, LabHandle, WallClock
from tests.support.cluster.hosts import LabHosts

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

S, D = drain.DrainState, drain.DrainStep


@dataclass
class Drained:
    """One brick of a lab that is drained by hand, with the record that the program would have of it."""

    lab: LabHandle
    brick: LabBrick
    record: drain.DrainRecord
    audited: drain.AuditSeen | None = None

    @property
    def volume(self) -> str:
        return self.lab.state.spec.volume

    def gluster(self, *words: str) -> bytes:
        return self.lab.gluster("volume", "remove-brick", self.volume, self.brick.name, *words)

    def seen(self) -> drain.DrainSeen:
        return asyncio.run(self._seen())

    async def _seen(self) -> drain.DrainSeen:
        commands = GlusterCommands(
            LocalProcesses(), WallClock(), volume=self.volume, gluster=os.fsdecode(self.lab.state.gluster)
        )
        found = await GlusterSource(self.lab.state.source, commands, volume=self.volume).overview()
        self.record = replace(self.record, volume_id=found.state.volume_id)
        seen = drain.DrainSeen(state=found.state, tasks=found.tasks, preflight=(), audit=self.audited)
        task = own_task(self.record, seen)
        return seen if task is None else replace(seen, progress=found.progress[task.id])

    def audit(self) -> drain.AuditSeen:
        return asyncio.run(self._audit())

    async def _audit(self) -> drain.AuditSeen:
        hosts = LabHosts(self.lab)
        try:
            walks = HostBrickWalks(hosts, native_program().place, names=tuple(hosts.names))
            brick = Brick(
                name=self.brick.name,
                host=self.lab.host_of(self.brick).address,
                path=self.lab.brick_path(self.brick),
                online=None,
            )
            self.audited = await audit_bricks(
                [brick], volume_id=self.record.volume_id, walks=walks, read_block=paths_of, clock=WallClock()
            )
        finally:
            await hosts.close()
        return self.audited

    def come_to(self, state: drain.DrainState, task_id: str | None = None) -> None:
        times = {**self.record.times, state: time.time()}
        notes = self.record.notes if task_id is None else replace(self.record.notes, task_id=task_id)
        self.record = replace(self.record, state=state, times=times, notes=notes)

    def next(self) -> drain.Step:
        seen = self.seen()
        return next_step(self.record, seen)

    def wait(self) -> drain.Step:
        """Until it is seen to be at its end, as the program polls."""
        end = time.monotonic() + 3 * DEADLINE_S
        while True:
            step = self.next()
            if not (isinstance(step, drain.DrainAct) and step.step is D.WATCH and not step.seen_done):
                return step
            assert time.monotonic() < end, step
            time.sleep(0.5)


@pytest.fixture
def drained(make_lab: MakeLab) -> Drained:
    lab = make_lab(hosts=3, bricks_per_host=1, users=2, files=150, odd=False)
    brick = lab.bricks[-1]
    record = drain.DrainRecord(
        id=1,
        volume=lab.state.spec.volume,
        volume_id="",
        bricks=(brick.name,),
        attempt=1,
        state=S.PREFLIGHT,
        times={S.PREFLIGHT: time.time()},
        notes=drain.DrainNotes(options=()),
    )
    return Drained(lab, brick, record)


def left_behind(brick: Path) -> Path:
    """A file of data, which is returned, and a link-to file."""
    link = brick / "home" / "elsewhere"
    link.touch()
    os.setxattr(link, "trusted.glusterfs.dht.linkto", b"vol1-client-0\0")
    link.chmod(0o1000)
    stray = brick / "home" / "left behind"
    stray.write_bytes(b"data")
    for path in (link, stray):
        # Gluster knows both: without it nobody could tell what they are.
        os.setxattr(path, "trusted.gfid", os.urandom(16))
    return stray


def test_a_host_whose_glusterd_is_down_and_a_stop_by_hand(drained: Drained) -> None:
    lab = drained.lab
    drained.next()
    drained.gluster("start")
    drained.come_to(S.STARTING)
    step = drained.next()
    assert isinstance(step, drain.DrainAct)
    drained.come_to(S.STARTED, step.task_id)
    drained.wait()
    drained.come_to(S.DRAINED)
    with lab.glusterd_down(lab.host_of(drained.brick)):
        step = drained.next()
        assert isinstance(step, Halt), step
        assert step.look_again
        assert commit_problems(drained.record, drained.seen())
    # Its counters have survived.
    step = drained.next()
    assert isinstance(step, drain.DrainAct), step
    assert step.step is D.AUDIT
    drained.gluster("stop")
    step = drained.next()
    assert isinstance(step, drain.DrainAct)
    assert (step.step, step.intent, step.seen_done) == (D.STOP, S.STOPPING, True)
    drained.come_to(S.STOPPING)
    step = drained.next()
    assert isinstance(step, drain.DrainAct)
    assert step.step is D.SETTLE


def test_a_brick_that_is_not_mounted_has_nothing_left_and_that_is_no_audit(drained: Drained) -> None:
    drained.seen()
    with brick_covered(drained.lab, drained.brick):
        audit = drained.audit()
    assert not audit.whole
    assert "is no root of a brick" in audit.reasons[0]
