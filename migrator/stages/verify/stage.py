"""The stage: guards, walk of both sides, hard links, earlier catalogs, guards again, manifest, record."""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping

from migrator.decide.batch_states import after_verification
from migrator.decide.site_guards import health_problems, mount_problems
from migrator.domain.brick import SourceHealth
from migrator.domain.entry import EntryType
from migrator.domain.errors import ExitCode, Interrupted, MigratorError, Refused
from migrator.domain.events import Event, EventKind, Severity
from migrator.domain.paths import show
from migrator.domain.plan import Batch
from migrator.domain.progress import VerifyProgress
from migrator.domain.site import MountIdentity, TargetCapabilities
from migrator.domain.states import BatchState
from migrator.domain.units import NS_PER_S, format_count, format_size, several
from migrator.domain.verification import ContentReading, VerificationRecord
from migrator.ports.archives import Archived
from migrator.ports.clock import Clock
from migrator.ports.filesystem import FileSystem, SourceFileSystem, TargetFileSystem
from migrator.ports.ledger import Ledger
from migrator.ports.manifest import ClosedManifest, ManifestDraft, Manifests
from migrator.ports.progress import Progress
from migrator.ports.reap import ReapIndex, ReapLists
from migrator.ports.site import SiteRecord
from migrator.ports.storage_targets import StorageTargets
from migrator.stages.verify.absences import Absences
from migrator.stages.verify.carrying import Carrying
from migrator.stages.verify.catalogs import compare_with_catalogs
from migrator.stages.verify.links import compare_links
from migrator.stages.verify.request import VerifyRequest, check_request
from migrator.stages.verify.storage_wait import StorageWait
from migrator.stages.verify.tally import Tally, error_problem
from migrator.stages.verify.walk import TreeComparison

EXAMPLES_PER_KIND = 3
"""How many differences of each kind are shown with the result; the list beside the manifest has them all."""

_SHOW_EVERY_S = 0.5
_SUBJECT = "batch {number}"


