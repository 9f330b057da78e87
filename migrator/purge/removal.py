"""Judges every path of a tree by its proof, and removes it by descriptor."""

import asyncio
import contextlib
import errno
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec import Struct

from migrator.catalog.manifest import ManifestDirectories
from migrator.catalog.model import VerificationRecord
from migrator.catalog.ports import Scratch
from migrator.core.clock import Clock
from migrator.core.entry import Entry, EntryType, UserTree
from migrator.core.events import EventKind, Severity
from migrator.core.paths import is_beneath, join, parent, show
from migrator.core.progress import PurgeProgress
from migrator.core.tasks import WorkPool, beside, task_group, work_through
from migrator.core.units import NS_PER_S, several
from migrator.cutover.model import CutoverRecord, PurgeSum
from migrator.cutover.model_snapshot import LinkState
from migrator.cutover.writers import WriterSearch
from migrator.fs.model import TargetCapabilities
from migrator.fs.ports import FileSystem, SourceFileSystem, TargetFileSystem
from migrator.fs.rules_equality import FileState
from migrator.ledger.call import say
from migrator.ledger.model import SiteRecord
from migrator.operations.run_files import CallPorts
from migrator.purge import model
from migrator.purge.files import MountedPlaces
from migrator.purge.proofs import IndexedProofs
from migrator.purge.records import PurgeLedger
from migrator.purge.rules import Brakes, after_probe, judge_archive, judge_source, judge_target, names_per_s
from migrator.reap.archive import ProvenArchives
from migrator.reap.model import ReapRow, is_listed
from migrator.reap.rules import Releases
from migrator.scan.marks import ReadMarks
from migrator.transfer.records_measures import ControlRecords, ProbeRecords
from migrator.verify.content import Readers

LOG = logging.getLogger("migrator.purge")


class PurgeWorld(CallPorts, frozen=True, kw_only=True):
    """The ports.

    `link` returns the side to which the path of a tree's user leads (blocking; raises OSError). `back_up` copies the
    ledger under a name before anything is freed (blocking).

    `carried` returns the verifications of what rollbacks of a cutover carried to the source, oldest first; None if
    nothing was carried (blocking; raises MigratorError).

    `archived` returns the current content of proven archives. `skipped` returns the rows of the reap list of the tree's
    plan that it skips (blocking; raises Refused if plan or list cannot be read). `readers` connects to the hosts that read the
    target; None: this machine reads it.
    """

    ledger: PurgeLedger
    source: SourceFileSystem
    target: TargetFileSystem
    places: MountedPlaces
    scratch: Scratch
    manifests: ManifestDirectories
    storage: Callable[[], Awaitable[tuple[str, ...]]] | None
    writers: WriterSearch
    link: Callable[[UserTree], LinkState]
    back_up: Callable[[str], None]
    archived: Callable[[], ProvenArchives]
    skipped: Callable[[CutoverRecord], Iterable[Sequence[ReapRow]]]
    carried: Callable[[CutoverRecord], Sequence[VerificationRecord] | None] = lambda _: None
    marks: ReadMarks | None = None
    readers: Callable[[], AbstractAsyncContextManager[Readers]] | None = None


class PurgeRequest(Struct, frozen=True, kw_only=True):
    """The request for a purge. `confirm` is the checksum from the command line. `named`: the user was named, so a tree
    that may not be purged is refused instead of left for later.

    `reread`: before a tree is freed, the content that its user has not changed on the target is read there again.

    `vouched`: the freeze hook vouches for writers that cannot be seen. `wants_backup`: a backup of the target must be
    recorded that began after the user's thaw. So many archives of the site must hold a tree (`require_archive`). `names_per_s` limits removals; the rate falls
    while probes exceed `max_latency_s` (None: no limit).
    """

    trees: Sequence[UserTree]
    pid: int
    named: bool = False
    confirm: str | None = None
    dry_run: bool = False
    reread: bool = True
    vouched: bool = False
    wants_backup: bool = False
    require_archive: int = 0
    retain_s: int
    max_shrink: float
    names_per_s: int
    max_latency_s: float | None = None
    workers: int = 4


