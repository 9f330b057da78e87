"""Earlier verifications of the same trees: their proofs, and the scans whose paths they account for."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from msgspec import Struct, field

from migrator.catalog.model import CatalogRecord, VerificationRecord, earlier_verifications
from migrator.core.errors import ExitCode, Refused
from migrator.core.events import EventKind, Severity
from migrator.core.paths import overlap, show
from migrator.core.units import DAY_S
from migrator.fs.model import DigestPolicy

if TYPE_CHECKING:
    from migrator.catalog.manifest import ManifestDirectories
    from migrator.transfer.records import TransferLedger

_CLOCK_MAY_JUMP_S = DAY_S
"""Scans that ended up to this much before a verification began count as later than it."""


class EarlierVerifications(Struct, frozen=True, kw_only=True):
    """The earlier verifications of some trees. Blocking. `own` is the migration's ledger if `ledger` is that of a rollback.
    Each manifest is read once.
    """

    ledger: "TransferLedger"
    own: "TransferLedger | None"
    manifests: "ManifestDirectories"
    policy: DigestPolicy
    trees: tuple[bytes, ...]
    report: Callable[[EventKind, Severity, str], None]
    _asked: dict[int, str | None] = field(default_factory=dict)

    def proofs(self) -> tuple[list[str], float]:
        """The best manifest of each tree whose digest is the ledger's, and when the oldest of these verifications began (0 if a
        tree has none). Reads each once.
        """
        ledger = self.own or self.ledger
        found: dict[str, float] = {}
        lacking = False
        for tree in self.trees:
            proofs = ledger.verifications.covering(tree, ledger.plans.batches_with(tree))
            usable = earlier_verifications(proofs, self.policy)
            for record in usable:
                if (file := self._intact(record)) is not None:
                    found[file] = record.started_at_s
                    break
            else:
                lacking = True
        return list(found), 0.0 if lacking else min(found.values(), default=0.0)

    def _intact(self, record: VerificationRecord) -> str | None:
        if record.id in self._asked:
            return self._asked[record.id]
        file = None
        try:
            file = self.manifests.intact(record.manifest or "", digest=record.manifest_digest or "")
        except (Refused, OSError) as error:
            words = error.cause if isinstance(error, Refused) else error.strerror
            message = f"verification {record.id} cannot be used: its manifest is not readable: {words or show(str(error).encode())}"
            self.report(EventKind.VERIFY_STARTED, Severity.WARNING, message)
        self._asked[record.id] = file
        return file

    def scans_before(self, trees: Collection[bytes]) -> tuple[list[str], list[CatalogRecord]]:
        """The manifests of `_accounted`, and the earlier scans whose paths they do not have. Weeks of passes over other trees
        leave hundreds of scans that list no path of these.
        """
        accounted, since_s = self._accounted(trees)
        return accounted, [
            one
            for one in self.ledger.scans.all()
            if (one.finished_at_s is None or one.finished_at_s >= since_s)
            and (not one.scope or overlap(set(one.scope), set(trees)))
        ]

    def _accounted(self, trees: Collection[bytes]) -> tuple[list[str], float]:
        """The manifests of the newest verifications that found these trees equal: with them, catalogs of scans that ended before
        the time returned need not be read again, however many weeks of passes leave. None and 0 if a tree has no such one.
        """
        newest: dict[int, VerificationRecord] = {}
        for tree in trees:
            proofs = self.ledger.verifications.covering(tree, self.ledger.plans.batches_with(tree))
            equal = [one for one in proofs if one.exit_code is ExitCode.DONE]
            # A rollback's own ledger has other scans.
            if self.own is not None or not equal:
                return [], 0.0
            newest[equal[-1].id] = equal[-1]
        files = [file for record in newest.values() if (file := self._intact(record)) is not None]
        if len(files) < len(newest):
            return [], 0.0
        return files, min((one.started_at_s for one in newest.values()), default=0.0) - _CLOCK_MAY_JUMP_S
