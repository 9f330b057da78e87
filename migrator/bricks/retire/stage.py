"""`brick retire`: proves that everything in the volume is on the target, then stops the volume."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

import duckdb
from msgspec.structs import replace

from migrator.bricks.add.model import ADDITION_ENDED_STATES, UNTOUCHED_STATES
from migrator.bricks.call import BRICKS_LOCK, BrickCall, BrickWorld
from migrator.bricks.model import Ending
from migrator.bricks.progress import newest_of_bricks
from migrator.bricks.retire import model, rules
from migrator.catalog.database import connect
from migrator.catalog.files import ClosedCatalogs
from migrator.catalog.model import CatalogRecord
from migrator.catalog.ports import Scratch
from migrator.catalog.queries import ROWS_AT_ONCE, create_entries
from migrator.core.entry import EntryType
from migrator.core.errors import MigratorError, Refused, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.paths import join
from migrator.core.probe import PROBE_NAME, is_probe
from migrator.core.tasks import told
from migrator.core.units import format_time
from migrator.cutover.model import SETTLED_STATES, Writers
from migrator.cutover.rules import newest_attempts
from migrator.cutover.writers import Endpoints, WriterSearch, other_clients
from migrator.fs.model import BENCH_NAME, PURGE_NAME, TRASH_NAME
from migrator.fs.ports import SourceFileSystem
from migrator.gluster.model import VolumeHealth, VolumeState
from migrator.hooks.model import HookState, HookStep
from migrator.hooks.stage import HookedStep, StepHooks
from migrator.ledger.locks import VOLUME
from migrator.operations.engine import Around, Done, OperationEngine, Procedure, StepEvents, StepPorts, Stuck
from migrator.operations.model import Act, Finished, Halt
from migrator.purge.model import Archive, Proof
from migrator.reap.model import archive_directory, archive_name
from migrator.scan.rules import strange_sentences
from migrator.site.rules_guards import mount_problems

if TYPE_CHECKING:
    from migrator.bricks.retire.records import RetirementRecords
    from migrator.catalog.manifest import ManifestDirectories


# Joining every path of a catalog with the manifest that proves it.


_FACTS = ("type", "size", "mtime_ns", "ctime_ns", "uid", "gid", "mode", "symlink_target", "rdev", "xattr_digest", "ino")
_PROVEN = (*_FACTS, "digest", "algorithm", "archive")
_HERE = ", ".join(f"here.{name}" for name in ("path", "tree", *_FACTS))
_THEN = ", ".join(f"proven.{name} AS p_{name}" for name in ("tree", *_PROVEN))
_NO_PROOF = ", ".join(f"NULL AS p_{name}" for name in ("tree", *_PROVEN))

# A manifest counts only for its own tree. A newer one may cover other trees.
_BESIDE = """
    SELECT {here}, {then}
    FROM (SELECT * FROM entries WHERE type <> 'directory') here LEFT JOIN (
        SELECT moved.tree AS tree, rows.* EXCLUDE (filename)
        FROM read_parquet([{manifests}], filename = true, union_by_name = true) rows JOIN moved
            ON moved.manifest = rows.filename
            AND rows.path > moved.tree || '/'::BLOB AND rows.path < moved.tree || '0'::BLOB
    ) proven ON proven.path = here.path
