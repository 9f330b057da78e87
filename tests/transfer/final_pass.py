"""A final pass over some trees of a real site, made as the program makes its passes, in a process of its own."""

import asyncio
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from migrator import app
from migrator.app.hosts import reached
from migrator.app.transfer import brick_guard, deltas_of, lanes_of
from migrator.core.errors import Refused
from migrator.core.states import PassKind
from migrator.delta.delta import DeltaPass, FinalPassFacts, final_pass_facts
from migrator.ledger.model import PassRecord
from migrator.render.progress import open_progress
from migrator.site.load import load_site
from migrator.transfer.bases import latest_plan
from migrator.transfer.context import Invocation, World
from migrator.transfer.model import BatchSummary, RunRequest
from tests.support.run_site import RealSite


@dataclass(frozen=True, kw_only=True)
class FinalPass:
    """What came of it."""

    summary: BatchSummary
    record: PassRecord
    facts: FinalPassFacts


class Killed(BaseException):
    """The process of a pass ends at once where this is raised in it, and then it is raised in the test."""


def final_pass(site: RealSite, users: Sequence[str], *, number: int = 1, kind: PassKind = PassKind.FINAL) -> FinalPass:
    """A pass over the trees of these users of a batch. What a test has patched is patched there too, for the process is a
    fork. Raises Killed, or Refused with the words of the one that was raised there.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _be_the_child(reading, writing, lambda: _make(site, users, number, kind))
    os.close(writing)
    with open(reading, "rb") as stream:
        said = stream.read()
    os.waitpid(child, 0)
    if not said:
        raise Killed
    result = pickle.loads(said)
    if isinstance(result, str):
        raise Refused(result)
    assert isinstance(result, FinalPass), result
    return result


def _be_the_child(reading: int, writing: int, make: Callable[[], Coroutine[Any, Any, FinalPass]]) -> NoReturn:
    try:
        os.close(reading)
        result: object
        try:
            result = asyncio.run(make())
        except Refused as refused:
            result = refused.message
        with open(writing, "wb") as stream:
            stream.write(pickle.dumps(result))
    except Killed:
        pass
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


async def _make(site: RealSite, users: Sequence[str], number: int, kind: PassKind) -> FinalPass:
    config = load_site(Path(site.file))
    wiring = app.Wiring(config)
    with wiring.ledger() as ledger, wiring.source() as source:
        known = ledger.site.read()
        assert known is not None
        plan, _ = wiring.plans(known.site_id).read(latest_plan(ledger))
        batch = next(batch for batch in plan.batches if batch.number == number)
        with (
            wiring.target(known.capabilities) as target,
            wiring.target_moves() as moves,
            open_progress(sys.stderr, wiring.clock) as shown,
            wiring.run_files().open("cutover", wiring.clock.now_s()) as directory,
        ):
            async with (
                reached(config) as hosts,
                lanes_of(config, source, known, jobs=2, engine="rsync", ahead=False, hosts=hosts) as lanes,
            ):
                world = World(
                    source=source,
                    target=target,
                    lanes=lanes,
                    bricks=brick_guard(source),
                    driving=None,
                    chunk_lists=wiring.chunk_lists(),
                    documents=wiring.plans(known.site_id),
                    ledger=ledger,
                    progress=shown,
                    clock=wiring.clock,
                    activity=wiring.activity(),
                    blocking=wiring.blocking(),
                    tokens=app.new_token,
                )
                deltas = deltas_of(
                    wiring, source, moves=moves, ledger=ledger, progress=shown, hosts=hosts, engine="rsync", at_most=1
                )
                assert deltas is not None
                request = RunRequest(
                    plan=plan.name, batches=(number,), jobs=2, pid=os.getpid(), engine="rsync", reserve_bytes=1 << 20
                )
                run_id = ledger.runs.start(
                    verb="cutover", pid=os.getpid(), at_s=wiring.clock.now_s(), directory=directory.path
                )
                summary = await DeltaPass(
                    invocation=Invocation(world=world, request=request, run_id=run_id, directory=directory),
                    plan=plan,
                    site=known,
                    batch=replace(batch, trees=tuple(tree for tree in batch.trees if tree.user in users)),
                    deltas=deltas,
                    kind=kind,
                ).run()
                ledger.runs.finish(run_id, wiring.clock.now_s(), 0)
                record = ledger.passes.find(plan.name, number, kind)
                assert record is not None
                return FinalPass(summary=summary, record=record, facts=final_pass_facts(ledger, record.id))
