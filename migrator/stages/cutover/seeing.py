"""Looking at the world: what there is to see of a tree that is being cut over, or rolled back."""

import os
from dataclasses import dataclass, replace

from migrator.decide.cutover_tops import SOURCE_SEEN, opened_top, read_top, target_top
from migrator.decide.cutover_ways import BACK, PLACES, Phase
from migrator.decide.freezing import what_is_unseen, why_not_frozen
from migrator.decide.switching import link_problem, top_before
from migrator.domain.cutover import CutoverRecord, CutoverState
from migrator.domain.cutover_seen import BackupSeen, LinkSeen, PassSeen, ProofSeen, Seen, TopSeen
from migrator.domain.entry import Entry
from migrator.domain.errors import MigratorError
from migrator.domain.freezing import FreezeWay, FrozenTop, TopState, Writers
from migrator.domain.paths import show
from migrator.domain.site import TargetCapabilities
from migrator.domain.states import PassKind, PassState
from migrator.domain.verification import VerificationRecord
from migrator.ports.filesystem import FileSystem
from migrator.ports.passes import PassRecord
from migrator.stages.cutover.context import Sight
from migrator.stages.run.bases import covers
from migrator.stages.run.final import final_pass_facts

_SEARCHED = frozenset({Phase.FROZEN, Phase.VERIFIED, Phase.SWITCHING})
"""Where it counts whether somebody writes: before what is there is carried over, and right before the switch."""

