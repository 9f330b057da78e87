"""The stage over fakes of everything but the ledger: files that fail, change or vanish, and what killed streams leave."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.core.errors import Refused
from migrator.core.events import EventKind, Severity
from migrator.core.states import BatchState, ChunkKind, PassState
from migrator.transfer.model import RunStopped, StopReason
from tests.support.fake_streams import Fault
from tests.support.run_world import ALICE, World, in_loop, plan_chunks, small_world


@in_loop
async def test_a_vanished_file_needs_the_look(world: World) -> None:
    gone, liar, once = (ALICE + b"/sub/" + name for name in (b"f01", b"f02", b"f04"))
    world.source.remove(gone)
    # What reappears is tried again.
    world.streams.faults |= {liar: Fault("lie"), once: Fault("lie", times=1)}
    summary = await world.run()
    assert world.vanished == 1
    assert [problem.path for problem in world.attention] == [liar]
    assert summary.exit_code == 3
    assert world.is_copied(liar)


@in_loop
async def test_nothing_is_taken_to_be_gone_on_a_sick_source(world: World) -> None:
    world.source.remove(ALICE + b"/sub/f01")
    before = world.streams.before_path

    def fall_ill(path: bytes) -> None:
        before(path)
        if path.endswith(b"f00"):
            world.source.sick = ("brick b1 is down",)

    world.streams.before_path = fall_ill
    with pytest.raises(RunStopped, match="brick b1 is down") as caught:
        await world.run()
    assert caught.value.stopped.reason is StopReason.SOURCE_UNHEALTHY
    assert world.vanished == 0
    assert world.pass_state is PassState.STOPPED


@in_loop
async def test_while_files_are_moved_between_bricks_nothing_is_taken_to_be_gone(world: World) -> None:
    gone = ALICE + b"/sub/f01"
    world.source.remove(gone)
    world.source.tasks = ("Rebalance",)
    summary = await world.run()
    assert (world.vanished, summary.exit_code) == (0, 3)
    assert [problem.path for problem in world.attention] == [gone]
    assert "Rebalance" in world.attention[0].reason
    world.source.tasks = ()
    await world.run()
    assert (world.vanished, len(world.attention)) == (1, 0)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
@in_loop
async def test_a_bad_file_does_not_sink_its_chunk(world: World, code: int) -> None:
    bad = ALICE + b"/sub/f03"
    world.streams.faults[bad] = Fault("bad", code=code)
    summary = await world.run()
    assert world.is_copied(bad)
    assert [(problem.path, problem.errno) for problem in world.attention] == [(bad, code)]
    assert (summary.exit_code, summary.batches[0].files, world.batch_state) == (3, 7, BatchState.SEEDED)
    said = {event.kind: event for event in world.progress.events}
    for kind in (EventKind.PASS_FINISHED, EventKind.RUN_FINISHED):
        assert said[kind].message.endswith("; 1 file needs attention")
        assert said[kind].severity is Severity.WARNING
    world.streams.faults.clear()
    world.streams.streams.clear()
    world.progress.events.clear()
    foreseen = await world.run(dry_run=True)
    again = await world.run()
    assert world.is_copied()
    assert not world.attention
    assert (again.exit_code, again.batches[0].files) == (0, 1)
    assert world.progress.events[-1].message == "batch 1: copied"
    assert not any("attention" in event.message for event in world.progress.events)
    # What came into the directory has changed its time.
    assert [kind for kind, _ in world.streams.streams] == [ChunkKind.FILES, ChunkKind.DIRECTORY_TIMES]
    assert foreseen.batches[0].chunks_by_kind == again.batches[0].chunks_by_kind


@in_loop
async def test_a_bad_file_keeps_its_link_group_together(tmp_path: Path) -> None:
    world = small_world(tmp_path, files=2, per_chunk=10)
    first, second = ALICE + b"/sub/a", ALICE + b"/sub/b"
    world.source.add(first, b"linked")
    world.source.add(second, same_as=first)
    world.lists.lists.clear()
    plan_chunks(world, (ALICE,), 10)
    world.streams.faults[second] = Fault("bad", times=1, code=errno.EBUSY)
    await world.run()
    assert world.is_copied()
    assert world.target.groups() == {frozenset({first, second})}


@in_loop
async def test_a_chunk_that_keeps_failing_is_split_until_the_bad_file_stands_alone(tmp_path: Path) -> None:
    world = small_world(tmp_path, files=16, per_chunk=16)
    bad = ALICE + b"/sub/f11"
    world.streams.faults[bad] = Fault("crash")
    summary = await world.run()
    assert world.is_copied(bad)
    assert [problem.path for problem in world.attention] == [bad]
    assert summary.exit_code == 3
    attempts = sum(1 for kind, _ in world.streams.streams if kind is ChunkKind.FILES)
    assert attempts <= 3 + 2 * 4 + 3


@in_loop
async def test_leftovers_of_a_killed_stream_are_removed_and_users_files_are_not(world: World) -> None:
    users = ALICE + b"/sub/.f02.ABCdef"
    world.source.add(users, b"a user's file of that name")
    world.lists.lists.clear()
    plan_chunks(world, (ALICE,), 20)
    world.leave_attempt()
    leftover, unrelated = ALICE + b"/sub/.f01.abc123", ALICE + b"/sub/.notes.abc123"
    for path in (users, leftover, unrelated):
        world.target.add(path, b"?")
    mount, world.target.mount = world.target.mount, replace(world.target.mount, sentinel="another file system")
    with pytest.raises(Refused, match="another site"):
        await world.run()
    assert leftover in world.target.nodes
    world.target.mount = mount
    await world.run()
    assert leftover not in world.target.nodes
    assert unrelated in world.target.nodes
    assert world.is_copied()


@in_loop
async def test_on_a_sick_source_nothing_is_taken_for_a_leftover(world: World) -> None:
    world.streams.faults[ALICE + b"/sub/f02"] = Fault("killed", times=1)
    hidden = ALICE + b"/sub/.f02.abc123"
    world.target.add(hidden, b"a user's file that the source does not show just now")
    before = world.streams.before_path

    def fall_ill(path: bytes) -> None:
        before(path)
        if path.endswith(b"f02"):
            world.source.sick = ("brick b1 is down",)

    world.streams.before_path = fall_ill
    with pytest.raises(RunStopped):
        await world.run()
    assert hidden in world.target.nodes
