"""Judging every path of a tree by its proof, and removing it by descriptor."""

import asyncio
import contextlib
import errno
import logging
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from migrator.catalog.ports import Manifests
from migrator.core.clock import Clock
from migrator.core.entry import Entry, EntryType, UserTree
from migrator.core.events import EventKind, Severity
from migrator.core.paths import is_beneath, join, parent, show
from migrator.core.progress import Progress, PurgeProgress
from migrator.core.tasks import Blocking
from migrator.core.units import NS_PER_S, several
from migrator.cutover.model import BackupSeen, CutoverRecord, PurgeSum
from migrator.cutover.ports import WriterSearch
from migrator.fs.model import TargetCapabilities
from migrator.fs.ports import FileSystem, SourceFileSystem, TargetFileSystem
from migrator.hooks.stage import Hooks
from migrator.ledger.call import say
from migrator.ledger.locks import Locks
from migrator.purge.model import COVERED, FINDINGS_KEPT, Judgement, LeadsTo, Proof, PurgeFinding, Verdict
from migrator.purge.ports import ClosedPlaces, Manifest, StorageTargets, TreeProofs
from migrator.purge.rules import (
    RemovalRate,
    Stand,
    TargetVerdict,
    after_probe,
    judge_archive,
    judge_source,
    judge_target,
    names_per_s,
)
from migrator.reap.archive import ProvenArchives
from migrator.reap.model import ArchiveState, ReapRow, ReapStanding
from migrator.reap.rules import Releases, standing
from migrator.transfer.ports import RunFiles
from migrator.verify.model import VerificationRecord
from migrator.verify.walk import WorkPool

if TYPE_CHECKING:
    from migrator.ledger.ledger import Ledger
    from migrator.ledger.measures import ControlRecords, ProbeRecords
    from migrator.ledger.plans import ReleaseRecords

# ---
# What a purge works with, and what it is asked to do.


