"""The stage: guards, walk of both sides, hard links, earlier catalogs, guards again, manifest, record."""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping

from migrator.decide.batch_states import after_verification
from migrator.domain.entry import EntryType
from migrator.domain.errors import Interrupted, MigratorError
from migrator.domain.events import EventKind, Severity
from migrator.domain.paths import show
from migrator.domain.plan import Batch
from migrator.domain.site import TargetCapabilities
from migrator.domain.states import BatchState
from migrator.domain.units import NS_PER_S, several
from migrator.domain.verification import ContentReading, VerificationRecord
from migrator.ports.clock import Clock
from migrator.ports.filesystem import SourceFileSystem, TargetFileSystem
from migrator.ports.ledger import Ledger
from migrator.ports.manifest import ClosedManifest, ManifestDraft, Manifests
from migrator.ports.progress import Progress
from migrator.ports.reap import ReapIndex, ReapLists
from migrator.ports.storage_targets import StorageTargets
from migrator.stages.reap.archived import ProvenArchives
from migrator.stages.verify.absences import Absences
from migrator.stages.verify.carrying import Carrying
from migrator.stages.verify.catalogs import compare_with_catalogs
from migrator.stages.verify.guards import Guards
from migrator.stages.verify.links import compare_links
from migrator.stages.verify.request import VerifyRequest, check_request
from migrator.stages.verify.storage_wait import StorageWait
from migrator.stages.verify.tally import Tally, error_problem
from migrator.stages.verify.telling import Telling
from migrator.stages.verify.walk import TreeComparison

EXAMPLES_PER_KIND = 3
"""How many differences of each kind are shown with the result; the list beside the manifest has them all."""


async def verify(
    request: VerifyRequest,
    *,
    source: SourceFileSystem,
    target: TargetFileSystem,
    manifests: Manifests,
    ledger: Ledger,
    progress: Progress,
    clock: Clock,
    reap_lists: ReapLists | None = None,
    archived: ProvenArchives | None = None,
    storage: StorageTargets | None = None,
) -> VerificationRecord:
    """Compare both sides of a batch as they are now, and write the manifest of what arrived.

    The caller holds the lock `run`, and gives file systems that were opened for this call. The batch becomes verified
    only when the verification is whole and found no difference; one that was verified and is not any more goes back
    to seeded. `archived` is what archives hold that were read back; without it the plan's reap list alone is believed of what
    is not at its place, as for a user who goes back to the source. One of some trees alone never makes it verified, and takes that away only where it finds differences. With
    `storage` it waits for storage of the target that is lost, and reads again what could not be read meanwhile. May be
    called again at any time: every call is a verification and a manifest of its own.

    Raises UsageError where plan or batch do not fit the site, Refused where a guard trips before anything is read
    (what trips later makes the record not whole), Interrupted on cancellation, and MigratorError where the manifest
    cannot be written.
    """
    stage = _Verification(
        request,
        source=source,
        target=target,
        manifests=manifests,
        ledger=ledger,
        progress=progress,
        clock=clock,
        reap_lists=reap_lists,
        archived=archived,
        storage=storage,
    )
    return await stage.run()


