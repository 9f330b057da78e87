"""Carries a user's changes on the target back to the source, for a rollback."""

import asyncio
import errno
import os
import stat
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import duckdb
from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.database import connect, content_bytes_sql
from migrator.catalog.files import ROW_SCHEMA, ClosedCatalog, ClosedCatalogs, close_catalog, part_name
from migrator.catalog.manifest import ManifestDirectories
from migrator.catalog.model import CatalogRecord, VerificationRecord
from migrator.catalog.ports import Scratch
from migrator.catalog.queries import create_entries
from migrator.core.durable import sync, temporary_name, write_durably
from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType
from migrator.core.errors import ExitCode, MigratorError, Refused
from migrator.core.paths import is_beneath, parent, show
from migrator.core.states import BatchState, ChunkState, PassKind, PassState
from migrator.cutover import model
from migrator.cutover.records import CutoverLedger
from migrator.cutover.rules import newest_attempts
from migrator.fs.model import DigestPolicy, SourceHealth, TargetCapabilities, trash_place
from migrator.fs.moving import MovingTarget
from migrator.fs.ports import Block, FileSystemTool, SourceFileSystem, WalkedRoot
from migrator.fs.reading import PosixSource
from migrator.fs.rules import CLOSED_MODE
from migrator.fs.writing import MountedTarget
from migrator.operations.run_files import RunFiles
from migrator.plan.model import Plan
from migrator.plan.rules import FROZEN_UID
from migrator.reap.model import archive_directory
from migrator.transfer.attempt import recover
from migrator.transfer.bases import covers
from migrator.transfer.context import Invocation, World
from migrator.transfer.delta.delta import DeltaPass, Deltas, expire_trash, final_passes
from migrator.transfer.delta.model import ChangeKind
from migrator.transfer.model import BatchSummary, FileProblemKind, PassRecord, RunRequest
from migrator.transfer.passes import probed_capabilities
from migrator.transfer.records import TransferLedger

# Changes of the retained source, from two of its catalogs.


_CLOSED = f"(n.type = 'directory' AND n.uid = $closed_uid AND n.mode = {CLOSED_MODE})"
_DIFFER = f"""(
    b.type <> n.type OR b.gid <> n.gid
    OR NOT {_CLOSED} AND (b.mode <> n.mode OR b.uid <> n.uid)
    OR NOT ({_CLOSED} AND b.acl_entries > 0 AND b.acl_entries = n.acl_entries)
        AND b.xattr_digest IS DISTINCT FROM n.xattr_digest
    OR CASE WHEN b.gfid IS NOT NULL AND n.gfid IS NOT NULL THEN b.gfid <> n.gfid
        WHEN b.gfid IS NOT NULL OR n.gfid IS NOT NULL OR b.dev = n.dev THEN b.ino <> n.ino ELSE false END
    OR b.type <> 'directory' AND (
        b.size <> n.size OR b.mtime_ns <> n.mtime_ns OR b.symlink_target IS DISTINCT FROM n.symlink_target
        OR b.type IN ('block', 'character') AND b.rdev <> n.rdev
        OR $ctimes AND b.nlink = 1 AND n.nlink = 1 AND b.ctime_ns <> n.ctime_ns
    )
)"""
"""The cutover closes directories, which changes owner, mode and the mask of an ACL. Their times change with their entries,
which are compared themselves. The ctime of a
file with several names changes when another user's names are purged; on Gluster it may differ from replica to replica.
"""

_CARRIED = """EXISTS (
    FROM carried WHERE carried.path = n.path AND carried.type = n.type
    AND (n.type = 'directory' OR carried.size = n.size AND carried.mtime_ns = n.mtime_ns
        AND carried.symlink_target IS NOT DISTINCT FROM n.symlink_target)
)"""
"""The target had the same entry when a rollback carried it back."""

_CHANGED = f"""
    SELECT coalesce(b.path, n.path) AS path, n.type AS stands, n.size, n.mtime_ns,
        CASE WHEN b.path IS NULL OR n.type = 'directory' AND b.type <> 'directory' THEN 'made' WHEN n.path IS NULL THEN 'removed' ELSE 'changed' END AS kind
    FROM (SELECT * FROM before_rows WHERE tree = $tree AND path <> tree) b
    FULL JOIN (SELECT * FROM now_rows WHERE tree = $tree AND path <> tree) n ON b.path = n.path
    WHERE CASE
        WHEN b.path IS NULL THEN NOT {_CARRIED}
        WHEN n.path IS NULL THEN NOT ($carried AND b.path NOT IN (SELECT path FROM last_carried))
        ELSE {_DIFFER} AND NOT {_CARRIED}
    END
    ORDER BY path
"""  # noqa: S608 - put together of constants of this module; values are parameters


