"""The stage: carry back what changed on the target since the switch, and verify it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice

from migrator.decide.carried_top import carried_top
from migrator.domain.cutover import CutoverRecord, TargetChanges
from migrator.domain.cutover_seen import PassSeen, ProofSeen
from migrator.domain.entry import Entry
from migrator.domain.errors import ExitCode, LedgerCorrupt, MigratorError, Refused
from migrator.domain.freezing import FrozenTop
from migrator.domain.paths import show
from migrator.domain.scan import CatalogRecord
from migrator.domain.states import PassKind
from migrator.domain.verification import VerificationRecord
from migrator.ports.carrying_back import CarriedBack, SourceChange
from migrator.stages.carry_back.back_site import (
    PLAN,
    BackParts,
    Openings,
    exchanged,
    newest_pass,
    read_site,
)
from migrator.stages.carry_back.seeing import pass_seen, proof_seen, target_changes
from migrator.stages.carry_back.switched import is_noted, note_switch, plan_of
from migrator.stages.run.context import Invocation, World
from migrator.stages.run.delta import DeltaPass
from migrator.stages.run.pass_moves import only_not_renamed
from migrator.stages.run.recovery import recover
from migrator.stages.run.trash import expire_trash
from migrator.stages.verify import VerifyRequest, verify

VERB = "rollback"
Scan = Callable[[Sequence[bytes]], Awaitable[CatalogRecord]]

_MOST_PASSES = 3
"""In one call: what could not be renamed on the source, because it was not there as before, is sent by the next pass."""
_FLUSHED_AT_ONCE = 256
_ROLES = (
    "here the target is read and the source is written, so the one is called the source, and the other the target: "
)


class CarryingBack:
    """Carries back what users changed on the target since the switch, one user tree at a time.

    The caller holds the lock `run`, and has frozen both sides: the target's top may be closed or frozen, the source's is
    frozen and stays so. Every method may be called again after a crash at any instant. All raise Refused where a guard
    trips, and MigratorError where something stopped the work; `carry` then goes on when it is called again.
    """

    def __init__(self, openings: Openings) -> None:
        self._openings = openings

    async def carry(self, record: CutoverRecord) -> CarriedBack:
        """Bring what the user made, changed, renamed and removed on the target to the source; what goes there goes to the
        trash of the source. Always reads the target anew. When it returns, all of it is on the source's disks.

        Raises Refused also where it cannot be told any more what the target was at the switch.
        """
        async with self._openings.open(record) as parts:
            await _learn_what_the_source_keeps(parts)
        # Opened again, so that what the source is known not to keep is not tried there.
        async with self._openings.open(record) as parts:
            parts.ledger.site.update_identities(parts.site.target, parts.site.source)
            with parts.files.open(VERB, parts.clock.now_s()) as directory:
                run_id = parts.ledger.runs.start(
                    verb=VERB, pid=parts.request.pid, at_s=parts.clock.now_s(), directory=directory.path
                )
                exit_code = ExitCode.FAILED
                try:
                    invocation = Invocation(
                        world=_world(parts), request=parts.request, run_id=run_id, directory=directory
                    )
                    with _roles_told():
                        await _carry(parts, invocation, record)
                    exit_code = ExitCode.DONE
                except MigratorError as error:
                    exit_code = error.exit_code
                    raise
                finally:
                    parts.ledger.runs.finish(run_id, parts.clock.now_s(), exit_code.value)
            found = newest_pass(parts.ledger, record)
            if found is None:
                raise LedgerCorrupt("the ledger of the rollback has lost its pass", hint="run the same command again")
            return CarriedBack(seen=pass_seen(parts.ledger, found), changes=target_changes(parts.ledger, record, PLAN))

    async def verify(self, record: CutoverRecord) -> ProofSeen:
        """What `compare` finds, as the rollback has to know it. Raises what that raises."""
        proven = await self.compare(record)
        with self._openings.read(record) as ledger:
            if ledger is None:
                raise LedgerCorrupt("the ledger of the rollback is gone", hint="run the same command again")
            return proof_seen(ledger, proven, self._openings.policy, PLAN)

    async def compare(self, record: CutoverRecord) -> VerificationRecord:
        """Compare both sides as they are now, source against target as at the cutover: so what the target could never keep of
        a file that the user did not touch is the loss that it was, and what the source cannot keep of something that he made
        on the target is a difference. What differs is sent by the next `carry`. Raises what the verb `verify` raises.
        """
        async with self._openings.open(record) as parts:
            # What the plan has archived, or left where it is, is on the source alone.
            own, _ = await asyncio.to_thread(parts.own_documents.read, record.plan)
            return await verify(
                VerifyRequest(
                    plan=replace(plan_of(parts, record), reap=own.reap),
                    batch=record.id,
                    policy=parts.policy,
                    carry=True,
                    workers=parts.verify_workers,
                ),
                source=parts.source,
                target=parts.target,
                manifests=parts.manifests,
                ledger=parts.proof_ledger,
                progress=parts.progress,
                clock=parts.clock,
                reap_lists=parts.reap_lists,
            )

    def seen(self, record: CutoverRecord) -> tuple[PassSeen | None, ProofSeen | None]:
        """The newest pass that carries back and the newest finished verification, by what was written down. Blocking."""
        with self._openings.read(record) as ledger:
            if ledger is None:
                return None, None
            found = newest_pass(ledger, record)
            proven = ledger.verifications.latest(PLAN, record.id)
            return (
                None if found is None else pass_seen(ledger, found),
                None if proven is None else proof_seen(ledger, proven, self._openings.policy, PLAN),
            )

    def changes(self, record: CutoverRecord) -> TargetChanges | None:
        """What was found to be changed on the target since the switch; None before anything was looked for. Blocking."""
        with self._openings.read(record) as ledger:
            if ledger is None or newest_pass(ledger, record) is None:
                return None
            return target_changes(ledger, record, PLAN)

    def changed_source(self, record: CutoverRecord, *, before: str, now: str) -> Sequence[SourceChange]:
        """What somebody changed on the retained source, as the port says. Blocking."""
        with self._openings.read(record) as ledger:
            passes = () if ledger is None else ledger.passes.of_batch(PLAN, record.id)
            carried = [one.catalog for one in passes if one.kind is not PassKind.SEED]
        return self._openings.changed_source(record, before=before, now=now, carried=carried)

    def give_up_source(self, record: CutoverRecord, changes: Sequence[SourceChange]) -> int:
        """Let the rollback overwrite what somebody changed there, as the port says. Blocking."""
        return self._openings.give_up_source(record, changes, at_s=record.since_s)

    def top(self, record: CutoverRecord, *, source_before: FrozenTop, target_before: FrozenTop) -> Entry:
        """What the tree's top is to be on the source when it is thawed there, for `TargetTrees.open_tree` over the source:
        as it was before the freeze of the cutover (`source_before`), with what the user changed of it on the target until
        the freeze of the rollback (`target_before`). To be called after `carry`, in the freeze. Blocking; raises OSError.
        """
        with self._openings.tops(record) as (source, target, capabilities):
            if capabilities is None:
                raise Refused("what the target can keep is not known", hint="run `migrator doctor`")
            return carried_top(
                source.top(),
                target.top(),
                source_before=source_before,
                target_before=target_before,
                capabilities=capabilities,
            )


async def _learn_what_the_source_keeps(parts: BackParts) -> None:
    """Probed once for each rollback, since the openings give what is known of it to the file system."""
    if read_site(parts.ledger).capabilities is not None:
        return
    if problems := (await parts.source.health()).problems:
        raise Refused(
            f"nothing is carried back: {'; '.join(problems)}",
            cause="what is written while a brick or a mount is not as it has to be may go astray",
            hint="see `migrator doctor`, then run the same command again",
        )
    try:
        probed = await parts.blocking(parts.source.probe, timeout_s=parts.request.stall_timeout_s)
    except (OSError, TimeoutError) as error:
        raise Refused(
            f"the source cannot be written: {error}",
            cause="it is full or mounted read-only, or does not answer",
            hint="see `migrator doctor`, then run the same command again",
        ) from error
    parts.ledger.site.record_capabilities(probed, parts.clock.now_s())


def _world(parts: BackParts) -> World:
    return World(
        source=parts.target,
        target=parts.source,
        lanes=parts.lanes,
        bricks=None,
        driving=None,
        chunk_lists=parts.chunk_lists,
        documents=parts.documents,
        ledger=parts.ledger,
        progress=parts.progress,
        clock=parts.clock,
        activity=parts.activity,
        blocking=parts.blocking,
        tokens=parts.tokens,
    )


async def _carry(parts: BackParts, invocation: Invocation, record: CutoverRecord) -> None:
    """What a killed call left is ended, then the target is read and what changed is sent, as often as something is left."""
    site = exchanged(parts.site, read_site(parts.ledger))
    await recover(invocation, site, heard_at_s=0.0)
    await expire_trash(invocation, parts.deltas, site)
    deltas = parts.deltas
    if not is_noted(parts, record):
        now = await _scan_whole(parts, record)
        await note_switch(parts, record, now)
        deltas = replace(deltas, scan=_first(now, deltas.scan))
    plan = plan_of(parts, record)
    (batch,) = plan.batches
    for _ in range(_MOST_PASSES):
        delta = DeltaPass(invocation=invocation, plan=plan, site=site, batch=batch, deltas=deltas, kind=PassKind.FINAL)
        summary = await delta.run()
        if (stopped := summary.stopped) is not None:
            raise MigratorError(stopped.message, cause=stopped.cause, hint=stopped.hint)
        if parts.flushes:
            await _flush(parts, batch.number)
        if not _left_to_send(parts, batch.number):
            return


async def _scan_whole(parts: BackParts, record: CutoverRecord) -> CatalogRecord:
    catalog = await parts.deltas.scan([record.tree.path])
    if not catalog.whole:
        raise Refused(
            f"{show(record.tree.path)} could not be read everywhere: {'; '.join(catalog.reasons)}",
            cause="what is in it would look as if the user had removed it",
            hint="see to that, then run the same command again: nothing was changed",
        )
    return catalog


def _first(now: CatalogRecord, scan: Scan) -> Scan:
    """The scan that was just made serves the pass that follows."""
    waiting = [now]

    async def scan_or_take(trees: Sequence[bytes]) -> CatalogRecord:
        return waiting.pop() if waiting else await scan(trees)

    return scan_or_take


@contextmanager
def _roles_told() -> Iterator[None]:
    """What the parts of a pass say calls the target the source."""
    try:
        yield
    except MigratorError as error:
        error.message = _ROLES + error.message
        error.args = (error.message,)
        raise


async def _flush(parts: BackParts, batch: int) -> None:
    """Every path that the newest pass has sent, before it counts: the bricks have it in memory only."""
    record = parts.ledger.passes.find(PLAN, batch, PassKind.FINAL)
    if record is None:
        return
    for chunk in parts.chunk_lists.chunks(record.chunk_list):
        paths = iter(await asyncio.to_thread(parts.chunk_lists.paths, record.chunk_list, chunk.number))
        while some := [listed.path for listed in islice(paths, _FLUSHED_AT_ONCE)]:
            try:
                await parts.blocking(partial(parts.source.flush, some), timeout_s=parts.request.stall_timeout_s)
            except (OSError, TimeoutError) as error:
                raise MigratorError(
                    f"what was carried back could not be synced on the source: {error}",
                    hint="check the bricks, then run the same command again",
                ) from error


def _left_to_send(parts: BackParts, batch: int) -> bool:
    record = parts.ledger.passes.find(PLAN, batch, PassKind.FINAL)
    return record is not None and only_not_renamed(parts.ledger.passes, record.id)
