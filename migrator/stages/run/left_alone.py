"""What the ledger knows of the cutovers of some trees."""

from collections.abc import Iterable, Mapping

from migrator.domain.cutover import CutoverRecord
from migrator.ports.ledger import CutoverRecords


def newest_cutovers(cutovers: CutoverRecords, trees: Iterable[bytes]) -> Mapping[bytes, CutoverRecord]:
    """The newest attempt of each tree, of any plan; trees without one are left out."""
    return {tree: record for tree in trees if (record := cutovers.latest(tree)) is not None}