def changed_source(
    before: ClosedCatalog,
    now: ClosedCatalog,
    *,
    tree: bytes,
    carried: Sequence[ClosedCatalog],
    ctimes: bool,
    scratch: Scratch,
) -> Sequence[model.SourceChange]:
    """Compare the catalog `now` of a tree with `before`; both are of the source.

    `carried` are the catalogs of the target that rollbacks have carried back since, oldest first. An entry may be gone
    if the last of them lacks it, and may be there if any of them has it. `ctimes`: the ctimes of the source are
    reliable. Raises Refused.
    """
    if not now.record.whole:
        raise Refused(
            f"catalog {now.record.name!r} is not whole: what changed on the source cannot be told",
            cause="; ".join(now.record.reasons),
            hint="see to that, then run the same command again",
        )
    with connect(scratch) as connection:
        create_entries(connection, before.part_files, view="before_rows")
        create_entries(connection, now.part_files, view="now_rows")
        carried_files = [one.part_files for one in carried]
        create_entries(connection, [file for files in carried_files for file in files], view="carried")
        create_entries(connection, carried_files[-1] if carried_files else (), view="last_carried")
        facts = {"tree": tree, "ctimes": ctimes, "carried": bool(carried), "closed_uid": os.geteuid()}
        rows = connection.execute(_CHANGED, facts).fetchall()
    return [
        model.SourceChange(
            path=path,
            kind=model.SourceChangeKind(kind),
            stands=None if stands is None else EntryType(stands),
            size_bytes=size_bytes,
            mtime_ns=mtime_ns,
        )
        for path, stands, size_bytes, mtime_ns, kind in rows
    ]


# The catalog of a tree on the target at the switch, from the manifest of the verification before it.


# The user changed an entry if its inode, size, mtime or ctime differ now, or if it is gone. The manifest has inode,
# size and times of the target's file. It has the other attributes from the source; the target's were equal as far as it
# keeps them. An unchanged entry gets the row of `now`, so an attribute that the target keeps in another form is no
# change.
_ROWS = """
    WITH proven AS (
        SELECT * FROM read_parquet($manifest)
        WHERE path > $tree || '/'::BLOB AND path < $tree || '0'::BLOB
            -- What lies in an archive was not at its place on the target, so nobody can have taken it away there.
            AND archive IS NULL
            AND path <> $hidden AND NOT (path > $hidden || '/'::BLOB AND path < $hidden || '0'::BLOB)
    )
    SELECT
        proven.path AS path, $tree AS tree, NULL::VARCHAR AS brick, proven.type AS type,
        CASE WHEN same THEN now.size ELSE proven.size END::BIGINT AS size,
        CASE WHEN same THEN now.blocks ELSE (proven.size + 511) // 512 END::BIGINT AS blocks,
        CASE WHEN same THEN now.uid ELSE proven.uid END::UINTEGER AS uid,
        CASE WHEN same THEN now.gid ELSE proven.gid END::UINTEGER AS gid,
        CASE WHEN same THEN now.mode ELSE proven.mode END::INTEGER AS mode,
        target_mtime_ns::BIGINT AS mtime_ns, 0::BIGINT AS atime_ns, target_ctime_ns::BIGINT AS ctime_ns,
        coalesce(now.dev, (SELECT any_value(dev) FROM now_rows), 0)::UBIGINT AS dev,
        CASE WHEN same THEN now.rdev ELSE proven.rdev END::UBIGINT AS rdev,
        target_ino::UBIGINT AS ino, NULL::BLOB AS gfid,
        CASE WHEN same THEN now.nlink WHEN proven.link_group IS NULL THEN 1 ELSE 2 END::UINTEGER AS nlink,
        CASE WHEN same THEN now.link_group WHEN proven.link_group IS NULL THEN NULL ELSE target_ino END::UBIGINT
            AS link_group,
        CASE WHEN same THEN now.symlink_target ELSE proven.symlink_target END AS symlink_target,
        CASE WHEN same THEN now.xattr_digest ELSE proven.xattr_digest END AS xattr_digest,
        0::INTEGER AS xattr_largest_bytes, 0::INTEGER AS xattr_kinds, 0::INTEGER AS acl_entries
    FROM proven LEFT JOIN (SELECT * FROM now_rows) now ON now.path = proven.path,
        LATERAL (SELECT coalesce(
            now.type = proven.type AND now.ino = target_ino AND now.mtime_ns = target_mtime_ns
            AND now.ctime_ns = target_ctime_ns AND (now.type = 'directory' OR now.size = proven.size), false
        ) AS same)
    ORDER BY proven.path
"""


