"""The snapshot of a tree: every fact that the next step of its cutover depends on."""

import os
from contextlib import suppress

from msgspec.structs import replace

from migrator.core.errors import MigratorError
from migrator.core.paths import show
from migrator.core.tasks import task_group
from migrator.cutover import model, rules_tops
from migrator.cutover.call import CutoverSession
from migrator.cutover.model_snapshot import FinalPassResult, LinkState, TopState, TreeProof, TreeSnapshot
from migrator.cutover.rules import BACK, POSITIONS

_SEARCHED = frozenset({model.Phase.FROZEN, model.Phase.VERIFIED, model.Phase.SWITCHING})
"""The phases that require a search for writers: before the final pass, and immediately before the switch."""

_THAWING_BACK = frozenset({model.CutoverState.SWITCHED_BACK, model.CutoverState.ROLLBACK_THAWING})


async def take_snapshot(session: CutoverSession, record: model.CutoverRecord) -> TreeSnapshot:
    """Take the snapshot: every fact that the next step depends on."""
    direction, phase = POSITIONS.get(record.state, (None, None))
    back = direction is BACK
    async with task_group() as group:
        searched = phase in _SEARCHED
        writing = group.create_task(session.write_problems(record.tree.path, back=back)) if searched else None
        source_top, source_words = await _source_top(session, record)
        target_seen, target_words = await _target_top(session, record)
        link, holds = await _link(session, record)
        copied, proof = await session.blocking(lambda: _proofs(session, record, back=back))
    return TreeSnapshot(
        link=link,
        source_top=source_top,
        target_top=target_seen,
        writing=None if writing is None else writing.result(),
        copied=copied,
        proof=proof,
        lacks_backup=session.lacks_backup(record.tree.path, record.batch),
        link_holds=holds,
        top_differences=(*source_words, *target_words),
    )


async def _source_top(session: CutoverSession, record: model.CutoverRecord) -> tuple[TopState, tuple[str, ...]]:
    noted = record.notes.frozen_top
    freezer, tree = session.call.freezer, record.tree.path
    try:
        if noted is None or record.state is model.CutoverState.PLANNED:
            await session.blocking(lambda: freezer.read_top(tree))
            return TopState.OPEN, ()
        top = rules_tops.read_top(noted)
        compared = await session.blocking(lambda: freezer.compare(tree, top))
    except OSError:
        return TopState.UNKNOWN, ()
    if compared.state is TopState.OTHER and record.state in _THAWING_BACK and not compared.another:
        # The thaw applies the attributes that the user changed on the target, so such a top counts as partly
        # thawed.
        return TopState.PARTLY, ()
    return compared.state, compared.differences


async def _target_top(session: CutoverSession, record: model.CutoverRecord) -> tuple[TopState, tuple[str, ...]]:
    try:
        source, target = [
            await session.entry(side, record.tree.path) for side in (session.ports.source, session.ports.target)
        ]
    except OSError:
        return TopState.UNKNOWN, ()
    return rules_tops.target_top(target, session.wanted_top(record, source, target), uid=os.geteuid(), gid=os.getegid())


async def _link(session: CutoverSession, record: model.CutoverRecord) -> tuple[LinkState, bytes | None]:
    links = session.call.links
    if links is None:
        return LinkState.BY_HOOK, None

    def read() -> tuple[LinkState, bytes | None]:
        found = links.read_link(record.tree)
        if record.notes.link not in (None, found.path):
            # site.toml names another link now: it is not the one that was switched.
            return LinkState.UNKNOWN, None
        if found.unread or links.problem(found) is not None:
            return LinkState.UNKNOWN, found.text
        return links.side_of(record.tree, found), found.text

    try:
        return await session.blocking(read)
    except (OSError, MigratorError):
        return LinkState.UNKNOWN, None


def _proofs(
    session: CutoverSession, record: model.CutoverRecord, *, back: bool
) -> tuple[FinalPassResult | None, TreeProof | None]:
    with session.tree_migration(record, back=back) as tree:
        if tree is None:
            return None, None
        copied, proof = tree.proofs(session.call.policy)
    of_now = proof is not None and proof.id > (record.notes.proofs_before or 0)
    if proof is not None and of_now and proof.differences and proof.manifest is not None:
        with suppress(MigratorError):
            found = session.call.migration.deltas.manifests.examples(proof.manifest, per_kind=1).differences
            proof = replace(proof, examples=tuple(f"{show(one.path)}: {one.kind.value}" for one in found))
    return copied, proof