LOG = logging.getLogger("migrator.purge")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeWorld:
    """The ports. `link` says where the path of a user leads, given his tree (blocking; raises OSError where that cannot be
    seen); `backup` whether the backup of the target is recorded that the site asks for; `back_up` copies the ledger, with a name for the copy, before anything is freed (blocking); `hooks` None: none
    are called.

    `carried` gives the verifications of what rollbacks of a cutover have carried to the source, oldest first; None where nothing
    was carried (blocking; raises MigratorError).

    `archived` is what proven archives hold, as it is now. `skipped` are the rows of the reap list of the tree's plan that it skips; it raises
    Refused where plan or list cannot be read (blocking).
    """

    source: SourceFileSystem
    target: TargetFileSystem
    places: ClosedPlaces
    manifest: Manifest
    manifests: Manifests
    storage: StorageTargets
    writers: WriterSearch
    link: Callable[[UserTree], LeadsTo]
    backup: Callable[[CutoverRecord], BackupSeen]
    back_up: Callable[[str], None]
    archived: Callable[[], ProvenArchives]
    skipped: Callable[[CutoverRecord], Iterable[Sequence[ReapRow]]]
    hooks: Hooks | None
    ledger: "Ledger"
    locks: Locks
    files: RunFiles
    progress: Progress
    clock: Clock
    blocking: Blocking
    tokens: Callable[[], str]
    carried: Callable[[CutoverRecord], Sequence[VerificationRecord] | None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRequest:
    """What to purge: trees of a plan, by batch. `confirm` is the checksum that was given; `named`: the user was named, so a
    tree that may not be purged is a refusal, not something to be left for later.

    `vouched`: the freeze hook answers for who writes where that cannot be seen. `names_per_s` bounds what is removed, and less
    goes while probes pass `max_latency_s` (None: no limit).
    """

    plan: str
    trees: Mapping[int, tuple[UserTree, ...]]
    pid: int
    named: bool = False
    confirm: str | None = None
    dry_run: bool = False
    reread: bool = False
    vouched: bool = False
    retain_s: int
    max_shrink: float
    names_per_s: int
    max_latency_s: float | None = None
    workers: int = 4
    heartbeat_interval_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of the verb."""

    world: PurgeWorld
    request: PurgeRequest
    run_id: int | None

    def say(self, kind: EventKind, severity: Severity, subject: str, message: str) -> None:
        """An event: onto the screen, into the log, and, unless it is a dry run, into the ledger."""
        say(self.world, kind, severity, subject, message, run_id=self.run_id, log=LOG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A tree and where it lies now: `at` is its path, or its name in its place of the purge."""

    tree: bytes
    at: bytes

    @property
    def moved(self) -> bool:
        """Whether it lies in its place of the purge."""
        return self.at != self.tree

    def known_as(self, path: bytes) -> bytes:
        """What the user knew a path by that lies there now."""
        return join(self.tree, path[len(self.at) + 1 :]) if len(path) > len(self.at) else self.tree


async def in_thread(work: Callable[[], T]) -> T:
    """Blocking work beside the event loop."""
    return await asyncio.to_thread(work)


# ---
# Slowing a purge down where users feel it.


LOOK_EVERY_S = 2.0


@dataclass(slots=True, kw_only=True)
class RemovalBrake:
    """Reads new probes, whichever process has made them, and says how many names per second may go: never more than `most`.

    `max_latency_s` is what site.toml says (None: no limit); what was tuned since comes in its place. `say` tells people
    (whether it is a warning, and what).
    """

    probes: "ProbeRecords"
    controls: "ControlRecords"
    clock: Clock
    most: int
    max_latency_s: float | None
    say: Callable[[bool, str], None]
    _rate: RemovalRate = field(default_factory=RemovalRate)
    _probed: int = field(init=False)
    _looked_s: float = field(init=False)
    _read_s: float = field(init=False)
    _taken: int = 0

    def __post_init__(self) -> None:
        """Probes from before it say nothing about this purge."""
        self._probed = self.probes.last()
        self._looked_s = self._read_s = self.clock.monotonic_s()

    def names_per_s(self, names: int) -> int:
        """How many names per second may go now; so many are about to."""
        self._taken += names
        now_s = self.clock.monotonic_s()
        if now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            self._look(now_s)
        return names_per_s(self._rate, self.most)

    def _look(self, now_s: float) -> None:
        limit_s = self._limit_s()
        before = names_per_s(self._rate, self.most)
        self._read(now_s, limit_s)
        if limit_s is None:
            self._rate = RemovalRate()
        now = names_per_s(self._rate, self.most)
        if now < before:
            self.say(True, f"no more than {several(now, 'name')} go per second: small operations take long for users")
        elif now > before:
            self.say(False, f"up to {several(now, 'name')} go per second again")

    def _limit_s(self) -> float | None:
        tuned = self.controls.now().tuned
        given = None if tuned is None else tuned.limits.max_latency_s
        return given or self.max_latency_s

    def _read(self, now_s: float, limit_s: float | None) -> None:
        """Those that were kept since the last look, by their numbers: a clock that was set back must not hide them. Without a
        limit they are passed over: one that is tuned later is not held against what was then.
        """
        removing = self._taken / max(now_s - self._read_s, LOOK_EVERY_S)
        for number, probe in self.probes.after(self._probed):
            # What goes is counted from one probe to the next.
            self._probed, self._taken, self._read_s = number, 0, now_s
            if limit_s is not None and probe.latency_s is not None:
                self._rate = after_probe(
                    self._rate, probe.side, probe.latency_s, limit_s=limit_s, removing=removing, ceiling=self.most
                )


# ---
# Removing no more than so many names per second.


class Pace:
    """Hands out names; whoever asks waits until they are due. At most a second's worth goes at once.

    `names_per_s` is asked whenever names are taken, with how many these are.
    """

    def __init__(self, clock: Clock, names_per_s: Callable[[int], float]) -> None:
        self._clock = clock
        self._names_per_s = names_per_s
        self._due_s = clock.monotonic_s()

    async def take(self, names: int) -> None:
        """Wait until so many names may go."""
        now_s = self._clock.monotonic_s()
        # What was not used is not saved up: a rate is a rate after a pause too.
        begin_s = max(self._due_s, now_s)
        self._due_s = begin_s + names / self._names_per_s(names)
        if begin_s > now_s:
            await self._clock.sleep(begin_s - now_s)


# ---
# What a plan has reaped: archives have to be whole, and what was skipped goes only where it was given up by name.


_KEPT = Verdict(
    judgement=Judgement.OPEN, words="was skipped by the plan, and is on the source alone: nobody has given it up"
)


class Skipped:
    """Judges the skipped paths of one tree. `row_of` is what the reap list says of a path that it skips; `closed`: the tree
    lies where nobody else can change it. Thread-safe.
    """

    def __init__(
        self, tree: UserTree, row_of: Callable[[bytes], ReapRow | None], releases: "ReleaseRecords", *, closed: bool
    ) -> None:
        self._tree = tree
        self._row_of = row_of
        self._releases = Releases(releases.of_trees((tree.path,)))
        self._closed = closed

    def verdict(self, entry: Entry, path: bytes) -> Verdict | None:
        """Whether a path of which there is no proof may go. None: it is nothing that was skipped, or it changed since."""
        if entry.type is not EntryType.FILE:
            return None
        row = self._row_of(path)
        # Every name of a file that is removed gives the others another ctime. The whole tree was judged before it was closed.
        ctime_ns = row.ctime_ns if row is not None and self._closed and row.ino == entry.ino else entry.ctime_ns
        found = standing(
            row,
            size_bytes=entry.size_bytes,
            mtime_ns=entry.mtime_ns,
            ctime_ns=ctime_ns,
            archived=False,
            released=self._releases.has(self._tree.path, path),
        )
        if found is ReapStanding.RELEASED:
            return COVERED
        return _KEPT if found is ReapStanding.SKIPPED else None


def archive_sizes(ledger: "Ledger", tree: UserTree) -> Mapping[int, int]:
    """The sizes of the archives that count, by their numbers."""
    records = ledger.archives.of_tree(tree.path)
    return {one.number: one.written.archive_bytes for one in records if one.state is ArchiveState.PROVEN}


def archive_problems(archived: ProvenArchives, tree: UserTree) -> tuple[str, ...]:
    """What is wrong with the archives of a tree: each is read whole. A tree without any costs nothing."""
    return tuple(f"{one}: bring it back from a backup of the target" for one in archived.problems(tree.path))


def open_words(tree: UserTree, lacking: int, skipped: int, *, carried: bool, verified: bool) -> tuple[str, ...]:
    """Why a tree may not be freed in which so many paths have no proof, and so many more were skipped and not released.
    `carried`: a rollback that was given up brought files to the source; `verified`: something proves some of them.
    """
    found: list[str] = []
    if lacking:
        found.append(
            f"{several(lacking, 'path')} of {show(tree.path)} {'is' if lacking == 1 else 'are'} not known to be on the "
            f"target: bring over by hand what is missed there, or remove it on the source; or move {tree.user} back with "
            "`migrator rollback`, and over again"
        )
    if lacking and carried:
        found.append(
            f"a rollback of {tree.user} that was given up has carried files to the source"
            + (", and some are not proven" if verified else ", and nothing has verified them")
            + f": `migrator verify --user {tree.user}` compares both sides once more, and what is equal then counts; it moves nobody"
        )
    if skipped:
        found.append(
            f"{several(skipped, 'file')} that the plan skipped {'is' if skipped == 1 else 'are'} on the source alone: give up "
            f"what may go with `migrator reap release --user {tree.user} PATH --confirm-loss`, or move the user back with "
            "`migrator rollback` and archive it"
        )
    return tuple(found)


def released_words(released: int) -> str:
    """What goes without being anywhere else."""
    return f"; with {several(released, 'file')} that the plan skipped and that were released" if released else ""


# ---
# Judging one path by its proof and by looks at both sides. Blocking; thread-safe.


_REMEMBERED = 100_000
_NO_DIRECTORY = (errno.ENOTDIR, errno.ELOOP)

_Content = tuple[int, int, int, bytes]
"""Inode, size, mtime and digest: of which file it is known that its content is the one that was verified."""


class Judge:
    """Judges the paths of one tree. `reread`: the content of every file is read, on the target too where it stands as it was
    verified. `closed_uid` is the owner of directories that this program closes. `let_in_s`: when the user was let in after the
    cutover, `let_in_again_s` when it was after a rollback that was given up.
    """

    def __init__(
        self,
        placed: Placed,
        source: FileSystem,
        target: FileSystem,
        *,
        capabilities: TargetCapabilities,
        let_in_s: float,
        let_in_again_s: float,
        closed_uid: int,
        reread: bool = False,
    ) -> None:
        self._placed = placed
        self._source = source
        self._target = target
        self._capabilities = capabilities
        self._let_in_ns = int(let_in_s * NS_PER_S)
        self._let_in_again_ns = int(let_in_again_s * NS_PER_S)
        self._closed_uid = closed_uid if placed.moved else None
        self._reread = reread
        self._lock = threading.Lock()
        self._known: OrderedDict[_Content, None] = OrderedDict()
        self._above: OrderedDict[bytes, int | None] = OrderedDict()

    def on_source(self, entry: Entry, proof: Proof | None) -> Verdict:
        """Whether the source's path is what was verified; its content is read where that takes it. `entry` is where it lies
        now.
        """
        verdict = judge_source(entry, proof, top=entry.path == self._placed.at, closed_uid=self._closed_uid)
        if verdict.judgement is Judgement.OPEN or proof is None or entry.type is not EntryType.FILE:
            return verdict
        if proof.digest is None or proof.algorithm is None:
            return verdict
        known = (entry.ino, entry.size_bytes, entry.mtime_ns, proof.digest)
        if verdict.judgement is Judgement.READ or self._reread:
            if self._is_known(known):
                return COVERED
            verdict = self._read(self._source, entry.path, proof, "the source")
            if verdict.judgement is Judgement.OPEN:
                return verdict
        # Each name that is removed gives the others of its group another ctime.
        if entry.nlink > 1:
            self._keep(known)
        return verdict

    def on_target(self, proof: Proof) -> TargetVerdict:
        """How a path stands on the target."""
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
            return TargetVerdict(stand=Stand.LOST, words=f"cannot be looked at on the target: {_reason(error)}")
        if self._reread and verdict.stand is Stand.SAME and proof.type is EntryType.FILE:
            read = self._read(self._target, proof.path, proof, "the target")
            if read.judgement is Judgement.OPEN:
                return TargetVerdict(stand=Stand.LOST, words=read.words)
        return verdict

    def _read(self, side: FileSystem, path: bytes, proof: Proof, where: str) -> Verdict:
        try:
            digest = side.digest(path, proof.algorithm or "")
        except (OSError, ValueError) as error:
            why = _reason(error) if isinstance(error, OSError) else str(error)
            return Verdict(judgement=Judgement.OPEN, words=f"cannot be read on {where}: {why}")
        if digest.changed:
            return Verdict(judgement=Judgement.OPEN, words=f"changed while it was read on {where}")
        if digest.value != proof.digest:
            return Verdict(judgement=Judgement.OPEN, words=f"has another content on {where} than was verified")
        return Verdict(judgement=Judgement.READ)

    def _look(self, path: bytes) -> Entry | None:
        try:
            return self._target.look(path)
        except OSError as error:
            # What should be a directory above it is none: the path is not there, and what is in its way says since when.
            if error.errno in _NO_DIRECTORY:
                return None
            raise

    def _changed_above(self, path: bytes) -> int | None:
        """When the nearest thing above a path that is there was changed. Raises OSError."""
        above = parent(path)
        missing: list[bytes] = []
        while is_beneath(above, self._placed.tree):
            with self._lock:
                known = above in self._above
                ctime_ns = self._above.get(above)
            if not known:
                entry = self._look(above)
                ctime_ns = None if entry is None else entry.ctime_ns
            if ctime_ns is not None:
                self._keep_above([*missing, above], ctime_ns)
                return ctime_ns
            missing.append(above)
            above = parent(above)
        return None

    def _keep_above(self, paths: list[bytes], ctime_ns: int) -> None:
        with self._lock:
            for path in paths:
                self._above[path] = ctime_ns
            while len(self._above) > _REMEMBERED:
                self._above.popitem(last=False)

    def _is_known(self, content: _Content) -> bool:
        with self._lock:
            return content in self._known

    def _keep(self, content: _Content) -> None:
        with self._lock:
            self._known[content] = None
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


# ---
# Looking at every path of a tree before anything of it is touched: is the target known to have it?


_BLOCK_ENTRIES = 512
SHOW_EVERY_S = 0.5


@dataclass(slots=True, kw_only=True)
class Found:
    """What was found of a tree. Thread-safe where it is changed through its methods."""

    names: int = 0
    inodes: int = 0
    size_bytes: int = 0
    read_again: int = 0
    changed: int = 0
    gone: int = 0
    removed: int = 0
    open_paths: int = 0
    skipped: int = 0
    released: int = 0
    findings: list[PurgeFinding] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def listed(self) -> tuple[PurgeFinding, ...]:
        """The findings, in order of path."""
        return tuple(sorted(self.findings, key=lambda finding: finding.path))

    def keep(self, path: bytes, words: str) -> None:
        """A path that has to stay."""
        with self._lock:
            self.open_paths += 1
            if len(self.findings) < FINDINGS_KEPT:
                self.findings.append(PurgeFinding(path=path, words=words))

    def left(self, verdict: Verdict, path: bytes) -> bool:
        """A path that the plan skipped: given up by name, or it has to stay. Whether it was given up."""
        if verdict.judgement is Judgement.OPEN:
            with self._lock:
                self.skipped += 1
            self.keep(path, verdict.words)
            return False
        with self._lock:
            self.released += 1
        return True

    def see(self, entry: Entry) -> None:
        """A path that is there. Names of files that have several are counted elsewhere."""
        with self._lock:
            if entry.type is EntryType.DIRECTORY or entry.nlink <= 1:
                self.names += 1
                self.inodes += 1
                self.size_bytes += entry.size_bytes if entry.type is EntryType.FILE else 0

    def stand(self, stand: Stand) -> None:
        """How a path stands on the target."""
        with self._lock:
            self.changed += stand is Stand.CHANGED
            self.gone += stand is Stand.GONE

    def read(self) -> None:
        """A file whose content was read."""
        with self._lock:
            self.read_again += 1

    def remove(self) -> None:
        """A name that was removed."""
        with self._lock:
            self.removed += 1

    def sum(self, proofs: TreeProofs) -> tuple[PurgeSum, int]:
        """What the tree holds, and how many files of it have names elsewhere."""
        links, outside = proofs.link_sum()
        whole = PurgeSum(
            names=self.names + links.names,
            inodes=self.inodes + links.inodes,
            size_bytes=self.size_bytes + links.size_bytes,
        )
        return whole, outside


class Survey:
    """Judges a whole tree, where it lies now. Changes nothing."""

    def __init__(
        self, call: Call, placed: Placed, source: FileSystem, proofs: TreeProofs, *, judge: Judge, skipped: Skipped
    ) -> None:
        self._skipped = skipped
        self._call = call
        self._placed = placed
        self._source = source
        self._proofs = proofs
        self._judge = judge
        self._looked_at = 0
        self.found = Found()
        self._pool: WorkPool[bytes, tuple[Entry, ...]] = WorkPool(
            call.request.workers, do_wide=self._read_directory, do_narrow=self._judge_block
        )

    async def run(self, top: Entry, *, user: str, total: int) -> Found:
        """Look at everything. May be called once."""
        self._judge_block((top,))
        self._pool.put_wide(self._placed.at)
        began_s = self._call.world.clock.monotonic_s()

        async def show() -> None:
            while True:
                self._call.world.progress.show(
                    PurgeProgress(
                        user=user,
                        step="looking at",
                        elapsed_s=self._call.world.clock.monotonic_s() - began_s,
                        names=self._looked_at,
                        total_names=max(total, self._looked_at),
                        kept=self.found.open_paths,
                    )
                )
                await self._call.world.clock.sleep(SHOW_EVERY_S)

        showing = asyncio.create_task(show())
        try:
            await self._pool.run()
        finally:
            showing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await showing
        return self.found

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
        linked: list[Entry] = []
        for entry in entries:
            if self._pool.stopped:
                return
            self._looked_at += 1
            self.found.see(entry)
            if entry.nlink > 1 and entry.type is not EntryType.DIRECTORY:
                linked.append(entry)
            path = self._placed.known_as(entry.path)
            proof = proofs.get(path)
            if proof is None and (left := self._skipped.verdict(entry, path)) is not None:
                self.found.left(left, path)
                continue
            verdict = self._judge.on_source(entry, proof)
            if verdict.judgement is Judgement.READ:
                self.found.read()
                self._proofs.note_read(path, entry.ino, entry.ctime_ns)
            if verdict.judgement is Judgement.OPEN or proof is None:
                self.found.keep(path, verdict.words)
                continue
            stand = self._judge.on_target(proof)
            self.found.stand(stand.stand)
            if stand.stand is Stand.LOST:
                self.found.keep(path, stand.words)
        self._proofs.note_links(linked)


# ---
# Taking a tree apart in its place of the purge: every path is judged again, by descriptor, and then removed.


_PART_NAMES = 64
"""How many names a thread takes at a time: what is under way when the purge is stopped."""
_WATCH_EVERY_S = 30.0
_TRIES = 3
"""How often a path is looked at again that changed between its look and its removal; how often a directory is read again
that still holds something."""
DEEP_BYTES = 2048
"""Directories with longer paths are moved up first: a place's path is longer than the tree's was, and GlusterFS, which takes
paths of some 4,080 bytes, says of longer ones that they are removed, and they are not (seen on 10.3)."""


@dataclass(slots=True, eq=False)
class _Directory:
    """A directory on its way out: how many directories in it are not done yet, and whether something in it stays."""

    path: bytes
    above: "_Directory | None"
    waiting: int = 0
    keeps: bool = False
    rounds: int = 0


@dataclass(slots=True)
class _Work:
    """Directories that wait, the deepest first, and how many are being worked on."""

    waiting: list[_Directory] = field(default_factory=list)
    busy: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)


