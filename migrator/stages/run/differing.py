"""What a verification found to differ is sent by the next pass."""

from migrator.domain.transfer import FileProblem, FileProblemKind
from migrator.domain.tree import UserTree
from migrator.domain.verification import VerificationRecord
from migrator.ports.ledger import PassRecords
from migrator.ports.manifest import Manifests

_DIFFERENCES_PER_KIND = 10_000


def note_differences(
    passes: PassRecords, manifests: Manifests, proven: VerificationRecord, *, pass_id: int, tree: UserTree, at_s: float
) -> None:
    """What the scan of the next pass over a tree would take for unchanged counts as not arrived by the pass before the
    verification; but for the top of the tree, which no pass brings. May be called again. Blocking.
    """
    if not proven.differences or proven.manifest is None:
        return
    found = manifests.examples(proven.manifest, per_kind=_DIFFERENCES_PER_KIND).differences
    differing = {one.path: one for one in found if one.path != tree.path}
    problems = [
        FileProblem(path=path, kind=FileProblemKind.BAD, errno=None, reason=f"not equal after all: {one.kind.value}")
        for path, one in sorted(differing.items())
    ]
    passes.note(pass_id, problems, at_s)
