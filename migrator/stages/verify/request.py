"""What is to be verified, and whether it fits plan and ledger."""

from collections.abc import Container
from dataclasses import dataclass, replace

from migrator.domain.errors import Refused, UsageError
from migrator.domain.paths import show
from migrator.domain.plan import Batch, Plan
from migrator.domain.site import TargetCapabilities
from migrator.domain.states import BatchState
from migrator.domain.verification import DigestPolicy
from migrator.ports.ledger import Ledger
from migrator.ports.site import SiteRecord
from migrator.stages.verify.walk import HELD_ENTRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """What to verify: a batch of a plan that was read (and so checked), how, and with how many worker threads.

    `trees` are the user trees of the batch to compare; empty: all. With `carry` the content of a file is not read again
    where an earlier verification of this site read it and nothing has changed since on either side (`decide.carrying`).
    `held_entries` bounds how many names of one directory a worker holds in memory at a time.
    """

    plan: Plan
    batch: int
    policy: DigestPolicy
    trees: tuple[bytes, ...] = ()
    carry: bool = False
    workers: int = 4
    held_entries: int = HELD_ENTRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A request that fits: the site, what its target keeps, the batch with the trees to compare alone, and its state.

    `trees` are those trees where they are not all of the batch; empty otherwise.
    """

    site: SiteRecord
    capabilities: TargetCapabilities
    batch: Batch
    state: BatchState
    trees: tuple[bytes, ...]


def check_request(request: VerifyRequest, ledger: Ledger) -> Checked:
    """Raises UsageError where plan, batch or trees do not fit, Refused where there is nothing to verify yet."""
    plan, number = request.plan, request.batch
    site = ledger.site.read()
    if site is None:
        raise UsageError("the ledger knows no site yet", hint="run `migrator init` first")
    if plan.site_id != site.site_id:
        raise Refused(
            f"plan {plan.name!r} was made for another site ({plan.site})",
            cause="the plans directory or site.toml belongs to another migration",
            hint="run `migrator plan` for this site",
        )
    batch = next((batch for batch in plan.batches if batch.number == number), None)
    known = ledger.plans.read(plan.name)
    if batch is None:
        last = max((batch.number for batch in plan.batches), default=0)
        raise UsageError(f"plan {plan.name!r} has no batch {number}", hint=f"its batches are numbered from 1 to {last}")
    state = None if known is None else known.batches.get(number)
    if state is None or state is BatchState.PLANNED:
        raise Refused(
            f"batch {number} of plan {plan.name!r} has not been run",
            hint=f"run `migrator run --user-batch {number}` first",
        )
    if site.capabilities is None:
        raise Refused(
            "what the target can keep is not known",
            cause="it is probed by `migrator doctor`, which has not been run, or could not write there",
            hint="run `migrator doctor`",
        )
    trees = _chosen_trees(request, batch)
    narrowed = _narrowed(plan, batch, trees) if trees else batch
    return Checked(site=site, capabilities=site.capabilities, batch=narrowed, state=state, trees=trees)


def _chosen_trees(request: VerifyRequest, batch: Batch) -> tuple[bytes, ...]:
    """In the plan's order; empty where all of the batch is meant, also by name. Raises UsageError."""
    existing = [tree.path for tree in batch.trees]
    unknown = [tree for tree in request.trees if tree not in existing]
    if unknown:
        raise UsageError(
            f"batch {batch.number} of plan {request.plan.name!r} has no user tree {', '.join(map(show, unknown))}",
            hint=f"see what it has: `migrator status --plan {request.plan.name}`",
        )
    chosen = tuple(tree for tree in existing if tree in request.trees)
    return chosen if len(chosen) < len(existing) else ()


def _narrowed(plan: Plan, batch: Batch, trees: Container[bytes]) -> Batch:
    """A batch with some of its trees alone, and what the plan says that these hold."""
    usages = [usage for usage in plan.ranking if usage.tree.path in trees]
    return replace(
        batch,
        trees=tuple(tree for tree in batch.trees if tree.path in trees),
        size_bytes=sum(usage.size_bytes for usage in usages),
        files=sum(usage.files for usage in usages),
        # The ranking counts the tree's own directory, a batch does not.
        directories=sum(usage.directories - 1 for usage in usages),
    )
