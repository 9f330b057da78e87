"""The entry of `brick retire`."""

from dataclasses import dataclass

from migrator.decide import retirement_words as words
from migrator.decide.retirement import catalog_problem, next_step
from migrator.decide.strange_files import strange_sentences
from migrator.domain.brick import VolumeState
from migrator.domain.errors import MigratorError, Refused, ToolFailed, UsageError
from migrator.domain.events import EventKind, Severity
from migrator.domain.hooks import HookFacts, HookState, HookStep
from migrator.domain.retirement import (
    UNDER_WAY,
    CoverFound,
    RetirementRecord,
    RetirementState,
    RetirementSummary,
    RetireRequest,
    RetireStep,
)
from migrator.domain.scan import CatalogRecord
from migrator.ports.site import SiteRecord
from migrator.stages.bricks.retire_context import LOG, RetireCall, RetirementWorld, hooked, subject_of
from migrator.stages.bricks.retire_looking import RetirementLooker
from migrator.stages.recorded_run import recorded_run

VERB = "brick-retire"
_LOCKS = ("drain", "run", "scan")
"""Whatever reads, copies, moves or judges by the volume holds one of them."""


async def retire_volume(request: RetireRequest, world: RetirementWorld) -> RetirementSummary:
    """Stop the source volume for good, when every path in it that is no directory is proven to be on the target. The same call
    goes on after any crash: that Gluster calls the volume stopped counts. A dry run looks at the newest catalog instead of
    scanning, takes the same decisions, and changes nothing.

    Raises UsageError, Refused (not confirmed, a hook said no, the ledger's own guards), LockHeld, Interrupted, ToolFailed;
    what speaks against it is in the summary.
    """
    site = world.ledger.site.read()
    if site is None:
        raise UsageError("the ledger knows no site yet", hint="run `migrator init` first")
    try:
        if request.dry_run:
            return await _Retirement(call=RetireCall(world=world, request=request, site=site, run_id=None)).bring()
        return await _make(request, world, site)
    except OSError as error:
        raise MigratorError(
            f"retiring the volume could not go on: {error.strerror or error}",
            cause="the source or the state directory does not answer, is full, or has an error",
            hint="check with `migrator doctor`, then run the same command again: it goes on where it was",
        ) from error


async def _make(request: RetireRequest, world: RetirementWorld, site: SiteRecord) -> RetirementSummary:
    """The call in the ledger, with its locks, its directory and its heartbeat."""
    first, second, third = (world.locks.hold(name, "brick retire") for name in _LOCKS)
    with first, second, third, world.files.open(VERB, world.clock.now_s()) as directory:
        async with recorded_run(
            world.ledger.runs,
            world.clock,
            verb=VERB,
            pid=request.pid,
            directory=directory.path,
            log=LOG,
            heartbeat_interval_s=request.heartbeat_interval_s,
        ) as run:
            call = RetireCall(world=world, request=request, site=site, run_id=run.id, directory=directory.path)
            hooking = call.hooking()
            if hooking is not None:
                await hooking.begin((HookStep.RETIRE,))
            summary = await _Retirement(call=call).bring()
            run.exit_code = summary.exit_code
    return summary


