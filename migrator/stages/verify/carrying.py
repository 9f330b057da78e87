"""Taking over what an earlier verification read, where nothing has changed since on either side."""

from collections.abc import Mapping, Sequence

from migrator.decide.carrying import earlier_verifications, is_carried_over
from migrator.domain.errors import Refused
from migrator.domain.paths import parent, show
from migrator.domain.verification import DigestPolicy, ReadContent
from migrator.ports.manifest import EarlierManifest, Manifests
from migrator.ports.verifications import VerificationRecords
from migrator.stages.verify.content import Pair


class Carrying:
    """The manifests of earlier verifications, each tree's own. Thread-safe; `close` may be called again.

    `problems` says which manifests could not be asked: what only they knew is read again.
    """

    def __init__(self, manifests: Manifests, records: VerificationRecords, policy: DigestPolicy) -> None:
        self._manifests = manifests
        self._records = records
        self._policy = policy
        self._opened: dict[int, EarlierManifest | None] = {}
        self._by_tree: dict[bytes, EarlierManifest] = {}
        self.problems: list[str] = []

    def open(self, trees: Sequence[bytes]) -> None:
        """Open the best manifest of each tree that is what the ledger says it was. Reads each of them once. Blocking."""
        for tree in trees:
            for record in earlier_verifications(self._records.covering(tree), self._policy):
                manifest = self._open(record.id, record.manifest or "", record.manifest_digest or "")
                if manifest is not None:
                    self._by_tree[tree] = manifest
                    break

    def find(self, pairs: Sequence[Pair]) -> Mapping[bytes, ReadContent]:
        """Those of the pairs, all of one directory, whose content need not be read again."""
        manifest = self._of_tree(pairs[0].source.path) if pairs else None
        if manifest is None:
            return {}
        known = manifest.find([pair.source.path for pair in pairs])
        return {
            pair.source.path: known[pair.source.path]
            for pair in pairs
            if pair.source.path in known and is_carried_over(known[pair.source.path], pair.source, pair.target)
        }

    def close(self) -> None:
        """Release the manifests; nothing is found any more."""
        for manifest in self._opened.values():
            if manifest is not None:
                manifest.close()

    def _open(self, number: int, manifest: str, digest: str) -> EarlierManifest | None:
        if number not in self._opened:
            try:
                self._opened[number] = self._manifests.open_earlier(manifest, digest=digest)
            except (Refused, OSError) as error:
                self._opened[number] = None
                words = error.cause if isinstance(error, Refused) else error.strerror
                self.problems.append(
                    f"verification {number} cannot be asked what it read: {words or show(str(error).encode())}"
                )
        return self._opened[number]

    def _of_tree(self, path: bytes) -> EarlierManifest | None:
        while path:
            if path in self._by_tree:
                return self._by_tree[path]
            path = parent(path)
        return None