class _Verification:
    def __init__(
        self,
        request: VerifyRequest,
        *,
        source: SourceFileSystem,
        target: TargetFileSystem,
        manifests: Manifests,
        ledger: Ledger,
        progress: Progress,
        clock: Clock,
        reap_lists: ReapLists | None,
        archived: ProvenArchives | None,
        storage: StorageTargets | None,
    ) -> None:
        self._request = request
        self._storage = storage
        self._waiting: StorageWait | None = None
        self._archived = archived
        self._reap_lists = reap_lists
        self._source = source
        self._target = target
        self._manifests = manifests
        self._ledger = ledger
        self._clock = clock
        self._telling = Telling(ledger, progress, clock, batch=request.batch)
        self._reasons: list[str] = []
        self._trees: tuple[bytes, ...] = ()

    async def run(self) -> VerificationRecord:
        """The whole stage."""
        checked = check_request(self._request, self._ledger)
        site, batch, self._trees = checked.site, checked.batch, checked.trees
        if self._storage is not None:
            self._waiting = StorageWait(self._storage, self._clock, self._telling.event)
            await self._wait_for_storage(self._waiting)
        guards = Guards(site=site, source=self._source, target=self._target, say=self._telling.event)
        before = await guards.before()
        number = self._ledger.verifications.start(
            plan=self._request.plan.name, batch=batch.number, at_s=self._clock.now_s()
        )
        started_at_s = self._clock.now_s()
        self._telling.began(batch)
        name = f"{self._request.plan.name}-batch-{batch.number:04d}-{number:06d}"
        draft = await asyncio.to_thread(self._manifests.create, name, algorithm=self._request.policy.algorithm)
        tally = Tally(draft)
        try:
            manifest = await self._compare(batch, checked.capabilities, draft, tally, number)
        except asyncio.CancelledError:
            raise Interrupted(
                f"the verification was stopped after {several(tally.paths, 'path')}",
                hint="run the same command again: it starts over",
            ) from None
        except OSError as error:
            raise MigratorError(
                f"the verification could not be finished: {error.strerror or error}",
                cause="the state directory cannot be written, or the target cannot be synced",
                hint="make room there, check with `migrator doctor`, then verify again",
            ) from error
        finally:
            draft.abandon()
        self._reasons += await guards.afterwards(before)
        record = self._record(number, started_at_s, tally, manifest)
        self._ledger.verifications.finish(record)
        self._set_batch_state(checked.state, record)
        self._telling.result(record, self._manifests.examples(manifest.file, per_kind=1))
        return record

    @staticmethod
    async def _wait_for_storage(waiting: StorageWait) -> None:
        """A look at a mount whose servers do not answer may hang."""
        try:
            await waiting.until_back()
        except asyncio.CancelledError:
            raise Interrupted(
                "the verification was stopped while it waited for storage of the target",
                hint="bring the server back, then run the same command again",
            ) from None

    async def _compare(
        self, batch: Batch, capabilities: TargetCapabilities, draft: ManifestDraft, tally: Tally, number: int
    ) -> ClosedManifest:
        reading = await asyncio.to_thread(self._begin_reading, number)
        carrying = await asyncio.to_thread(self._open_earlier, batch) if self._request.carry else None
        try:
            return await self._compare_trees(batch, capabilities, draft, tally, reading=reading, carrying=carrying)
        finally:
            if carrying is not None:
                carrying.close()

    def _begin_reading(self, number: int) -> ContentReading:
        """Sync both sides, and note what their clocks showed before that (`decide.carrying` says what for)."""
        source_clock_ns: int | None = int(self._clock.now_s() * NS_PER_S)
        try:
            target_clock_ns: int | None = self._target.clock_ns()
        except OSError:
            target_clock_ns = None
        try:
            self._source.sync()
        except OSError:
            # Somebody's writes to the source failed. It can be read all the same, and will be again.
            source_clock_ns = None
        # What is not on the disks yet cannot be read from them: the digests are read with cold caches.
        self._target.sync()
        return ContentReading(verification=number, source_clock_ns=source_clock_ns, target_clock_ns=target_clock_ns)

    def _open_earlier(self, batch: Batch) -> Carrying:
        carrying = Carrying(self._manifests, self._ledger.verifications, self._request.policy)
        carrying.open([tree.path for tree in batch.trees])
        for problem in carrying.problems:
            self._telling.event(EventKind.VERIFY_STARTED, Severity.WARNING, f"{problem}; its files are read again")
        return carrying

    async def _compare_trees(
        self,
        batch: Batch,
        capabilities: TargetCapabilities,
        draft: ManifestDraft,
        tally: Tally,
        *,
        reading: ContentReading,
        carrying: Carrying | None,
    ) -> ClosedManifest:
        comparison = TreeComparison(
            self._source,
            self._target,
            tally,
            capabilities=capabilities,
            policy=self._request.policy,
            root_owner=(os.geteuid(), os.getegid()),
            workers=self._request.workers,
            reading=reading,
            carrying=carrying,
            held_entries=self._request.held_entries,
            absences=await asyncio.to_thread(self._absences, batch, capabilities),
            storage=self._waiting,
        )
        trees = await asyncio.to_thread(self._find_trees, batch, comparison, tally)
        ticker = asyncio.create_task(self._telling.show_again_and_again(batch, tally))
        try:
            await comparison.run()
            scans = await asyncio.to_thread(self._ledger.scans.all)
            self._reasons += await compare_with_catalogs(
                scans, draft, comparison, tally, trees=trees, workers=self._request.workers
            )
            # Last, since what only a catalog knew of may be a name of a file too.
            await asyncio.to_thread(compare_links, draft, tally, capabilities)
            manifest = await asyncio.to_thread(draft.close)
        finally:
            ticker.cancel()
        self._telling.show(batch, tally)
        if tally.unread:
            self._reasons.append(f"{several(tally.unread, 'path')} could not be read: see the differences")
        return manifest

    def _absences(self, batch: Batch, capabilities: TargetCapabilities) -> Absences:
        trees = tuple(tree.path for tree in batch.trees)
        found = Absences(capabilities, trees, reaped=self._reap_index(batch), archived=self._archived)
        found.load()
        return found

    def _reap_index(self, batch: Batch) -> ReapIndex | None:
        """What the plan's reap list has of these trees, for what is not on the target. Raises Refused."""
        reap = self._request.plan.reap
        if self._reap_lists is None or reap is None or reap.reap_list is None:
            return None
        self._reap_lists.checked(reap.reap_list, reap.digest or "")
        return self._reap_lists.index(reap.reap_list, trees=[tree.path for tree in batch.trees])

    def _find_trees(self, batch: Batch, comparison: TreeComparison, tally: Tally) -> tuple[bytes, ...]:
        """The trees that are on the source; what became of the others is a reason not to be whole."""
        found: list[bytes] = []
        for tree in batch.trees:
            try:
                root = self._source.look(tree.path)
            except OSError as error:
                tally.unreadable(error_problem(tree.path, "look", error), on_source=True)
                continue
            if root is None:
                self._reasons.append(
                    f"user tree {show(tree.path)} is no longer on the source: "
                    "was it renamed or removed since the scan? Scan and plan again"
                )
            elif root.type is not EntryType.DIRECTORY:
                self._reasons.append(f"user tree {show(tree.path)} is a {root.type.value} on the source now")
            else:
                comparison.add_tree(root)
                found.append(tree.path)
        return tuple(found)

    def _record(self, number: int, started_at_s: float, tally: Tally, manifest: ClosedManifest) -> VerificationRecord:
        reasons = tuple(dict.fromkeys(self._reasons))
        return VerificationRecord(
            id=number,
            plan=self._request.plan.name,
            batch=self._request.batch,
            started_at_s=started_at_s,
            finished_at_s=self._clock.now_s(),
            policy=self._request.policy,
            paths=tally.paths,
            size_bytes=tally.size_bytes,
            digested_files=tally.digested_files,
            digested_bytes=tally.digested_bytes,
            carried_files=tally.carried_files,
            carried_bytes=tally.carried_bytes,
            trees=self._trees,
            proven_gone=tally.proven_gone,
            differences=_counts(tally.differences),
            expected=_counts(tally.expected),
            whole=not reasons,
            reasons=reasons,
            manifest=manifest.file,
            manifest_digest=manifest.digest,
            files=tally.files,
            equal_paths=manifest.rows,
            differences_file=manifest.differences_file,
            examples=self._manifests.examples(manifest.file, per_kind=EXAMPLES_PER_KIND).differences,
        )

    def _set_batch_state(self, state: BatchState, record: VerificationRecord) -> None:
        if record.trees and not record.differences:
            return
        kinds = [one.kind for one in self._ledger.passes.of_batch(record.plan, record.batch)]
        wanted = after_verification(state, kinds, proven=record.whole and not record.differences)
        if wanted is not state:
            self._ledger.plans.set_batch_state(record.plan, record.batch, wanted)


def _counts(counter: Counter[str]) -> Mapping[str, int]:
    return dict(sorted(counter.items()))
