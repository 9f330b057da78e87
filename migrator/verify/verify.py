"""`verify`: guards, content, listings of both sides and their join, what is left path by path, hard links, guards again, manifest."""

import asyncio
import errno
import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from migrator.beegfs.tool import StorageTargets
from migrator.catalog.model import ContentReading, VerificationRecord
from migrator.catalog.ports import ClosedManifest, Examples
from migrator.core.clock import Clock
from migrator.core.entry import EntryType
from migrator.core.errors import ExitCode, Interrupted, MigratorError, Refused, UsageError
from migrator.core.events import Event, EventKind, Severity
from migrator.core.paths import show
from migrator.core.progress import Progress, VerifyProgress
from migrator.core.states import BatchState
from migrator.core.tasks import again_and_again, task_group
from migrator.core.units import NS_PER_S, format_count, format_duration, format_size, several
from migrator.fs.model import DigestPolicy, RewrittenLinks, SourceHealth, TargetCapabilities
from migrator.fs.ports import SourceFileSystem, TargetFileSystem
from migrator.fs.reading import problem_of
from migrator.gluster.model import volume_state
from migrator.gluster.rules import copies
from migrator.ledger.model import SiteRecord
from migrator.plan.model import Batch, Plan
from migrator.plan.rules import after_verification
from migrator.reap.archive import ProvenArchives
from migrator.site.guards import mounts_not_recorded
from migrator.site.rules_guards import health_problems
from migrator.transfer.bases import part_of
from migrator.transfer.governor import governed
from migrator.transfer.model import CopiedChunk, PassRecord
from migrator.verify.absences import Absences
from migrator.verify.content import HOSTS_ALGORITHM, KINDS, ContentReader, Readers
from migrator.verify.earlier import EarlierVerifications
from migrator.verify.joined import Joined
from migrator.verify.listings import Listings
from migrator.verify.paths import PathComparison, compare_the_rest
from migrator.verify.storage_wait import StorageWait
from migrator.verify.tally import VerifyTally, compare_links

if TYPE_CHECKING:
    from migrator.catalog.manifest import ManifestDirectories, ParquetDraft, ReadingParts
    from migrator.reap.store import ReapListFiles
    from migrator.transfer.records import TransferLedger

_SHOW_EVERY_S = 0.5
EXAMPLES_PER_KIND = 3
"""The most differences of each kind in the result; the list beside the manifest has all."""


def _path_count(batch: Batch) -> int:
    """The number of paths to compare, including the roots of the trees, which the plan does not count."""
    return batch.files + batch.directories + len(batch.trees)


def _summary(record: VerificationRecord) -> str:
    content = f"content of {format_size(record.digested_bytes)} of {format_size(record.size_bytes)} read"
    if record.carried_files:
        content += f", that of {format_size(record.carried_bytes)} had been read before and has not changed since"
    checked = f"{several(record.paths, 'path')} compared, {content}"
    arrived = f"{format_count(record.equal_paths)} are equal and in the manifest"
    if not record.whole:
        return f"{checked}; not whole: {'; '.join(record.reasons)}"
    total = sum(record.differences.values())
    return f"{checked}; {arrived}; {several(total, 'difference')}" if total else f"{checked}; {arrived}; all equal"