def exit_code(record: VerificationRecord) -> ExitCode:
    """What the shell sees. A verification that is not whole proves nothing, whatever it found: refused. One that is
    whole and found differences has files that need attention; expected losses are none.
    """
    if not record.whole:
        return ExitCode.REFUSED
    return ExitCode.ATTENTION if record.differences else ExitCode.DONE


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
    archived: Archived | None = None,
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
        archived: Archived | None,
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
        self._progress = progress
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._reasons: list[str] = []
        self._trees: tuple[bytes, ...] = ()

    async def run(self) -> VerificationRecord:
        """The whole stage."""
        checked = check_request(self._request, self._ledger)
        site, batch, self._trees = checked.site, checked.batch, checked.trees
        if self._storage is not None:
            self._waiting = StorageWait(self._storage, self._clock, self._event)
            await self._wait_for_storage(self._waiting)
        before = await self._check_guards(site)
        number = self._ledger.verifications.start(
            plan=self._request.plan.name, batch=batch.number, at_s=self._clock.now_s()
        )
        started_at_s = self._clock.now_s()
        self._event(
            EventKind.VERIFY_STARTED,
            Severity.INFO,
            f"comparing {several(_path_count(batch), 'path')} of {several(len(batch.trees), 'user tree')}",
        )
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
        self._reasons += await self._guards_afterwards(site, before)
        record = self._record(number, started_at_s, tally, manifest)
        self._ledger.verifications.finish(record)
        self._set_batch_state(checked.state, record)
        self._announce(record, manifest)
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

    async def _check_guards(self, site: SiteRecord) -> SourceHealth:
        """Refuse before anything is read: with a brick down the mount shows fewer files and no error."""
        problems = await self._mount_problems(site)
        health = await self._source.health()
        problems += health.problems
        if problems:
            message = "nothing was verified: " + "; ".join(problems)
            self._event(EventKind.GUARD_REFUSED, Severity.ERROR, message)
            raise Refused(
                message,
                cause="a brick or a mount is not as it has to be, so what it shows may not be all",
                hint="mend it, check with `migrator doctor`, then verify again",
            )
        return health

    async def _guards_afterwards(self, site: SiteRecord, before: SourceHealth) -> tuple[str, ...]:
        after = await self._source.health()
        return (*await self._mount_problems(site), *health_problems(before, after))

    async def _mount_problems(self, site: SiteRecord) -> tuple[str, ...]:
        source = await asyncio.to_thread(_identity, self._source)
        target = await asyncio.to_thread(_identity, self._target)
        return (
            *mount_problems(site.source, source, where="the source"),
            *mount_problems(site.target, target, where="the target"),
        )

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
            self._event(EventKind.VERIFY_STARTED, Severity.WARNING, f"{problem}; its files are read again")
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
        ticker = asyncio.create_task(self._show_again_and_again(batch, tally))
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
        self._show(batch, tally)
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

    async def _show_again_and_again(self, batch: Batch, tally: Tally) -> None:
        while True:
            self._show(batch, tally)
            await self._clock.sleep(_SHOW_EVERY_S)

    def _show(self, batch: Batch, tally: Tally) -> None:
        # The plan counts what lies in the trees; what users added since is no more than a whole either.
        paths, size_bytes = tally.paths, tally.size_bytes
        self._progress.show(
            VerifyProgress(
                batch=batch.number,
                elapsed_s=self._clock.monotonic_s() - self._began_s,
                paths=paths,
                total_paths=max(_path_count(batch), paths),
                size_bytes=size_bytes,
                total_bytes=max(batch.size_bytes, size_bytes),
                differences=tally.difference_count,
                digested_bytes=tally.digested_bytes,
                carried_bytes=tally.carried_bytes,
            )
        )

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

    def _announce(self, record: VerificationRecord, manifest: ClosedManifest) -> None:
        examples = self._manifests.examples(manifest.file, per_kind=1)
        for difference in examples.differences:
            count = record.differences.get(difference.kind.value, 0)
            words = f"{format_count(count)} x {difference.kind.value}, as {show(difference.path)}"
            detail = f"source {difference.source}, target {difference.target}"
            self._event(EventKind.FILE_BAD, Severity.WARNING, f"{words} ({detail})")
        for loss in examples.losses:
            count = record.expected.get(loss.kind.value, 0)
            words = f"{format_count(count)} x {loss.kind.value}, as {show(loss.path)} ({loss.detail})"
            self._event(EventKind.VERIFY_FINISHED, Severity.INFO, f"the target cannot keep, as expected: {words}")
        severity = Severity.INFO if exit_code(record) is ExitCode.DONE else Severity.WARNING
        self._event(EventKind.VERIFY_FINISHED, severity, _summary(record, manifest))

    def _event(self, kind: EventKind, severity: Severity, message: str) -> None:
        event = Event(
            at_s=self._clock.now_s(),
            kind=kind,
            severity=severity,
            subject=_SUBJECT.format(number=self._request.batch),
            message=message,
        )
        self._ledger.events.add(event)
        self._progress.event(event)


def _identity(file_system: FileSystem) -> MountIdentity | None:
    try:
        return file_system.identity()
    except OSError:
        return None


def _path_count(batch: Batch) -> int:
    """What a verification compares: also the trees' own directories, which a plan does not count."""
    return batch.files + batch.directories + len(batch.trees)


def _counts(counter: Counter[str]) -> Mapping[str, int]:
    return dict(sorted(counter.items()))


def _summary(record: VerificationRecord, manifest: ClosedManifest) -> str:
    content = f"content of {format_size(record.digested_bytes)} of {format_size(record.size_bytes)} read"
    if record.carried_files:
        content += f", that of {format_size(record.carried_bytes)} had been read before and has not changed since"
    checked = f"{several(record.paths, 'path')} compared, {content}"
    arrived = f"{format_count(manifest.rows)} are equal and in the manifest"
    if not record.whole:
        return f"{checked}; not whole: {'; '.join(record.reasons)}"
    total = sum(record.differences.values())
    return f"{checked}; {arrived}; {several(total, 'difference')}" if total else f"{checked}; {arrived}; all equal"
