"""Ledgers of migrations in every state that one can be in, drawn by chance: hostile names, empty files, clocks that were set
back, plans that replace plans, drains that fail, users who went back. A seed gives the same ledger each time.
"""

import random
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from migrator.bricks.drain.model import DrainSample
from migrator.bricks.retire.model import RetirementState
from migrator.core.entry import UserTree
from migrator.core.events import Event, EventKind, Severity
from migrator.core.probe import Probe, ProbeSide, ProbeTimes
from migrator.core.states import BatchState, ChunkKind, ChunkState, PassKind, PassState
from migrator.cutover.model import CutoverAct, CutoverNotes, CutoverState, CutoverStep, PurgeSum
from migrator.fs.model import CapacitySample, Side
from migrator.gluster.model import TaskStatus
from migrator.hosts.model import ProcessIdentity
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.plan.model import Batch, Chunk, Plan, TreeUsage
from migrator.reap.model import PlanReap, ReapAction, ReapedTree, Savings, WrittenArchive
from migrator.transfer import model as transfer
from migrator.verify.model import DigestPolicy
from tests.support import operations as drains
from tests.support.operations import REVERT, THERE, TOPS
from tests.support.plans import small_plan, usage
from tests.support.records import HOSTILE, SITE, verification

BEGAN_S = 1_774_695_600.0
"""Saturday, 2026-03-28, 11:00 UTC: where clocks go by Central Europe's, the next night lacks an hour."""

DAY_S = 86400.0
NAMES = (*HOSTILE, b"alice", b"bob", b"carol", b"dave", b"x" * 255, b"</svg><script>alert(1)</script>")
SIZES = (0, 0, 1, 511, 2**20, 2**33, 2**44, 2**58)
SPANS_S = (0.0, 0.002, 7.0, 900.0, 2 * DAY_S, 30 * DAY_S, 3650 * DAY_S)
"""How long a migration has lasted: not at all, seconds, weeks, ten years."""

BACK = (
    (CutoverStep.ROLLBACK_FREEZE, CutoverState.ROLLBACK_FREEZING, CutoverState.ROLLBACK_FROZEN),
    (CutoverStep.CARRY_BACK, CutoverState.CARRYING_BACK, CutoverState.CARRYING_BACK),
    (CutoverStep.ROLLBACK_VERIFY, CutoverState.ROLLBACK_VERIFYING, CutoverState.ROLLBACK_VERIFIED),
    (CutoverStep.SWITCH_BACK, CutoverState.SWITCHING_BACK, CutoverState.SWITCHED_BACK),
    (CutoverStep.ROLLBACK_THAW, CutoverState.ROLLBACK_THAWING, CutoverState.ROLLED_BACK),
)
FREED = (
    (CutoverStep.RETAIN, CutoverState.RETAINED, CutoverState.RETAINED),
    (CutoverStep.PURGE, CutoverState.PURGING, CutoverState.PURGED),
)
DRAIN_WAYS = (
    (drains.CHECK,),
    (drains.CHECK, drains.START),
    (drains.CHECK, drains.START, drains.WATCH, drains.AUDIT),
    (drains.CHECK, drains.START, drains.WATCH, drains.AUDIT, drains.COMMIT),
    (drains.CHECK, drains.START, drains.GIVE_UP),
    (drains.CHECK, drains.START, drains.STOP, drains.SETTLE),
)


_Choice = TypeVar("_Choice")


@dataclass
class Awkward:
    """What was made: the documents of its plans, and when it is looked at."""

    now_s: float
    plans: dict[str, Plan] = field(default_factory=dict)

    def write(self, plan: Plan) -> tuple[str, str]:
        raise NotImplementedError

    def read(self, name: str) -> tuple[Plan, str]:
        return self.plans[name], "c"


def make(file: Path, seed: int) -> Awkward:
    """The ledger of one seed in this file."""
    with open_ledger(file, create=True) as ledger:
        return _Maker(ledger, random.Random(seed)).make()