def write_switched(
    record: CatalogRecord,
    *,
    tree: bytes,
    name_seed: int,
    proof: VerificationRecord,
    now: str,
    catalogs: ClosedCatalogs,
    scratch: Scratch,
) -> CatalogRecord:
    """Write the catalog of a tree on the target at the switch, from the manifest of its `proof`, into `catalogs`.

    `now` names the catalog of the tree as it is. The archives in the tree are left out. Raises Refused.
    """
    if proof.manifest is None or ManifestDirectories.digest(proof.manifest) != proof.manifest_digest:
        raise Refused(
            f"the manifest of {show(tree)} is not the one that the cutover was proven with",
            cause=f"{proof.manifest} was changed or damaged since",
            hint="bring it back as it was: without it nothing tells what the user changed on the target",
        )
    directory = catalogs.directory / record.name
    directory.mkdir(parents=True, exist_ok=True)
    part = directory / part_name(0)
    latest = catalogs.open(now).part_files
    temporary = temporary_name(part)
    with connect(scratch) as connection:
        create_entries(connection, latest, view="now_rows")
        _copy(connection, temporary, manifest=proof.manifest, tree=tree, hidden=archive_directory(tree, name_seed))
        facts = connection.execute(
            f"""
            SELECT count(*), count(*) FILTER (WHERE type <> 'directory'), coalesce(sum({content_bytes_sql()}), 0)::BIGINT
            FROM read_parquet(?)
            """,  # noqa: S608 - constants of this program
            [str(temporary)],
        ).fetchone() or (0, 0, 0)
    sync(temporary)
    temporary.replace(part)
    sync(directory)
    rows, files, size_bytes = facts
    closed = replace(
        record,
        rows=rows,
        files=files,
        directories=rows - files,
        size_bytes=size_bytes,
    )
    closed = close_catalog(directory, closed, [part.name])
    sync(catalogs.directory)
    return closed


def _copy(connection: duckdb.DuckDBPyConnection, file: Path, *, manifest: str, tree: bytes, hidden: bytes) -> None:
    columns = ", ".join(ROW_SCHEMA.names)
    # The query consists of constants of this module; every value from outside is a parameter.
    query = f"COPY (SELECT {columns} FROM ({_ROWS})) TO $file (FORMAT parquet, COMPRESSION zstd)"  # noqa: S608
    connection.execute(query, {"manifest": manifest, "tree": tree, "hidden": hidden, "file": str(file)})


# Both sides of one frozen user tree.


_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class _Side(MountedTarget):
    """A mounted side of one tree, without its archives. `source` reports the health of the
    migration's source.
    """

    def __init__(
        self,
        root: bytes,
        capabilities: TargetCapabilities | None = None,
        *,
        tree: bytes,
        name_seed: int,
        source: SourceFileSystem,
        tool: FileSystemTool | None = None,
    ) -> None:
        super().__init__(root, capabilities, tool)
        self._tree = tree
        self._hidden = archive_directory(tree, name_seed)
        self._real_source = source

    def read_directory(self, path: bytes, *, block_entries: int = 4096) -> Iterator[Block]:
        """The entries of a directory, without what is hidden."""
        if is_beneath(path, self._hidden):
            return
        for block in super().read_directory(path, block_entries=block_entries):
            if path != self._tree:
                yield block
                continue
            yield replace(
                block,
                entries=tuple(entry for entry in block.entries if entry.path != self._hidden),
                problems=tuple(one for one in block.problems if not is_beneath(one.path, self._hidden)),
            )

    def walked(self) -> WalkedRoot:
        """As the port."""
        return replace(super().walked(), hidden=(self._hidden,))

    def look(self, path: bytes) -> Entry | None:
        """One entry; None if it is hidden."""
        return None if is_beneath(path, self._hidden) else super().look(path)

    async def quotas(self) -> Sequence[tuple[bytes, int]]:
        """No quotas: carrying back does not check them."""
        return ()


