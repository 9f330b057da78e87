"""The ledger of a migration in its fifth week: some hundred users, or as many chunks as are asked for."""

import math
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from sqlalchemy import insert

from migrator.app.ledger import MigrationLedger
from migrator.core.entry import UserTree
from migrator.core.errors import Refused
from migrator.core.events import Event, EventKind, Severity
from migrator.core.states import BatchState, ChunkKind, PassKind, PassState
from migrator.fs.model import CapacitySample, Side
from migrator.ledger.database import Database
from migrator.plan.document import PlanFiles
from migrator.plan.model import Batch, Plan
from migrator.plan.schedule.model import (
    BatchStep,
    Schedule,
    ScheduleOutcome,
    SubvolumeStep,
)
from migrator.report.model import ReportFacts
from migrator.report.report import read_report
from migrator.transfer.model import FileProblem, FileProblemKind
from migrator.transfer.tables import AttemptRow, ChunkRow, SampleRow
from tests.support.catalogs import whole_catalog
from tests.support.making import made
from tests.support.operations import AUDIT, CHECK, COMMIT, PURGE, RETAIN, START, THERE, WATCH, do, plan_drain
from tests.support.plans import small_plan, usage
from tests.support.records import SITE, verification

BEGAN_S = 1_760_000_400.0
DAY_S = 86400.0
HOUR_S = 3600.0
PLANNED_DAYS = 40.0
KEPT_S = 3 * DAY_S
BRICKS = ("gl1:/srv/b1", "gl1:/srv/b2", "gl2:/srv/b1", "gl2:/srv/b2")
DRAINED = (CHECK, START, WATCH, AUDIT, COMMIT)
NAMES = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "mallory", "niaj")


class OnePlan(PlanFiles, frozen=True, kw_only=True):
    """Plan documents with one plan, or with what went wrong with it."""

    directory: Path = Path("plans")
    site_id: str | None = None
    plan: Plan
    checksum: str = "c"
    error: Refused | None = None

    def read(self, name: str) -> tuple[Plan, str]:
        assert name == self.plan.name
        if self.error is not None:
            raise self.error
        return self.plan, self.checksum