class Call(Struct, frozen=True, kw_only=True):
    """One call of the verb."""

    world: PurgeWorld
    request: PurgeRequest
    site: SiteRecord
    run_id: int | None

    def say(self, kind: EventKind, severity: Severity, subject: str, message: str) -> None:
        """Emit an event: shown, logged, and recorded in the ledger except in a dry run."""
        say(self.world, kind, severity, subject, message, run_id=self.run_id, log=LOG)


class Placed(Struct, frozen=True, kw_only=True):
    """A tree and its location: `at` is its path, or its name in its place of the purge. `begun`: an earlier call may have removed
    a part of it.
    """

    tree: bytes
    at: bytes
    begun: bool = False

    @property
    def moved(self) -> bool:
        """Whether the tree is in its place of the purge."""
        return self.at != self.tree

    def known_as(self, path: bytes) -> bytes:
        """The path by which the user knew a path below `at`."""
        return join(self.tree, path[len(self.at) + 1 :]) if len(path) > len(self.at) else self.tree


# The rate: slower while probes exceed the latency limit


LOOK_EVERY_S = 2.0


@dataclass(slots=True, kw_only=True)
class Pace:
    """Removes at most `most` names per second, and fewer while new probes, of any process, exceed the latency limit.

    `max_latency_s` is the limit of site.toml (None: no limit); a tuned limit replaces it. `say` receives changes of the
    rate.
    """

    probes: ProbeRecords
    controls: ControlRecords
    clock: Clock
    most: int
    max_latency_s: float | None
    say: Callable[[Severity, str], None]
    _brakes: Brakes = field(default_factory=dict)
    _probed: int = field(init=False)
    _looked_s: float = field(init=False)
    _read_s: float = field(init=False)
    _due_s: float = field(init=False)
    _taken: int = 0

    def __post_init__(self) -> None:
        """Ignore probes from before this purge."""
        self._probed = self.probes.last()
        self._looked_s = self._read_s = self._due_s = self.clock.monotonic_s()

    async def take(self, names: int) -> None:
        """Wait until so many names may be removed."""
        now_s = self.clock.monotonic_s()
        self._taken += names
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            self._look(now_s)
        # Unused names are not saved up, so there is no burst after a pause.
        begin_s = max(self._due_s, now_s)
        self._due_s = begin_s + names / names_per_s(self._brakes, self.most)
        if begin_s > now_s:
            await self.clock.sleep(begin_s - now_s)

    def _look(self, now_s: float) -> None:
        """Read the probes since the last call by number, because times would hide some after a clock was set back.
        Without a limit they are skipped: a limit that is tuned later does not apply to them.
        """
        tuned = self.controls.now().tuned
        limit_s = (None if tuned is None else tuned.limits.max_latency_s) or self.max_latency_s
        before = names_per_s(self._brakes, self.most)
        removing = self._taken / max(now_s - self._read_s, LOOK_EVERY_S)
        for number, probe in self.probes.after(self._probed):
            # Removals are counted from one probe to the next.
            self._probed, self._taken, self._read_s = number, 0, now_s
            if limit_s is not None and probe.latency_s is not None:
                self._brakes = after_probe(
                    self._brakes, probe.side, probe.latency_s, limit_s=limit_s, removing=removing, ceiling=self.most
                )
        if limit_s is None:
            self._brakes = {}
        now = names_per_s(self._brakes, self.most)
        if now < before:
            self.say(
                Severity.WARNING,
                f"at most {several(now, 'name')} are removed per second: small operations take long for users",
            )
        elif now > before:
            self.say(Severity.INFO, f"up to {several(now, 'name')} are removed per second again")


# The paths found in a tree


_NOTHING = PurgeSum(names=0, inodes=0, size_bytes=0)