class TargetSide(_Side):
    """The target, from which changes are carried back: a source (`SourceFileSystem`) that can also be verified.

    `look` shows a frozen top as a closed one. The target is healthy if it is mounted and the source has no problem:
    writes to the source may be lost while a brick is down. The source may have other bricks than at the switch, so its
    fingerprint does not count.
    """

    def look(self, path: bytes) -> Entry | None:
        """One entry; a frozen top is shown as a closed one."""
        seen = super().look(path)
        return _as_closed(seen) if seen is not None and path == self._tree else seen

    async def health(self) -> SourceHealth:
        """The health of both sides."""
        own, other = await PosixSource(self.root, self._tool).health(), await self._real_source.health()
        return SourceHealth(
            problems=(*own.problems, *other.problems),
            doubts=(*own.doubts, *other.doubts),
            fingerprint=own.fingerprint,
        )


class SourceSide(_Side):
    """The source, to which changes are carried back: a target (`TargetFileSystem`) that can also be verified.

    The top stays frozen: nothing opens or closes it here.
    """

    async def health(self) -> SourceHealth:
        """The health of the source alone."""
        return await self._real_source.health()

    def make_parents(self, tree: bytes, like: Sequence[Entry]) -> None:  # noqa: ARG002 - nothing is made
        """Make nothing: the tree has to exist. Raises OSError."""
        if tree != self._tree:
            raise OSError(errno.EINVAL, "another user tree than the one that is carried back", tree)
        if (top := self.look(tree)) is None or top.type is not EntryType.DIRECTORY:
            raise OSError(errno.ENOTDIR if top else errno.ENOENT, "no user tree is here", tree)

    def flush(self, paths: Sequence[bytes]) -> None:
        """Sync these files and directories one by one: a FUSE mount does not pass syncfs(2) to its servers. Skips paths
        that are gone, or are neither file nor directory. Raises OSError.
        """
        for path in paths:
            try:
                fd = self.beneath.open(path, os.O_PATH)
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise
                continue
            try:
                kind = stat.S_IFMT(os.fstat(fd).st_mode)
            finally:
                os.close(fd)
            # A device is not opened: opening it may have effects.
            if kind not in (stat.S_IFREG, stat.S_IFDIR):
                continue
            fd = self.beneath.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def _as_closed(top: Entry) -> Entry:
    """A frozen top in the form of a closed one; any other entry unchanged."""
    frozen = (
        top.type is EntryType.DIRECTORY
        and top.uid == FROZEN_UID
        and top.mode & model.PERMISSION_BITS == model.FROZEN_PERMISSIONS
        and not {ACL_ACCESS, ACL_DEFAULT} & top.xattrs.keys()
    )
    return replace(top, uid=os.geteuid(), gid=os.getegid(), mode=CLOSED_MODE) if frozen else top


# The site of one rollback: source and target exchanged, and one user tree as its only batch. It has its own ledger,
# catalogs, lists and manifests, to keep facts about the two sides apart. Both sides were equal at the switch, so its
# seed pass has no chunks. That pass represents the catalog of the target at the switch, with which the first pass
# compares.


PLAN = "back"


class BackParts(Struct, frozen=True, kw_only=True):
    """Everything that carrying back needs for one cutover.

    `source` is the migration's, whichever way files go. `world` and `deltas` belong to the rollback's site, which exchanges
    the sides.

    `own` is the migration's ledger, `plan` the plan of the cutover. `compare` compares both sides by the plan of the
    rollback.
    """

    plan: Plan
    source: SourceSide
    own: CutoverLedger
    catalogs: ClosedCatalogs
    scratch: Scratch
    world: World
    files: RunFiles
    deltas: Deltas
    request: RunRequest
    compare: Callable[[Plan], Awaitable[VerificationRecord]]

    @property
    def ledger(self) -> TransferLedger:
        """The ledger of the rollback."""
        return self.world.ledger


AnyLedger = TypeVar("AnyLedger", bound=CutoverLedger)


def switched_pass(ledger: TransferLedger, record: model.CutoverRecord) -> PassRecord | None:
    """The pass that represents the target at the switch; None if it was not recorded."""
    return ledger.passes.find(PLAN, record.id, PassKind.SEED)


def newest_pass(ledger: TransferLedger, record: model.CutoverRecord) -> PassRecord | None:
    """The newest pass that carries back, whatever its result."""
    return ledger.passes.find(PLAN, record.id, PassKind.FINAL)


def rollback_directory(parent: Path, record: model.CutoverRecord) -> Path:
    """The directory of one cutover's rollback, below that of all rollbacks. Its name is unique over all ledgers."""
    return parent / record.own_name


