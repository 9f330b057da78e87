"""`brick retire`: proves that everything in the volume is on the target, then stops the volume."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, assert_never

from msgspec.structs import replace

from migrator.bricks.model import CallEnding
from migrator.bricks.moves import BRICKS_LOCK
from migrator.bricks.progress import newest_of_bricks
from migrator.bricks.records import BrickLedger
from migrator.bricks.retire import model, rules
from migrator.bricks.retire.cover import CoverCheck, OpenList, PathsWithProofs
from migrator.bricks.retire.rules import describe_sum
from migrator.catalog.model import CatalogRecord
from migrator.core.entry import EntryType
from migrator.core.errors import MigratorError, Refused, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.probe import PROBE_NAME, is_probe
from migrator.core.tasks import result_or_none
from migrator.core.units import format_time
from migrator.cutover.rules_states import newest_attempts
from migrator.cutover.rules_writers import Writers
from migrator.cutover.writers import Endpoints, WriterSearch, other_clients
from migrator.fs.model import BENCH_NAME, PURGE_NAME, TRASH_NAME
from migrator.fs.ports import SourceFileSystem
from migrator.gluster.changes import GlusterVolumeCommands
from migrator.gluster.model import VolumeHealth, VolumeState
from migrator.hooks.calls import HookedStep
from migrator.hooks.model import HookState, HookStep
from migrator.ledger.locks import VOLUME
from migrator.operations.call import Call
from migrator.operations.engine import Around, Done, OperationEngine, Procedure, StepEvents, Stuck
from migrator.operations.model import Act, Finished, Halt
from migrator.operations.run_files import CallPorts
from migrator.scan.rules import strange_sentences
from migrator.site.rules_guards import mount_problems

if TYPE_CHECKING:
    from migrator.bricks.retire.records import RetirementRecords
    from migrator.catalog.manifest import ManifestDirectories

T = TypeVar("T")

LOG = logging.getLogger("migrator.retirement")

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


class RetirementPorts(CallPorts, frozen=True, kw_only=True):
    """The ports."""

    ledger: BrickLedger
    volume: GlusterVolumeCommands
    back_up: Callable[[str], None]
    """Copies the ledger under a name (blocking)."""
    source: SourceFileSystem
    writers: WriterSearch
    endpoints: Endpoints
    """The connections to bricks of this site's mount and of Gluster's own processes, by local end, with a sentence for each
    host that could not be queried.
    """
    scan: Callable[[], Awaitable[CatalogRecord]]
    """Makes a new catalog of the whole source."""
    cover: PathsWithProofs
    manifests: "ManifestDirectories"
    list_to: OpenList


RetirementCall: TypeAlias = Call[RetirementPorts, model.RetireRequest]


async def retire_volume(request: model.RetireRequest, ports: RetirementPorts) -> model.RetirementSummary:
    """Stop the source volume for good, when every path in it that is not a directory is proven to be on the target. The
    same call resumes after any crash: the volume counts as stopped if Gluster reports that. A dry run uses the newest
    catalog instead of scanning, makes the same decisions, and changes nothing.

    Raises UsageError, Refused (not confirmed, refused by a hook or by the ledger's checks), LockHeld, Interrupted,
    ToolFailed. Problems are in the summary.
    """
    call: RetirementCall = Call(ports=ports, request=request, site=ports.ledger.site.required(), log=LOG)
    with MigratorError.of_files(
        "retiring the volume could not continue",
        cause="the source or the state directory does not answer, is full, or has an error",
        hint="check with `migrator doctor`, then run the same command again: it resumes",
    ):
        if request.dry_run:
            return await RetirementProcedure(call=call).run()
        with ports.locks.hold("brick retire", *_LOCKS):
            return await call.recorded(
                VERB, lambda call: RetirementProcedure(call=call).run(), hook_steps=(HookStep.RETIRE,)
            )


# The procedure.


_LOOK_TIMEOUT_S = 120.0
_STORE = b".glusterfs"
"""Gluster's own directory in every brick. Gluster's processes always have it open."""


def hooked(record: model.Retirement) -> HookedStep:
    """Describe a retirement to the hooks that are called around it."""
    return HookedStep(
        step=HookStep.RETIRE,
        key=f"retirement {record.id}",
        subject=record.subject(),
        words=f"retiring volume {record.volume}",
    )


@dataclass(slots=True, kw_only=True)
class RetirementProcedure(Procedure[model.Retirement, VolumeState]):
    """One call, from any state of the volume. `last_cover` is the coverage in the last check of this call."""

    events = StepEvents(
        done=EventKind.RETIREMENT_FINISHED,
        failed=EventKind.RETIREMENT_GIVEN_UP,
        aborting=EventKind.RETIREMENT_GIVEN_UP,
    )

    call: RetirementCall
    last_cover: model.CoverFound | None = None

    async def run(self) -> model.RetirementSummary:
        """Drive the retirement from its current state."""
        call = self.call
        newest = self.records.newest()
        try:
            state, _ = await call.ports.volume.state_and_tasks()
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
            return await self._begin(state, newest)
        return self._done_before(newest) if call.request.dry_run else await self._drive(newest)

    async def _drive(self, record: model.Retirement) -> model.RetirementSummary:
        ended = await OperationEngine(self, self.call, poll_s=self.call.request.poll_s).drive(record)
        match ended.reason:
            case Finished():
                return await self._finished(ended.record)
            case Halt() as halt:
                return self._halted(record.volume, halt.words, hint=halt.hint)
            case Stuck():
                return self._halted(record.volume, ended.record.failure)
            case _:
                assert_never(ended.reason)

    async def _begin(self, state: VolumeState, newest: model.Retirement | None) -> model.RetirementSummary:
        request = self.call.request
        if not request.dry_run and request.confirm != state.volume:
            raise Refused(
                f"volume {state.volume} was not retired: it was not confirmed by its name",
                cause="all clients lose the volume when it is stopped",
                hint=f"review it with --dry-run, then pass --confirm {state.volume}",
            )
        judged = await self._judged(state.volume)
        if isinstance(judged, model.RetirementSummary):
            if newest is not None and newest.state in model.UNDER_WAY and not request.dry_run:
                await self._abort_killed(newest, judged)
            return judged
        if request.dry_run:
            words = f"everything is proven to be on the target, by the catalog {judged.catalog}: the volume would be stopped"
            hint = f"to retire it, pass --confirm {state.volume}: the source is then scanned again before it is stopped"
            return self._summary(state.volume, CallEnding.PLANNED, words, hint, cover=judged)
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
            f"{describe_sum(total)} not proven to be on the target: nothing was touched",
            hint=_MOVE_THEM,
            reasons=reasons,
            cover=cover,
        )

    async def _catalog(self) -> CatalogRecord | None:
        """Return the catalog to check; None if a dry run has none."""
        if not self.call.request.dry_run:
            return await self.call.ports.scan()
        newest = self.call.ports.ledger.scans.latest()
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
        message = f"volume {state.volume} is about to be stopped: {describe_sum(proven)} proven to be on the target"
        self.call.emit(EventKind.RETIREMENT_STARTED, Severity.INFO, record.subject(), message)
        try:
            return await self._drive(record)
        except _Halted as halted:
            return halted.summary

    # For the engine.

    @property
    def records(self) -> "RetirementRecords":
        return self.call.ports.ledger.retirements

    async def snapshot(self, record: model.Retirement) -> VolumeState:
        del record
        state, _ = await self.call.ports.volume.state_and_tasks()
        return state

    def next_step(self, record: model.Retirement, snapshot: VolumeState) -> _Act | Halt | Finished:
        return rules.next_step(record, started=snapshot.started, volume=record.volume)

    async def around(self, act: _Act, record: model.Retirement) -> Around:
        del act
        facts = partial(self.call.hook_facts, record.hook_facts())
        return Around(step=hooked(record), before=facts, after=partial(facts, state=HookState.DONE))

    async def perform(self, act: _Act, record: model.Retirement) -> _Done:
        """Back up the ledger, repeat all checks, and stop the volume. Raises ToolFailed if the volume still runs."""
        ports = self.call.ports
        if not act.seen_done:
            await ports.blocking(lambda: ports.back_up(f"retirement-{record.id}"), timeout_s=600.0)
            # The hooks ran since the previous check, and may have taken long.
            judged = await self._judged(record.volume)
            if isinstance(judged, model.RetirementSummary):
                raise _Halted(judged)
            self.last_cover = judged
            # A comparison may take long if many sources are retained.
            if reasons := await self.problems():
                raise _Halted(self._halted(record.volume, "a preflight check failed after the scan", reasons=reasons))
            self.records.enter(record.id, model.RetirementState.STOPPING, at_s=self.call.now_s())
            try:
                await ports.volume.stop_volume()
            except ToolFailed as error:
                # A lost reply is no refusal: the state of the volume decides.
                now, _ = await ports.volume.state_and_tasks()
                if now.started:
                    self._give_up(record, error.message)
                    raise
        now, _ = await ports.volume.state_and_tasks()
        if now.started:
            raise ToolFailed(
                f"volume {record.volume} is not stopped, although Gluster did not refuse it",
                hint="see glusterd's log, then run the same command again",
            )
        return Done(message=f"volume {record.volume} is retired: it is stopped; {_NOTHING_DELETED}")

    def after_failure(self, record: model.Retirement, act: _Act, error: Exception, *, resumed: bool) -> None:
        """Raise every failure, which ends the call."""
        del act, resumed
        if isinstance(error, Refused):
            self._give_up(record, error.message)
        raise error

    # The end of the call.

    async def _finished(self, record: model.Retirement) -> model.RetirementSummary:
        await self.call.hooks.catch_up(hooked(record), self.call.hook_facts(record.hook_facts(), state=HookState.DONE))
        if self.last_cover is None:
            return self._done_before(record)
        words = f"volume {record.volume} is retired: it is stopped, and everything in it is proven to be on the target"
        return self._summary(record.volume, CallEnding.DONE, words, cover=self.last_cover, retirement=record)

    def _give_up(self, record: model.Retirement, reason: str) -> None:
        self.records.enter(record.id, model.RetirementState.GIVEN_UP, at_s=self.call.now_s(), failure=reason)
        message = f"volume {record.volume} stays started: {reason}"
        self.call.emit(EventKind.RETIREMENT_GIVEN_UP, Severity.WARNING, record.subject(), message)

    async def _abort_killed(self, record: model.Retirement, judged: model.RetirementSummary) -> None:
        """Abort an attempt that was killed before the stop. Otherwise a later manual stop would count as this attempt,
        despite this refusal.
        """
        now, _ = await self.call.ports.volume.state_and_tasks()
        if now.started:
            self._give_up(record, "; ".join((judged.words, *judged.reasons)))

    def _halted(
        self,
        volume: str,
        words: str,
        *,
        reasons: tuple[str, ...] = (),
        hint: str = "fix these problems, then run the same command again",
        cover: model.CoverFound | None = None,
    ) -> model.RetirementSummary:
        """Return the summary if a preflight check failed, or a path is not covered."""
        if not self.call.request.dry_run:
            message = f"volume {volume} was not retired: {'; '.join((words, *reasons))}"
            self.call.emit(EventKind.RETIREMENT_HALTED, Severity.ERROR, model.subject_of(volume), message)
        return self._summary(volume, CallEnding.HALTED, words, hint, reasons=reasons, cover=cover)

    def _done_before(self, record: model.Retirement) -> model.RetirementSummary:
        words = f"volume {record.volume} is retired since {format_time(record.since_s)}"
        return self._summary(record.volume, CallEnding.DONE_BEFORE, words, retirement=record)

    def _summary(
        self,
        volume: str,
        ending: CallEnding,
        words: str,
        hint: str = _NOTHING_DELETED,
        **facts: Any,  # noqa: ANN401 - other fields of the summary
    ) -> model.RetirementSummary:
        dry_run = self.call.request.dry_run
        return model.RetirementSummary(volume=volume, dry_run=dry_run, ending=ending, words=words, hint=hint, **facts)

    # Facts for the preflight checks. Nothing is changed.

    async def problems(self) -> tuple[str, ...]:
        """Return all preflight checks that fail now."""
        ports = self.call.ports
        found = await result_or_none(ports.volume.state_and_tasks())
        bricks = () if found is None else tuple(one.name for one in found[0].bricks)
        clients, own = await other_clients(ports.volume.clients, ports.endpoints, bricks=bricks, clock=ports.clock)
        health = await ports.source.health()
        if found is not None and isinstance(health, VolumeHealth):
            state = found[0]
            health = replace(health, state=replace(health.state, peers_down=state.peers_down, heals=state.heals))
        return rules.retire_problems(
            rules.RetireFacts(
                mounts=await self._mounts(),
                health=health,
                tasks=None if found is None else found[1],
                cutovers=newest_attempts(ports.ledger.cutovers.all()),
                drains=tuple(one.shown_bricks for one in ports.ledger.drains.under_way()),
                additions=self._additions(),
                clients=clients,
                clients_unseen=own.unseen,
                opened=await self._opened(),
                purge_left=await self._known(self._purge_left),
                strange=await self._known(self._strange),
            )
        )

    def changed_at_s(self) -> float:
        """Return when the newest cutover, drain or addition entered its current state."""
        ledger = self.call.ports.ledger
        times = [record.since_s for record in ledger.cutovers.all()]
        times += [max(record.times.values()) for record in newest_of_bricks(ledger.drains.all())]
        times += [max(record.times.values()) for record in ledger.additions.all()]
        return max(times, default=0.0)

    async def cover(self, catalog: str, catalog_at_s: float) -> tuple[model.CoverFound, tuple[str, ...]]:
        """Check every path of a catalog. Also return why some manifests do not count. Raises Refused, UsageError, OSError."""
        ports = self.call.ports
        check = CoverCheck(
            ledger=ports.ledger,
            manifests=ports.manifests,
            source=ports.source,
            paths=ports.cover,
            open_list=ports.list_to,
            directory=self.call.directory,
            workers=self.call.request.workers,
        )
        return await check.run(catalog, catalog_at_s)

    def _additions(self) -> tuple[str, ...]:
        # The newest on either side: an addition to the source that failed is over once its brick went to the target.
        newest = {frozenset(one.bricks): one for one in self.call.ports.ledger.additions.all()}
        return tuple(one.shown_bricks for one in newest.values() if one.is_unfinished())

    def _purge_left(self) -> bool:
        """Return whether the purge directory has content, which no scan lists. Raises OSError."""
        source = self.call.ports.source
        if source.look(PURGE_NAME) is None:
            return False
        return any(block.entries or block.problems for block in source.read_directory(PURGE_NAME))

    def _strange(self) -> tuple[bytes, ...]:
        """Return own names in the root whose type, owner, mode or content is not this program's. Raises OSError."""
        source, found = self.call.ports.source, []
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
        source = await self._known(self.call.ports.source.identity)
        return mount_problems(self.call.site.source, source, where="the source")

    async def _opened(self) -> Writers:
        found = await self.call.ports.writers((b"",))
        own = (_STORE, _STORE + b"/")
        users = [replace(one, path=one.path.lstrip(b"/")) for one in found.open_files]
        return replace(
            found, open_files=tuple(one for one in users if one.path != own[0] and not one.path.startswith(own[1]))
        )

    async def _known(self, look: Callable[[], T]) -> T | None:
        return await result_or_none(self.call.ports.blocking(look, timeout_s=_LOOK_TIMEOUT_S))


class _Halted(Refused):
    """A refusal during the step that hooks are called around."""

    def __init__(self, summary: model.RetirementSummary) -> None:
        super().__init__("; ".join((summary.words, *summary.reasons)), hint=summary.hint)
        self.summary = summary