@dataclass(slots=True, kw_only=True)
class Found:
    """Counts and findings of a tree. Threads change it while they hold its `lock`. `sum` is the result of a survey."""

    sum: PurgeSum = _NOTHING
    outside: int = 0
    read_again: int = 0
    unchanged: int = 0
    unchanged_bytes: int = 0
    changed: int = 0
    gone: int = 0
    gone_bytes: int = 0
    removed: int = 0
    open_paths: int = 0
    skipped: int = 0
    released: int = 0
    findings: list[model.PurgeFinding] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def listed(self) -> tuple[model.PurgeFinding, ...]:
        return tuple(sorted(self.findings, key=lambda finding: finding.path))

    def keep(self, path: bytes, words: str) -> None:
        with self.lock:
            self.open_paths += 1
            if len(self.findings) < model.FINDINGS_KEPT:
                self.findings.append(model.PurgeFinding(path=path, words=words))

    def add_target(self, read: "Found") -> None:
        """Add what was found when the target was read again."""
        self.changed, self.gone, self.gone_bytes = (
            self.changed + read.changed,
            self.gone + read.gone,
            self.gone_bytes + read.gone_bytes,
        )
        self.open_paths += read.open_paths
        self.findings += read.findings[: model.FINDINGS_KEPT - len(self.findings)]

    def add(self, names: int, inodes: int, size_bytes: int) -> None:
        """Count existing paths."""
        with self.lock:
            names, inodes = names + self.sum.names, inodes + self.sum.inodes
            self.sum = PurgeSum(names=names, inodes=inodes, size_bytes=size_bytes + self.sum.size_bytes)


# Judging one path by its proof and both sides. Blocking; thread-safe.


_REMEMBERED = 100_000
_NO_DIRECTORY = (errno.ENOTDIR, errno.ELOOP)