@contextmanager
def rollback_ledger(own: AnyLedger, directory: Path) -> Iterator[AnyLedger]:
    """The ledger of a rollback, created if there is none; `own` is the migration's."""
    site = own.site.required()
    with type(own).open(directory / "ledger.db", create=True) as ledger:
        if ledger.site.read() is None:
            # What the source keeps is probed later.
            ledger.site.create(
                replace(site, source=site.target, target=site.source, capabilities=None, capabilities_probed_at_s=None)
            )
        ledger.site.update_identities(site.target, site.source)
        (directory / "made").touch()
        yield ledger


@contextmanager
def carried_ledger(own: AnyLedger, parent: Path, record: model.CutoverRecord) -> Iterator[AnyLedger | None]:
    """The ledger of a cutover's rollback, for reading; None if there is none, or its creation was interrupted. `own` is the
    migration's.
    """
    directory = rollback_directory(parent, record)
    if not (directory / "made").exists():
        yield None
        return
    with type(own).open(directory / "ledger.db", read_only=True) as ledger:
        yield ledger


def carried_of(ledger: CutoverLedger, parent: Path, users: Sequence[str]) -> tuple[model.CutoverRecord, ...]:
    """The cutovers, of any plan, of users who work on the target, but whose rollback carried something to the kept
    source before it was given up.
    """
    found: list[model.CutoverRecord] = []
    for record in sorted(newest_attempts(ledger.cutovers.all()), key=lambda one: one.tree.path):
        if record.tree.user not in users or record.state is not model.CutoverState.RETAINED:
            continue
        with carried_ledger(ledger, parent, record) as carried:
            if carried is not None and newest_pass(carried, record) is not None:
                found.append(record)
    return tuple(found)


def _plan(parts: BackParts, record: model.CutoverRecord, *, scan_id: int, catalog: str, chunk_list: str) -> Plan:
    """A plan of one batch with one tree. The batch has the number of the cutover, so each user has their own directory
    in the trash of the source.
    """
    own = next(one for one in parts.plan.batches if one.number == record.batch)
    digest = parts.world.chunk_lists.digest(chunk_list)
    batch = replace(own, number=record.id, trees=(record.tree,), chunk_list=chunk_list, chunk_list_digest=digest)
    # Both sides were equal at the switch: nothing is reaped, and no size is known yet.
    batch = replace(batch, size_bytes=0, files=0, directories=0, chunks=0)
    return replace(
        parts.plan, name=PLAN, catalog=catalog, scan_id=scan_id, batches=(batch,), ranking=(), owners=(), reap=None
    )


# Passes and verifications of a rollback, from its ledger.


_MADE = (ChangeKind.NEW, ChangeKind.GROWN, ChangeKind.REWRITTEN)
_TOUCHED = (*_MADE, ChangeKind.ATTRIBUTES, ChangeKind.RENAMED)


def proofs_of(
    ledger: TransferLedger, plan: str, batch: int, tree: bytes, policy: DigestPolicy
) -> tuple[model.PassSeen | None, model.ProofSeen | None]:
    """The newest final pass over a tree (or the newest that carries it back), of any attempt, and the newest finished
    verification.

    Numbers decide whether the verification began after the pass (see `CutoverNotes.proofs_before`), not times. A
    verification compares both sides as they are, so one that began later covers the result of the pass.
    """
    passes = (one for one in reversed(ledger.passes.of_batch(plan, batch)) if one.kind is PassKind.FINAL)
    made = next((one for one in passes if covers(ledger.passes, one, (tree,))), None)
    if made is None:
        return None, None
    scan = next((one for one in ledger.scans.all() if one.name == made.catalog), None)
    counts, totals = ledger.passes.problem_counts(made.id), ledger.passes.totals(made.id)
    # An unfinished chunk without files counts as one file.
    left = sum(count for state, count in totals.chunks.items() if state not in (ChunkState.DONE, ChunkState.SPLIT))
    not_there = counts.get(FileProblemKind.BAD, 0) + counts.get(FileProblemKind.MOVED, 0)
    done = made.state is PassState.DONE
    copied = model.PassSeen(
        id=made.id,
        finished_at_s=made.finished_at_s if done else None,
        changed=counts.get(FileProblemKind.CHANGED, 0),
        vanished=counts.get(FileProblemKind.VANISHED, 0),
        failed=not_there + max(totals.files - totals.done_files, left),
        whole=done and scan is not None and scan.whole,
    )
    found = ledger.verifications.of_tree(plan, batch, tree)
    if not found:
        return copied, None
    latest = found[-1]
    proof = model.ProofSeen(
        id=latest.id,
        whole=latest.whole,
        differences=sum(latest.differences.values()),
        by_policy=latest.policy.algorithm == policy.algorithm and latest.policy.share >= policy.share,
        manifest=latest.manifest,
        reasons=latest.reasons,
    )
    return copied, proof