class Removal:
    """Removes a tree from its place. What is not as it was verified stays where it is, with the directories above it."""

    def __init__(
        self,
        call: Call,
        placed: Placed,
        *,
        source: FileSystem,
        places: ClosedPlaces,
        proofs: TreeProofs,
        judge: Judge,
        skipped: Skipped,
        pace: Pace,
        watch: Callable[[], Awaitable[None]],
    ) -> None:
        self._call = call
        self._placed = placed
        self._source = source
        self._places = places
        self._proofs = proofs
        self._judge = judge
        self._skipped = skipped
        self._pace = pace
        self._watch = watch
        self._watched_s = call.world.clock.monotonic_s()
        self._watching = asyncio.Lock()
        self._threads = asyncio.Semaphore(max(call.request.workers, 1))
        self._work = _Work()
        self._place = parent(placed.at)
        self._raised: dict[bytes, bytes] = {}
        self.found = Found()

    async def run(self, *, user: str, total: int) -> Found:
        """Remove all that may go. `watch` is asked now and then, and raises where nothing may be removed any more. May be
        called once; another one goes on where it was stopped or killed.
        """
        clock = self._call.world.clock
        began_s = clock.monotonic_s()

        async def report() -> None:
            while True:
                self._call.world.progress.show(
                    PurgeProgress(
                        user=user,
                        step="removing",
                        elapsed_s=clock.monotonic_s() - began_s,
                        names=self.found.removed,
                        total_names=max(total, self.found.removed),
                        kept=self.found.open_paths,
                    )
                )
                await clock.sleep(SHOW_EVERY_S)

        self._raised.update(await in_thread(lambda: self._places.raised(self._place)))
        self._work.waiting.append(_Directory(self._placed.at, None))
        showing = asyncio.create_task(report())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(max(self._call.request.workers, 1)):
                    group.create_task(self._take_directories())
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        finally:
            showing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await showing
        return self.found

    async def _take_directories(self) -> None:
        work = self._work
        while True:
            async with work.changed:
                await work.changed.wait_for(lambda: work.waiting or not work.busy)
                if not work.waiting:
                    return
                directory = work.waiting.pop()
                work.busy += 1
            try:
                inner = await self._empty(directory)
                if not inner:
                    await self._leave(directory)
            finally:
                async with work.changed:
                    work.busy -= 1
                    work.changed.notify_all()

    async def _empty(self, directory: _Directory) -> bool:
        """Close a directory and remove the files in it; whether there are directories in it to be removed first."""
        if not await in_thread(lambda: self._close(directory)):
            return False
        listing = self._source.read_directory(directory.path)
        # What was moved up out of the tree goes before its top.
        inner = [_Directory(path, directory) for path in self._raised] if directory.above is None else []
        while (block := await in_thread(lambda: next(listing, None))) is not None:
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
        async with self._work.changed:
            self._work.waiting += inner
            self._work.changed.notify_all()
        return True

    async def _leave(self, directory: _Directory) -> None:
        """A directory is done: remove it where nothing in it stays, and so those above it whose last one it was."""
        left: _Directory | None = directory
        while left is not None:
            if not left.keeps:
                await self._pace.take(1)
                if not await in_thread(partial(self._remove_directory, left)) and left.rounds < _TRIES:
                    # Some file systems leave names out of a listing while others are removed.
                    left.rounds += 1
                    async with self._work.changed:
                        self._work.waiting.append(left)
                    return
            above = left.above
            if above is None:
                return
            above.keeps = above.keeps or left.keeps
            above.waiting -= 1
            left = above if above.waiting == 0 else None

    async def _remove_part(self, directory: _Directory, entries: Sequence[Entry]) -> None:
        async with self._threads:
            await self._pace.take(len(entries))
            await self._look_around()
            await in_thread(lambda: self._remove_entries(directory, entries))

    async def _look_around(self) -> None:
        async with self._watching:
            now_s = self._call.world.clock.monotonic_s()
            if now_s - self._watched_s >= _WATCH_EVERY_S:
                self._watched_s = now_s
                await self._watch()

    def _close(self, directory: _Directory) -> bool:
        """Judge a directory and close it; False where it stays as it is, with all that is in it."""
        try:
            entry = self._source.look(directory.path)
            if entry is None:
                return False
            if entry.type is not EntryType.DIRECTORY:
                self._keep(directory, directory.path, f"is a {entry.type.value} now")
                return False
            if not self._may_go(directory, entry):
                return False
            self._places.close_directory(directory.path, entry)
            if len(directory.path) > DEEP_BYTES:
                self._raise_up(directory, entry)
        except OSError as error:
            self._keep(directory, directory.path, f"cannot be closed ({error.strerror or error})")
            return False
        return True

    def _raise_up(self, directory: _Directory, entry: Entry) -> None:
        known_as = self._known_as(directory.path)
        # Some file systems have no room for a long attribute: these have no bound on paths either.
        with contextlib.suppress(OSError):
            directory.path = self._places.raise_up(directory.path, self._place, ino=entry.ino, known_as=known_as)
            self._raised[directory.path] = known_as

    def _known_as(self, path: bytes) -> bytes:
        """What the user knew a path by, also below what was moved up."""
        name, _, rest = path[len(self._place) + 1 :].partition(b"/")
        above = self._raised.get(join(self._place, name))
        if above is None:
            return self._placed.known_as(path)
        return join(above, rest) if rest else above

    def _remove_entries(self, directory: _Directory, entries: Sequence[Entry]) -> None:
        for entry in entries:
            try:
                self._remove_entry(directory, entry)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._keep(directory, entry.path, f"cannot be removed ({error.strerror or error})")

    def _remove_entry(self, directory: _Directory, entry: Entry) -> None:
        seen: Entry | None = entry
        for _ in range(_TRIES):
            if seen is None:
                return
            if not self._may_go(directory, seen):
                return
            if self._places.remove(seen.path, seen):
                self.found.remove()
                return
            seen = self._source.look(entry.path)
        if seen is not None:
            self._keep(directory, entry.path, "changes just now")

    def _may_go(self, directory: _Directory, entry: Entry) -> bool:
        path = self._known_as(entry.path)
        proof = self._proofs.of_block([path]).get(path)
        if proof is None and (left := self._skipped.verdict(entry, path)) is not None:
            directory.keeps = directory.keeps or left.judgement is Judgement.OPEN
            return self.found.left(left, path)
        verdict = self._judge.on_source(entry, proof)
        if verdict.judgement is Judgement.OPEN or proof is None:
            self._keep(directory, entry.path, verdict.words)
            return False
        if verdict.judgement is Judgement.READ:
            self.found.read()
        stand = self._judge.on_target(proof)
        if stand.stand is Stand.LOST:
            self._keep(directory, entry.path, stand.words)
            return False
        return True

    def _remove_directory(self, directory: _Directory) -> bool:
        """Whether it is gone, or is not to be tried again."""
        try:
            self._places.remove_directory(directory.path)
        except OSError as error:
            if directory.rounds >= _TRIES:
                self._keep(directory, directory.path, f"cannot be removed ({error.strerror or error})")
            return False
        self._raised.pop(directory.path, None)
        self.found.remove()
        return True

    def _keep(self, directory: _Directory, path: bytes, words: str) -> None:
        directory.keeps = True
        self.found.keep(self._known_as(path), words)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """What happened first: the group has ended everything else."""
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def kept_words(found: Found, placed: Placed) -> str:
    """What is said of a tree of which something stays."""
    return (
        f"{found.open_paths:,} of its paths {'is' if found.open_paths == 1 else 'are'} not known to be on the target, and "
        f"{'stays' if found.open_paths == 1 else 'stay'} in {show(placed.at)} of the source"
    )