_Content = tuple[int, int, int, bytes, bool]
"""Inode, size, mtime and digest of a file whose content is known to be the verified one, and whether it is marked: then only
reading shows it.
"""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Judge:
    """Judges the paths of one tree at its location `placed`, by its `proofs`.

    A file that its user has not changed on the target counts only with content that was read there again: a survey (`surveys`)
    notes it in the proofs, and everything later reads it through the mount unless it is what it was when it was last read.

    The content of `marked` paths, as the user knows them, is read again on the source, through the mount: what was proven may
    be that of one copy. A path without a proof may be removed if the plan skipped it and it was released by name. The user could enter the
    target after the cutover, and possibly again after a rollback that was given up: later changes there count as the
    user's.
    """

    def __init__(
        self,
        call: Call,
        record: CutoverRecord,
        placed: Placed,
        proofs: IndexedProofs,
        marked: Collection[bytes],
        *,
        surveys: bool = False,
    ) -> None:
        world, let_in_s, again_s = call.world, record.let_in_s, record.works_there_since_s
        if let_in_s is None or again_s is None:
            raise ValueError(f"the user of {show(record.tree.path)} was not let in")
        self._placed = placed
        self._marked = marked
        self._source = world.source
        self._target = world.target
        self._proofs = proofs
        self._capabilities = call.site.capabilities or TargetCapabilities()
        self._let_in_ns = int(let_in_s * NS_PER_S)
        self._let_in_again_ns = int(again_s * NS_PER_S)
        trusted = world.source.trusted_ctimes and world.target.trusted_ctimes
        # Such a file may have changed unseen since it was verified, on either side.
        self._reread = not trusted
        self._surveys = surveys
        self._wanted = call.request.reread
        self._releases = Releases(world.ledger.releases.of_trees((placed.tree,)))
        self._lock = threading.Lock()
        self._known: OrderedDict[_Content, None] = OrderedDict()
        self._above: OrderedDict[bytes, int] = OrderedDict()

    def may_go(self, entry: Entry, path: bytes, proof: model.Proof | None, found: Found) -> bool:
        """Whether a path may be removed. Counts it, or records why it stays. `entry` has its current path, `path` is
        the one by which the user knew it.
        """
        if proof is None and (released := self._released(entry, path)) is not None:
            with found.lock:
                found.released += released
                found.skipped += not released
            if not released:
                found.keep(path, "was skipped by the plan, and exists on the source only: it was not released")
            return released
        verdict = self._on_source(entry, proof)
        if verdict.judgement is model.Judgement.READ:
            with found.lock:
                found.read_again += 1
            self._proofs.note_read(path, entry.ino, entry.ctime_ns)
        if proof is not None and verdict.judgement is not model.Judgement.OPEN:
            verdict = self._on_target(proof, found)
            with found.lock:
                found.changed += verdict.judgement is model.Judgement.CHANGED
                if verdict.judgement is model.Judgement.GONE:
                    found.gone += 1
                    found.gone_bytes += entry.size_bytes // entry.nlink if entry.type is EntryType.FILE else 0
        if verdict.judgement is model.Judgement.OPEN:
            found.keep(path, verdict.words)
            return False
        return proof is not None

    def count_removed(self, proof: model.Proof, found: Found, *, names: int) -> None:
        """Count a path as gone that an earlier call has removed from the source, if its user has removed it on the target.
        `names` is the number of names of its file in the tree.
        """
        if self._on_target(proof, None).judgement is not model.Judgement.GONE:
            return
        with found.lock:
            found.gone += 1
            found.gone_bytes += proof.size_bytes // names if proof.type is EntryType.FILE else 0

    def _released(self, entry: Entry, path: bytes) -> bool | None:
        """Whether a path that the plan skips, unchanged since its reap list, was released by name; None for any other
        path.
        """
        row = self._proofs.skipped(path) if entry.type is EntryType.FILE else None
        if row is None or not is_listed(row, entry):
            return None
        return self._releases.has(self._placed.tree, path)

    def _on_source(self, entry: Entry, proof: model.Proof | None) -> model.Verdict:
        """Whether the source's path is as verified; reads its content if necessary."""
        verdict = judge_source(entry, proof, top=entry.path == self._placed.at, closed_uid=os.geteuid())
        if verdict.judgement is model.Judgement.OPEN or proof is None or entry.type is not EntryType.FILE:
            return verdict
        is_marked = proof.path in self._marked
        if proof.digest is None or proof.algorithm is None:
            if is_marked:
                return model.stays("has a copy that Gluster marks, and its content was not compared")
            return verdict
        known = (entry.ino, entry.size_bytes, entry.mtime_ns, proof.digest, is_marked)
        if verdict.judgement is model.Judgement.READ or self._reread or is_marked:
            if known in self._known:
                return model.COVERED
            verdict = self._read(self._source, entry.path, proof, "the source")
            if verdict.judgement is model.Judgement.OPEN:
                return verdict
        # Removing one name of a file changes the ctime of the others.
        if entry.nlink > 1:
            self._remember(self._known, [known], None)
        return verdict

    def read_again(self, proof: model.Proof, found: Found) -> None:
        """Read a file that a survey has noted, through the mount, unless its user has changed it since."""
        verdict = self._on_target(proof, found)
        with found.lock:
            found.changed += verdict.judgement is model.Judgement.CHANGED
            if verdict.judgement is model.Judgement.GONE:
                found.gone += 1
                found.gone_bytes += proof.size_bytes
        if verdict.judgement is model.Judgement.OPEN:
            found.keep(proof.path, verdict.words)

    def _on_target(self, proof: model.Proof, found: Found | None) -> model.Verdict:
        """The state of a path on the target. Without `found`, no content is read or noted."""
        try:
            if proof.archive is not None:
                return judge_archive(proof, self._target.look(proof.archive.path))
            target = self._look(proof.path)
            verdict = judge_target(
                proof,
                target,
                above_ctime_ns=self._changed_above(proof.path) if target is None else None,
                let_in_ns=self._let_in_again_ns if proof.later else self._let_in_ns,
                capabilities=self._capabilities,
            )
        except OSError as error:
            return model.stays(f"cannot be looked at on the target: {_reason(error)}")
        if found is None or target is None or verdict is not model.COVERED or proof.type is not EntryType.FILE:
            return verdict
        if self._surveys and not self._reread:
            with found.lock:
                found.unchanged += 1
                found.unchanged_bytes += target.content_bytes
            if self._wanted:
                self._proofs.note_unchanged((proof.path,))
        elif self._reread or (self._wanted and self._proofs.read_again(proof.path) != FileState.of(target)):
            verdict = self._read(self._target, proof.path, proof, "the target")
            if verdict is model.READ:
                self._proofs.note_read_again([(proof.path, FileState.of(target))])
        return verdict

    def _read(self, side: FileSystem, path: bytes, proof: model.Proof, where: str) -> model.Verdict:
        try:
            digest = side.digest(path, proof.algorithm or "")
        except (OSError, ValueError) as error:
            return model.stays(f"cannot be read on {where}: {_reason(error)}")
        if digest.changed:
            return model.stays(f"changed while it was read on {where}")
        return (
            model.READ
            if digest.value == proof.digest
            else model.stays(f"has another content on {where} than was verified")
        )

    def _look(self, path: bytes) -> Entry | None:
        try:
            return self._target.look(path)
        except OSError as error:
            # A path component is no directory, so the path is missing; the ctime of that component shows since when.
            if error.errno in _NO_DIRECTORY:
                return None
            raise

    def _changed_above(self, path: bytes) -> int | None:
        """The ctime of the nearest existing path above; None if there is none in the tree. Raises OSError."""
        above = parent(path)
        missing: list[bytes] = []
        while is_beneath(above, self._placed.tree):
            ctime_ns = self._above.get(above)
            if ctime_ns is None and (entry := self._look(above)) is not None:
                ctime_ns = entry.ctime_ns
            if ctime_ns is not None:
                self._remember(self._above, [*missing, above], ctime_ns)
                return ctime_ns
            missing.append(above)
            above = parent(above)
        return None

    def _remember(self, known: OrderedDict[_Key, _Value], keys: Sequence[_Key], value: _Value) -> None:
        with self._lock:
            known.update((key, value) for key in keys)
            while len(known) > _REMEMBERED:
                known.popitem(last=False)


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