def target_changes(ledger: TransferLedger, record: model.CutoverRecord) -> model.TargetChanges:
    """The user's changes since the switch, over all passes that carried them back. `gone` includes directories."""
    passes = [one for one in ledger.passes.of_batch(PLAN, record.id) if one.kind is not PassKind.SEED]
    found = [changes for one in passes if (changes := ledger.passes.changes(one.id)) is not None]
    touched = [changes.tally(kind) for changes in found for kind in _TOUCHED]
    return model.TargetChanges(
        files=sum(tally.paths - tally.directories for tally in touched),
        size_bytes=sum(changes.tally(kind).size_bytes for changes in found for kind in _MADE),
        gone=sum(changes.tally(ChangeKind.VANISHED).paths for changes in found),
    )


# The state of the target at the switch, recorded once before the first pass.


VIA_MANIFEST = "manifest"
"""Origin of the catalog of the target at the switch."""


def plan_of(parts: BackParts, record: model.CutoverRecord) -> Plan:
    """The plan of the rollback. Raises Refused if nothing was carried back yet."""
    noted = switched_pass(parts.ledger, record)
    if noted is None:
        raise Refused(f"nothing was carried back of {show(record.tree.path)} yet", hint="run the same command again")
    return _plan(parts, record, scan_id=0, catalog=noted.catalog, chunk_list=noted.chunk_list)


async def _write_catalog(parts: BackParts, record: model.CutoverRecord, now: CatalogRecord) -> CatalogRecord:
    """Write the catalog of the target at the switch; `now` is its present catalog. Raises Refused if the state at the
    switch is not known.
    """
    tree, known = record.tree.path, parts.own.verifications.of_plan(record.plan)
    proof = next((one for one in known if one.id == record.notes.verification_id), None)
    if proof is None or not proof.whole or proof.differences:
        raise Refused(
            f"what {show(tree)} was on the target at the switch is not known",
            cause="the ledger has no verification without differences for this cutover",
            hint="nothing tells what the user changed since; bring the ledger back as it was",
        )
    # Files that changed later than 2 s before the record's begin are sent again: no user could change anything before
    # the thaw.
    at_s = record.times.get(model.CutoverState.THAWING, proof.finished_at_s or proof.started_at_s)
    name = f"switch-{now.name}"
    opening = replace(
        now,
        name=name,
        scan_id=parts.ledger.scans.start(catalog=name, via=VIA_MANIFEST, at_s=at_s, scope=(tree,)),
        via=VIA_MANIFEST,
        started_at_s=at_s,
        finished_at_s=at_s,
        problems=0,
    )
    closed = await asyncio.to_thread(
        write_switched,
        opening,
        tree=tree,
        name_seed=parts.own.site.required().name_seed,
        proof=proof,
        now=now.name,
        catalogs=parts.catalogs,
        scratch=parts.scratch,
    )
    parts.ledger.scans.finish(closed)
    return closed


def _start_pass(parts: BackParts, record: model.CutoverRecord, catalog: CatalogRecord) -> PassRecord:
    written = parts.world.chunk_lists.write(PLAN, record.id, ())
    plan = _plan(parts, record, scan_id=catalog.scan_id, catalog=catalog.name, chunk_list=written.chunk_list)
    # The recorded plan never changes: the ledger needs only its name and its batch.
    parts.ledger.plans.record(plan, path="", checksum="")
    for now, then in ((BatchState.PLANNED, BatchState.SEEDING), (BatchState.SEEDING, BatchState.SEEDED)):
        known = parts.ledger.plans.read(PLAN)
        if known is not None and known.batches.get(record.id) is now:
            parts.ledger.plans.set_batch_state(PLAN, record.id, then)
    return parts.ledger.passes.start(
        plan=PLAN,
        batch=record.id,
        kind=PassKind.SEED,
        catalog=catalog.name,
        chunk_list=written.chunk_list,
        chunks=(),
        at_s=parts.world.clock.now_s(),
    )


# The stage: carry back, and verify.