_THAWING_BACK = frozenset({CutoverState.SWITCHED_BACK, CutoverState.ROLLBACK_THAWING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Looker:
    """Looks at one tree. Changes nothing."""

    sight: Sight
    capabilities: TargetCapabilities

    async def see(self, record: CutoverRecord) -> Seen:
        """Everything that the next step is decided by."""
        way, phase = PLACES.get(record.state, (None, None))
        back = way is BACK
        source_top, source_words = await self._source_top(record)
        target_seen, target_words = await self._target_top(record)
        link, holds = await self._link(record)
        copied, proof = await self._proofs(record, back=back)
        return Seen(
            link=link,
            source_top=source_top,
            target_top=target_seen,
            writing=await self.writing(record, back=back) if phase in _SEARCHED else None,
            copied=copied,
            proof=proof,
            backup=await self.backup(record),
            link_holds=holds,
            top_differences=(*source_words, *target_words),
        )

    async def source_entry(self, record: CutoverRecord) -> Entry | None:
        """The top on the source as it is."""
        return await self._entry(self.sight.run.source, record)

    async def target_entry(self, record: CutoverRecord) -> Entry | None:
        """The top on the target as it is."""
        return await self._entry(self.sight.run.target, record)

    async def writing(self, record: CutoverRecord, *, back: bool) -> tuple[str, ...] | None:
        """What speaks against nobody writing to the tree; None where that cannot be asked."""
        found = await self._writers(record, back=back)
        return None if found is None else why_not_frozen(found, vouched=self._vouched)

    async def unseen(self, record: CutoverRecord, *, back: bool) -> tuple[str, ...] | None:
        """What of that cannot be seen: who has something open before the freeze may close it, but this stays as it is. None where
        it cannot be asked.
        """
        found = await self._writers(record, back=back)
        return None if found is None else what_is_unseen(found, vouched=self._vouched)

    async def _writers(self, record: CutoverRecord, *, back: bool) -> Writers | None:
        world = self.sight.world
        search = world.target_writers if back else world.source_writers
        try:
            return await search.find_writers([record.tree.path])
        except (MigratorError, OSError):
            return None

    @property
    def _vouched(self) -> bool:
        return self.sight.request.freeze is FreezeWay.HOOK

    async def backup(self, record: CutoverRecord) -> BackupSeen:
        """Whether the backup is recorded that the site asks for: one of this tree, made after the last pass but the final."""
        if not self.sight.request.wants_backup:
            return BackupSeen.NOT_ASKED
        ledger = self.sight.ledger
        backup_s = ledger.target_backups.latest(record.tree.path)
        before = [
            one.finished_at_s
            for one in ledger.passes.of_batch(record.plan, record.batch)
            if one.kind is not PassKind.FINAL and one.finished_at_s is not None
        ]
        return (
            BackupSeen.RECORDED if backup_s is not None and backup_s >= max(before, default=0.0) else BackupSeen.MISSING
        )

    def wanted_top(self, record: CutoverRecord, source: Entry | None, target: Entry | None) -> FrozenTop | None:
        """What the top on the target is where it is open; None where that is not known yet."""
        if record.notes.frozen_target_top is not None:
            return read_top(record.notes.frozen_target_top)
        if record.notes.frozen_top is None or source is None or target is None:
            return None
        like = top_before(source, read_top(record.notes.frozen_top))
        return opened_top(like, target, self.capabilities)

    async def _source_top(self, record: CutoverRecord) -> tuple[TopSeen, tuple[str, ...]]:
        noted = record.notes.frozen_top
        freezer, tree = self.sight.world.freezer, record.tree.path
        try:
            if noted is None or record.state is CutoverState.PLANNED:
                await self.sight.blocking(lambda: freezer.read_top(tree))
                return TopSeen.OPEN, ()
            top = read_top(noted)
            look = await self.sight.blocking(lambda: freezer.look(tree, top))
        except OSError:
            return TopSeen.UNKNOWN, ()
        if look.state is TopState.CHANGED and record.state in _THAWING_BACK and not look.another:
            # It is thawed with what its user changed of it on the target: which thaw that was is done once more.
            return TopSeen.PARTLY, ()
        return SOURCE_SEEN[look.state], look.differences

    async def _target_top(self, record: CutoverRecord) -> tuple[TopSeen, tuple[str, ...]]:
        try:
            source, target = await self.source_entry(record), await self.target_entry(record)
        except OSError:
            return TopSeen.UNKNOWN, ()
        return target_top(target, self.wanted_top(record, source, target), uid=os.geteuid(), gid=os.getegid())

    async def _link(self, record: CutoverRecord) -> tuple[LinkSeen, bytes | None]:
        world = self.sight.world
        links, place = world.links, world.place
        if links is None or place is None:
            return LinkSeen.UNTOLD, None
        source, target = self.sight.paths(record.tree.path)

        def look() -> tuple[LinkSeen, bytes | None]:
            found = links.read_link(record.tree.user)
            if record.notes.link not in (None, found.path):
                # site.toml names another one by now: what was switched is not this.
                return LinkSeen.UNKNOWN, None
            roots = replace(
                place, source_root=os.path.realpath(place.source_root), target_root=os.path.realpath(place.target_root)
            )
            if found.unread or link_problem(found, roots, os.geteuid()) is not None:
                return LinkSeen.UNKNOWN, found.text
            sides = {os.path.realpath(source): LinkSeen.SOURCE, os.path.realpath(target): LinkSeen.TARGET}
            return (sides.get(found.leads_to, LinkSeen.OTHER) if found.leads_to else LinkSeen.OTHER), found.text

        try:
            return await self.sight.blocking(look)
        except (OSError, MigratorError):
            return LinkSeen.UNKNOWN, None

    async def _proofs(self, record: CutoverRecord, *, back: bool) -> tuple[PassSeen | None, ProofSeen | None]:
        if back:
            return await self.sight.blocking(lambda: self.sight.world.back.seen(record))
        copied = self._pass_seen(record)
        return copied, None if copied is None else self._proof(record, copied)

    def final_pass(self, record: CutoverRecord) -> PassRecord | None:
        """The newest final pass over the tree, of whatever attempt."""
        passes = self.sight.ledger.passes
        made = (one for one in reversed(passes.of_batch(record.plan, record.batch)) if one.kind is PassKind.FINAL)
        return next((one for one in made if covers(passes, one, (record.tree.path,))), None)

    def verification(self, record: CutoverRecord) -> VerificationRecord | None:
        """The newest verification of the tree, of whatever attempt."""
        found = self.sight.ledger.verifications.of_tree(record.plan, record.batch, record.tree.path)
        return found[-1] if found else None

    def _pass_seen(self, record: CutoverRecord) -> PassSeen | None:
        ledger, one = self.sight.ledger, self.final_pass(record)
        if one is None:
            return None
        scan = next((scan for scan in ledger.scans.all() if scan.name == one.catalog), None)
        facts = final_pass_facts(ledger, one.id)
        return PassSeen(
            id=one.id,
            catalog=one.catalog,
            finished_at_s=one.finished_at_s if one.state is PassState.DONE else None,
            changed=facts.changed,
            vanished=facts.vanished,
            failed=facts.failed,
            whole=one.state is PassState.DONE and scan is not None and scan.whole,
        )

    def _proof(self, record: CutoverRecord, copied: PassSeen) -> ProofSeen | None:
        """The newest verification. It compares both sides as they are, so one that began after the pass is of what that
        left (see `CutoverNotes.proofs_before`).
        """
        latest, policy = self.verification(record), self.sight.world.policy
        if latest is None:
            return None
        return ProofSeen(
            id=latest.id,
            catalog=copied.catalog,
            whole=latest.whole,
            differences=sum(latest.differences.values()),
            by_policy=latest.policy.algorithm == policy.algorithm and latest.policy.share >= policy.share,
            manifest=latest.manifest,
            reasons=latest.reasons,
            examples=self._examples(latest),
        )

    def _examples(self, found: VerificationRecord) -> tuple[str, ...]:
        if not found.differences or found.manifest is None:
            return ()
        try:
            examples = self.sight.world.manifests.examples(found.manifest, per_kind=1)
        except MigratorError:
            return ()
        return tuple(f"{show(one.path)}: {one.kind.value}" for one in examples.differences)

    async def _entry(self, side: FileSystem, record: CutoverRecord) -> Entry | None:
        return await self.sight.blocking(lambda: side.look(record.tree.path))
