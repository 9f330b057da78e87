"""The facts that decide whether a tree may be freed now, and the reasons against it. Changes nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from migrator.core.errors import LedgerCorrupt
from migrator.core.paths import join
from migrator.core.tasks import result_or_none
from migrator.cutover.model import CutoverRecord
from migrator.cutover.rules_writers import writing_problems
from migrator.fs.model import SourceHealth
from migrator.fs.ports import FileSystem
from migrator.gluster.model import volume_state
from migrator.gluster.rules import freeing_problems
from migrator.purge import model, rules
from migrator.purge.call import PurgeCall
from migrator.purge.model import PurgeItem, TreeLocation
from migrator.site.rules_guards import health_problems, mount_problems

LOOK_TIMEOUT_S = 120.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeChecks:
    """The checks of one tree. An unknown fact counts against it, because a purge cannot be undone."""

    call: PurgeCall
    item: PurgeItem

    async def position(self, record: CutoverRecord) -> model.Position | None:
        """Location of the tree; None if unknown."""
        places, closed = self.call.ports.places, closed_tree(record)
        stands = await self._known(lambda: (places.stands(record.tree.path), places.stands(closed.at)))
        if stands is None:
            return None
        return {
            (True, False): model.Position.IN_PLACE,
            (False, True): model.Position.CLOSED,
            (True, True): model.Position.BOTH,
            (False, False): model.Position.GONE,
        }[stands]

    async def problems(
        self,
        record: CutoverRecord,
        position: model.Position | None,
        placed: TreeLocation,
        total: model.ManifestSum | None,
        before: SourceHealth,
    ) -> tuple[str, ...]:
        """The reasons against freeing the tree. `total` is None if the manifest cannot be read."""
        ports, tree, proof = self.call.ports, record.tree, self.item.proof
        manifest = None if proof is None else proof.manifest
        problems = rules.purge_problems(
            record,
            position=position,
            top=await self._known(lambda: ports.source.look(tree.path))
            if position is model.Position.IN_PLACE
            else None,
            target_top=await self._known(lambda: ports.target.look(tree.path)),
            target_names=await self._known(lambda: _count(ports.target, tree.path)),
            leads_to=await self._known(lambda: ports.link(tree)),
            verification=proof,
            manifest_digest=None if manifest is None else await self._known(lambda: ports.manifests.digest(manifest)),
            total=total,
            scan_whole=self._scan_whole(record),
            lacks_backup=self.call.request.wants_backup
            and ports.ledger.backups.lack(tree.path, since_s=record.thawed_at_s),
        )
        return (
            *problems,
            *await self.outside_problems(before, before),
            *(() if ports.storage is None else await ports.storage()),
            *await self.writing_problems(placed.at),
        )

    async def outside_problems(
        self, before: SourceHealth | None = None, now: SourceHealth | None = None
    ) -> tuple[str, ...]:
        """Problems of mounts, bricks, tasks and options that forbid any removal now."""
        now = now or await self.call.ports.source.health()
        state = volume_state(now)
        freeing = () if state is None else freeing_problems(state)
        return (*await self._mounts(), *health_problems(before or now, now), *freeing)

    async def _mounts(self) -> tuple[str, ...]:
        ports = self.call.ports
        capacity = await self._known(ports.source.capacity)
        return (
            *mount_problems(self.call.site.source, await self._known(ports.source.identity), where="the source"),
            *mount_problems(self.call.site.target, await self._known(ports.target.identity), where="the target"),
            *(("the source is mounted read-only",) if capacity is not None and capacity.read_only else ()),
        )

    async def writing_problems(self, path: bytes) -> tuple[str, ...]:
        """Processes that can still write below a path, as sentences."""
        found = await self.call.ports.writers((path,))
        return writing_problems(found, vouched=self.call.request.vouched)

    def _scan_whole(self, record: CutoverRecord) -> bool | None:
        """True if the scan of the final pass was whole."""
        ledger, pass_id = self.call.ports.ledger, record.notes.final_pass_id
        if pass_id is None:
            return None
        try:
            catalog = ledger.passes.read(pass_id).catalog
        except LedgerCorrupt:
            return None
        scans = [
            scan.whole_of((record.tree.path,)) and scan.finished_at_s is not None
            for scan in ledger.scans.all()
            if scan.name == catalog and scan.covers((record.tree.path,))
        ]
        return scans[-1] if scans else None

    async def _known(self, look: Callable[[], T]) -> T | None:
        return await result_or_none(self.call.ports.blocking(look, timeout_s=LOOK_TIMEOUT_S))


def closed_tree(record: CutoverRecord) -> TreeLocation:
    """The tree in its place of the purge."""
    return TreeLocation(tree=record.tree.path, at=join(model.purge_place(record), model.TREE_NAME), begun=True)


def _count(target: FileSystem, tree: bytes) -> int:
    """The number of names in the first block of the tree: 0 if it is empty. Raises OSError."""
    for block in target.read_directory(tree, block_entries=1):
        if block.problems:
            raise OSError(block.problems[0].errno or 0, block.problems[0].reason, tree)
        return len(block.entries)
    return 0