VERB = "rollback"
Scan = Callable[[Sequence[bytes]], Awaitable[CatalogRecord]]

_FLUSHED_AT_ONCE = 256
_ROLES = (
    "here the target is read and the source is written, so the one is called the source, and the other the target: "
)


_GIVEN_UP = "given-up"
"""A file in the directory of a rollback: the paths to carry back even if unchanged."""


def note_paths(file: Path, paths: Iterable[bytes]) -> None:
    """Add paths to a list, which survives a power cut. Blocking; raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_durably(file, b"".join(path + b"\0" for path in sorted({*noted_paths(file), *paths})))


def noted_paths(file: Path) -> Sequence[bytes]:
    """The paths of such a list, in order. Blocking; raises OSError."""
    try:
        return [path for path in file.read_bytes().split(b"\0") if path]
    except FileNotFoundError:
        return ()


class CarryingBack(Struct, frozen=True, kw_only=True):
    """Carries back users' changes on the target since the switch, one user tree at a time.

    `open` opens the site of a cutover's rollback, creates it if there is none, and opens the file systems anew each
    time. `directory` holds these sites. `own` is the migration's ledger, and `catalogs` are its catalogs; `ctimes`: the ctimes of the source are
    reliable.

    The caller holds the lock of the tree and has frozen both sides: the target's top may be closed or frozen, the source's is
    frozen and stays so. Every method may be called again after a crash at any instant. All raise Refused if a check
    fails, and MigratorError if something stopped the work; the next call of `carry` then resumes.
    """

    directory: Path
    own: CutoverLedger
    source_root: bytes
    catalogs: ClosedCatalogs
    ctimes: bool
    scratch: Scratch
    open: Callable[[model.CutoverRecord], AbstractAsyncContextManager[BackParts]]

    def changed_source(self, record: model.CutoverRecord, *, before: str, now: str) -> Sequence[model.SourceChange]:
        """Changes of the retained source between the migration's catalogs `before` and `now`, without those that
        rollbacks carried. Blocking; raises UsageError, Refused.
        """
        with carried_ledger(self.own, self.directory, record) as ledger:
            passes = () if ledger is None else ledger.passes.of_batch(PLAN, record.id)
            directory = rollback_directory(self.directory, record) / "catalogs"
            back = None if ledger is None else ClosedCatalogs(directory, ledger.scans.named)
            carried = [back.open(one.catalog) for one in passes if back and one.kind is not PassKind.SEED]
        return changed_source(
            self.catalogs.open(before),
            self.catalogs.open(now),
            tree=record.tree.path,
            carried=carried,
            ctimes=self.ctimes,
            scratch=self.scratch,
        )

    def give_up_source(self, record: model.CutoverRecord, changes: Sequence[model.SourceChange]) -> int:
        """Let the rollback overwrite changes on the source, and return the number of paths moved to its trash.

        First records durably the paths to carry back even if unchanged, then moves the present entries to the trash of
        the source. Blocking; raises OSError.
        """
        # Creating or moving away a path changes the times of its directory.
        again = [path for change in changes for path in (change.path, parent(change.path))]
        note_paths(rollback_directory(self.directory, record) / _GIVEN_UP, again)
        place, kept = trash_place(record.since_s, record.id, "rollback", 0), 0
        with closing(MovingTarget(self.source_root)) as moves:
            moves.open_place(place)
            for change in changes:
                # A directory that was there before differs only in attributes; its entries are listed themselves.
                if change.stands is EntryType.DIRECTORY and change.kind is model.SourceChangeKind.CHANGED:
                    continue
                kept += moves.trash(change.path, place) is not None
        return kept

    async def carry(self, record: model.CutoverRecord) -> model.TargetChanges:
        """Carry the user's new, changed, renamed and removed paths on the target back to the source.

        Replaced and removed entries go to the trash of the source. Always reads the target anew. On return, all of it
        is on the source's disks.

        Also raises Refused if the state of the target at the switch can no longer be known.
        """
        async with self.open(record) as parts:
            await _learn_what_the_source_keeps(parts)
        # Opened again, so attributes that the source cannot keep are not tried there.
        async with self.open(record) as parts:
            world, request = parts.world, parts.request
            try:
                async with parts.files.recorded(parts.ledger, world.clock, verb=VERB, pid=request.pid) as run:
                    invocation = Invocation(world=world, request=request, run_id=run.id, directory=run.directory)
                    await _carry(
                        parts,
                        invocation,
                        record,
                        again=noted_paths(rollback_directory(self.directory, record) / _GIVEN_UP),
                    )
                    run.exit_code = ExitCode.DONE
            except MigratorError as error:
                # A pass calls the side that it reads the source: here, the target.
                error.message = _ROLES + error.message
                error.args = (error.message,)
                raise
            return target_changes(parts.ledger, record)

    async def compare(self, record: model.CutoverRecord) -> VerificationRecord:
        """Compare both sides as they are now, source against target as at the cutover.

        So an attribute that the target could not keep, of a file that the user did not touch, is the same loss as
        before. An attribute of a new file on the target that the source cannot keep is a difference. The next `carry`
        sends what differs. Raises what the verb `verify` raises.
        """
        async with self.open(record) as parts:
            return await parts.compare(plan_of(parts, record))

    def changes(self, record: model.CutoverRecord) -> model.TargetChanges | None:
        """The changes found on the target since the switch; None before the first search. Blocking."""
        with carried_ledger(self.own, self.directory, record) as ledger:
            if ledger is None or newest_pass(ledger, record) is None:
                return None
            return target_changes(ledger, record)


async def _learn_what_the_source_keeps(parts: BackParts) -> None:
    """Probe the source once for each rollback; each opening passes the result to its file system."""
    if parts.ledger.site.required().capabilities is not None:
        return
    if problems := (await parts.source.health()).problems:
        raise Refused(
            f"nothing is carried back: {'; '.join(problems)}",
            cause="what is written while a brick or a mount is not as it has to be may go astray",
            hint="see `migrator doctor`, then run the same command again",
        )
    await probed_capabilities(parts.world, timeout_s=parts.request.stall_timeout_s, side="source")


async def _carry(
    parts: BackParts, invocation: Invocation, record: model.CutoverRecord, *, again: Sequence[bytes]
) -> None:
    """Recover from a killed call, then read the target and send the changes, until a pass leaves nothing to retry."""
    ledger, site = parts.ledger, parts.ledger.site.required()
    await recover(invocation, site)
    await expire_trash(invocation, parts.deltas, site)
    deltas = replace(parts.deltas, again=again)
    noted = switched_pass(ledger, record)
    if noted is None or noted.state is not PassState.DONE:
        now = await _scan_whole(parts, record)
        noted = noted or _start_pass(parts, record, await _write_catalog(parts, record, now))
        ledger.passes.set_state(noted.id, PassState.DONE, parts.world.clock.now_s())
        deltas = replace(deltas, scan=_first(now, deltas.scan))
    plan = plan_of(parts, record)
    (batch,) = plan.batches

    async def run() -> BatchSummary:
        final = DeltaPass(invocation=invocation, plan=plan, site=site, batch=batch, deltas=deltas, kind=PassKind.FINAL)
        return await final.run()

    async for _, made in final_passes(ledger, plan, batch, run):
        # The device number of a server or FUSE mount changes with every mount: such a mount does not pass on a sync of
        # all.
        if site.target.device is None:
            await _flush(parts, made)


async def _scan_whole(parts: BackParts, record: model.CutoverRecord) -> CatalogRecord:
    catalog = await parts.deltas.scan([record.tree.path])
    if not catalog.whole:
        raise Refused(
            f"{show(record.tree.path)} could not be read everywhere: {'; '.join(catalog.reasons)}",
            cause="what is in it would look as if the user had removed it",
            hint="see to that, then run the same command again: nothing was changed",
        )
    return catalog


def _first(now: CatalogRecord, scan: Scan) -> Scan:
    """The pass that follows uses the scan that was just made."""
    waiting = [now]

    async def scan_or_take(trees: Sequence[bytes]) -> CatalogRecord:
        return waiting.pop() if waiting else await scan(trees)

    return scan_or_take


async def _flush(parts: BackParts, made: PassRecord) -> None:
    """Sync every path that a pass has sent before the pass counts: the bricks have them only in memory."""
    for chunk in parts.world.chunk_lists.chunks(made.chunk_list):
        paths = iter(await asyncio.to_thread(parts.world.chunk_lists.paths, made.chunk_list, chunk.number))
        while some := [listed.path for listed in islice(paths, _FLUSHED_AT_ONCE)]:
            try:
                await parts.world.blocking(partial(parts.source.flush, some), timeout_s=parts.request.stall_timeout_s)
            except (OSError, TimeoutError) as error:
                raise MigratorError(
                    f"what was carried back could not be synced on the source: {error}",
                    hint="check the bricks, then run the same command again",
                ) from error