# The survey: judging every path of a tree before any of it is changed


_BLOCK_ENTRIES = 512
SHOW_EVERY_S = 0.5


@contextlib.asynccontextmanager
async def progress_shown(
    call: Call, found: Found, names: Callable[[], int], *, user: str, step: str, total: int
) -> AsyncIterator[None]:
    """Show the progress until the end of the block; `names` returns how many are done."""
    world = call.world
    began_s = world.clock.monotonic_s()

    async def show() -> None:
        while True:
            done = names()
            world.progress.show(
                PurgeProgress(
                    user=user,
                    step=step,
                    elapsed_s=world.clock.monotonic_s() - began_s,
                    names=done,
                    total_names=max(total, done),
                    kept=found.open_paths,
                )
            )
            await world.clock.sleep(SHOW_EVERY_S)

    async with beside(show(), "the progress"):
        yield


class Survey:
    """Judges a whole tree at its current location, and on the target also paths that an earlier call has removed from
    the source. Changes nothing.
    """

    def __init__(self, call: Call, placed: Placed, proofs: IndexedProofs, judge: Judge) -> None:
        self._call = call
        self._placed = placed
        self._source = call.world.source
        self._proofs = proofs
        self._judge = judge
        self._looked_at = 0
        self.found = Found()
        self._pool: WorkPool[bytes, tuple[Entry, ...]] = WorkPool(
            call.request.workers, do_wide=self._read_directory, do_narrow=self._judge_block
        )

    async def run(self, top: Entry, *, user: str, total: int) -> Found:
        """Judge every path. May be called once."""
        self._judge_block((top,))
        self._pool.put_wide(self._placed.at)
        async with progress_shown(
            self._call, self.found, lambda: self._looked_at, user=user, step="looking at", total=total
        ):
            await self._pool.run()
            if self._placed.begun:
                await self._count_removed()
        links, self.found.outside = self._proofs.link_sum()
        self.found.add(links.names, links.inodes, links.size_bytes)
        return self.found

    async def _count_removed(self) -> None:
        def count(removed: tuple[model.Proof, int]) -> None:
            proof, names = removed
            self._judge.count_removed(proof, self.found, names=names)

        await work_through(self._proofs.not_surveyed(), count, workers=self._call.request.workers)

    def _read_directory(self, path: bytes) -> None:
        for block in self._source.read_directory(path, block_entries=_BLOCK_ENTRIES):
            for problem in block.problems:
                self.found.keep(self._placed.known_as(problem.path), f"cannot be read ({problem.reason})")
            for entry in block.entries:
                if entry.type is EntryType.DIRECTORY:
                    self._pool.put_wide(entry.path)
            if self._pool.stopped:
                return
            self._pool.put_narrow(block.entries)

    def _judge_block(self, entries: Sequence[Entry]) -> None:
        proofs = self._proofs.of_block([self._placed.known_as(entry.path) for entry in entries])
        if self._placed.begun:
            self._proofs.note_surveyed(proofs)
        linked = [entry for entry in entries if entry.nlink > 1 and entry.type is not EntryType.DIRECTORY]
        self._proofs.note_links(linked)
        sizes_bytes = [entry.content_bytes for entry in entries if entry.nlink <= 1]
        self.found.add(len(entries) - len(linked), len(entries) - len(linked), sum(sizes_bytes))
        for entry in entries:
            if self._pool.stopped:
                return
            self._looked_at += 1
            path = self._placed.known_as(entry.path)
            self._judge.may_go(entry, path, proofs.get(path), self.found)


