"""A pass after the seed runs over its own list, and copies again what has the right size and times already."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from migrator.core.states import ChunkKind, PassKind
from migrator.core.tasks import SharedCall
from migrator.fs.model import TargetCapabilities
from migrator.transfer.context import HealthNow, Invocation, PassUnderWay
from migrator.transfer.context import World as Ports
from migrator.transfer.lanes import Lanes, Routes
from migrator.transfer.pool import run_step
from tests.support.fake_streams import FakeLane
from tests.support.run_world import ALICE, LIST, World, in_loop, listed, small_world

DELTA_LIST = "passes/plan/batch-0001-delta-0001.parquet"
CHANGED = ALICE + b"/sub/f03"


async def under_way(world: World, *, kind: PassKind, number: int, chunk_list: str) -> PassUnderWay:
    made = world.ledger.passes.start(
        plan="plan",
        batch=1,
        kind=kind,
        number=number,
        catalog="catalog-2",
        chunk_list=chunk_list,
        chunks=world.lists.chunks(chunk_list),
        at_s=9.0,
    )
    ports = Ports(
        source=world.source,
        target=world.target,
        lanes=Lanes([FakeLane(world.streams, world.streams, 1)]),
        bricks=None,
        driving=None,
        chunk_lists=cast("Any", world.lists),
        documents=world.documents,
        ledger=world.ledger,
        progress=world.progress,
        clock=world.clock,
        activity=world.streams,
        blocking=world.blocking,
        tokens=world.tokens,
    )
    run_id = world.ledger.runs.start(verb="run", pid=1, at_s=9.0, directory="runs/fake")

    async def sync() -> None:
        world.target.sync()

    async def health() -> HealthNow:
        return HealthNow(problems=(), doubts=())

    plan, _ = world.documents.read("plan")
    return PassUnderWay(
        invocation=Invocation(world=ports, request=world.request, run_id=run_id, directory=world.files),
        batch=plan.batches[0],
        pass_id=made.id,
        kind=made.kind,
        chunk_list=made.chunk_list,
        capabilities=TargetCapabilities(),
        health_before=await world.source.health(),
        sync=SharedCall(sync),
        health=SharedCall(health),
        known_io_errors={},
    )


async def copy(world: World, going_on: PassUnderWay) -> None:
    routes = Routes(invocation=going_on.invocation, lanes=going_on.world.lanes.all, guard=None, catalog_fingerprint="f")
    try:
        await run_step(going_on, routes, (ChunkKind.FILES,))
        await going_on.confirmations.settled()
    finally:
        await going_on.confirmations.end()
        going_on.abandon_calls()
        routes.abandon()


@in_loop
async def test_reads_its_own_list_and_copies_again(tmp_path: Path) -> None:
    world = small_world(tmp_path, per_chunk=8)
    await world.run()
    before = len(world.streams.streams)
    assert not any(world.streams.recopied)
    node = world.source.nodes[CHANGED]
    world.source.nodes[CHANGED] = replace(node, content=b"CONTENT 3")
    world.lists.add(DELTA_LIST, ChunkKind.FILES, ALICE, [listed(CHANGED, 9)])
    await copy(world, await under_way(world, kind=PassKind.DELTA, number=1, chunk_list=DELTA_LIST))
    assert world.streams.streams[before:] == [(ChunkKind.FILES, (CHANGED,))]
    assert world.streams.recopied[before:] == [True]
    assert world.target.nodes[CHANGED].content == b"CONTENT 3"


@in_loop
async def test_a_seed_pass_leaves_what_is_right_already(tmp_path: Path) -> None:
    world = small_world(tmp_path, per_chunk=8)
    await copy(world, await under_way(world, kind=PassKind.SEED, number=0, chunk_list=LIST))
    assert world.streams.recopied == [False]