class _Maker:
    def __init__(self, ledger: Ledger, dice: random.Random) -> None:
        self.ledger, self.dice = ledger, dice
        self.span_s = dice.choice(SPANS_S)
        late_s = dice.choice((0.0, 3.0, 3600.0, 30 * DAY_S))
        self.made = Awkward(BEGAN_S + self.span_s + late_s)
        if dice.random() < 0.1:
            # The clock was set back after all of it.
            self.made.now_s = BEGAN_S - dice.choice((5.0, 400 * DAY_S))
        self.tokens = 0

    def make(self) -> Awkward:
        if self.dice.random() < 0.03:
            return self.made
        self.ledger.site.create(replace(SITE, name=self.pick("homes", "<b>&\u202e", "x" * 200)))
        for number in range(self.pick(0, 1, 1, 1, 2, 3)):
            self._plan(f"plan-{number + 1:04}")
        self._around()
        return self.made

    def at_s(self) -> float:
        """Some time within the migration."""
        return BEGAN_S + self.dice.random() * self.span_s

    def some(self, chance: float) -> bool:
        return self.dice.random() < chance

    def pick(self, *choices: _Choice) -> _Choice:
        return self.dice.choice(choices)

    def _token(self) -> int:
        self.tokens += 1
        return self.tokens

    def _plan(self, name: str) -> None:
        names = self.dice.sample(NAMES, self.dice.randrange(1, 7))
        trees = [UserTree(path=b"home/" + one, user=one.decode("utf-8", "surrogateescape")) for one in names]
        if self.some(0.3):
            trees += [UserTree(path=b"project/" + names[0], user=trees[0].user)]
        ranking = sorted(map(self._usage, trees), key=lambda one: -one.size_bytes)
        reaps = self.pick(0.0, 0.4)
        reaped = [self._reaped(one) for one in ranking if self.some(reaps)]
        left = {one.tree.path: (one.size_bytes, one.files) for one in ranking}
        for gone in reaped:
            size, files = left[gone.tree.path]
            left[gone.tree.path] = (size - gone.size_bytes, files - gone.files)
        cuts = sorted({0, len(ranking), *(self.dice.randrange(len(ranking) + 1) for _ in range(2))})
        batches = tuple(
            Batch(
                number=number,
                trees=tuple(one.tree for one in ranking[low:high]),
                size_bytes=sum(left[one.tree.path][0] for one in ranking[low:high]),
                files=sum(left[one.tree.path][1] for one in ranking[low:high]),
                directories=3 * (high - low),
                chunks=2 * (high - low),
                chunk_list=f"{name}.chunks/batch-{number:04}.parquet",
                chunk_list_digest="d",
                forecast_s=self.pick(0.0, 60.0, 1e9),
                fits=self.some(0.8),
            )
            for number, (low, high) in enumerate(pairwise(cuts), 1)
        )
        none = Savings(size_bytes=0, inodes=0, seconds=0.0)
        plan = replace(
            small_plan(name),
            created_at_s=BEGAN_S - 60,
            ranking=tuple(ranking),
            batches=batches,
            size_bytes=sum(one.size_bytes for one in ranking),
            files=sum(one.files for one in ranking),
            surprises=(),
            reap=PlanReap(reap_list="r", digest="d", trees=tuple(reaped), saved=none, listed=none) if reaped else None,
        )
        self.made.plans[name] = plan
        self.ledger.plans.record(plan, path=f"plans/{name}.json", checksum="c")
        for gone in reaped:
            if gone.action is ReapAction.ARCHIVE and self.some(0.6):
                self._archive(name, gone)
        begun = self.pick(0.0, 0.7, 1.0)
        for batch in batches:
            if self.some(begun):
                self._batch(plan, batch, left)
        for batch in batches:
            for tree in batch.trees:
                if self.some(0.4) and self._may_cut(tree):
                    self._cut_over(name, batch.number, tree)

    def _usage(self, tree: UserTree) -> TreeUsage:
        size = self.dice.choice(SIZES)
        files = self.dice.randrange(1, 5) if size else self.pick(0, 3, 10**6)
        return usage(tree, size, max(files, size // 2**40))

    def _reaped(self, one: TreeUsage) -> ReapedTree:
        share = self.pick(0.5, 1.0)
        size, files = int(one.size_bytes * share), int(one.files * share)
        return ReapedTree(
            tree=one.tree,
            action=self.pick(ReapAction.ARCHIVE, ReapAction.SKIP),
            rule="older than 3 years",
            files=files,
            size_bytes=size,
            allocated_bytes=size,
            oldest_ns=0,
        )

    def _archive(self, plan: str, one: ReapedTree) -> None:
        written = WrittenArchive(
            members=one.files + 5,
            content_bytes=2 * one.size_bytes,
            archive_bytes=3 * one.size_bytes,
            index_bytes=12,
            archive_digest="aa",
            index_digest="bb",
        )
        made = self.ledger.archives.add(
            plan=plan, batch=1, tree=one.tree.path, number=self._token(), written=written, at_s=self.at_s()
        )
        if self.some(0.7):
            self.ledger.archives.prove(made.id, at_s=self.at_s())

    def _batch(self, plan: Plan, batch: Batch, left: dict[bytes, tuple[int, int]]) -> None:
        chunks = [chunk for tree in batch.trees for chunk in self._chunks(tree.path, *left[tree.path])]
        chunks = [replace(chunk, number=number) for number, chunk in enumerate(chunks, 1)]
        made = self.ledger.passes.start(
            plan=plan.name,
            batch=batch.number,
            kind=PassKind.SEED,
            catalog="c",
            chunk_list="l",
            chunks=chunks,
            at_s=self.at_s(),
        )
        self.ledger.plans.set_batch_state(plan.name, batch.number, BatchState.SEEDING)
        whole = self.some(0.5)
        self._work(made.id, whole=whole)
        ends = whole or self.some(0.3)
        state = PassState.DONE if ends else self.pick(PassState.STOPPED, PassState.RUNNING)
        if state is not PassState.RUNNING:
            self.ledger.passes.set_state(made.id, state, self.at_s())
        if not ends:
            return
        self.ledger.plans.set_batch_state(plan.name, batch.number, BatchState.SEEDED)
        if self.some(0.4):
            self._delta(plan.name, batch)
        for _ in range(self.dice.randrange(3)):
            self._verified(plan.name, batch)
        if self.some(0.4):
            self.ledger.plans.set_batch_state(plan.name, batch.number, BatchState.VERIFIED)

    def _chunks(self, tree: bytes, size: int, files: int) -> list[Chunk]:
        """Directories; files in some parts; half of a huge tree in ranges of one file."""
        found = [(ChunkKind.DIRECTORIES, 3, 0)]
        if files:
            ranged = size // 2 if size > 2**40 else 0
            parts, names, left = self.pick(1, 2, 8), files - bool(ranged), size - ranged
            ends = [(names * part // parts, left * part // parts) for part in range(parts + 1)]
            found += [(ChunkKind.FILES, end[0] - begin[0], end[1] - begin[1]) for begin, end in pairwise(ends)]
            if ranged:
                found += [(ChunkKind.RANGES, 0, ranged), (ChunkKind.RANGED_FILES, 1, 0)]
        return [Chunk(number=1, kind=kind, tree=tree, files=count, size_bytes=its) for kind, count, its in found]

    def _work(self, pass_id: int, *, whole: bool) -> None:
        for kind in (ChunkKind.DIRECTORIES, ChunkKind.RANGES, ChunkKind.FILES, ChunkKind.RANGED_FILES):
            for chunk in self.ledger.passes.pending(pass_id, kind, 100):
                fate = "done" if whole and self.some(0.85) else self.pick("done", "failed", "left", "running")
                if fate != "left":
                    self._attempt(pass_id, chunk, fate)

    def _attempt(self, pass_id: int, chunk: transfer.ChunkRecord, fate: str) -> None:
        begin_s, end_s = self.at_s(), self.at_s()
        attempt = self.ledger.passes.intend(
            chunk_id=chunk.id,
            token=f"t{self._token()}",
            host=self.pick("gl1", "gl2", "<i>host"),
            engine="rsync",
            argv=(),
            at_s=min(begin_s, end_s) if self.some(0.9) else end_s,
        )
        self.ledger.passes.started(attempt, ProcessIdentity(pid=7, start_ticks=70, boot_id="b"))
        for turn in range(self.dice.randrange(1, 4)):
            for whose in (None, attempt):
                sample = transfer.Sample(
                    at_s=min(begin_s, end_s) + abs(end_s - begin_s) * turn / 3,
                    interval_s=self.pick(0.001, 5.0, 5.0),
                    attempt_id=whose,
                    streams=self.dice.randrange(3) if whose is None else 1,
                    # What is sent again counts again.
                    files=chunk.files,
                    size_bytes=chunk.size_bytes,
                )
                self.ledger.samples.add(pass_id, [sample])
        if fate == "running":
            return
        bad = transfer.FileProblem(
            path=chunk.tree + b"/\xff bad <b>", kind=transfer.FileProblemKind.BAD, errno=5, reason="input/output error"
        )
        gone = transfer.FileProblem(
            path=chunk.tree + b"/gone", kind=transfer.FileProblemKind.VANISHED, errno=2, reason="vanished"
        )
        self.ledger.passes.finish(
            attempt,
            at_s=max(begin_s, end_s) if self.some(0.9) else min(begin_s, end_s) - 5.0,
            state="succeeded" if fate == "done" else "failed",
            exit_code=0 if fate == "done" else 23,
            counters=transfer.StreamCounters(files=chunk.files, size_bytes=chunk.size_bytes),
            stderr_tail=b"",
            chunk_state=ChunkState.DONE if fate == "done" else ChunkState.FAILED,
            problems=([bad] if fate == "failed" else []) + ([gone] if self.some(0.3) else []),
        )

    def _delta(self, plan: str, batch: Batch) -> None:
        files = self.dice.randrange(3)
        chunks = [
            Chunk(number=1, kind=ChunkKind.FILES, tree=batch.trees[0].path, files=files, size_bytes=files * 2**20)
        ]
        made = self.ledger.passes.start(
            plan=plan,
            batch=batch.number,
            kind=PassKind.DELTA,
            number=1,
            catalog="d",
            base_catalog="c",
            chunk_list="l2",
            scan_s=self.pick(0.0, 30.0),
            chunks=chunks if files and batch.trees else [],
            at_s=self.at_s(),
        )
        self._work(made.id, whole=self.some(0.7))
        if self.some(0.8):
            self.ledger.passes.set_state(made.id, PassState.DONE, self.at_s())
            self.ledger.plans.set_batch_state(plan, batch.number, BatchState.CONVERGING)
            churn = tuple(
                transfer.TreeChurn(tree=tree.path, files_per_h=1.0, bytes_per_h=0.0) for tree in batch.trees[:1]
            )
            prediction = transfer.Prediction(
                next_pass_s=self.pick(0.0, 90.0, 1e9),
                freeze_s=self.pick(0.0, 1200.0, 1e9),
                least_freeze_s=0.0,
                churn_files_per_h=self.pick(0.0, 1e6),
                churn_bytes_per_h=self.pick(0.0, 2.0**50),
                trees=churn,
            )
            self.ledger.predictions.record(
                transfer.ConvergenceRecord(
                    pass_id=made.id,
                    at_s=self.at_s(),
                    batch=batch.number,
                    outcome=self.pick(*transfer.ConvergenceOutcome),
                    max_freeze_s=600.0,
                    prediction=prediction,
                )
            )

    def _verified(self, plan: str, batch: Batch) -> None:
        at_s, share = self.at_s(), self.pick(0.0, 0.1, 1.0)
        number = self.ledger.verifications.start(plan=plan, batch=batch.number, at_s=at_s)
        if self.some(0.2):
            return
        content = int(batch.size_bytes * share)
        self.ledger.verifications.finish(
            verification(
                id=number,
                plan=plan,
                batch=batch.number,
                started_at_s=at_s,
                finished_at_s=at_s + self.pick(0.0, 3600.0, -5.0),
                policy=DigestPolicy(algorithm="xxh3_128", share=share, seed=1),
                paths=batch.files,
                equal_paths=max(batch.files - 1, 0),
                files=batch.files,
                size_bytes=batch.size_bytes,
                digested_files=int(batch.files * share),
                digested_bytes=content,
                differences={"missing": 1} if batch.files and self.some(0.3) else {},
                whole=self.some(0.8),
                reasons=("brick <b> is down",) if self.some(0.3) else (),
            )
        )

    def _may_cut(self, tree: UserTree) -> bool:
        latest = self.ledger.cutovers.latest(tree.path)
        return latest is None or latest.state in (CutoverState.REVERTED, CutoverState.ROLLED_BACK)

    def _cut_over(self, plan: str, batch: int, tree: UserTree) -> None:
        at_s = self.at_s()
        predicted_s = self.pick(None, 0.0, 240.0)
        record = self.ledger.cutovers.plan(plan=plan, batch=batch, tree=tree, predicted_freeze_s=predicted_s, at_s=at_s)
        way: list[tuple[CutoverStep, CutoverState, CutoverState]] = list(THERE[: self.dice.randrange(6)])
        if len(way) == len(THERE):
            way += self.dice.choice(((), BACK[: self.dice.randrange(6)], FREED[: self.dice.randrange(3)]))
        elif len(way) < 4 and self.some(0.4):
            way.append(REVERT)
        for step, intent, result in way:
            at_s += self.pick(0.0, 5.0, 500.0, -50.0)
            notes = TOPS
            if intent is CutoverState.PURGING:
                notes = CutoverNotes(purge=PurgeSum(names=5, inodes=5, size_bytes=2**40))
            made = self.ledger.cutovers.intend(
                record.id, CutoverAct(step=step, intent=intent, result=result, reason="<b>why"), at_s=at_s, notes=notes
            )
            if self.some(0.9):
                record = self.ledger.cutovers.finish(made, result, at_s=at_s + 0.5)
            else:
                return

    def _around(self) -> None:
        """What is beside plans: runs, events, drains, room, probes."""
        for _ in range(self.dice.randrange(4)):
            begin_s = self.at_s()
            run = self.ledger.runs.start(
                verb=self.pick("run", "verify", "cutover", "brick-drain"),
                pid=1,
                at_s=begin_s,
                directory="runs/1",
            )
            self.ledger.runs.heartbeat(run, self.pick(begin_s, self.made.now_s - 1, self.made.now_s + 90))
            if self.some(0.5):
                self.ledger.runs.finish(run, self.at_s(), self.pick(0, 3, 4, 130))
        for _ in range(self.dice.randrange(5)):
            event = Event(
                at_s=self.at_s(),
                kind=self.dice.choice(list(EventKind)),
                severity=self.dice.choice(list(Severity)),
                subject=self.pick("run", "host <b>", "batch 1", "x" * 300),
                message="what\nhappened \u202e <script>",
            )
            self.ledger.events.add(event)
        for number in range(self.dice.randrange(3)):
            self._drain(f"gl{number}:/b<{number}>")
        self._room()
        for side in ProbeSide:
            if self.some(0.5):
                times = ProbeTimes(create_s=0.0, write_s=0.2, sync_s=70.0, stat_s=0.01, unlink_s=0.02, readdir_s=0.03)
                failed = {"waited_s": 12.5} if self.some(0.5) else {"failure": "no <b>"}
                probe = Probe(side=side, at_s=self.at_s(), times=times) if self.some(0.6) else None
                self.ledger.probes.add(probe or Probe(side=side, at_s=self.at_s(), **failed))
        if self.some(0.15):
            retired = self.ledger.retirements.begin(
                volume="vol1", volume_id="v", catalog="c", files=2, size_bytes=2**60, at_s=self.at_s()
            )
            self.ledger.retirements.enter(retired.id, RetirementState.STOPPING, at_s=self.at_s())

    def _drain(self, brick: str) -> None:
        record = drains.plan_drain(self.ledger, (brick,), at_s=self.at_s())
        counted = replace(drains.OPTIONS, files=self.pick(0, 10), size_bytes=self.pick(0, 2**30))
        for number, move in enumerate(self.dice.choice(DRAIN_WAYS)):
            at_s = self.at_s()
            act = drains.act(move, reason="<b>why" if number else "")
            notes = counted if move is drains.START and self.some(0.8) else drains.OPTIONS
            record = self.ledger.drains.finish(
                self.ledger.drains.intend(record.id, act, at_s=at_s, notes=notes), move[2], at_s=at_s
            )
        looks = sorted(self.at_s() for _ in range(self.dice.randrange(5)))
        moved = sorted(self.pick(0, 4, 10, 15) for _ in looks)
        samples = [
            DrainSample(
                task_id="t",
                at_s=at_s,
                host="gl1",
                status=TaskStatus.IN_PROGRESS,
                runtime_s=0.0,
                files=files,
                size_bytes=files * 2**28,
                lookups=files,
                failures=self.dice.randrange(2),
                skipped=0,
            )
            for at_s, files in zip(looks, moved, strict=True)
        ]
        self.ledger.drains.add_samples(record.id, samples)

    def _room(self) -> None:
        total = self.pick(0, 1, 2**50)
        inodes = self.pick(None, 0, 10**6)
        self.ledger.capacity.add(
            [
                CapacitySample(
                    side=side,
                    at_s=self.at_s(),
                    total_bytes=total,
                    free_bytes=int(total * self.dice.random()),
                    total_inodes=inodes,
                    free_inodes=None if inodes is None else int(inodes * self.dice.random()),
                )
                for side in Side
                for _ in range(self.dice.randrange(4))
            ]
        )