@dataclass(slots=True, kw_only=True)
class Verification:
    """Compares both sides of a batch as they are now, and writes the manifest of what arrived. Call `run` once.

    `trees` are the user trees of the batch to compare; empty: all. With `carry`, content that an earlier verification
    of this site read is not read again if the file has not changed since on either side (`is_carried_over`).
    `workers` is the number of threads. Without `storage`, the syncs before the comparison may take `stall_timeout_s`.

    The caller holds the locks of the trees, and passes file systems that were opened for this call.

    The batch becomes verified only if the verification is whole and found no difference; a verified batch that fails
    goes back to seeded. A verification of some trees never makes the batch verified, and withdraws that state only if
    it finds differences.

    `archived` is the content of proven archives. Without it every path of the plan's reap list may be absent, as for a
    user who moves back to the source. `own` is the migration's ledger if `ledger` is that of a rollback; it has the
    site and the earlier verifications. With `storage`, the comparison waits for lost storage of the target, and reads again
    what was unreadable meanwhile. With `readers`, hosts read the content first (`ContentReader`). `links` are rewritten from
    `source` to `target`.
    """

    plan: Plan
    batch: int
    policy: DigestPolicy
    source: SourceFileSystem
    target: TargetFileSystem
    manifests: "ManifestDirectories"
    ledger: "TransferLedger"
    progress: Progress
    clock: Clock
    reap_lists: "ReapListFiles | None" = None
    archived: ProvenArchives | None = None
    storage: StorageTargets | None = None
    readers: Readers | None = None
    own: "TransferLedger | None" = None
    links: RewrittenLinks | None = None
    trees: tuple[bytes, ...] = ()
    carry: bool = False
    workers: int = 4
    stall_timeout_s: float = 600.0
    _waiting: StorageWait | None = field(init=False, default=None)
    _content: ContentReader | None = field(init=False, default=None)
    _reasons: list[str] = field(init=False, default_factory=list)
    _began_s: float = field(init=False, default=0.0)
    _copies: Mapping[str, Sequence[str]] = field(init=False, default_factory=dict)
    _listings: Listings = field(init=False)
    _before: EarlierVerifications = field(init=False)
    _batch: Batch = field(init=False)
    _capabilities: TargetCapabilities = field(init=False)
    _tally: VerifyTally = field(init=False)

    async def run(self) -> VerificationRecord:
        """Run the stage.

        Raises UsageError if plan or batch do not match the site, Refused if a check fails before anything is read (a
        later failure makes the record not whole), Interrupted on cancellation, and MigratorError if the manifest cannot
        be written or the sides are not synced in time.
        """
        self._began_s = self.clock.monotonic_s()
        site, state, trees = self._check_request()
        batch = self._batch
        if self.storage is not None:
            self._waiting = StorageWait(self.storage, self.clock, self._event)
            await self._wait_for_storage(self._waiting)
        before = await self._check_sides(site)
        self._copies = copies(volume_state(before))
        number = self.ledger.verifications.start(plan=self.plan.name, batch=batch.number, at_s=self.clock.now_s())
        started_at_s = self.clock.now_s()
        of = f"{several(_path_count(batch), 'path')} of {several(len(batch.trees), 'user tree')}"
        self._event(EventKind.VERIFY_STARTED, Severity.INFO, f"comparing {of}")
        name = f"{self.plan.name}-batch-{batch.number:04d}-{number:06d}"
        draft = await asyncio.to_thread(self.manifests.create, name, algorithm=self.policy.algorithm)
        self._tally = tally = VerifyTally(draft)
        try:
            manifest = await self._compare(draft, number, before)
        except asyncio.CancelledError:
            raise Interrupted(
                f"the verification was stopped after {several(tally.paths, 'path')}",
                hint="run the same command again: it compares anew, and reads no content again that hosts have read",
            ) from None
        except OSError as error:
            raise MigratorError(
                f"the verification could not be finished: {error.strerror or error}",
                cause="the state directory cannot be written, or the target cannot be synced",
                hint="make room there, check with `migrator doctor`, then verify again",
            ) from error
        finally:
            draft.abandon()
        self._reasons += await self._mount_problems(site)
        examples = Examples()
        if tally.differences or tally.expected:
            examples = await asyncio.to_thread(self.manifests.examples, manifest.file, per_kind=EXAMPLES_PER_KIND)
        record = self._record(number, started_at_s, manifest, trees, examples)
        self.ledger.verifications.finish(record)
        self._set_batch_state(state, record)
        if self._content is not None and (again := tally.digested_files - tally.host_files):
            message = f"{several(again, 'file')} of {format_count(tally.digested_files)} were read through the mounts, not by hosts"
            self._event(EventKind.VERIFY_FINISHED, Severity.INFO, message)
        self._report(record, examples)
        return record

    def _check_request(self) -> tuple[SiteRecord, BatchState, tuple[bytes, ...]]:
        """The site, the state of the batch, and the trees to compare (empty if they are the whole batch). Sets the batch,
        reduced to these trees, and the capabilities of the target.

        Raises UsageError if plan, batch or trees do not match the ledger, Refused if there is nothing to verify yet.
        """
        plan, number = self.plan, self.batch
        site = (self.own or self.ledger).site.required()
        if plan.site_id != site.site_id:
            raise Refused(
                f"plan {plan.name!r} was made for another site ({plan.site})",
                cause="the plans directory or site.toml belongs to another migration",
                hint="run `migrator plan` for this site",
            )
        batch = next((batch for batch in plan.batches if batch.number == number), None)
        known = self.ledger.plans.read(plan.name)
        if batch is None:
            last = max((batch.number for batch in plan.batches), default=0)
            raise UsageError(
                f"plan {plan.name!r} has no batch {number}", hint=f"its batches are numbered from 1 to {last}"
            )
        state = None if known is None else known.batches.get(number)
        if state is None or state is BatchState.PLANNED:
            raise Refused(
                f"batch {number} of plan {plan.name!r} has not been run",
                hint=f"run `migrator run --user-batch {number}` first",
            )
        if site.capabilities is None:
            raise Refused(
                "the capabilities of the target are unknown",
                cause="it is probed by `migrator doctor`, which has not been run, or could not write there",
                hint="run `migrator doctor`",
            )
        trees = self._chosen_trees(batch)
        self._batch = part_of(plan, batch, trees) if trees else batch
        # Those of a rollback's site lead the other way than its sides are compared.
        self._capabilities = replace(site.capabilities, rewritten_links=self.links)
        self._listings = Listings(
            source=self.source,
            target=self.target,
            manifests=self.manifests,
            readers=self.readers,
            report=self._event,
        )
        self._before = EarlierVerifications(
            ledger=self.ledger,
            own=self.own,
            manifests=self.manifests,
            policy=self.policy,
            trees=tuple(tree.path for tree in self._batch.trees),
            report=self._event,
        )
        return site, state, trees

    def _chosen_trees(self, batch: Batch) -> tuple[bytes, ...]:
        """The requested trees in the plan's order; empty if they are the whole batch. Raises UsageError."""
        existing = [tree.path for tree in batch.trees]
        unknown = [tree for tree in self.trees if tree not in existing]
        if unknown:
            raise UsageError(
                f"batch {batch.number} of plan {self.plan.name!r} has no user tree {', '.join(map(show, unknown))}",
                hint=f"see what it has: `migrator status --plan {self.plan.name}`",
            )
        chosen = tuple(tree for tree in existing if tree in self.trees)
        return chosen if len(chosen) < len(existing) else ()

    async def _check_sides(self, site: SiteRecord) -> SourceHealth:
        """Check before anything is read: while a brick is down, the mount shows fewer files without an error.

        Returns the health of the source. Raises Refused.
        """
        problems = await self._mount_problems(site)
        health = await self.source.health()
        problems += health.problems
        if problems:
            message = "nothing was verified: " + "; ".join(problems)
            self._event(EventKind.GUARD_REFUSED, Severity.ERROR, message)
            raise Refused(
                message,
                cause="a brick or a mount failed its check, so it may not show all files",
                hint="repair it, check with `migrator doctor`, then verify again",
            )
        return health

    async def _mount_problems(self, site: SiteRecord) -> tuple[str, ...]:
        return await asyncio.to_thread(mounts_not_recorded, site, self.source, self.target)

    @staticmethod
    async def _wait_for_storage(waiting: StorageWait) -> None:
        """Wait for lost storage first: access to a mount whose servers do not answer may hang."""
        try:
            await waiting.until_back()
        except asyncio.CancelledError:
            raise Interrupted(
                "the verification was stopped while it waited for storage of the target",
                hint="bring the server back, then run the same command again",
            ) from None

    async def read_ahead(self) -> None:
        """Let hosts read what was copied since the earlier verifications, and keep the readings for the next verification of the
        same trees, which reads again what has changed by then. Compares nothing, records no verification. Call instead of `run`.

        Readings of files that changed less than `CTIME_MARGIN_NS` ago are not used. Raises UsageError, Refused, Interrupted and
        MigratorError as `run` does.
        """
        site, _, _ = self._check_request()
        self._copies = copies(volume_state(await self._check_sides(site)))
        if not self._hosts_read:
            return
        reading = await self._begin_reading(self.ledger.verifications.newest_id())
        _, since_s = await asyncio.to_thread(self._before.proofs)
        try:
            await self._read_by_hosts(reading, since_s)
        except asyncio.CancelledError:
            raise Interrupted("reading the content was stopped", hint="run the same command again") from None
        except OSError as error:
            raise MigratorError(f"the readings cannot be stored: {error.strerror or error}") from error

    @property
    def _hosts_read(self) -> bool:
        """True if readings by hosts are of use: none lasts on a side whose ctimes prove nothing."""
        lasts = self.source.trusted_ctimes and self.target.trusted_ctimes
        return self.readers is not None and self.policy.algorithm == HOSTS_ALGORITHM and lasts

    async def _compare(self, draft: "ParquetDraft", number: int, before: SourceHealth) -> ClosedManifest:
        reading = await self._begin_reading(number)
        earlier, since_s = await asyncio.to_thread(self._before.proofs) if self.carry else ([], 0.0)
        ticker = asyncio.create_task(again_and_again(self._show, self.clock, _SHOW_EVERY_S))
        try:
            manifest = await self._compare_trees(draft, reading, earlier, since_s, before)
        finally:
            ticker.cancel()
        self._show()
        if self.readers is not None:
            await asyncio.to_thread(self._readings().remove)
        return manifest

    async def _read_by_hosts(self, reading: ContentReading, since_s: float) -> None:
        """Let hosts read what passes copied that were in progress at `since_s` or later."""
        if self.readers is None:
            return
        parts = self._readings()
        self._content = ContentReader(
            readers=self.readers,
            parts=parts,
            reading=reading,
            policy=self.policy,
            clock=self.clock,
            report=self._event,
            copies=self._copies,
        )
        copied = await asyncio.to_thread(self._copied, since_s)
        governor = governed(
            self.readers.governing,
            self.readers.lanes,
            run_id=None,
            clock=self.clock,
            report=partial(self._event, EventKind.STREAMS_SET),
            frozen=self.readers.frozen,
        )
        async with governor as self._content.governor:
            await self._content.read_chunks(copied, {tree.path for tree in self._batch.trees})

    def _copied(self, since_s: float) -> list[tuple[PassRecord, Sequence[CopiedChunk]]]:
        passes = self.ledger.passes
        return [
            (one, passes.copied(one.id, KINDS))
            for one in passes.of_batch(self.plan.name, self.batch)
            if one.finished_at_s is None or one.finished_at_s > since_s
        ]

    def _readings(self) -> "ReadingParts":
        # Verifications of other trees of the batch may be in progress; those of the same trees exclude each other.
        policy, trees = self.policy, b"\0".join(sorted(tree.path for tree in self._batch.trees))
        of_trees = hashlib.blake2b(trees, digest_size=8).hexdigest()
        name = f"{self.plan.name}-batch-{self.batch:04d}-{of_trees}-{policy.share}-{policy.seed}"
        # What was digested while it was copied is no reading for a verification that reads the source again.
        if self.readers is not None and self.readers.copy_digests is None:
            name += "-reread"
        return self.manifests.readings(name)

    async def _begin_reading(self, number: int) -> ContentReading:
        """The reading, after syncs of both sides. A side that hangs is waited for only with `storage`: a user may be frozen."""
        timeout_s = self.stall_timeout_s if self._waiting is None else None
        await asyncio.to_thread(self._readings().forget_if_old, self.clock.now_s())
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await asyncio.to_thread(self._sync_sides, number)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise MigratorError(
                f"the verification was stopped: syncing source and target took more than {format_duration(self.stall_timeout_s)}",
                cause="one of them does not respond, or is very slow",
                hint="check both with `migrator doctor`, then verify again",
            ) from error

    def _sync_sides(self, number: int) -> ContentReading:
        """Record the clocks of both sides, then sync both sides (see `is_carried_over`)."""
        source_clock_ns = int(self.clock.now_s() * NS_PER_S) if self.source.trusted_ctimes else None
        target_clock_ns: int | None = None
        if self.target.trusted_ctimes:
            with suppress(OSError):
                target_clock_ns = self.target.clock_ns()
        try:
            self.source.sync()
        except OSError:
            # Some client's writes to the source failed. The source can still be read, and users will repeat their
            # writes.
            source_clock_ns = None
        # Sync first: digests are read from the disks, with cold caches.
        self.target.sync()
        return ContentReading(verification=number, source_clock_ns=source_clock_ns, target_clock_ns=target_clock_ns)

    async def _compare_trees(
        self,
        draft: "ParquetDraft",
        reading: ContentReading,
        earlier: Sequence[str],
        since_s: float,
        before: SourceHealth,
    ) -> ClosedManifest:
        tally = self._tally
        comparison = PathComparison(
            source=self.source,
            target=self.target,
            tally=tally,
            capabilities=self._capabilities,
            policy=self.policy,
            root_owner=(os.geteuid(), os.getegid()),
            reading=reading,
            absences=await asyncio.to_thread(self._absences),
            storage=self._waiting,
        )
        trees = await asyncio.to_thread(self._find_trees, comparison)
        accounted, scans = await asyncio.to_thread(self._before.scans_before, trees)
        # A scan that cannot be resumed discards its catalog when it is interrupted.
        kept = [one.name for one in scans if one.finished_at_s is not None or not (one.scope or one.via == "bricks")]
        async with task_group() as group:
            listings = group.create_task(self._listings.of_both(tuple(trees), draft.scratch))
            problems_before = group.create_task(asyncio.to_thread(draft.catalog_problems, kept))
            # No reading of what a final pass has just copied lasts: the comparison reads that.
            if self._hosts_read and not (earlier and self.readers and self.readers.frozen):
                await self._read_by_hosts(reading, since_s)
        source, target = listings.result()
        for side in (source, target):
            for problem in side.problems_in(set(trees)):
                # What is mounted there can be looked at, but is not the file system's.
                if problem.errno == errno.EXDEV:
                    tally.unreadable(problem, on_source=side is source)
        self._reasons += problems_before.result()
        seen = draft.catalog_files([one.name for one in scans])
        joined = await asyncio.to_thread(
            Joined,
            source,
            target,
            trees=tuple(trees),
            now=[] if self._listings.by_mount_alone or not self._hosts_read else self._readings().files(),
            before=[] if self._listings.by_mount_alone else earlier,
            earlier=seen,
            accounted=accounted,
            verification=reading.verification,
            policy=self.policy,
            capabilities=self._capabilities,
            scratch=self.manifests.scratch,
        )
        try:
            listed = [await asyncio.to_thread(joined.listed_roots, side) for side in ("source", "target")]
            for tree, on_target in trees.items():
                if any(sides := (tree not in listed[0], on_target and tree not in listed[1])):
                    comparison.late[tree] = sides
            equal = joined.equal(draft)
            while (totals := await joined.next_of(equal)) is not None:
                tally.add_equal(totals)
            await compare_the_rest(draft, joined, comparison, workers=self.workers)
        finally:
            comparison.stopped.set()
            joined.close()
        # Last, because paths found through a catalog may be further names of a file.
        trash = await self._listings.of_trash(draft)
        await asyncio.to_thread(compare_links, draft, tally, self._capabilities, trash=trash.files)
        # Nothing is read on either side any more.
        async with task_group() as group:
            after = group.create_task(self.source.health())
            manifest = await asyncio.to_thread(draft.close, joined.cuts)
        self._reasons += health_problems(before, after.result())
        if tally.unread:
            self._reasons.append(f"{several(tally.unread, 'path')} could not be read: see the differences")
        return manifest

    def _absences(self) -> Absences:
        trees = frozenset(tree.path for tree in self._batch.trees)
        reaped = self.reap_lists.index(self.plan.reap, trees=trees) if self.reap_lists else None
        return Absences(
            capabilities=self._capabilities,
            trees=trees,
            name_seed=self.ledger.site.required().name_seed,
            reaped=reaped,
            archived=self.archived,
        )

    def _find_trees(self, comparison: PathComparison) -> dict[bytes, bool]:
        """The trees that exist on the source, and whether they are directories on the target. A missing one makes the
        verification not whole.
        """
        found: dict[bytes, bool] = {}
        for tree in self._batch.trees:
            try:
                root = self.source.look(tree.path)
            except OSError as error:
                comparison.tally.unreadable(problem_of(tree.path, "look", error), on_source=True)
                continue
            if root is None:
                self._reasons.append(
                    f"user tree {show(tree.path)} is no longer on the source: "
                    "was it renamed or removed since the scan? Scan and plan again"
                )
            elif root.type is not EntryType.DIRECTORY:
                self._reasons.append(f"user tree {show(tree.path)} is a {root.type.value} on the source now")
            else:
                found[tree.path] = comparison.compare_root(root)
        return found

    def _record(
        self,
        number: int,
        started_at_s: float,
        manifest: ClosedManifest,
        trees: tuple[bytes, ...],
        examples: Examples,
    ) -> VerificationRecord:
        reasons, tally = tuple(dict.fromkeys(self._reasons)), self._tally
        return VerificationRecord(
            id=number,
            plan=self.plan.name,
            batch=self.batch,
            started_at_s=started_at_s,
            finished_at_s=self.clock.now_s(),
            policy=self.policy,
            paths=tally.paths,
            size_bytes=tally.size_bytes,
            digested_files=tally.digested_files,
            digested_bytes=tally.digested_bytes,
            carried_files=tally.carried_files,
            carried_bytes=tally.carried_bytes,
            trees=trees,
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
            differences_digest=manifest.differences_digest,
            examples=examples.differences,
        )

    def _set_batch_state(self, state: BatchState, record: VerificationRecord) -> None:
        if record.trees and not record.differences:
            return
        kinds = [one.kind for one in self.ledger.passes.of_batch(record.plan, record.batch)]
        wanted = after_verification(state, kinds, proven=record.whole and not record.differences)
        if wanted is not state:
            self.ledger.plans.set_batch_state(record.plan, record.batch, wanted)

    def _event(self, kind: EventKind, severity: Severity, message: str) -> None:
        """Record an event and report it."""
        subject = f"batch {self.batch}"
        event = Event(at_s=self.clock.now_s(), kind=kind, severity=severity, subject=subject, message=message)
        self.ledger.events.add(event)
        self.progress.event(event)

    def _show(self) -> None:
        """Report progress."""
        batch, tally = self._batch, self._tally
        # Users may have added files since the plan counted them: never show more than 100 %.
        paths, size_bytes = tally.paths, tally.size_bytes
        self.progress.show(
            VerifyProgress(
                batch=batch.number,
                elapsed_s=self.clock.monotonic_s() - self._began_s,
                paths=paths,
                total_paths=max(_path_count(batch), paths),
                size_bytes=size_bytes,
                total_bytes=max(batch.size_bytes, size_bytes),
                differences=tally.difference_count,
                digested_bytes=max(tally.digested_bytes, self._content.read_bytes if self._content else 0),
                carried_bytes=tally.carried_bytes,
            )
        )

    def _report(self, record: VerificationRecord, examples: Examples) -> None:
        """Report differences and losses, by kind with an example, and the summary."""
        for _, (difference, *_others) in groupby(examples.differences, attrgetter("kind")):
            count = record.differences.get(difference.kind.value, 0)
            words = f"{format_count(count)} x {difference.kind.value}, as {show(difference.path)}"
            detail = f"source {difference.source}, target {difference.target}"
            self._event(EventKind.FILE_BAD, Severity.WARNING, f"{words} ({detail})")
        for _, (loss, *_rest) in groupby(examples.losses, attrgetter("kind")):
            count = record.expected.get(loss.kind.value, 0)
            words = f"{format_count(count)} x {loss.kind.value}, as {show(loss.path)} ({loss.detail})"
            self._event(EventKind.VERIFY_FINISHED, Severity.INFO, f"the target cannot keep, as expected: {words}")
        severity = Severity.INFO if record.exit_code is ExitCode.DONE else Severity.WARNING
        self._event(EventKind.VERIFY_FINISHED, severity, _summary(record))


def _counts(counter: Counter[str]) -> Mapping[str, int]:
    return dict(sorted(counter.items()))