class Weeks:
    """A migration that has run for `days`, in chunks of a batch each of `users` user trees. `names` are hostile ones. The
    plan had 40 days for the copying and 50 for everything. `moved` users were moved, a day each from the 14th day on, and
    `drained` of four bricks were drained, one every five days from the 20th day on, all as far as that has passed. The
    sources of `purged` users were freed, each KEPT_S after the move.
    """

    def __init__(
        self,
        *,
        users: int = 24,
        chunks: int = 1200,
        days: float = 30.0,
        names: Sequence[bytes] = (),
        moved: int = 5,
        drained: int = 1,
        purged: int = 0,
    ) -> None:
        self.dice = random.Random(7)
        self.days, self.chunks, self.moved, self.drained, self.purged = days, chunks, moved, drained, purged
        self.now_s = BEGAN_S + days * DAY_S
        self.trees = tuple(
            UserTree(path=b"home/" + name, user=name.decode("utf-8", "surrogateescape"))
            for name in (*names, *(f"{NAMES[turn % 12]}{turn}".encode() for turn in range(users - len(names))))
        )
        self.sizes = [round(2**43 / (rank + 1) ** 0.8) for rank in range(users)]
        self.files = [max(round(size / 2**22 * math.exp(self.dice.gauss(0, 0.8))), 10) for size in self.sizes]
        self.plan = self._plan()

    def _plan(self) -> Plan:
        of_trees = tuple(zip(self.trees, self.sizes, self.files, strict=True))
        common = {"chunks": max(self.chunks // len(self.trees), 1), "forecast_s": 3600.0, "fits": True}
        batches = tuple(
            made(Batch, number=number, trees=(tree,), size_bytes=size, files=files, **common)
            for number, (tree, size, files) in enumerate(of_trees, 1)
        )
        ranking = tuple(usage(*of_tree) for of_tree in of_trees)
        sums = {"size_bytes": sum(self.sizes), "files": sum(self.files)}
        return replace(
            small_plan("week1"),
            ranking=ranking,
            batches=batches,
            created_at_s=BEGAN_S - 3600,
            forecast_s=PLANNED_DAYS * DAY_S,
            schedule=self._schedule(),
            **sums,
        )

    def _schedule(self) -> Schedule:
        end_day, so_far, steps = PLANNED_DAYS, 0, []
        for number, size in enumerate(self.sizes, 1):
            begins_day = end_day * so_far / sum(self.sizes)
            so_far += size
            moved_day = end_day * so_far / sum(self.sizes)
            step = {"begins_day": begins_day, "moved_day": moved_day, "freed_day": moved_day + 3.0}
            steps.append(made(BatchStep, batch=number, **step))
        cleared = tuple(
            made(SubvolumeStep, subvolume=number, bricks=(brick,), cleared_day=20.0 + 10.0 * number, moved_bytes=2**40)
            for number, brick in enumerate(BRICKS)
        )
        outcome = made(ScheduleOutcome, done_day=50.0, obstacle=None, batches=tuple(steps), subvolumes=cleared)
        return made(Schedule, problem=None, outcome=outcome)

    def fill(self, file: Path, *, share: float = 0.6, samples_every_s: float = 1800.0) -> None:
        """Write the ledger; so much of the bytes is done by now."""
        with MigrationLedger.open(file, create=True) as ledger:
            self._record(ledger)
            passes = self._passes(ledger, share)
            self._cut_over(ledger)
            self._drain(ledger)
        database = Database(file, create=False, read_only=False)
        try:
            ends = self._chunks(database, passes, share)
            self._samples(database, next(iter(passes.values())), share, samples_every_s)
        finally:
            database.close()
        with MigrationLedger.open(file) as ledger:
            for batch, at_s in ends.items():
                ledger.passes.set_state(passes[batch], PassState.DONE, at_s)

    def _record(self, ledger: MigrationLedger) -> None:
        ledger.site.create(SITE)
        scan_id = ledger.scans.start(catalog="catalog-1", via="bricks", at_s=BEGAN_S - 9000)
        files, total = sum(self.files), sum(self.sizes)
        held = {"rows": files, "files": files, "directories": 100, "size_bytes": total}
        times = {"started_at_s": BEGAN_S - 9000, "finished_at_s": BEGAN_S - 7000}
        ledger.scans.finish(whole_catalog(name="catalog-1", scan_id=scan_id, **held, **times))
        ledger.plans.record(self.plan, path="plans/week1.json", checksum="c")
        ledger.capacity.add(
            [
                CapacitySample(
                    side=side,
                    at_s=BEGAN_S + turn * DAY_S / 2,
                    total_bytes=2 * total,
                    free_bytes=2 * total - round(total * (1.1 if side is Side.SOURCE else 0.2 + 0.6 * turn / 60)),
                    total_inodes=None if side is Side.SOURCE else 400_000_000,
                    free_inodes=None if side is Side.SOURCE else 400_000_000 - 1_000_000 * turn,
                )
                for turn in range(round(self.days * 2))
                for side in Side
            ]
        )
        for day, kind, severity, subject in (
            (3, EventKind.HOST_LOST, Severity.WARNING, "host gl3"),
            (3.5, EventKind.HOST_FOUND, Severity.INFO, "host gl3"),
            (9, EventKind.STORAGE_LOST, Severity.ERROR, "storage target 102"),
            (12, EventKind.CUTOVER_FAILED, Severity.ERROR, self.trees[0].user),
            (40, EventKind.STORAGE_BACK, Severity.INFO, "storage target 102"),
            (41, EventKind.CUTOVER_FINISHED, Severity.INFO, self.trees[0].user),
        ):
            if day > self.days:
                continue
            message = f"{kind.value} of {subject}"
            event = Event(at_s=BEGAN_S + day * DAY_S, kind=kind, severity=severity, subject=subject, message=message)
            ledger.events.add(event)

    def _passes(self, ledger: MigrationLedger, share: float) -> dict[int, int]:
        found, so_far, until = {}, 0.0, share * sum(self.sizes)
        ledger.runs.finish(ledger.runs.start(verb="run", pid=1, at_s=BEGAN_S, directory="runs/0"), BEGAN_S, 0)
        for batch in self.plan.batches:
            if so_far > until:
                break
            begins_s = BEGAN_S + self.days * DAY_S * so_far / until
            so_far += batch.size_bytes
            seed = {"plan": "week1", "kind": PassKind.SEED, "catalog": "catalog-1", "chunk_list": "l", "at_s": begins_s}
            found[batch.number] = ledger.passes.start(batch=batch.number, chunks=(), **seed).id
            if so_far <= until:
                ends_s = BEGAN_S + self.days * DAY_S * so_far / until
                ledger.passes.set_state(found[batch.number], PassState.DONE, ends_s)
            ledger.plans.set_batch_state("week1", batch.number, BatchState.SEEDING)
        if self.days < 9:
            return found
        # Of a user who is not moved, if there is one.
        number = min(self.moved + 1, max(found))
        problem = FileProblem(
            path=self.trees[number - 1].path + b"/report \xff<b>.txt",
            kind=FileProblemKind.BAD,
            errno=5,
            reason="input/output error",
        )
        ledger.passes.note(found[number], [problem], BEGAN_S + 5 * DAY_S)
        number = ledger.verifications.start(plan="week1", batch=1, at_s=BEGAN_S + 8 * DAY_S)
        files = dict.fromkeys(("paths", "digested_files", "files", "equal_paths"), self.files[0])
        sizes = dict.fromkeys(("size_bytes", "digested_bytes"), self.sizes[0])
        times = {"started_at_s": BEGAN_S + 8 * DAY_S, "finished_at_s": BEGAN_S + 9 * DAY_S}
        ledger.verifications.finish(verification(id=number, plan="week1", proven_gone=3, **files, **sizes, **times))
        return found

    def _cut_over(self, ledger: MigrationLedger) -> None:
        for turn, tree in enumerate(self.trees[: self.moved]):
            begins_s = BEGAN_S + (14 + turn) * DAY_S
            if begins_s + DAY_S > self.now_s:
                return
            record = ledger.cutovers.plan(
                plan="week1", batch=turn + 1, tree=tree, predicted_freeze_s=240.0 + 60 * turn, at_s=begins_s
            )
            for step, move in enumerate(THERE):
                do(ledger.cutovers, record, move, at_s=begins_s + 60 + step * (60 + 24 * turn))
            purged_s = begins_s + KEPT_S + HOUR_S
            for move in (RETAIN, PURGE) if turn < self.purged and purged_s < self.now_s else ():
                do(ledger.cutovers, record, move, at_s=purged_s)

    def _drain(self, ledger: MigrationLedger) -> None:
        for number, brick in enumerate(BRICKS[: self.drained]):
            begins_s = BEGAN_S + (20 + 5 * number) * DAY_S
            if begins_s + DAY_S < self.now_s:
                do(ledger.drains, plan_drain(ledger, (brick,), at_s=begins_s), *DRAINED, at_s=begins_s)

    def _chunks(self, database: Database, passes: dict[int, int], share: float) -> dict[int, float]:
        """The ends of the batches that are copied."""
        for block in self._rows(passes, share):
            with database.write() as connection:
                connection.execute(insert(ChunkRow), [chunk for chunk, _ in block])
                if attempts := [attempt for _, attempt in block if attempt is not None]:
                    connection.execute(insert(AttemptRow), attempts)
        ends, so_far, until = {}, 0.0, share * sum(self.sizes)
        for batch, size in enumerate(self.sizes, 1):
            so_far += size
            if so_far < until:
                ends[batch] = BEGAN_S + self.days * DAY_S * so_far / until
        return ends

    def _rows(
        self, passes: dict[int, int], share: float
    ) -> Iterator[list[tuple[dict[str, object], dict[str, object] | None]]]:
        each = max(self.chunks // len(self.trees), 1)
        until, so_far, number = share * sum(self.sizes), 0.0, 0
        block: list[tuple[dict[str, object], dict[str, object] | None]] = []
        for batch, (tree, size, files) in enumerate(zip(self.trees, self.sizes, self.files, strict=True), 1):
            for turn in range(each if batch in passes else 0):
                number += 1
                so_far += size / each
                done = so_far <= until
                its_files, its_bytes = max(files // each, 1), size // each
                chunk = {
                    "id": number,
                    "pass_id": passes[batch],
                    "number": turn + 1,
                    "kind": ChunkKind.FILES.value,
                    "tree": tree.path,
                    "files": its_files,
                    "size_bytes": its_bytes,
                    "state": "done" if done else "pending",
                }
                finished_s = BEGAN_S + self.days * DAY_S * so_far / until
                seconds = (its_files * 0.002 + its_bytes / 2**27) * math.exp(self.dice.gauss(0, 0.2))
                attempt: dict[str, object] = {
                    "id": number,
                    "chunk_id": number,
                    "run_id": 1,
                    "number": 1,
                    "token": f"t{number}",
                    "host": "gl1",
                    "engine": "direct",
                    "state": "succeeded",
                    "argv": (),
                    "started_at_s": finished_s - seconds,
                    "finished_at_s": finished_s,
                    "exit_code": 0,
                    "files": its_files,
                    "size_bytes": its_bytes,
                    "stderr_tail": b"",
                }
                block.append((chunk, attempt if done else None))
                if len(block) >= 20_000:
                    yield block
                    block = []
        if block:
            yield block

    def _samples(self, database: Database, pass_id: int, share: float, every_s: float) -> None:
        count = int(self.days * DAY_S / every_s)
        weights = [math.exp(self.dice.gauss(0, 0.25)) for _ in range(count)]
        whole = sum(weights)
        rows = [
            {
                "pass_id": pass_id,
                "attempt_id": 0,
                "at_s": BEGAN_S + (turn + 1) * every_s,
                "interval_s": every_s * 0.9,
                "streams": 8,
                "files": round(share * sum(self.files) * weight / whole),
                "size_bytes": round(share * sum(self.sizes) * weight / whole),
            }
            for turn, weight in enumerate(weights)
        ]
        for begin in range(0, len(rows), 20_000):
            with database.write() as connection:
                connection.execute(insert(SampleRow), rows[begin : begin + 20_000])


def facts_of(directory: Path, *, days: float, share: float, **world: Any) -> ReportFacts:
    """The report of `Weeks`, whose ledger is made in a directory."""
    weeks = Weeks(days=days, **world)
    weeks.fill(directory / "ledger.db", share=share)
    with MigrationLedger.open(directory / "ledger.db", read_only=True) as ledger:
        return read_report(ledger, OnePlan(plan=weeks.plan), now_s=weeks.now_s)
