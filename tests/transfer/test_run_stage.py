"""The stage over fakes of everything but the ledger: order, outcomes, stops, guards, resuming."""

import asyncio
import errno
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.core.errors import Interrupted, Refused
from migrator.core.events import EventKind
from migrator.core.states import BatchState, ChunkKind, ChunkState, PassState
from migrator.fs.model import TargetCapabilities
from migrator.transfer.model import RunStopped, StopReason
from tests.support.fake_streams import Fault
from tests.support.run_world import ALICE, BOB, LIST, World, in_loop, listed, small_world


@in_loop
async def test_nothing_counts_as_done_before_a_sync(world: World) -> None:
    seen: list[bool] = []
    finish = world.ledger.passes.finish

    def spy(attempt_id: int, **facts: object) -> None:
        if facts["chunk_state"] is ChunkState.DONE:
            _, listed_paths = world.streams.streams[attempt_id - 1]
            seen.append(not world.target.dirty.intersection(listed_paths))
        finish(attempt_id, **facts)  # type: ignore[arg-type]

    world.ledger.passes.finish = spy  # type: ignore[method-assign]
    await world.run(jobs=1)
    assert seen
    assert all(seen)


@pytest.mark.parametrize("reason", list(StopReason))
@in_loop
async def test_every_stop_reason_stops_the_pool_and_splits_nothing(world: World, reason: StopReason) -> None:
    world.streams.faults[ALICE + b"/sub/f03"] = Fault("stop", times=1, stop=reason, code=errno.ENOSPC)
    with pytest.raises(RunStopped) as caught:
        await world.run()
    error = caught.value
    assert error.stopped.reason is reason
    assert error.message
    assert error.cause
    assert "same command" in error.hint
    assert error.exit_code == 1
    assert world.pass_state is PassState.STOPPED
    totals = world.ledger.passes.totals(1)
    assert ChunkState.SPLIT not in totals.chunks
    assert ChunkState.RUNNING not in totals.chunks
    assert not world.streams.alive
    assert not world.ledger.passes.unfinished_attempts()
    await world.run()
    assert world.is_copied()


@in_loop
async def test_what_a_failed_sync_may_have_lost_is_copied_again_whatever_size_and_times_say(
    world: World,
) -> None:
    world.target.sync_errors = [errno.EIO]
    with pytest.raises(RunStopped) as caught:
        await world.run(jobs=1)
    assert caught.value.stopped.reason is StopReason.IO_ERROR
    assert ChunkState.DONE not in world.ledger.passes.totals(1).chunks
    assert not any(world.streams.recopied)
    tried = len(world.streams.recopied)
    await world.run(jobs=1)
    assert world.streams.recopied[tried:] == [True] * tried + [False] * (len(world.streams.recopied) - 2 * tried)


@in_loop
async def test_a_stream_that_stalls_while_both_sides_answer_costs_its_chunk(world: World) -> None:
    world.streams.faults[ALICE + b"/sub/f03"] = Fault("hang", times=1)
    await world.run()
    assert world.is_copied()
    [retried] = [one for one in world.ledger.events.latest(99) if one.kind is EventKind.CHUNK_RETRIED]
    assert "both sides answer" in retried.message


@in_loop
async def test_a_file_that_always_stalls_its_stream_is_found_and_named(world: World) -> None:
    world.streams.faults[ALICE + b"/sub/f03"] = Fault("hang")
    summary = await world.run()
    assert summary.exit_code == 3
    bad = [one.subject for one in world.ledger.events.latest(999) if one.kind is EventKind.FILE_BAD]
    assert bad == ["home/alice/sub/f03"]


@in_loop
async def test_a_stream_that_stalls_stops_the_pool_if_nothing_shows_that_the_target_works(world: World) -> None:
    world.ledger.site.record_capabilities(TargetCapabilities(syncfs_reaches_disks=False), 1.0)
    world.streams.faults[ALICE + b"/sub/f03"] = Fault("hang", times=1)
    with pytest.raises(RunStopped) as caught:
        await world.run()
    assert caught.value.stopped.reason is StopReason.TARGET_STUCK
    assert not caught.value.stopped.unended
    assert not world.ledger.passes.unfinished_attempts()
    await world.run()
    assert world.is_copied()


