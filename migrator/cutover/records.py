"""The records of cutovers, and around them: backups of the target, announcements, measurements of trees."""

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace
from sqlalchemy import delete, func, select

from migrator.core.entry import UserTree
from migrator.core.errors import Refused
from migrator.core.paths import is_beneath, show
from migrator.core.states import PassKind
from migrator.cutover import model as cutover
from migrator.cutover.model import SETTLED_STATES, CutoverNotes, CutoverRecord, CutoverState, CutoverStep
from migrator.cutover.model_announce import AnnouncementRecord
from migrator.cutover.rules_freezes import FreezePart, FreezeSpent, freeze_parts
from migrator.cutover.rules_speed import TreeMeasurement
from migrator.cutover.rules_states import newest_attempts
from migrator.cutover.tables import AnnouncementRow, TargetBackupRow, TreeMeasurementRow
from migrator.fs.model import Side
from migrator.ledger.database import Database
from migrator.ledger.rows import Records, columns_of, record_of
from migrator.ledger.tables import storable
from migrator.operations.records import OperationStore, begun_already
from migrator.reap.records import ReapLedger
from migrator.transfer.records import TransferLedger

_TOKEN_BYTES = 8

TreesByBatch = Mapping[int, tuple[UserTree, ...]]
"""Trees by the number of their batch."""

# "source" sorts before "target", which is also the order of time.
_in_order = select(TreeMeasurementRow).order_by(
    TreeMeasurementRow.side, TreeMeasurementRow.run, TreeMeasurementRow.at_s, TreeMeasurementRow.test
)