# The removal: every path is judged again by descriptor, and then removed


_PART_NAMES = 64
"""The number of names that a thread takes at a time, and so the number in flight when the purge is stopped."""
_WATCH_EVERY_S = 30.0
_TRIES = 3
"""The limit on judging a path again that changed before its removal, and on reading a directory again that is not
empty.
"""
DEEP_BYTES = 2048
"""Directories with longer paths are moved up first, because a place's path is longer than the tree's. GlusterFS 10.3
accepts paths of about 4,080 bytes; for longer ones it reports success and removes nothing.
"""


@dataclass(slots=True, eq=False)
class _Directory:
    """A directory to remove: the number of its unfinished subdirectories, and whether something in it stays."""

    path: bytes
    above: "_Directory | None"
    waiting: int = 0
    keeps: bool = False
    rounds: int = 0


@dataclass(slots=True, kw_only=True)
class Removal:
    """Removes a tree from its place, or where it stands. Paths that are not as verified stay, with the directories above them.

    `watch` is called at intervals, and raises if nothing may be removed any more. `_waiting` has directories, the
    deepest last; `_busy` are in progress.
    """

    call: Call
    placed: Placed
    proofs: IndexedProofs
    judge: Judge
    pace: Pace
    watch: Callable[[], Awaitable[None]]
    found: Found = field(init=False, default_factory=Found)
    _watched_s: float = field(init=False)
    _watching: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _threads: asyncio.Semaphore = field(init=False)
    _waiting: list[_Directory] = field(init=False, default_factory=list)
    _busy: int = 0
    _raised: dict[bytes, bytes] = field(init=False, default_factory=dict)
    _changed: asyncio.Condition = field(init=False, default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        self._watched_s = self.call.world.clock.monotonic_s()
        self._threads = asyncio.Semaphore(self.call.request.workers)

    async def run(self, *, user: str, total: int) -> Found:
        """Remove every path that may be removed. May be called once; a new one resumes after a stop or a crash."""
        if self.placed.moved:
            self._raised.update(await asyncio.to_thread(self.call.world.places.raised, parent(self.placed.at)))
        self._waiting.append(_Directory(self.placed.at, None))
        async with (
            progress_shown(self.call, self.found, lambda: self.found.removed, user=user, step="removing", total=total),
            task_group() as group,
        ):
            for _ in range(self.call.request.workers):
                group.create_task(self._take_directories())
        return self.found

    async def _take_directories(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._waiting or not self._busy)
                if not self._waiting:
                    return
                directory = self._waiting.pop()
                self._busy += 1
            try:
                if not await self._empty(directory):
                    await self._leave(directory)
            finally:
                async with self._changed:
                    self._busy -= 1
                    self._changed.notify_all()

    async def _put(self, *directories: _Directory) -> None:
        async with self._changed:
            self._waiting += directories
            self._changed.notify_all()

    async def _empty(self, directory: _Directory) -> bool:
        """Close a directory and remove the files in it; returns whether subdirectories have to be removed first."""
        if not await asyncio.to_thread(self._close, directory):
            return False
        listing = self.call.world.source.read_directory(directory.path)
        # Directories that were moved up are removed before the top of the tree.
        inner = [_Directory(path, directory) for path in self._raised] if directory.above is None else []
        while (block := await asyncio.to_thread(next, listing, None)) is not None:
            for problem in block.problems:
                self._keep(directory, problem.path, f"cannot be read ({problem.reason})")
            inner += [_Directory(entry.path, directory) for entry in block.entries if entry.type is EntryType.DIRECTORY]
            files = [entry for entry in block.entries if entry.type is not EntryType.DIRECTORY]
            parts = [files[start : start + _PART_NAMES] for start in range(0, len(files), _PART_NAMES)]
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(self._remove_part(directory, part))
        if not inner:
            return False
        directory.waiting = len(inner)
        await self._put(*inner)
        return True

    async def _leave(self, directory: _Directory) -> None:
        """Finish a directory: remove it unless something in it stays, and then each parent without remaining
        subdirectories.
        """
        left: _Directory | None = directory
        while left is not None:
            if not left.keeps:
                await self.pace.take(1)
                if not await asyncio.to_thread(self._remove_directory, left) and left.rounds < _TRIES:
                    # Some file systems omit names from a listing while others are removed.
                    left.rounds += 1
                    await self._put(left)
                    return
            above = left.above
            if above is None:
                return
            above.keeps = above.keeps or left.keeps
            above.waiting -= 1
            left = above if above.waiting == 0 else None

    async def _remove_part(self, directory: _Directory, entries: Sequence[Entry]) -> None:
        async with self._threads:
            await self.pace.take(len(entries))
            await self._look_around()
            await asyncio.to_thread(self._remove_entries, directory, entries)

    async def _look_around(self) -> None:
        async with self._watching:
            now_s = self.call.world.clock.monotonic_s()
            if now_s - self._watched_s >= _WATCH_EVERY_S:
                self._watched_s = now_s
                await self.watch()

    def _close(self, directory: _Directory) -> bool:
        """Judge a directory and close it; False if it stays with everything in it."""
        try:
            entry = self.call.world.source.look(directory.path)
            if entry is None:
                return False
            if entry.type is not EntryType.DIRECTORY:
                self._keep(directory, directory.path, f"is a {entry.type.value} now")
                return False
            if not self._may_go(directory, entry):
                return False
            self.call.world.places.close_directory(directory.path, entry)
            # In place there is no directory to move it to, and no path is longer than its user had it.
            if self.placed.moved and len(directory.path) > DEEP_BYTES:
                self._raise_up(directory, entry)
        except OSError as error:
            self._keep(directory, directory.path, f"cannot be closed ({_reason(error)})")
            return False
        return True

    def _raise_up(self, directory: _Directory, entry: Entry) -> None:
        place, known_as = parent(self.placed.at), self._known_as(directory.path)
        # File systems without room for a long attribute have no limit on paths either.
        with contextlib.suppress(OSError):
            directory.path = self.call.world.places.raise_up(directory.path, place, ino=entry.ino, known_as=known_as)
            self._raised[directory.path] = known_as

    def _known_as(self, path: bytes) -> bytes:
        """The path by which the user knew it, also below directories that were moved up."""
        place = parent(self.placed.at)
        name, _, rest = path[len(place) + 1 :].partition(b"/")
        above = self._raised.get(join(place, name))
        if above is None:
            return self.placed.known_as(path)
        return join(above, rest) if rest else above

    def _remove_entries(self, directory: _Directory, entries: Sequence[Entry]) -> None:
        for entry in entries:
            try:
                self._remove_entry(directory, entry)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._keep(directory, entry.path, f"cannot be removed ({_reason(error)})")

    def _remove_entry(self, directory: _Directory, entry: Entry) -> None:
        seen: Entry | None = entry
        for _ in range(_TRIES):
            if seen is None or not self._may_go(directory, seen):
                return
            if self.call.world.places.remove(seen.path, seen):
                with self.found.lock:
                    self.found.removed += 1
                return
            seen = self.call.world.source.look(entry.path)
        if seen is not None:
            self._keep(directory, entry.path, "changes just now")

    def _may_go(self, directory: _Directory, entry: Entry) -> bool:
        path = self._known_as(entry.path)
        goes = self.judge.may_go(entry, path, self.proofs.of_block([path]).get(path), self.found)
        directory.keeps = directory.keeps or not goes
        return goes

    def _remove_directory(self, directory: _Directory) -> bool:
        """Remove the directory; return whether it is gone."""
        try:
            self.call.world.places.remove_directory(directory.path)
        except OSError as error:
            if directory.rounds >= _TRIES:
                self._keep(directory, directory.path, f"cannot be removed ({_reason(error)})")
            return False
        self._raised.pop(directory.path, None)
        with self.found.lock:
            self.found.removed += 1
        return True

    def _keep(self, directory: _Directory, path: bytes, words: str) -> None:
        directory.keeps = True
        self.found.keep(self._known_as(path), words)