@pytest.mark.guarantee("one-stream")
@in_loop
async def test_a_stream_that_cannot_be_ended_keeps_its_chunk(world: World) -> None:
    world.streams.faults[ALICE + b"/sub/f03"] = Fault("hang", times=1)

    def hang(path: bytes) -> None:
        world.streams.unendable = path.endswith(b"f03") or world.streams.unendable

    world.streams.before_path = hang
    with pytest.raises(RunStopped, match="could not be ended") as caught:
        await world.run(jobs=1)
    assert caught.value.stopped.unended
    assert world.ledger.passes.unfinished_attempts()
    with pytest.raises(Refused, match="cannot be ended"):
        await world.run()
    world.streams.unendable = False
    world.streams.before_path = lambda _: None
    await world.run()
    assert world.is_copied()


@in_loop
async def test_being_cancelled_twice_stops_cleanly(world: World) -> None:
    world.streams.faults[ALICE + b"/sub/f03"] = Fault("hang", times=1)
    reached = asyncio.Event()
    world.streams.before_path = lambda path: reached.set() if path.endswith(b"f03") else None
    task = asyncio.create_task(world.run())
    await asyncio.wait_for(reached.wait(), 60)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(Interrupted) as caught:
        await task
    assert caught.value.exit_code == 130
    assert not world.streams.alive
    assert not world.ledger.passes.unfinished_attempts()
    assert world.pass_state is PassState.STOPPED
    assert world.ledger.runs.latest("run").exit_code == 130  # type: ignore[union-attr]
    await world.run()
    assert world.is_copied()


@in_loop
async def test_a_tree_that_vanished_does_not_sink_the_batch(tmp_path: Path) -> None:
    world = small_world(tmp_path, trees=(ALICE, BOB))
    world.source.remove(BOB)
    summary = await world.run()
    assert world.is_copied()
    assert summary.batches[0].trees_gone == (BOB,)
    assert world.vanished == 1
    assert world.batch_state is BatchState.SEEDED


@in_loop
async def test_paths_that_do_not_fit_are_copied_by_descriptor(world: World) -> None:
    long = {ALICE + b"/sub/f02", ALICE + b"/sub"}
    world.streams.too_long = long
    await world.run()
    assert world.is_copied()
    assert not any(long.intersection(paths) for _, paths in world.streams.streams)


@in_loop
async def test_links_across_trees_are_made_and_fall_back_to_copies(tmp_path: Path) -> None:
    world = small_world(tmp_path, files=1, trees=(ALICE, BOB))
    there, gone = ALICE + b"/sub/f00", ALICE + b"/sub/never"
    world.source.add(BOB + b"/link", same_as=there)
    world.source.add(gone, b"x")
    for name in (b"/one", b"/two"):
        world.source.add(BOB + name, same_as=gone)
    rows = [
        listed(BOB + b"/link", 0, 1, there),
        *(listed(BOB + name, 0, 2, gone) for name in (b"/one", b"/two")),
    ]
    rows.append(listed(BOB + b"/removed", 0, 3, there))
    world.lists.add(LIST, ChunkKind.LINKS, BOB, rows)
    await world.run()
    assert world.target.groups() == {
        frozenset({there, BOB + b"/link"}),
        frozenset({BOB + b"/one", BOB + b"/two"}),
    }
    assert world.vanished == 1


@in_loop
async def test_a_lost_plan_of_a_killed_run_does_not_hold_up_others(world: World) -> None:
    world.leave_attempt()
    newer = replace(world.documents.plans.pop("plan")[0], name="newer")
    path, checksum = world.documents.write(newer)
    world.ledger.plans.record(newer, path=path, checksum=checksum)
    await world.run(plan="newer")
    assert world.is_copied()


@in_loop
async def test_a_batch_is_copied_in_the_order_of_a_pass_and_a_finished_one_not_again(world: World) -> None:
    summary = await world.run()
    assert world.is_copied()
    assert (summary.exit_code, world.batch_state, world.pass_state) == (0, BatchState.SEEDED, PassState.DONE)
    kinds = [kind for kind, _ in world.streams.streams]
    assert kinds == [ChunkKind.DIRECTORIES, *[ChunkKind.FILES] * 4, ChunkKind.DIRECTORY_TIMES]
    assert (summary.batches[0].files, summary.batches[0].chunks) == (8, 6)
    assert world.streams.at_once == 2
    assert world.ledger.runs.latest("run").exit_code == 0  # type: ignore[union-attr]
    measured = [(sample.side, sample.at_s) for sample in world.ledger.capacity.all()]
    assert len(set(measured)) == len(measured) >= 2, "the room of both sides was measured"
    writes = world.target.writes
    assert (await world.run()).nothing_to_do
    assert (len(world.streams.streams), world.target.writes) == (len(kinds), writes)
    assert world.progress.events[-1].message.endswith("nothing was copied")