class CutoverRecords(OperationStore[CutoverRecord, CutoverState, CutoverStep, CutoverNotes]):
    """Attempts to cut trees over. `under_way` returns those of all plans whose users may be frozen."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, cutover.CUTOVERS)

    def plan(
        self, *, plan: str, batch: int, tree: UserTree, predicted_freeze_s: float | None, at_s: float
    ) -> CutoverRecord:
        """Begin a new attempt, or return an unfinished one of the same plan and batch."""
        with self._database.write() as connection:
            newest = self._newest(connection, tree.path)
            if newest is not None and newest.state not in cutover.ENDED_STATES:
                if (newest.plan, newest.batch) != (plan, batch):
                    which = f"a cutover of {tree.user}, by plan {newest.plan}, batch {newest.batch},"
                    raise begun_already(which, "see `migrator status`, and resume that one")
                return newest
            record = CutoverRecord(
                id=0,
                plan=plan,
                batch=batch,
                tree=replace(tree, user=storable(tree.user)),
                token=secrets.token_hex(_TOKEN_BYTES),
                state=CutoverState.PLANNED,
                times={CutoverState.PLANNED: at_s},
                predicted_freeze_s=predicted_freeze_s,
            )
            return self._begin(connection, tree.path, record, newest)

    def latest(self, tree: bytes) -> CutoverRecord | None:
        """The newest attempt of a tree, of any plan."""
        with self._database.read() as connection:
            return self._newest(connection, tree)

    def by_plan(self, users: Sequence[str] | None) -> Mapping[str, TreesByBatch]:
        """By plan, the trees of these users (None: of all) that were moved or are being moved, and did not come back. A
        user without such trees is in no plan.
        """
        found: dict[str, dict[int, list[UserTree]]] = {}
        for record in sorted(newest_attempts(self.all()), key=lambda one: one.tree.path):
            if (users is None or record.tree.user in users) and record.state not in cutover.ENDED_STATES:
                found.setdefault(record.plan, {}).setdefault(record.batch, []).append(record.tree)
        return {plan: {batch: tuple(trees) for batch, trees in batches.items()} for plan, batches in found.items()}

    def require_apart(self, trees: Iterable[bytes]) -> None:
        """Raise Refused if a tree contains, or lies in, another tree that was moved or is being moved. Such overlaps
        arise when [users] trees was changed since. Copying, archiving or moving the tree would overwrite the work of
        users on the target. The same tree is no overlap.
        """
        held = [one for one in self.all() if one.state in cutover.SETTLED_STATES | cutover.UNDER_WAY_STATES]
        for tree in trees:
            for one in held:
                other = one.tree.path
                if other != tree and (is_beneath(other, tree) or is_beneath(tree, other)):
                    raise Refused(
                        f"user tree {show(tree)} overlaps {show(other)}, and {one.tree.user} of that tree works on the target or "
                        "is being moved",
                        cause="[users] trees in site.toml was changed after that tree was planned",
                        hint="let [users] trees match the same directories as before, or exclude this one in [users] exclude; then "
                        "`migrator scan` and `migrator plan --activate`",
                    )

    def of_plan(self, plan: str, batch: int | None = None) -> Sequence[CutoverRecord]:
        """Every attempt of a plan, or of one of its batches, oldest first."""
        return [one for one in self.all() if one.plan == plan and batch in (None, one.batch)]


class BackupRecords(Records):
    """Which user trees on the target were in a backup, and when."""

    def record(self, trees: Collection[bytes], *, at_s: float, note: str) -> None:
        """The backup of these trees has ended; `at_s` is when it began."""
        self._put(TargetBackupRow, [{"tree": tree, "at_s": at_s, "note": note} for tree in sorted(trees)])

    def lack(self, tree: bytes, *, since_s: float | None) -> bool:
        """True if no backup of a tree began since then; with None, none counts."""
        newest_s: float | None = self._value(select(func.max(TargetBackupRow.at_s)).where(TargetBackupRow.tree == tree))
        return newest_s is None or since_s is None or newest_s < since_s


class AnnouncementRecords(Records):
    """The times of announced cutovers."""

    def record(self, announced: AnnouncementRecord) -> None:
        self._put(AnnouncementRow, [columns_of(AnnouncementRow, announced)])

    def all(self) -> Sequence[AnnouncementRecord]:
        """All of them, over all plans, oldest first."""
        return self._all(AnnouncementRecord, select(AnnouncementRow).order_by(AnnouncementRow.id))


class SpeedUpRecords(Records):
    """Measurements of users' trees."""

    def add(self, cutover_id: int, measurements: Sequence[TreeMeasurement]) -> None:
        """Store measurements, replacing earlier ones of the same test and run."""
        rows = [columns_of(TreeMeasurementRow, one, cutover_id=cutover_id) for one in measurements]
        self._put(TreeMeasurementRow, rows)

    def forget(self, cutover_id: int, side: Side) -> None:
        """Remove the measurements on one side."""
        these = (TreeMeasurementRow.cutover_id == cutover_id, TreeMeasurementRow.side == side)
        with self._database.write() as connection:
            connection.execute(delete(TreeMeasurementRow).where(*these))

    def of(self, cutover_id: int) -> Sequence[TreeMeasurement]:
        """The measurements of one cutover."""
        return self._all(TreeMeasurement, _in_order.where(TreeMeasurementRow.cutover_id == cutover_id))

    def settled(self) -> Sequence[tuple[CutoverRecord, Sequence[TreeMeasurement]]]:
        """The measurements of users who work on the target."""
        with self._database.read() as connection:
            newest = {one.tree.path: one for one in CutoverRecords(self._database).every(connection)}
            made: dict[int, list[TreeMeasurement]] = {}
            for row in connection.execute(_in_order):
                made.setdefault(row.cutover_id, []).append(record_of(row, TreeMeasurement))
        settled = (one for _, one in sorted(newest.items()) if one.state in SETTLED_STATES)
        return [(one, made[one.id]) for one in settled if one.id in made]


class CutoverLedger(TransferLedger, ReapLedger):
    """The ledger with the records of cutovers."""

    cutovers: CutoverRecords
    backups: BackupRecords
    announcements: AnnouncementRecords
    speed_ups: SpeedUpRecords


def parts_of_freeze(ledger: CutoverLedger, record: CutoverRecord, *, now_s: float) -> Mapping[FreezePart, float]:
    """The parts of the freeze of a cutover, up to now if it lasts; empty before it."""
    if record.frozen_at_s is None:
        return {}
    end_s = now_s if record.thawed_at_s is None else record.thawed_at_s
    finals = [
        one.scan_s or 0.0
        for one in ledger.passes.over_tree(record.tree.path)
        if one.kind is PassKind.FINAL and record.frozen_at_s <= one.started_at_s <= end_s
    ]
    steps = ledger.cutovers.steps(record.id)
    return freeze_parts(record, steps, scan_s=sum(finals) if finals else None, until_s=now_s)


def ended_freezes(ledger: CutoverLedger, *, now_s: float) -> tuple[FreezeSpent, ...]:
    """Every freeze that has ended, the newest first."""
    found = [
        FreezeSpent(
            tree=one.tree,
            plan=one.plan,
            batch=one.batch,
            freeze_s=one.freeze_s,
            predicted_freeze_s=one.predicted_freeze_s,
            parts_s=parts_of_freeze(ledger, one, now_s=now_s),
        )
        for one in ledger.cutovers.all()
        if one.freeze_s is not None
    ]
    return tuple(reversed(found))
