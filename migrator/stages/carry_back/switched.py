"""Writing down, in the site of a rollback, what the target was at the switch. Done once, before the first pass."""

import asyncio

from migrator.domain.cutover import CutoverRecord
from migrator.domain.errors import Refused
from migrator.domain.paths import show
from migrator.domain.plan import Plan
from migrator.domain.scan import CatalogRecord
from migrator.domain.states import BatchState, PassKind, PassState
from migrator.domain.verification import VerificationRecord
from migrator.ports.passes import PassRecord
from migrator.stages.carry_back.back_site import PLAN, BackParts, make_plan, switched_pass

VIA_MANIFEST = "manifest"
"""How the catalog of the target at the switch was made."""


def is_noted(parts: BackParts, record: CutoverRecord) -> bool:
    """Whether that was done."""
    done = switched_pass(parts.ledger, record)
    return done is not None and done.state is PassState.DONE


async def note_switch(parts: BackParts, record: CutoverRecord, now: CatalogRecord) -> None:
    """Make the catalog of the target at the switch, with `now` of it. May be called again after a crash.

    Raises Refused where it cannot be told what the target was.
    """
    done = switched_pass(parts.ledger, record)
    if done is None:
        done = _start_pass(parts, record, await _write_catalog(parts, record, now))
    if done.state is not PassState.DONE:
        parts.ledger.passes.set_state(done.id, PassState.DONE, parts.clock.now_s())


def plan_of(parts: BackParts, record: CutoverRecord) -> Plan:
    """The plan of the rollback. Raises Refused where nothing was carried back yet."""
    noted = switched_pass(parts.ledger, record)
    if noted is None:
        raise Refused(f"nothing was carried back of {show(record.tree.path)} yet", hint="run the same command again")
    return make_plan(
        record,
        site=parts.site,
        catalog=noted.catalog,
        scan_id=0,
        chunk_list=noted.chunk_list,
        chunk_list_digest=parts.chunk_lists.digest(noted.chunk_list),
    )


async def _write_catalog(parts: BackParts, record: CutoverRecord, now: CatalogRecord) -> CatalogRecord:
    tree, proof = record.tree.path, _proof(parts, record)
    # What was changed later than 2 s before the record's begin is sent again: nobody could before the end of the proof.
    at_s = proof.finished_at_s or proof.started_at_s
    name = f"switch-{now.name}"
    opening = CatalogRecord(
        name=name,
        scan_id=parts.ledger.scans.start(catalog=name, via=VIA_MANIFEST, at_s=at_s, scope=(tree,)),
        site_id=parts.site.site_id,
        via=VIA_MANIFEST,
        trees=(record.tree,),
        parts=(),
        started_at_s=at_s,
        finished_at_s=at_s,
        whole=False,
        reasons=(),
        rows=0,
        files=0,
        directories=0,
        size_bytes=0,
        problems=0,
        scope=(tree,),
    )
    closed = await asyncio.to_thread(parts.switched.write, opening, tree=tree, proof=proof, now=now.name)
    parts.ledger.scans.finish(closed)
    return closed


def _proof(parts: BackParts, record: CutoverRecord) -> VerificationRecord:
    if parts.proof is None or not parts.proof.whole or parts.proof.differences:
        raise Refused(
            f"what {show(record.tree.path)} was on the target at the switch is not known",
            cause="the ledger has no verification without differences for this cutover",
            hint="nothing tells what the user changed since; bring the ledger back as it was",
        )
    return parts.proof


def _start_pass(parts: BackParts, record: CutoverRecord, catalog: CatalogRecord) -> PassRecord:
    written = parts.list_writer.write(PLAN, record.id, ())
    plan = make_plan(
        record,
        site=parts.site,
        catalog=catalog.name,
        scan_id=catalog.scan_id,
        chunk_list=written.chunk_list,
        chunk_list_digest=written.digest,
    )
    # Always the same for the ledger: only its name and its batch matter here.
    parts.ledger.plans.record(plan, path="", checksum="")
    known = parts.ledger.plans.read(PLAN)
    state = None if known is None else known.batches.get(record.id)
    for now, then in ((BatchState.PLANNED, BatchState.SEEDING), (BatchState.SEEDING, BatchState.SEEDED)):
        if state is now:
            parts.ledger.plans.set_batch_state(PLAN, record.id, then)
            state = then
    return parts.ledger.passes.start(
        plan=PLAN,
        batch=record.id,
        kind=PassKind.SEED,
        catalog=catalog.name,
        chunk_list=written.chunk_list,
        chunks=(),
        at_s=parts.clock.now_s(),
    )