"""
_ALONE = "SELECT {here}, {none} FROM entries here WHERE type <> 'directory'"


def cover_paths(
    catalogs: ClosedCatalogs, catalog: str, moved: Mapping[bytes, str], *, name_seed: int, scratch: Scratch
) -> Iterator[Sequence[tuple[model.CatalogedPath, Proof | None]]]:
    """Yield every path of a catalog that is not a directory, in blocks, with its row in the manifest of its moved tree.
    `moved` has the manifest of each tree; `name_seed` is that of the site. Queries spill to `scratch`. Raises
    UsageError if there is no such catalog, and Refused if the catalog or a manifest cannot be read. Blocking.
    """
    closed = catalogs.open(catalog)
    try:
        with connect(scratch) as connection:
            create_entries(connection, closed.part_files)
            for block in connection.sql(_query(connection, moved)).to_arrow_reader(ROWS_AT_ONCE):
                yield [_pair(row, name_seed) for row in block.to_pylist()]
    except duckdb.Error as error:
        raise Refused(
            f"the catalog {catalog} cannot be compared with the manifests: {error}",
            cause="a manifest, or a part of the catalog, was removed or damaged",
            hint="bring the manifests back from a backup of the state directory: without them nothing is proven",
        ) from error


def _query(connection: duckdb.DuckDBPyConnection, moved: Mapping[bytes, str]) -> str:
    if not moved:
        return _ALONE.format(here=_HERE, none=_NO_PROOF)
    connection.execute("CREATE TEMP TABLE moved (tree BLOB, manifest VARCHAR)")
    connection.executemany("INSERT INTO moved VALUES (?, ?)", list(moved.items()))
    # A table function takes only literals as parameters.
    names = ", ".join("'" + file.replace("'", "''") + "'" for file in sorted(set(moved.values())))
    return _BESIDE.format(here=_HERE, then=_THEN, manifests=names)


def _pair(row: Mapping[str, Any], name_seed: int) -> tuple[model.CatalogedPath, Proof | None]:
    found = model.CatalogedPath(path=row["path"], tree=row["tree"], **_facts(row, ""))
    if row["p_tree"] is None:
        return found, None
    archive = None
    if row["p_archive"] is not None:
        # Whether the archive still counts is not checked here.
        where = join(archive_directory(row["p_tree"], name_seed), archive_name(row["p_archive"]))
        archive = Archive(path=where, size_bytes=None)
    proof = Proof(
        path=row["path"],
        digest=row["p_digest"],
        algorithm=row["p_algorithm"],
        archive=archive,
        **_facts(row, "p_"),
    )
    return found, proof


def _facts(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    facts = {name: row[prefix + name] for name in _FACTS if name not in ("type", "size")}
    return {**facts, "type": EntryType(row[f"{prefix}type"]), "size_bytes": row[f"{prefix}size"]}


# The call.


WriteList = Callable[[Iterable[model.Uncovered]], None]


class RetirementWorld(BrickWorld, frozen=True, kw_only=True):
    """The ports. `scan` makes a new catalog of the whole source. `endpoints` returns the connections to bricks of this
    site's mount and of Gluster's own processes, by local end, with a sentence for each host that could not be queried.
    `cover` is `cover_paths`. `list_to` opens the list of uncovered paths in a run's directory, and returns a function
    to append to it and the file's name (blocking).
    """

    source: SourceFileSystem
    writers: WriterSearch
    endpoints: Endpoints
    scan: Callable[[], Awaitable[CatalogRecord]]
    cover: Callable[[str, Mapping[bytes, str]], Iterator[Sequence[tuple[model.CatalogedPath, Proof | None]]]]
    manifests: "ManifestDirectories"
    list_to: Callable[[str], AbstractContextManager[tuple[WriteList, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetireCall(BrickCall):
    """One call of the verb."""

    log = logging.getLogger("migrator.retirement")
    steps = (HookStep.RETIRE,)

    world: RetirementWorld
    request: model.RetireRequest

    def facts_of(self, record: model.Retirement) -> dict[str, Any]:
        return {"files": record.files, "size_bytes": record.size_bytes}


def hooked(record: model.Retirement) -> HookedStep:
    """Describe a retirement to the hooks that are called around it."""
    return HookedStep(
        step=HookStep.RETIRE,
        key=f"retirement {record.id}",
        subject=record.subject,
        words=f"retiring volume {record.volume}",
    )


# Facts for the preflight checks, and coverage of each path.


_LOOK_TIMEOUT_S = 120.0
_EXAMPLES = 20
"""Number of paths of each kind to show. The list file has all of them."""
_STORE = b".glusterfs"
"""Gluster's own directory in every brick. Gluster's processes always have it open."""

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class _Tally:
    paths: Counter[model.Cover | model.UncoveredKind] = field(default_factory=Counter)
    sizes: Counter[model.Cover | model.UncoveredKind] = field(default_factory=Counter)
    examples: dict[model.UncoveredKind, list[model.Uncovered]] = field(default_factory=dict)

    def add(
        self,
        judged: Iterable[tuple[model.CatalogedPath, model.Cover | model.Uncovered]],
        read: Mapping[bytes, model.Cover | model.Uncovered],
    ) -> list[model.Uncovered]:
        """Count these, of which some were `read`. Return those that are not covered."""
        uncovered: list[model.Uncovered] = []
        for found, first in judged:
            last = read.get(found.path, first)
            if isinstance(last, model.Uncovered):
                uncovered.append(last)
                self._count(last.kind, found)
                self._keep(last)
                continue
            if first is model.Cover.READ:
                self._count(first, found)
            self._count(last, found)
        return uncovered

    def sum(self, name: model.Cover | model.UncoveredKind) -> model.PathSum:
        return model.PathSum(paths=self.paths[name], size_bytes=self.sizes[name])

    def _count(self, name: model.Cover | model.UncoveredKind, found: model.CatalogedPath) -> None:
        self.paths[name] += 1
        self.sizes[name] += found.size_bytes if found.type is EntryType.FILE else 0

    def _keep(self, one: model.Uncovered) -> None:
        kept = self.examples.setdefault(one.kind, [])
        kept.append(one)
        kept.sort(key=lambda example: example.path)
        del kept[_EXAMPLES:]


# The entry.


_Act = Act[model.RetireStep, model.RetirementState]
_Done = Done[model.RetirementState, None]
VERB = "brick-retire"
_LOCKS = (BRICKS_LOCK, VOLUME, "scan")
"""Every command that reads, copies, moves or checks files of the volume holds one of these locks."""
_NOTHING_DELETED = (
    "nothing of it is deleted: `gluster volume delete` is left to you, and `gluster volume start` takes this back"
)
_NO_CATALOG = (
    "there is no whole catalog of the whole source that is newer than the last cutover, purge or change of bricks: `migrator scan`, "
    "then this again"
)
_MOVE_THEM = (
    "move them with a user tree ([users] trees in site.toml, then scan, plan, run, cutover), purge trees whose users "
    "were moved, or remove by hand what is not needed; then run the same command again"
)


async def retire_volume(request: model.RetireRequest, world: RetirementWorld) -> model.RetirementSummary:
    """Stop the source volume for good, when every path in it that is not a directory is proven to be on the target. The
    same call resumes after any crash: the volume counts as stopped if Gluster reports that. A dry run uses the newest
    catalog instead of scanning, makes the same decisions, and changes nothing.

    Raises UsageError, Refused (not confirmed, refused by a hook or by the ledger's checks), LockHeld, Interrupted,
    ToolFailed. Problems are in the summary.
    """
    call = RetireCall(world=world, request=request, site=world.ledger.site.required())
    with MigratorError.of_files(
        "retiring the volume could not go on",
        cause="the source or the state directory does not answer, is full, or has an error",
        hint="check with `migrator doctor`, then run the same command again: it resumes",
    ):
        if request.dry_run:
            return await _Retirement(call=call).bring()
        return await call.recorded(VERB, "brick retire", lambda call: _Retirement(call=call).bring(), locks=_LOCKS)


@dataclass(slots=True, kw_only=True)
class _Retirement(Procedure[model.Retirement, VolumeState]):
    """One call, from any state of the volume. `last` is the coverage in the last check of this call."""

    events = StepEvents(
        done=EventKind.RETIREMENT_FINISHED,
        failed=EventKind.RETIREMENT_GIVEN_UP,
        aborting=EventKind.RETIREMENT_GIVEN_UP,
    )

    call: RetireCall
    last: model.CoverFound | None = None

    @property
    def records(self) -> "RetirementRecords":
        return self.call.world.ledger.retirements

    @property
    def ports(self) -> StepPorts:
        return self.call.world

    @property
    def poll_s(self) -> float:
        return self.call.request.poll_s

    @property
    def hooks(self) -> StepHooks:
        return self.call.hooking()

    def emit(self, kind: EventKind, severity: Severity, record: model.Retirement, message: str) -> None:
        self.call.say(kind, severity, record.subject, message)

    def shown(self, record: model.Retirement) -> str:
        return f"volume {record.volume}"

    async def around(self, _: _Act, record: model.Retirement) -> Around:
        facts = self.call.facts
        return Around(
            step=hooked(record), before=lambda: facts(record), after=lambda: facts(record, state=HookState.DONE)
        )

    async def bring(self) -> model.RetirementSummary:
        """Drive the retirement from its current state."""
        call = self.call
        newest = self.records.newest()
        try:
            state, _ = await call.world.volume.state_and_tasks()
        except ToolFailed:
            if newest is not None and newest.state is model.RetirementState.RETIRED:
                # An operator may have deleted the volume. The ledger records that it was retired.
                return self._done_before(newest)
            raise
        if newest is not None and newest.volume_id != state.volume_id:
            newest = None
        step = rules.next_step(newest, started=state.started, volume=state.volume)
        if isinstance(step, Halt):
            return self._halted(state.volume, step.words, hint=step.hint)
        if newest is None or (isinstance(step, Act) and not step.seen_done):
            return await self._look(state, newest)
        return self._done_before(newest) if call.request.dry_run else await self._drive(newest)

    async def _drive(self, record: model.Retirement) -> model.RetirementSummary:
        ended = await OperationEngine(self).drive(record)
        match ended.reason:
            case Finished():
                return await self._finished(ended.record)
            case Halt() as halt:
                return self._halted(record.volume, halt.words, hint=halt.hint)
            case Stuck():
                return self._halted(record.volume, ended.record.failure)
            case _:
                assert_never(ended.reason)

    async def snapshot(self, record: model.Retirement) -> VolumeState:
        del record
        state, _ = await self.call.world.volume.state_and_tasks()
        return state

    def next_step(self, record: model.Retirement, seen: VolumeState) -> _Act | Halt | Finished:
        return rules.next_step(record, started=seen.started, volume=record.volume)

    async def _look(self, state: VolumeState, newest: model.Retirement | None) -> model.RetirementSummary:
        request = self.call.request
        if not request.dry_run and request.confirm != state.volume:
            raise Refused(
                f"volume {state.volume} was not retired: it was not confirmed by its name",
                cause="all clients lose the volume when it is stopped",
                hint=f"look at it with --dry-run, then pass --confirm {state.volume}",
            )
        judged = await self._judged(state.volume)
        if isinstance(judged, model.RetirementSummary):
            if newest is not None and newest.state in model.UNDER_WAY and not request.dry_run:
                await self._let_go(newest, judged)
            return judged
        if request.dry_run:
            words = f"everything is proven to be on the target, by the catalog {judged.catalog}: the volume would be stopped"
            hint = f"to retire it, say --confirm {state.volume}: the source is scanned anew then, before it is stopped"
            return self._summary(state.volume, Ending.PLANNED, words, hint, cover=judged)
        return await self._retire(state, judged)

    async def _judged(self, volume: str) -> model.RetirementSummary | model.CoverFound:
        """Run the preflight checks, then check every path. Return a refusal, or the coverage."""
        against = "preflight checks failed: the volume was not stopped"
        if reasons := await self.problems():
            return self._halted(volume, against, reasons=reasons)
        catalog = await self._catalog()
        if catalog is None:
            return self._halted(volume, against, reasons=(_NO_CATALOG,))
        reasons = (*(() if catalog.whole else catalog.reasons), *strange_sentences(catalog.strange))
        if reasons:
            return self._halted(volume, against, reasons=reasons)
        cover, reasons = await self.cover(catalog.name, catalog.started_at_s)
        if not cover.uncovered:
            return cover
        total = model.PathSum(
            paths=sum(one.paths for one in cover.uncovered.values()),
            size_bytes=sum(one.size_bytes for one in cover.uncovered.values()),
        )
        return self._halted(
            volume,
            f"{rules.in_words(total)} not proven to be on the target: nothing was touched",
            hint=_MOVE_THEM,
            reasons=reasons,
            cover=cover,
        )

    async def _catalog(self) -> CatalogRecord | None:
        """Return the catalog to check; None if a dry run has none."""
        if not self.call.request.dry_run:
            return await self.call.world.scan()
        newest = self.call.world.ledger.scans.latest()
        if newest is None or not newest.whole or newest.started_at_s <= self.changed_at_s():
            return None
        return newest

    async def _retire(self, state: VolumeState, cover: model.CoverFound) -> model.RetirementSummary:
        proven = cover.proven
        record = self.records.begin(
            volume=state.volume,
            volume_id=state.volume_id,
            catalog=cover.catalog,
            files=proven.paths,
            size_bytes=proven.size_bytes,
            at_s=self.call.now_s(),
        )
        message = f"volume {state.volume} is about to be stopped: {rules.in_words(proven)} proven to be on the target"
        self.emit(EventKind.RETIREMENT_STARTED, Severity.INFO, record, message)
        try:
            return await self._drive(record)
        except _Halted as halted:
            return halted.summary

    async def perform(self, act: _Act, record: model.Retirement) -> _Done:
        """Back up the ledger, repeat all checks, and stop the volume. Raises ToolFailed if the volume still runs."""
        world = self.call.world
        if not act.seen_done:
            await world.blocking(lambda: world.back_up(f"retirement-{record.id}"), timeout_s=600.0)
            # The hooks ran since the previous check, and may have taken long.
            judged = await self._judged(record.volume)
            if isinstance(judged, model.RetirementSummary):
                raise _Halted(judged)
            self.last = judged
            # A comparison may take long if many sources are retained.
            if reasons := await self.problems():
                raise _Halted(self._halted(record.volume, "something came between", reasons=reasons))
            self.records.enter(record.id, model.RetirementState.STOPPING, at_s=self.call.now_s())
            try:
                await world.volume.stop_volume()
            except ToolFailed as error:
                # A lost reply is no refusal: the state of the volume decides.
                now, _ = await world.volume.state_and_tasks()
                if now.started:
                    self._give_up(record, error.message)
                    raise
        now, _ = await world.volume.state_and_tasks()
        if now.started:
            raise ToolFailed(
                f"volume {record.volume} is not stopped, although Gluster did not refuse it",
                hint="see glusterd's log, then run the same command again",
            )
        return Done(words=f"volume {record.volume} is retired: it is stopped; {_NOTHING_DELETED}")

    def after_failure(self, record: model.Retirement, act: _Act, error: Exception, *, resumed: bool) -> None:
        """Raise every failure, which ends the call."""
        del act, resumed
        if isinstance(error, Refused):
            self._give_up(record, error.message)
        raise error

    async def _finished(self, record: model.Retirement) -> model.RetirementSummary:
        await self.hooks.catch_up(hooked(record), self.call.facts(record, state=HookState.DONE))
        if self.last is None:
            return self._done_before(record)
        words = f"volume {record.volume} is retired: it is stopped, and everything in it is proven to be on the target"
        return self._summary(record.volume, Ending.DONE, words, cover=self.last, retirement=record)

    def _give_up(self, record: model.Retirement, reason: str) -> None:
        self.records.enter(record.id, model.RetirementState.GIVEN_UP, at_s=self.call.now_s(), failure=reason)
        message = f"volume {record.volume} stays started: {reason}"
        self.emit(EventKind.RETIREMENT_GIVEN_UP, Severity.WARNING, record, message)

    async def _let_go(self, record: model.Retirement, judged: model.RetirementSummary) -> None:
        """Abort an attempt that was killed before the stop. Otherwise a later manual stop would count as this attempt,
        despite this refusal.
        """
        now, _ = await self.call.world.volume.state_and_tasks()
        if now.started:
            self._give_up(record, "; ".join((judged.words, *judged.reasons)))

    def _halted(
        self,
        volume: str,
        words: str,
        *,
        reasons: tuple[str, ...] = (),
        hint: str = "solve that, then run the same command again",
        cover: model.CoverFound | None = None,
    ) -> model.RetirementSummary:
        """Return the summary if a preflight check failed, or a path is not covered."""
        if not self.call.request.dry_run:
            message = f"volume {volume} was not retired: {'; '.join((words, *reasons))}"
            self.call.say(EventKind.RETIREMENT_HALTED, Severity.ERROR, model.subject_of(volume), message)
        return self._summary(volume, Ending.HALTED, words, hint, reasons=reasons, cover=cover)

    def _done_before(self, record: model.Retirement) -> model.RetirementSummary:
        words = f"volume {record.volume} is retired since {format_time(record.since_s)}"
        return self._summary(record.volume, Ending.DONE_BEFORE, words, retirement=record)

    def _summary(
        self,
        volume: str,
        ending: Ending,
        words: str,
        hint: str = _NOTHING_DELETED,
        **facts: Any,  # noqa: ANN401 - other fields of the summary
    ) -> model.RetirementSummary:
        dry_run = self.call.request.dry_run
        return model.RetirementSummary(volume=volume, dry_run=dry_run, ending=ending, words=words, hint=hint, **facts)

    # Facts for the preflight checks, and coverage of each path. Nothing is changed.

    async def problems(self) -> tuple[str, ...]:
        """Return all preflight checks that fail now."""
        world = self.call.world
        found = await told(world.volume.state_and_tasks())
        world = self.call.world
        bricks = () if found is None else tuple(one.name for one in found[0].bricks)
        clients, own = await other_clients(world.volume.clients, world.endpoints, bricks=bricks, clock=world.clock)
        health = await world.source.health()
        if found is not None and isinstance(health, VolumeHealth):
            state = found[0]
            health = replace(health, state=replace(health.state, peers_down=state.peers_down, heals=state.heals))
        return rules.retire_problems(
            rules.RetireFacts(
                mounts=await self._mounts(),
                health=health,
                tasks=None if found is None else found[1],
                cutovers=newest_attempts(world.ledger.cutovers.all()),
                drains=tuple(one.shown_bricks for one in world.ledger.drains.under_way()),
                additions=self._additions(),
                clients=clients,
                clients_unseen=own.unseen,
                opened=await self._opened(),
                purge_left=await self._seen(self._purge_left),
                strange=await self._seen(self._strange),
            )
        )

    def changed_at_s(self) -> float:
        """Return when the newest cutover, drain or addition entered its current state."""
        ledger = self.call.world.ledger
        times = [record.since_s for record in ledger.cutovers.all()]
        times += [max(record.times.values()) for record in newest_of_bricks(ledger.drains.all())]
        times += [max(record.times.values()) for record in ledger.additions.all()]
        return max(times, default=0.0)

    async def cover(self, catalog: str, catalog_at_s: float) -> tuple[model.CoverFound, tuple[str, ...]]:
        """Check every path of a catalog, reading content where a proof needs it. Also return why some manifests do not
        count. Raises Refused, UsageError, OSError.
        """
        moved, unproven = await self._manifests()
        tally, gate = _Tally(), asyncio.Semaphore(self.call.request.workers)
        listing = nullcontext(None) if self.call.directory is None else self.call.world.list_to(self.call.directory)
        with listing as opened:
            write, name = opened if opened is not None else (None, None)
            blocks = self.call.world.cover(catalog, moved)
            while (block := await asyncio.to_thread(next, blocks, None)) is not None:
                judged = [
                    (path, rules.judge_path(path, proof, moved=moved, unproven=unproven)) for path, proof in block
                ]
                again = [pair for pair, (_, one) in zip(block, judged, strict=True) if one is model.Cover.READ]
                read = await asyncio.gather(
                    *(self._read(path, proof, gate) for path, proof in again if proof is not None)
                )
                uncovered = tally.add(judged, dict(read))
                if write is not None and uncovered:
                    write(uncovered)
        found = model.CoverFound(
            catalog=catalog,
            catalog_at_s=catalog_at_s,
            proven=tally.sum(model.Cover.PROVEN),
            own=tally.sum(model.Cover.OWN),
            read=tally.sum(model.Cover.READ),
            uncovered={kind: tally.sum(kind) for kind in model.UncoveredKind if tally.paths[kind]},
            examples=tuple(one for kind in model.UncoveredKind for one in tally.examples.get(kind, ())),
            list_file=name if tally.examples else None,
        )
        return found, tuple(unproven.values())

    async def _read(
        self, found: model.CatalogedPath, proof: Proof, gate: asyncio.Semaphore
    ) -> tuple[bytes, model.Cover | model.Uncovered]:
        digest, problem = None, ""
        async with gate:
            try:
                read = await asyncio.to_thread(self.call.world.source.digest, found.path, proof.algorithm or "")
                digest, problem = read.value, "changed while it was read" if read.changed else ""
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else None
                problem = f"could not be read: {why or error}"
        return found.path, rules.judge_content(found, proof, digest, problem)

    async def _manifests(self) -> tuple[Mapping[bytes, str], Mapping[bytes, str]]:
        """Return the manifests that count, by tree, and why the manifest of another user who works on the target does
        not, by tree.
        """
        ledger = self.call.world.ledger
        proofs = {one.id: one for one in ledger.verifications.all()}
        moved: dict[bytes, str] = {}
        unproven: dict[bytes, str] = {}
        for record in newest_attempts(ledger.cutovers.all()):
            tree = record.tree.path
            if record.state not in SETTLED_STATES:
                continue
            proof = proofs.get(record.notes.verification_id or 0)
            digest = None
            if proof is not None and proof.manifest is not None:
                with suppress(MigratorError, OSError):
                    digest = await asyncio.to_thread(self.call.world.manifests.digest, proof.manifest)
            problem = rules.manifest_problem(record, proof, digest)
            if problem is None and proof is not None and proof.manifest is not None:
                moved[tree] = proof.manifest
            else:
                unproven[tree] = f"{record.tree.user}: {problem}"
        return moved, unproven

    def _additions(self) -> tuple[str, ...]:
        # The newest on either side: an addition to the source that failed is over once its brick went to the target.
        newest = {frozenset(one.bricks): one for one in self.call.world.ledger.additions.all()}
        resting = ADDITION_ENDED_STATES | UNTOUCHED_STATES
        return tuple(one.shown_bricks for one in newest.values() if one.state not in resting)

    def _purge_left(self) -> bool:
        """Return whether the purge directory has content, which no scan lists. Raises OSError."""
        source = self.call.world.source
        if source.look(PURGE_NAME) is None:
            return False
        return any(block.entries or block.problems for block in source.read_directory(PURGE_NAME))

    def _strange(self) -> tuple[bytes, ...]:
        """Return own names in the root whose type, owner, mode or content is not this program's. Raises OSError."""
        source, found = self.call.world.source, []
        for name in (TRASH_NAME, PROBE_NAME, BENCH_NAME):
            seen = source.look(name)
            if seen is None:
                continue
            if (seen.type, seen.uid, seen.mode & 0o077) != (EntryType.DIRECTORY, 0, 0):
                found.append(name)
            elif name != TRASH_NAME:
                blocks = source.read_directory(name)
                if any(block.problems or any(not is_probe(one.path) for one in block.entries) for block in blocks):
                    found.append(name)
        return tuple(found)

    async def _mounts(self) -> tuple[str, ...]:
        source = await self._seen(self.call.world.source.identity)
        return mount_problems(self.call.site.source, source, where="the source")

    async def _opened(self) -> Writers:
        found = await self.call.world.writers((b"",))
        own = (_STORE, _STORE + b"/")
        users = [replace(one, path=one.path.lstrip(b"/")) for one in found.open_files]
        return replace(
            found, open_files=tuple(one for one in users if one.path != own[0] and not one.path.startswith(own[1]))
        )

    async def _seen(self, look: Callable[[], T]) -> T | None:
        return await told(self.call.world.blocking(look, timeout_s=_LOOK_TIMEOUT_S))


class _Halted(Refused):
    """A refusal during the step that hooks are called around."""

    def __init__(self, summary: model.RetirementSummary) -> None:
        super().__init__("; ".join((summary.words, *summary.reasons)), hint=summary.hint)
        self.summary = summary
