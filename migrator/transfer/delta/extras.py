"""Extras: paths that an earlier plan or pass left on the target, and that the source no longer has.

A plan starts from the scan of the source. If a path was copied earlier and removed on the source before that scan, a
comparison of the plan's own catalogs does not show it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from migrator.catalog.model import VerificationRecord
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.core.states import PassKind, PassState
from migrator.core.units import several
from migrator.plan.model import Batch, Plan
from migrator.transfer import bases
from migrator.transfer.context import RunInvocation
from migrator.transfer.delta.model import ChangeKind, Changes, ExtrasOfTree, TreeChanges
from migrator.transfer.delta.rules import shrunk_trees

if TYPE_CHECKING:
    from migrator.transfer.delta.store import Extras, FoundExtras
    from migrator.transfer.records import TransferLedger

Problems = Callable[[Changes, str], Awaitable[tuple[str, ...]]]
"""Returns the problems that forbid applying changes whose base is this catalog."""


@asynccontextmanager
async def search_extras(
    extras: "Extras | None",
    *,
    invocation: RunInvocation,
    plan: Plan,
    batch: Batch,
    base: str,
    now: str,
    problems: Problems,
    max_shrink: float,
) -> "AsyncIterator[FoundExtras | None]":
    """Find the extras that a pass over the batch may move to the trash, given its base `base` and the new catalog
    `now`. They are valid inside the block.

    Extras stay and are reported if `problems` forbid deletions, or if their tree would lose more than `max_shrink`; the
    pass continues without them. None if no extras are left. Raises Refused as `Extras` does.
    """

    def where() -> list[ExtrasOfTree]:
        ledger = invocation.world.ledger
        found = (extras_of(ledger, plan.name, batch.number, tree.path) for tree in batch.trees)
        return [one for one in found if one.earlier or one.manifest is not None]

    async def may_go(found: "FoundExtras") -> bool:
        lost = await asyncio.to_thread(lambda: [one for tree in wanted if (one := found.lost(tree.tree))])
        if not lost:
            return False
        # A verification has looked its extras up on the source. Extras of an earlier catalog have had no look-up.
        came_from = {one.tree: {now, *one.earlier} for one in wanted}
        against = dict[bytes, dict[str, None]]()
        for catalog in sorted(set[str]().union(*came_from.values())):
            trees = [one for one in lost if catalog in came_from[one.tree]]
            for tree, words in (await against_trees(problems, catalog, now, trees)).items():
                against.setdefault(tree, {}).update(dict.fromkeys(words))
        shrunk = shrunk_trees(Changes(base=base, now=now, trees=tuple(lost)), max_shrink)
        stay = [one for one in lost if one.tree in against or one.tree in shrunk]
        go = [one for one in lost if one not in stay]
        subject = f"batch {batch.number}"
        if stay:
            reasons = dict.fromkeys(word for words in against.values() for word in words)
            message = f"left on the target: {_describe_extras(stay)}: {'; '.join((*reasons, *shrunk.values()))}"
            invocation.report(EventKind.GUARD_REFUSED, Severity.WARNING, subject, message)
        if go:
            await asyncio.to_thread(found.keep, [one.tree for one in go])
            shown = ", ".join(show(tree.tree) for tree in go[:_SHOWN])
            message = f"to the target's trash: {_describe_extras(go)}, in {shown}"
            invocation.report(EventKind.PASS_MOVED, Severity.INFO, subject, message)
        return bool(go)

    wanted = await asyncio.to_thread(where)
    if extras is None or not wanted:
        yield None
        return
    opened = extras.open(wanted, base=base, now=now)
    found = await asyncio.to_thread(opened.__enter__)
    try:
        yield found if await may_go(found) else None
    finally:
        await asyncio.to_thread(opened.__exit__, None, None, None)


_SHOWN = 5


async def against_trees(
    problems: Problems, catalog: str, now: str, trees: Sequence[TreeChanges]
) -> Mapping[bytes, tuple[str, ...]]:
    """The trees to which changes since a catalog may not be applied, each with the reasons. A problem of one tree holds up no
    other one: if there is any, each tree is judged alone.
    """

    async def judge(some: Sequence[TreeChanges]) -> tuple[str, ...]:
        return await problems(Changes(base=catalog, now=now, trees=tuple(some)), catalog) if some else ()

    if not await judge(trees):
        return {}
    alone = [(one.tree, await judge([one])) for one in trees]
    return {tree: words for tree, words in alone if words}


def _describe_extras(trees: Sequence[TreeChanges]) -> str:
    names = sum(tree.tally(ChangeKind.VANISHED).paths for tree in trees)
    return f"{several(names, 'path')} that the source has no more, and no pass of this plan removed"


def extras_of(ledger: "TransferLedger", plan: str, batch: int, tree: bytes) -> ExtrasOfTree:
    """The catalogs and the manifest to search for extras of a tree before the next pass after the seed of this plan.
    Blocking.
    """
    passes = ledger.passes.over_tree(tree)
    own = [one for one in passes if (one.plan, one.batch) == (plan, batch) and one.kind is not PassKind.SEED]
    earlier: list[str] = []
    if not any(one.state is PassState.DONE for one in own):
        for one in reversed(passes):
            if (one.plan, one.batch) != (plan, batch):
                earlier.append(one.catalog)
                # This pass has removed earlier extras. A seed pass removes nothing.
                if one.kind is not PassKind.SEED and one.state is PassState.DONE:
                    break
    named = open_differences(ledger, plan, batch, tree)
    return ExtrasOfTree(
        tree=tree,
        brought=tuple(dict.fromkeys(one.catalog for one in passes)),
        earlier=tuple(dict.fromkeys(earlier)),
        manifest=named.manifest if named is not None and named.whole else None,
        differences_digest=None if named is None else named.differences_digest,
    )


def open_differences(ledger: "TransferLedger", plan: str, batch: int, tree: bytes) -> VerificationRecord | None:
    """The newest verification of a tree, if it found differences and no pass after the seed has covered the
    tree since.
    """
    newest = next(iter(reversed(ledger.verifications.of_tree(plan, batch, tree))), None)
    if newest is None or newest.finished_at_s is None or not newest.differences:
        return None
    since_s = newest.finished_at_s
    done = (one for one in ledger.passes.of_batch(plan, batch) if one.state is PassState.DONE)
    later = (one for one in done if one.kind is not PassKind.SEED and one.started_at_s >= since_s)
    return None if any(bases.covers(ledger.passes, one, (tree,)) for one in later) else newest
