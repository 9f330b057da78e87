"""The stage over fakes: what is decided before anything is copied, guards above all, and dry runs."""

from dataclasses import replace

import pytest

from migrator.core.errors import Refused, UsageError
from migrator.core.states import BatchState, PassState
from migrator.transfer.model import RunStopped, StopReason
from tests.support.run_world import ALICE, LIST, World, in_loop


@in_loop
async def test_a_dry_run_changes_nothing(world: World) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a dry run wrote")

    for name in ("make_parents", "link", "copy_from", "remove_leftover", "sync", "probe", "put"):
        setattr(world.target, name, forbidden)
    passes, runs = world.ledger.passes, world.ledger.runs
    for group, names in (
        (passes, ("start", "set_state", "intend", "started", "finish", "split", "retry_failed")),
        (runs, ("start", "heartbeat", "finish")),
        (world.ledger.events, ("add",)),
        (world.ledger.plans, ("set_batch_state",)),
        (world.ledger.samples, ("add",)),
    ):
        for name in names:
            setattr(group, name, forbidden)
    with world.locks.hold("run", "a run beside it"):
        summary = await world.run(dry_run=True)
    batch = summary.batches[0]
    assert summary.dry_run
    assert (batch.chunks, batch.files, [work.tree for work in batch.left]) == (6, 8, [ALICE])
    assert not batch.refused
    assert world.files.opened == 0
    assert not world.streams.streams


@in_loop
async def test_guards_refuse_before_anything_is_copied(world: World) -> None:
    room, mount = world.target.room, world.source.mount
    world.target.room = replace(room, free_bytes=10)
    with pytest.raises(Refused, match="lacks"):
        await world.run()
    world.target.room = replace(room, free_inodes=None)
    with pytest.raises(Refused, match="inodes"):
        await world.run()
    await world.run(inodes_free=1000, dry_run=True)
    world.target.room = room
    world.source.mount = replace(mount, sentinel=None)
    with pytest.raises(Refused, match="sentinel"):
        await world.run()
    world.source.mount = mount
    world.source.sick = ("brick b1 is down",)
    with pytest.raises(Refused, match="brick b1"):
        await world.run()
    world.source.sick = ()
    world.lists.lists["other"] = world.lists.lists.pop(LIST)
    with pytest.raises(Refused, match="no list"):
        await world.run()
    assert not world.streams.streams


@in_loop
async def test_plans_that_are_not_of_this_site_are_refused(world: World) -> None:
    plan, checksum = world.documents.plans["plan"]
    world.documents.plans["plan"] = (replace(plan, site_id="other"), checksum)
    with pytest.raises(Refused, match="another site"):
        await world.run()
    world.documents.plans["plan"] = (plan, "edited")
    with pytest.raises(Refused, match="checksum"):
        await world.run()
    world.documents.plans["unknown"] = (replace(plan, name="unknown"), checksum)
    with pytest.raises(Refused, match="does not know"):
        await world.run(plan="unknown")
    world.documents.plans["plan"] = (plan, checksum)
    with pytest.raises(UsageError, match="no batch 7") as caught:
        await world.run(batches=(7,))
    assert "1" in caught.value.hint


@in_loop
async def test_a_pass_over_a_source_that_changed_is_not_whole(world: World) -> None:
    def swap(path: bytes) -> None:
        if path.endswith(b"f07"):
            world.source.mount = replace(world.source.mount, sentinel="another")

    world.streams.before_path = swap
    with pytest.raises(RunStopped) as caught:
        await world.run()
    assert caught.value.stopped.reason is StopReason.MOUNT_CHANGED
    assert (world.pass_state, world.batch_state) == (PassState.STOPPED, BatchState.SEEDING)
