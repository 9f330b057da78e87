"""The stage over fakes of everything but the ledger: order, outcomes, stops, guards, dry runs, files that fail, resuming."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.core.errors import ExitCode, Interrupted, Refused
from migrator.core.events import EventKind, Severity
from migrator.core.progress import RunProgress
from migrator.core.states import BatchState, ChunkKind, ChunkState, PassState
from migrator.fs.model import TargetCapabilities
from migrator.ledger.locks import of_call, of_tree
from migrator.site.model import RSYNC
from migrator.transfer.confirmations import Confirmations
from migrator.transfer.model import StopReason
from migrator.transfer.model_runs import RunStopped
from tests.support.fake_streams import Fault
from tests.support.run_world import ALICE, BOB, LIST, World, in_loop, listed, plan_chunks, small_world


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
async def test_files_of_a_failed_sync_are_copied_again_whatever_their_size_and_times(world: World) -> None:
    world.target.sync_errors = [errno.EIO]
    with pytest.raises(RunStopped) as caught:
        await world.run(jobs=1)
    assert caught.value.stopped.reason is StopReason.IO_ERROR
    assert ChunkState.DONE not in world.ledger.passes.totals(1).chunks
    assert not any(world.streams.recopied)
    tried = len(world.streams.recopied)
    await world.run(jobs=1)
    assert world.streams.recopied[tried:] == [True] * tried + [False] * (len(world.streams.recopied) - 2 * tried)
    with pytest.raises(Refused, match="only a seed pass can send every file again"):
        await world.run(jobs=1, recopy=True)
    assert (await world.run(dry_run=True, recopy=True)).exit_code is ExitCode.REFUSED


@pytest.mark.parametrize(("times", "bad"), [(1, []), (99, ["home/alice/sub/f03"])])
@in_loop
async def test_a_stall_while_both_sides_answer_costs_its_chunk_or_a_file(
    world: World, times: int, bad: list[str]
) -> None:
    world.streams.faults[ALICE + b"/sub/f03"] = Fault("hang", times=times)
    await world.run()
    events = world.ledger.events.latest(999)
    assert [one.subject for one in events if one.kind is EventKind.FILE_BAD] == bad
    retried = [one.message for one in events if one.kind is EventKind.CHUNK_RETRIED]
    assert retried
    assert all("both sides answer" in message for message in retried)
    shown = [one.files for one in world.progress.snapshots if isinstance(one, RunProgress)]
    assert shown == sorted(shown), (
        "what a chunk that is taken back had copied stays counted until others have done more"
    )
    assert world.is_copied(*(name.encode() for name in bad))


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


@pytest.mark.guarantee("one-stream")
@in_loop
async def test_streams_of_a_call_at_work_are_left_alone(world: World) -> None:
    world.leave_attempt(batch=2)
    world.streams.alive.add("old")
    with world.locks.hold("cutover of bob", of_call("runs/killed")):
        await world.run()
        (left,) = world.ledger.passes.unfinished_attempts()
        assert (left.token, world.streams.alive, world.is_copied()) == ("old", {"old"}, True)
    await world.run()
    assert not world.streams.alive


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
    assert world.ledger.runs.latest().exit_code == 130  # type: ignore[union-attr]
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


def engines_by_path(world: World) -> dict[bytes, list[str]]:
    """The engines of all attempts at the chunks of files that had each path, in order."""
    found: dict[bytes, list[str]] = {}
    passes = world.ledger.passes
    for chunk in map(passes.chunk, range(1, passes.next_chunk_number(1))):
        if chunk.kind is ChunkKind.FILES:
            for row in world.lists.paths(chunk.list_path or LIST, chunk.number):
                found.setdefault(row.path, []).extend(one.engine for one in passes.attempts_of_chunk(chunk.id))
    return found


@in_loop
async def test_chunks_with_paths_that_rsync_cannot_take_are_copied_by_direct(world: World) -> None:
    short, long = ALICE + b"/sub/short", ALICE + b"/sub/longer"
    for path in (short, long):
        world.source.add(path, b"x")
    world.lists.add(LIST, ChunkKind.FILES, ALICE, [listed(long), listed(short)])
    world.rsync_takes_bytes = len(b"sub/short")
    await world.run(engine=RSYNC)
    assert world.is_copied()
    assert engines_by_path(world)[long] == engines_by_path(world)[short] == [world.streams.name]
    assert engines_by_path(world)[ALICE + b"/sub/f00"] == ["rsync"]


@in_loop
async def test_files_that_rsync_could_not_bring_are_tried_by_direct(world: World) -> None:
    refused, hung = ALICE + b"/sub/f01", ALICE + b"/sub/f02"
    world.streams.faults |= {refused: Fault("bad", times=1), hung: Fault("killed", times=1)}
    await world.run(engine=RSYNC)
    assert world.is_copied()
    assert engines_by_path(world)[refused] == ["rsync", world.streams.name]
    assert engines_by_path(world)[hung] == ["rsync", "rsync"], "something else had ended it"


@in_loop
async def test_links_across_trees_are_made_and_fall_back_to_copies(tmp_path: Path) -> None:
    world = small_world(tmp_path, files=1, trees=(ALICE, BOB))
    there, gone = ALICE + b"/sub/f00", ALICE + b"/sub/never"
    world.source.add(BOB + b"/link", same_as=there)
    world.source.add(gone, b"x")
    for name in (b"/one", b"/two"):
        world.source.add(BOB + name, same_as=gone)
    rows = [listed(BOB + b"/link", 0, 1, there), *(listed(BOB + name, 0, 2, gone) for name in (b"/one", b"/two"))]
    rows.append(listed(BOB + b"/removed", 0, 3, there))
    world.lists.add(LIST, ChunkKind.LINKS, BOB, rows)
    await world.run()
    assert world.target.groups() == {frozenset({there, BOB + b"/link"}), frozenset({BOB + b"/one", BOB + b"/two"})}
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
    assert world.ledger.runs.latest().exit_code == 0  # type: ignore[union-attr]
    measured = [(sample.side, sample.at_s) for sample in world.ledger.capacity.all()]
    assert len(set(measured)) == len(measured) >= 2, "the room of both sides was measured"
    writes = world.target.writes
    assert (await world.run()).nothing_to_do
    assert (len(world.streams.streams), world.target.writes) == (len(kinds), writes)
    assert world.progress.events[-1].message.endswith("nothing was copied")


@in_loop
async def test_a_dry_run_changes_nothing(world: World) -> None:
    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("a dry run wrote")

    for name in ("make_parents", "link", "remove_leftover", "sync", "probe", "put"):
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
    with world.locks.hold("a run beside it", of_tree(ALICE)):
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
async def test_a_pass_over_a_source_that_changed_is_not_whole(world: World) -> None:
    def swap(path: bytes) -> None:
        if path.endswith(b"f07"):
            world.source.mount = replace(world.source.mount, sentinel="another")

    world.streams.before_path = swap
    with pytest.raises(RunStopped) as caught:
        await world.run()
    assert caught.value.stopped.reason is StopReason.MOUNT_CHANGED
    assert (world.pass_state, world.batch_state) == (PassState.STOPPED, BatchState.SEEDING)


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


def _falls_ill_at(world: World, name: bytes) -> None:
    before = world.streams.before_path

    def fall_ill(path: bytes) -> None:
        before(path)
        if path.endswith(name):
            world.source.sick = ("brick b1 is down",)

    world.streams.before_path = fall_ill


@in_loop
async def test_nothing_is_taken_to_be_gone_on_a_sick_source(world: World) -> None:
    world.source.remove(ALICE + b"/sub/f01")
    _falls_ill_at(world, b"f00")
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
async def test_no_chunk_is_taken_again_before_what_follows_from_its_result(world: World) -> None:
    write = world.ledger.write

    async def slowly(job: Callable[[], object]) -> object:
        result = await write(job)
        for _ in range(10):  # the other worker looks for chunks
            await asyncio.sleep(0)
        return result

    world.ledger.write = slowly  # type: ignore[method-assign, assignment]
    bad = [ALICE + b"/sub/f%02d" % number for number in range(8)]
    world.streams.faults |= {path: Fault("bad") for path in bad}
    assert (await world.run()).exit_code == 3
    assert [problem.path for problem in world.attention] == bad


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
    _falls_ill_at(world, b"f02")
    with pytest.raises(RunStopped):
        await world.run()
    assert hidden in world.target.nodes


def test_the_end_of_a_run_meets_a_confirmation_that_ends_in_the_same_turn() -> None:
    async def met() -> None:
        confirmations, may_end = Confirmations(4), asyncio.Event()

        async def confirm() -> None:
            await may_end.wait()

        await confirmations.begin(confirm, lambda: None)
        await asyncio.sleep(0)
        may_end.set()
        await asyncio.sleep(0)
        await confirmations.end()

    asyncio.run(met())
