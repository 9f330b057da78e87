"""`status` and `report` over several passes of one batch."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.core.states import BatchState, ChunkKind, ChunkState, PassKind, PassState
from migrator.delta.model import ChangeKind, Changes, ChangeTally, TreeChanges
from migrator.hosts.model import ProcessIdentity
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.plan.model import Chunk
from migrator.report.model import TreeState
from migrator.report.status import read_status
from migrator.transfer.model import FileProblem, FileProblemKind, StreamCounters
from tests.support.plans import small_plan
from tests.support.records import SITE

T0_S = 1_763_600_000.0
TREE = small_plan().batches[0].trees[0].path
BAD, WORSE = TREE + b"/bad\n", TREE + b"/worse"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A seed pass over batch 1 that has gone through: one chunk is done, one with a bad file failed."""
    with open_ledger(tmp_path / "ledger.db", create=True) as made:
        made.site.create(SITE)
        made.plans.record(small_plan(), path="plans/plan.json", checksum="c")
        made.plans.set_batch_state("plan", 1, BatchState.SEEDING)
        pass_id = made.passes.start(
            plan="plan",
            batch=1,
            kind=PassKind.SEED,
            catalog="catalog-1",
            chunk_list="l",
            chunks=chunks(1, 2),
            at_s=T0_S,
        ).id
        end(made, pass_id, ChunkState.DONE)
        end(made, pass_id, ChunkState.FAILED, BAD)
        made.passes.set_state(pass_id, PassState.DONE, T0_S + 50)
        made.plans.set_batch_state("plan", 1, BatchState.SEEDED)
        yield made


def chunks(*numbers: int) -> list[Chunk]:
    return [Chunk(number=number, kind=ChunkKind.FILES, tree=TREE, files=5, size_bytes=500) for number in numbers]


def end(ledger: Ledger, pass_id: int, state: ChunkState, *bad: bytes) -> None:
    chunk = ledger.passes.pending(pass_id, ChunkKind.FILES, 1)[0]
    attempt = ledger.passes.intend(
        chunk_id=chunk.id, token=f"t{chunk.id}", host="here", engine="rsync", argv=(), at_s=T0_S
    )
    ledger.passes.started(attempt, ProcessIdentity(pid=1, start_ticks=1, boot_id="b"))
    ledger.passes.finish(
        attempt,
        at_s=T0_S + 60,
        state="succeeded" if state is ChunkState.DONE else "failed",
        exit_code=0,
        counters=StreamCounters(files=5, size_bytes=500),
        stderr_tail=b"",
        chunk_state=state,
        problems=[FileProblem(path=path, kind=FileProblemKind.BAD, errno=5, reason="r") for path in bad],
    )


def delta(ledger: Ledger, number: int) -> int:
    by_kind = {
        ChangeKind.RENAMED: ChangeTally(paths=1234, directories=1),
        ChangeKind.NEW: ChangeTally(paths=5, size_bytes=500),
    }
    before, now = f"catalog-{number}", f"catalog-{number + 1}"
    changes = Changes(
        base=before, now=now, trees=(TreeChanges(tree=TREE, names_before=10, bytes_before=1000, by_kind=by_kind),)
    )
    made = ledger.passes.start(
        plan="plan",
        batch=1,
        kind=PassKind.DELTA,
        number=number,
        catalog=now,
        base_catalog=before,
        chunk_list=f"passes/{number}",
        scan_s=125.0,
        changes=changes,
        chunks=chunks(1),
        at_s=T0_S + 100 * number,
    )
    ledger.plans.set_batch_state("plan", 1, BatchState.CONVERGING)
    return made.id


def test_what_needed_attention_does_so_until_a_later_pass_went_through(ledger: Ledger) -> None:
    pass_id = delta(ledger, 1)
    status = read_status(ledger, now_s=T0_S + 120)
    assert [one.problem.path for one in status.attention] == [BAD]
    assert status.trees[0].state is TreeState.ATTENTION
    assert status.batches[0].chunks == {ChunkState.PENDING: 1}
    end(ledger, pass_id, ChunkState.FAILED, BAD, WORSE)
    status = read_status(ledger, now_s=T0_S + 130)
    assert [one.problem.path for one in status.attention] == [BAD, WORSE]
    assert status.attention_total == 2
    ledger.passes.set_state(pass_id, PassState.DONE, T0_S + 140)
    status = read_status(ledger, now_s=T0_S + 150)
    assert [one.problem.path for one in status.attention] == [BAD, WORSE]
    assert (status.trees[0].state, status.trees[0].tally.left_bytes) == (TreeState.ATTENTION, 0)
    second = delta(ledger, 2)
    end(ledger, second, ChunkState.DONE)
    ledger.passes.set_state(second, PassState.DONE, T0_S + 240)
    status = read_status(ledger, now_s=T0_S + 250)
    assert (status.attention, status.attention_total) == ((), 0)
    assert status.trees[0].state is TreeState.COPIED
    assert status.batches[0].chunks == {ChunkState.DONE: 1}
    assert [one.on for one in status.blocked if one.subject == "batch 1"] == []
