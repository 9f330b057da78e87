"""The ordinary next steps of an operator: nothing is wrong, and the migration waits for them. Pure."""

from collections.abc import Collection, Iterator, Sequence

from migrator.catalog.model import CatalogRecord, VerificationRecord
from migrator.core.states import BatchState, ChunkState
from migrator.core.units import first_of, several
from migrator.cutover.model import CutoverRecord, CutoverState
from migrator.report import model

_COPYING = (BatchState.PLANNED, BatchState.SEEDING)
_COPIED = (BatchState.SEEDED, BatchState.CONVERGING)


def next_steps(
    *,
    site: str | None,
    scan: CatalogRecord | None,
    plan: model.PlanFacts | None,
    batches: Sequence[model.BatchStatus],
    trees: Sequence[model.TreeStatus],
    cutovers: Sequence[CutoverRecord],
    busy: Collection[str],
    over: Collection[int] = (),
) -> tuple[model.NextStep, ...]:
    """The next step of everything that waits for one, in the order of the work. `busy` are the verbs that are at work or
    blocked, `over` the batches that need no verification of their own (`verified_otherwise`).
    """
    if site is None:
        found = [("everything", "the site is not set up", "migrator init")]
    elif plan is not None:
        found = [*_of_batches(plan, batches, trees, over), *_of_kept(trees, cutovers)]
    elif scan is None and "scan" not in busy:
        found = [("source", "it was not scanned, and there is no plan", "migrator plan")]  # which scans first
    elif scan is not None and scan.finished_at_s is not None:
        found = [("source", "there is no plan", "migrator plan")]
    else:
        found = []
    return tuple(
        model.NextStep(subject=subject, state=state, hint=hint)
        for subject, state, hint in found
        if hint.split()[1] not in busy
    )


def next_command(steps: Sequence[model.NextStep], verb: str) -> str | None:
    """The one command to give after a verb that has succeeded: the first step that is another verb's, or else the first."""
    others = [one.hint for one in steps if one.hint.split()[1] != verb]
    return next(iter((*others, *(one.hint for one in steps))), None)


_Found = Iterator[tuple[str, str, str]]


def _of_kept(trees: Sequence[model.TreeStatus], cutovers: Sequence[CutoverRecord]) -> _Found:
    kept = {one.tree.path for one in cutovers if one.state is CutoverState.RETAINED}
    users = {tree.tree.user for tree in trees if tree.state is model.TreeState.MOVED and tree.tree.path in kept}
    if users:
        words = several(len(users), "moved user", "moved users")
        yield words, "the retention of the source has not ended", "migrator purge --all --dry-run"


def _is_clean(verification: VerificationRecord) -> bool:
    return verification.whole and not any(verification.differences.values())


def _of_batches(
    plan: model.PlanFacts,
    batches: Sequence[model.BatchStatus],
    trees: Sequence[model.TreeStatus],
    over: Collection[int],
) -> _Found:
    open_batches = [one for one in batches if one.number not in over]
    to_copy = [one.number for one in open_batches if one.state in _COPYING]
    to_verify = [
        one.number
        for one in open_batches
        if one.state in _COPIED
        and (one.verification is None or _is_clean(one.verification))  # otherwise it is a blocker
        and not one.attention.bad
        and not one.chunks.get(ChunkState.FAILED)
    ]
    verified = {tree.batch for tree in trees if tree.plan == plan.name and tree.state is model.TreeState.VERIFIED}
    for numbers, state, verb, more in (
        (to_copy, "not copied yet", "run", ""),
        (to_verify, "copied, not verified", "verify", ""),
        (sorted(verified), "verified, not cut over", "cutover", " --dry-run"),
    ):
        if numbers:
            names = f"{'batch' if len(numbers) == 1 else 'batches'} {first_of([str(number) for number in numbers], 3)}"
            which = f"--user-batch {numbers[0]}" if len(numbers) == 1 else "--all"
            yield names, state, f"migrator {verb} {which}{more}"
