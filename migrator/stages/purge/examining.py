"""Gathering what speaks against freeing the source of a tree. What cannot be seen is None, and counts as tripped."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from migrator.decide.freezing import why_not_frozen
from migrator.decide.purge import counts_as_proof, purge_problems
from migrator.decide.site_guards import health_problems, mount_problems
from migrator.domain.brick import SourceHealth
from migrator.domain.cutover import CutoverRecord
from migrator.domain.errors import LedgerCorrupt, MigratorError
from migrator.domain.purge import TREE_NAME, Position, purge_place
from migrator.domain.purge_proof import ManifestSum
from migrator.domain.verification import VerificationRecord
from migrator.ports.filesystem import FileSystem
from migrator.ports.ledger import Ledger
from migrator.ports.site import SiteRecord
from migrator.stages.purge.context import Call, Placed, PurgeWorld

LOOK_TIMEOUT_S = 120.0

T = TypeVar("T")


def where_it_lies(record: CutoverRecord, position: Position | None) -> Placed:
    """A tree and its place now."""
    at = record.tree.path
    if position is Position.CLOSED:
        at = purge_place(record) + b"/" + TREE_NAME
    return Placed(tree=record.tree.path, at=at)


def verification_of(ledger: Ledger, record: CutoverRecord) -> VerificationRecord | None:
    """The verification that the cutover rests on."""
    wanted = record.notes.verification_id
    return next((one for one in ledger.verifications.of_plan(record.plan) if one.id == wanted), None)


def carried_proofs(world: PurgeWorld, record: CutoverRecord) -> tuple[VerificationRecord, ...] | None:
    """What proves paths that a rollback carried to the source before it was given up, oldest first; None where nothing was
    carried. What cannot be read proves nothing.
    """
    try:
        found = world.carried(record)
    except MigratorError:
        return ()
    if found is None:
        return None
    newer_than = record.notes.proofs_before
    return tuple(one for one in found if counts_as_proof(one, newer_than=newer_than) and _is_as_written(world, one))


def _is_as_written(world: PurgeWorld, found: VerificationRecord) -> bool:
    try:
        return world.manifests.digest(found.manifest or "") == found.manifest_digest
    except MigratorError:
        return False


class Examination:
    """Looks at everything that a guard is about, for one tree."""

    def __init__(self, call: Call, site: SiteRecord, record: CutoverRecord, proof: VerificationRecord | None) -> None:
        self._call = call
        self._world = call.world
        self._site = site
        self._record = record
        self._proof = proof

    async def position(self) -> Position | None:
        """Where the tree lies; None where that cannot be seen."""
        closed = purge_place(self._record) + b"/" + TREE_NAME
        places = self._world.places
        stands = await self._seen(lambda: (places.stands(self._record.tree.path), places.stands(closed)))
        if stands is None:
            return None
        return {
            (True, False): Position.IN_PLACE,
            (False, True): Position.CLOSED,
            (True, True): Position.BOTH,
            (False, False): Position.GONE,
        }[stands]

    async def health(self) -> SourceHealth:
        """The source, now."""
        return await self._world.source.health()

    async def outside_problems(self, before: SourceHealth | None = None) -> tuple[str, ...]:
        """What speaks against removing anything at all, now: mounts, bricks, tasks."""
        now = await self._world.source.health()
        return (*await self._mounts(), *health_problems(before or now, now))

    async def writing(self, path: bytes) -> tuple[str, ...]:
        """Who can still write below a path."""
        found = await self._world.writers.find_writers((path,))
        return why_not_frozen(found, vouched=self._call.request.vouched)

    async def problems(
        self, position: Position | None, placed: Placed, total: ManifestSum | None, before: SourceHealth
    ) -> tuple[str, ...]:
        """Every reason against. `total` is None where the manifest cannot be read."""
        record, world = self._record, self._world
        tree = record.tree
        return purge_problems(
            record,
            position=position,
            top=await self._seen(lambda: world.source.look(tree.path)) if position is Position.IN_PLACE else None,
            target_top=await self._seen(lambda: world.target.look(tree.path)),
            target_names=await self._seen(lambda: _count(world.target, tree.path)),
            leads_to=await self._seen(lambda: world.link(tree)),
            verification=self._proof,
            manifest_digest=await self._manifest_digest(),
            without_digest=None if total is None else total.without_digest,
            manifest_names=None if total is None else total.names,
            scan_whole=self._scan_whole(),
            mounts=await self._mounts(),
            health=health_problems(before, before),
            storage=await world.storage.problems(),
            writers=await self.writing(placed.at),
            backup=world.backup(record),
        )

    async def _mounts(self) -> tuple[str, ...]:
        source = await self._seen(self._world.source.identity)
        target = await self._seen(self._world.target.identity)
        capacity = await self._seen(self._world.source.capacity)
        return (
            *mount_problems(self._site.source, source, where="the source"),
            *mount_problems(self._site.target, target, where="the target"),
            *(("the source is mounted read-only",) if capacity is not None and capacity.read_only else ()),
        )

    async def _manifest_digest(self) -> str | None:
        manifest = None if self._proof is None else self._proof.manifest
        if manifest is None:
            return None
        try:
            return await self._seen(lambda: self._world.manifests.digest(manifest))
        except MigratorError:
            return None

    def _scan_whole(self) -> bool | None:
        """Whether the scan of the final pass was whole."""
        pass_id = self._record.notes.final_pass_id
        if pass_id is None:
            return None
        try:
            catalog = self._world.ledger.passes.read(pass_id).catalog
        except LedgerCorrupt:
            return None
        scans: Sequence[bool] = [
            scan.whole and scan.finished_at_s is not None
            for scan in self._world.ledger.scans.all()
            if scan.name == catalog and scan.covers((self._record.tree.path,))
        ]
        return scans[-1] if scans else None

    async def _seen(self, look: Callable[[], T]) -> T | None:
        try:
            return await self._world.blocking(look, timeout_s=LOOK_TIMEOUT_S)
        except (OSError, TimeoutError):
            return None


def _count(target: FileSystem, tree: bytes) -> int:
    """Whether the tree holds anything: how many names the first block has. Raises OSError."""
    for block in target.read_directory(tree, block_entries=1):
        if block.problems:
            raise OSError(block.problems[0].errno or 0, block.problems[0].reason, tree)
        return len(block.entries)
    return 0
