"""The records of second copies in the ledger."""

from collections.abc import Sequence

from sqlalchemy import delete, select

from migrator.cutover.records import CutoverLedger
from migrator.ledger.rows import Records, columns_of
from migrator.purge.model import SecondCopy
from migrator.purge.tables import SecondCopyRow


class SecondCopyRecords(Records):
    """Archives that were proven to hold a tree."""

    def add(self, copies: Sequence[SecondCopy]) -> None:
        """Record archives in one transaction."""
        self._put(SecondCopyRow, [columns_of(SecondCopyRow, one) for one in copies])

    def remove(self, copies: Sequence[SecondCopy]) -> None:
        """Forget archives of trees, by whatever manifests they were proven. May be called again."""
        with self._database.write() as connection:
            for one in copies:
                connection.execute(
                    delete(SecondCopyRow).where(SecondCopyRow.tree == one.tree, SecondCopyRow.name == one.name)
                )

    def all(self, tree: bytes | None = None) -> Sequence[SecondCopy]:
        """The newest record of each archive of each tree (or of one) and manifest, in the order in which they were made."""
        query = select(SecondCopyRow).order_by(SecondCopyRow.id)
        found = self._all(SecondCopy, query if tree is None else query.where(SecondCopyRow.tree == tree))
        return tuple({(one.tree, one.name, one.manifests): one for one in found}.values())

    def of_tree(self, tree: bytes, manifests: str) -> Sequence[SecondCopy]:
        """Those that hold a tree as these manifests have it."""
        return [one for one in self.all(tree) if one.manifests == manifests]


class PurgeLedger(CutoverLedger):
    """The ledger with the records of second copies."""

    second_copies: SecondCopyRecords
