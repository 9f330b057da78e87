"""The records of plans in the ledger."""

from collections.abc import Collection, Sequence

from sqlalchemy import delete, select

from migrator.beegfs.model import OwnerLimit
from migrator.ledger.rows import Records, columns_of, put
from migrator.plan.tables import OwnerLimitRow


class LimitRecords(Records):
    """The limits that were confirmed, to be set at the cutover."""

    def confirm(self, limits: Collection[OwnerLimit], *, withdrawn: Collection[int]) -> None:
        """Record these limits, which replace those of the same owners, and forget the withdrawn ones, by uid."""
        with self._database.write() as connection:
            connection.execute(delete(OwnerLimitRow).where(OwnerLimitRow.uid.in_(withdrawn)))
            put(connection, OwnerLimitRow, [columns_of(OwnerLimitRow, one, uid=one.uid) for one in limits])

    def all(self) -> Sequence[OwnerLimit]:
        """Every confirmed limit, in order of uid."""
        return self._all(OwnerLimit, select(OwnerLimitRow).order_by(OwnerLimitRow.uid))