@dataclass(slots=True, kw_only=True)
class _Retirement:
    """One call, from wherever the volume is."""

    call: RetireCall

    async def bring(self) -> RetirementSummary:
        call = self.call
        newest = call.world.ledger.retirements.newest()
        try:
            state, _ = await call.world.volume.state_and_tasks()
        except ToolFailed:
            if newest is not None and newest.state is RetirementState.RETIRED:
                # Whoever deleted it may have done so; that it was retired stands in the ledger.
                return words.done_before(newest, dry_run=call.request.dry_run)
            raise
        if newest is not None and newest.volume_id != state.volume_id:
            newest = None
        match next_step(newest, started=state.started):
            case RetireStep.WRITE_DOWN if newest is not None:
                return await self._write_down(newest)
            case RetireStep.DONE_BEFORE if newest is not None:
                return await self._catch_up(newest)
            case RetireStep.LOOK:
                return await self._look(state, newest)
            case _:
                return self._halted(
                    words.halted(
                        state.volume,
                        "the volume is stopped, and not by this program: what it holds cannot be looked at",
                        dry_run=call.request.dry_run,
                        hint=f"start it (`gluster volume start {state.volume}`), then run the same command again",
                    )
                )

    async def _look(self, state: VolumeState, newest: RetirementRecord | None) -> RetirementSummary:
        request, looker = self.call.request, RetirementLooker(call=self.call)
        if not request.dry_run and request.confirm != state.volume:
            raise Refused(
                f"volume {state.volume} was not retired: it was not confirmed by its name",
                cause="whoever still needs the volume loses it when it is stopped",
                hint=f"look at it with --dry-run, then say --confirm {state.volume}",
            )
        judged = await self._judged(state, looker)
        if isinstance(judged, RetirementSummary):
            if newest is not None and newest.state in UNDER_WAY and not request.dry_run:
                await self._let_go(newest, judged)
            return judged
        if request.dry_run:
            return words.would_be_done(state.volume, judged)
        return await self._retire(state, looker, judged)

    async def _judged(self, state: VolumeState, looker: RetirementLooker) -> RetirementSummary | CoverFound:
        """Guards, then a look at every path: a refusal, or what covers them all."""
        dry_run = self.call.request.dry_run
        against = "something speaks against stopping the volume: nothing was touched"
        if reasons := await looker.problems():
            return self._halted(words.halted(state.volume, against, dry_run=dry_run, reasons=reasons))
        name, at_s, reasons = await self._catalog(looker)
        if reasons:
            return self._halted(words.halted(state.volume, against, dry_run=dry_run, reasons=reasons))
        cover, reasons = await looker.cover(name, at_s)
        if cover.uncovered:
            return self._halted(words.uncovered(state.volume, cover, dry_run=dry_run, reasons=reasons))
        return cover

    async def _catalog(self, looker: RetirementLooker) -> tuple[str, float, tuple[str, ...]]:
        """The catalog to judge by, when it was begun, and why it does not tell everything."""
        world = self.call.world
        if not self.call.request.dry_run:
            record = await world.scan()
            return record.name, record.started_at_s, _catalog_reasons(record)
        known = [one for one in world.ledger.scans.all() if one.finished_at_s is not None and not one.scope]
        newest = known[-1] if known else None
        problem = catalog_problem(
            name=None if newest is None else newest.name,
            whole=newest is not None and newest.whole,
            scope=() if newest is None else newest.scope,
            started_at_s=0.0 if newest is None else newest.started_at_s,
            changed_at_s=looker.changed_at_s(),
        )
        if newest is None or problem is not None:
            return "", 0.0, (problem or "there is no catalog",)
        return newest.name, newest.started_at_s, _catalog_reasons(newest)

    async def _retire(self, state: VolumeState, looker: RetirementLooker, cover: CoverFound) -> RetirementSummary:
        call, proven = self.call, cover.proven
        record = call.world.ledger.retirements.intend(
            volume=state.volume,
            volume_id=state.volume_id,
            catalog=cover.catalog,
            files=proven.paths,
            size_bytes=proven.size_bytes,
            at_s=call.now_s(),
        )
        message = f"volume {state.volume} is about to be stopped: {words.in_words(proven)} proven to be on the target"
        call.say(EventKind.RETIREMENT_STARTED, Severity.INFO, subject_of(state.volume), message)

        async def stop() -> CoverFound:
            return await self._stop(state, record, looker)

        async def after(_: HookFacts, __: CoverFound) -> HookFacts:
            return call.facts(record, state=HookState.DONE)

        hooking = call.hooking()
        try:
            if hooking is None:
                last = await stop()
            else:
                last = await hooking.around(hooked(record), stop, facts=call.facts(record), after=after)
        except _Halted as halted:
            self._give_up(record, halted.message)
            return halted.summary
        except Refused as refused:
            self._give_up(record, refused.message)
            raise
        return words.done(call.world.ledger.retirements.newest() or record, last)

    async def _stop(self, state: VolumeState, record: RetirementRecord, looker: RetirementLooker) -> CoverFound:
        """The backup, everything looked at once more, and the command. Raises ToolFailed where the volume goes on."""
        world = self.call.world
        await world.blocking(lambda: world.back_up(f"retirement-{record.id}"), timeout_s=600.0)
        # Between the look before and this one lie the hooks, which take as long as they like.
        judged = await self._judged(state, looker)
        if isinstance(judged, RetirementSummary):
            raise _Halted(judged)
        # A comparison may take long where much is retained.
        if reasons := await looker.problems():
            raise _Halted(
                self._halted(words.halted(state.volume, "something came between", dry_run=False, reasons=reasons))
            )
        world.ledger.retirements.last_look(record.id)
        try:
            await world.volume.stop()
        except ToolFailed as error:
            # A lost answer is none of a refusal: what Gluster says of the volume counts.
            now, _ = await world.volume.state_and_tasks()
            if now.started:
                self._give_up(record, error.message)
                raise
        await self._finish(record)
        return judged

    async def _finish(self, record: RetirementRecord) -> RetirementRecord:
        world = self.call.world
        now, _ = await world.volume.state_and_tasks()
        if now.started:
            raise ToolFailed(
                f"volume {record.volume} is not stopped, although Gluster did not refuse it",
                hint="see glusterd's log, then run the same command again",
            )
        done = world.ledger.retirements.finish(record.id, RetirementState.RETIRED, at_s=self.call.now_s())
        message = f"volume {record.volume} is retired: it is stopped; {words.NOTHING_DELETED}"
        self.call.say(EventKind.RETIREMENT_FINISHED, Severity.INFO, subject_of(record.volume), message)
        return done

    def _give_up(self, record: RetirementRecord, reason: str) -> None:
        world = self.call.world
        world.ledger.retirements.finish(record.id, RetirementState.GIVEN_UP, at_s=self.call.now_s(), failure=reason)
        message = f"volume {record.volume} goes on: {reason}"
        self.call.say(EventKind.RETIREMENT_GIVEN_UP, Severity.WARNING, subject_of(record.volume), message)

    async def _let_go(self, record: RetirementRecord, judged: RetirementSummary) -> None:
        """An attempt that was killed before the stop must not stand for one that somebody makes by hand later, after this
        refusal.
        """
        now, _ = await self.call.world.volume.state_and_tasks()
        if now.started:
            self._give_up(record, "; ".join((judged.words, *judged.reasons)))

    async def _write_down(self, record: RetirementRecord) -> RetirementSummary:
        """It is stopped, and the process that stopped it was killed before it wrote that down."""
        if not self.call.request.dry_run:
            record = await self._finish(record)
        return await self._catch_up(record)

    async def _catch_up(self, record: RetirementRecord) -> RetirementSummary:
        hooking = self.call.hooking()
        if hooking is not None:
            await hooking.catch_up(hooked(record), self.call.facts(record, state=HookState.DONE))
        return words.done_before(record, dry_run=self.call.request.dry_run)

    def _halted(self, summary: RetirementSummary) -> RetirementSummary:
        if not summary.dry_run:
            message = f"volume {summary.volume} was not retired: {'; '.join((summary.words, *summary.reasons))}"
            self.call.say(EventKind.RETIREMENT_HALTED, Severity.ERROR, subject_of(summary.volume), message)
        return summary


def _catalog_reasons(record: CatalogRecord) -> tuple[str, ...]:
    """Why a catalog does not tell everything that lies there. What was put on bricks past Gluster nobody has copied."""
    return (*(() if record.whole else record.reasons), *strange_sentences(record.strange))


class _Halted(Refused):
    """Refused in the middle of the step that hooks are called around."""

    def __init__(self, summary: RetirementSummary) -> None:
        super().__init__("; ".join((summary.words, *summary.reasons)), hint=summary.hint)
        self.summary = summary
