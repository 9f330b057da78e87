"""Giving skipped files up for deletion with the source, by name."""

from collections.abc import Sequence
from dataclasses import dataclass

from migrator.decide.reap import Releases, release_patterns
from migrator.domain.errors import Refused, UsageError
from migrator.domain.plan import Plan
from migrator.domain.reap import ReapAction, ReapRelease, Released
from migrator.domain.units import format_size, several
from migrator.ports.ledger import Ledger
from migrator.ports.reap import ReapLists

_EXAMPLES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest:
    """What is given up of a user's trees: paths, with all that lies below them, and globs. `by` is who says so."""

    user: str
    paths: tuple[bytes, ...]
    globs: tuple[bytes, ...]
    by: str
    confirmed: bool


def release(
    request: ReleaseRequest, *, plan: Plan, trees: Sequence[bytes], lists: ReapLists, ledger: Ledger, now_s: float
) -> Released:
    """Record it in the ledger, for whatever the plan's reap list skips of these trees. May be called again.

    Raises UsageError for what is no path of the user, and without the confirmation; Refused where nothing that is
    skipped has such a name.
    """
    if not request.paths and not request.globs:
        raise UsageError("which files?", hint="name paths, or give --glob PATTERN")
    if plan.reap is None or plan.reap.reap_list is None:
        raise Refused(f"plan {plan.name} skips nothing", hint="release what a plan with action `skip` leaves behind")
    releases = tuple(
        ReapRelease(tree=tree, pattern=pattern, is_glob=is_glob, by=request.by, at_s=now_s)
        for tree, pattern, is_glob in release_patterns(trees, request.paths, request.globs)
    )
    lists.checked(plan.reap.reap_list, plan.reap.digest or "")
    asked = Releases(releases)
    files = size_bytes = 0
    examples: list[bytes] = []
    for block in lists.paths(plan.reap.reap_list, trees=trees, action=ReapAction.SKIP):
        for row in block:
            if asked.has(row.tree, row.path):
                files += 1
                size_bytes += row.size_bytes
                if len(examples) < _EXAMPLES:
                    examples.append(row.path)
    if not files:
        raise Refused(
            f"nothing of {request.user} that plan {plan.name} skips has such a name",
            hint="see what it skips: `migrator reap list --user NAME --csv FILE`",
        )
    if not request.confirmed:
        raise UsageError(
            f"nothing was released: {several(files, 'file')} with {format_size(size_bytes)} would be lost with the source",
            hint="give --confirm-loss where that is meant",
        )
    ledger.releases.add(releases)
    return Released(
        user=request.user,
        plan=plan.name,
        releases=releases,
        files=files,
        size_bytes=size_bytes,
        examples=tuple(examples),
    )
