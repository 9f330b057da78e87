"""The ledger of a rollback, for a verification that compares both sides as at a cutover."""

from collections.abc import Sequence

from migrator.ledger.calls import SiteRecords
from migrator.ledger.database import Database
from migrator.ledger.ledger import Ledger
from migrator.ledger.model import SiteRecord
from migrator.ledger.plans import VerificationRecords
from migrator.verify.model import VerificationRecord


class _Site(SiteRecords):
    def __init__(self, database: Database, record: SiteRecord) -> None:
        super().__init__(database)
        self._record = record

    def read(self) -> SiteRecord | None:
        """The record of the migration, not of the rollback."""
        return self._record


class _Verifications(VerificationRecords):
    def __init__(self, database: Database, own: Ledger) -> None:
        super().__init__(database)
        self._own = own

    def covering(self, tree: bytes) -> Sequence[VerificationRecord]:
        """The verifications of the migration: what they have read need not be read again."""
        return self._own.verifications.covering(tree)


class ProofLedger(Ledger):
    """A ledger of a rollback over an open database, with the site `site` and the earlier verifications of `own`, the
    migration's ledger. Verifications are written to the rollback's. The database belongs to the caller.
    """

    def __init__(self, database: Database, *, site: SiteRecord, own: Ledger) -> None:
        super().__init__(database)
        self.site = _Site(database, site)
        self.verifications = _Verifications(database, own)

    @classmethod
    def over(cls, ledger: Ledger, *, site: SiteRecord, own: Ledger) -> "ProofLedger":
        """The same file as `ledger`, which stays open longer than this."""
        return cls(ledger._database, site=site, own=own)  # noqa: SLF001 - one package
