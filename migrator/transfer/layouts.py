"""The layout of new user trees on the target."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter, methodcaller
from typing import TypeVar

from migrator.beegfs.model import DirectorySettings, LayoutRule, StripeSettings
from migrator.beegfs.rules import describe_stripe
from migrator.beegfs.rules_layout import completed, size_rules, tree_settings
from migrator.beegfs.tool import StorageTargets
from migrator.core.errors import Refused, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.paths import join, parent, show
from migrator.core.units import several
from migrator.transfer.context import RunInvocation

T = TypeVar("T")

_PATH_MAX = 4096
"""Linux takes no longer path, its NUL included: no command can set the layout of such a directory, which inherits."""


async def wants_stripes(invocation: RunInvocation, tree: bytes) -> bool:
    """Whether settings are requested and the tree is missing on the target, or empty: a killed run may have only
    created it. A tree with content keeps its settings. Raises OSError, TimeoutError.
    """
    request, world = invocation.request, invocation.world
    if tree_settings(request.layout, tree) is None or world.storage is None:
        return False

    def look() -> bool:
        if world.target.look(tree) is None:
            return True
        for block in world.target.read_directory(tree, block_entries=1):
            if block.problems:
                problem = block.problems[0]
                raise OSError(0, problem.reason, problem.path)
            if block.entries:
                return False
        return True

    return await world.blocking(look, timeout_s=request.stall_timeout_s)


async def set_stripes(invocation: RunInvocation, tree: bytes) -> None:
    """Raises Refused if the tool fails: files created before would keep other settings."""
    stripe = tree_settings(invocation.request.layout, tree)
    if stripe is not None:
        await _set_stripe(invocation, [tree], stripe)
        message = f"new files in {show(tree)} are spread {describe_stripe(stripe)}"
        invocation.report(EventKind.TREE_STRIPED, Severity.INFO, show(tree), message)


async def lay_out(invocation: RunInvocation, catalog: str, trees: Collection[bytes]) -> None:
    """Make the directories of these trees that get another layout than the directory above, and set it, level by level:
    a directory inherits when it is made. Directories with files keep their settings, so a killed run is resumed.
    Raises Refused, OSError, TimeoutError.
    """
    request, world = invocation.request, invocation.world
    rules = {tree: found for tree in trees if (found := size_rules(request.layout, tree))}
    if not rules or world.storage is None or world.layouts is None:
        return
    laid_out = await asyncio.to_thread(world.layouts, catalog, rules)
    above: dict[bytes, DirectorySettings] = {}
    for tree in laid_out:
        if parent(tree) not in above:
            there = join(world.target.root, parent(tree)).rstrip(b"/")
            above[parent(tree)] = await _asked(invocation, tree, methodcaller("directory", there))
    whole = {tree: _whole_settings(request.layout, tree, above[parent(tree)], rules[tree]) for tree in laid_out}
    every = [(one.path.count(b"/"), tree, one) for tree, directories in laid_out.items() for one in directories]
    counts: Counter[bytes] = Counter()
    # All trees together, because there may be thousands with few directories each.
    for _, level in groupby(sorted(every, key=itemgetter(0)), key=itemgetter(0)):
        by_stripe: dict[StripeSettings, list[bytes]] = {}
        for _, tree, one in level:
            if len(join(world.target.root, one.path)) >= _PATH_MAX:
                continue
            make = partial(world.target.make_directory, one.path)
            if await world.blocking(make, timeout_s=request.stall_timeout_s):
                by_stripe.setdefault(completed(one.rule, whole[tree]), []).append(one.path)
                counts[tree] += 1
        for stripe, paths in by_stripe.items():
            await _set_stripe(invocation, paths, stripe)
    for tree in laid_out:
        message = f"the layout of {several(counts[tree], 'directory', 'directories')} in {show(tree)} is set"
        invocation.report(EventKind.TREE_STRIPED, Severity.INFO, show(tree), message)


def _whole_settings(
    layout: Sequence[LayoutRule], tree: bytes, above: DirectorySettings, rules: Sequence[LayoutRule]
) -> StripeSettings:
    """The settings of a tree's directories without a rule of their own: what lies below another may have inherited
    others. `above` are those of the directory that holds the tree.
    """
    found = tree_settings(layout, tree) or StripeSettings()
    pool = None if above.storage_pool is None else str(above.storage_pool)
    return StripeSettings(
        targets=found.targets or above.stripe.targets,
        chunk_bytes=found.chunk_bytes or above.stripe.chunk_bytes,
        # To name a pool may need a licence.
        pool=(found.pool or pool) if any(rule.stripe.pool for rule in rules) else None,
    )


async def _set_stripe(invocation: RunInvocation, paths: Sequence[bytes], stripe: StripeSettings) -> None:
    there = [join(invocation.world.target.root, path) for path in paths]
    await _asked(invocation, paths[0], lambda storage: storage.set_stripe(there, stripe))


async def _asked(invocation: RunInvocation, path: bytes, ask: Callable[[StorageTargets], Awaitable[T]]) -> T:
    storage = invocation.world.storage
    if storage is None:
        raise ValueError(path)
    try:
        return await ask(storage)
    except ToolFailed as error:
        raise Refused(
            f"the stripe settings of {show(path)} cannot be set: {error.message}",
            cause="[target] layout, stripe_count and chunk_size are given to every new tree, before anything is in it",
            hint=error.hint or "see `migrator doctor`; or take these keys out of site.toml",
        ) from error
