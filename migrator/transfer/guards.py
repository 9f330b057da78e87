"""Conditions that must hold before and after a batch is copied. A guard that cannot be evaluated counts as failed."""

from collections.abc import Sequence

from msgspec.structs import replace

from migrator.beegfs.rules import QuotaFindings, quota_findings
from migrator.beegfs.tool import StorageReading, read_quotas, read_storage
from migrator.core.errors import MigratorError, Refused, UsageError
from migrator.core.paths import show
from migrator.core.tasks import result_or_none
from migrator.core.units import by_numbers, format_size
from migrator.fs.model import MountIdentity, Need, SourceHealth, SurpriseKind
from migrator.fs.ports import FileSystem
from migrator.gluster.model import VolumeHealth
from migrator.gluster.rules import volume_fingerprint, without_bricks
from migrator.ledger.model import SiteRecord
from migrator.plan.model import Batch, Plan, TreeUsage
from migrator.plan.rules import moved_unknown
from migrator.plan.rules_needs import owner_needs
from migrator.site.rules_guards import capacity_problems, health_problems, mount_problems
from migrator.transfer.context import TransferPorts
from migrator.transfer.model_runs import GuardFinding, RunRequest, TreeWork

TARGET_ROOM = "target room"
TARGET_QUOTAS = "target quotas"


def read_plan(world: TransferPorts, request: RunRequest) -> tuple[Plan, SiteRecord]:
    """Read the plan, if it is complete, belongs to this site, is in the ledger, and has the requested batches.

    Raises Refused or UsageError.
    """
    site = world.ledger.site.required()
    plan, checksum = world.documents.read(request.plan)
    if plan.site_id != site.site_id:
        raise Refused(
            f"the plan {plan.name} was made for another site ({plan.site})",
            cause="a plan was copied from another site, or `migrator init` was run anew",
            hint="make a plan for this site: `migrator scan`, then `migrator plan`",
        )
    record = world.ledger.plans.read(plan.name)
    if record is None:
        raise Refused(
            f"the ledger does not know the plan {plan.name}",
            cause="the plan was copied here, or the ledger was restored from an older backup",
            hint="make a new plan with `migrator plan --activate`",
        )
    if record.checksum != checksum:
        raise Refused(
            f"the plan {plan.name} is not the one that was recorded (checksum {checksum}, recorded {record.checksum})",
            cause="the document was exchanged after it had been made",
            hint="restore the document, or make a new plan with `migrator plan --activate`",
        )
    if world.driving is not None and plan.reap is not None and plan.reap.reap_list is not None:
        raise Refused(
            f"the plan {plan.name} reaps, and {world.driving.driver.name} copies whole trees",
            cause="it would copy what is to be archived or skipped",
            hint="run it with another engine, or make a plan that reaps nothing",
        )
    numbers = {batch.number for batch in plan.batches}
    if missing := [number for number in request.batches if number not in numbers]:
        raise UsageError(
            f"the plan {plan.name} has no {by_numbers(missing, 'batch', 'batches')}",
            hint=f"it has {by_numbers(sorted(numbers), 'batch', 'batches')}; see `migrator status`",
        )
    return plan, site


async def find_problems(
    world: TransferPorts,
    request: RunRequest,
    site: SiteRecord,
    plan: Plan,
    batch: Batch,
    *,
    need: Need,
    left: Sequence[TreeWork],
) -> tuple[tuple[GuardFinding, ...], SourceHealth, Sequence[str]]:
    """All guards of one batch, the health of the source now, and warnings. The quotas of the users must have room for
    the work that is `left`; they are read only if no other guard fails.
    """
    timeout_s = request.stall_timeout_s
    health = await world.source.health()
    storage = await read_storage(world.storage, patient=True)
    findings = [GuardFinding(guard="chunk lists", problems=list_problems(world, batch))]
    if storage.asked:
        findings.append(GuardFinding(guard="storage targets", problems=storage_problems(storage, request)))
    if world.target_state is not None:
        findings.append(GuardFinding(guard="target health", problems=(await world.target_state()).problems))
    if storage.problems:
        # A look-up on the mount would hang if a storage target is lost.
        return tuple(findings), health, ()
    findings += [
        GuardFinding(guard="source mount", problems=await mount_findings(world, world.source, site.source, timeout_s)),
        GuardFinding(guard="target mount", problems=await mount_findings(world, world.target, site.target, timeout_s)),
        GuardFinding(guard="source health", problems=health_problems(health, health, tasks_count=False)),
        GuardFinding(guard="moved users", problems=await _moved_problems(world, batch, timeout_s)),
    ]
    capacity = await result_or_none(world.blocking(world.target.capacity, timeout_s=timeout_s))
    findings.append(
        GuardFinding(
            guard=TARGET_ROOM,
            problems=capacity_problems(
                None if capacity is None else storage.room(capacity),
                need.size_bytes,
                need.inodes,
                request.inodes_free,
                request.reserve_bytes,
            ),
        )
    )
    unwritable: tuple[str, ...] = ("the target may not be writable: it could not be probed",)
    if capacity is not None:
        unwritable = ("the target is mounted read-only",) if capacity.read_only else ()
    findings.append(GuardFinding(guard="target writable", problems=unwritable))
    words = QuotaFindings()
    if not any(found.problems for found in findings):
        words = await _limit_problems(world, plan, left)
        if words.problems:
            findings.append(GuardFinding(guard=TARGET_QUOTAS, problems=words.problems))
    return tuple(findings), health, words.warnings


def storage_problems(storage: StorageReading, request: RunRequest) -> tuple[str, ...]:
    """Problems of the target's storage targets. An unknown state counts only if something depends on it: free inodes
    that nothing else reports, and stripe settings of new trees.
    """
    if storage.failure and (request.inodes_free is None or request.layout):
        return (f"the target's storage targets cannot be asked: {storage.failure}",)
    return storage.problems


async def mounts_changed(world: TransferPorts, site: SiteRecord, timeout_s: float) -> tuple[str, ...]:
    """`mount_findings` of both sides."""
    return (
        *await mount_findings(world, world.source, site.source, timeout_s),
        *await mount_findings(world, world.target, site.target, timeout_s),
    )


async def mount_findings(
    world: TransferPorts, filesystem: FileSystem, recorded: MountIdentity, timeout_s: float
) -> tuple[str, ...]:
    """Why the mounts differ from those that `init` recorded."""
    where = "the target" if filesystem is world.target else "the source"
    current = await result_or_none(world.blocking(filesystem.identity, timeout_s=timeout_s))
    return mount_problems(recorded, current, where=where)


async def _moved_problems(world: TransferPorts, batch: Batch, timeout_s: float) -> tuple[str, ...]:
    """Users who work on the target although the ledger, restored from an older backup, has no record of it."""

    def look() -> tuple[str, ...]:
        found = (
            moved_unknown(tree, world.source.look(tree.path), world.target.look(tree.path)) for tree in batch.trees
        )
        return tuple(problem for problem in found if problem is not None)

    try:
        return await world.blocking(look, timeout_s=timeout_s)
    except (OSError, TimeoutError) as error:
        return (f"open files on the target cannot be listed: {error}",)


_RECONNECTS, _RECONNECT_S = 5, 1.0


async def health_since(world: TransferPorts, before: SourceHealth, since_s: float) -> tuple[SourceHealth, SourceHealth]:
    """The health of the source at an earlier time, without bricks that drains of this ledger have taken out since, and now.
    Beside a commit it waits some seconds for clients that connect anew.
    """
    now = await world.source.health()
    for _ in range(_RECONNECTS):
        if not now.problems or not world.beside_commit:
            break
        await world.clock.sleep(_RECONNECT_S)
        now = await world.source.health()
    if not isinstance(before, VolumeHealth) or not isinstance(now, VolumeHealth):
        return before, now
    out = world.ledger.drains.taken_out(before.state.volume_id, since_s=since_s)
    out -= {brick.name for brick in now.state.bricks}
    if out.isdisjoint(brick.name for brick in before.state.bricks):
        return before, now
    state = without_bricks(before.state, out)
    return replace(before, state=state, fingerprint=volume_fingerprint(state)), now


def refuse(batch: Batch, findings: tuple[GuardFinding, ...], *, largest: TreeUsage | None = None) -> None:
    """Raises Refused if a guard fails, with every reason. `largest` is the tree with the largest file of the batch."""
    reasons = list(dict.fromkeys(problem for finding in findings for problem in finding.problems))
    shown = ""
    if largest is not None and largest.largest_path:
        shown = f"; the largest file is {show(largest.largest_path)} with {format_size(largest.largest_bytes)}"
    if reasons and all(finding.guard == TARGET_ROOM for finding in findings if finding.problems):
        raise Refused(
            f"batch {batch.number} is not copied: {'; '.join(reasons)}",
            cause=f"the rest to copy and [transfer] reserve have to fit before the first byte is written{shown}",
            hint="free or add space (or inodes) on the target: `df -h`, `df -i`; or lower [transfer] reserve, or run a "
            "smaller batch first; then run the same command again",
        )
    if reasons:
        raise Refused(
            f"batch {batch.number} is not copied: {'; '.join(reasons)}",
            cause="a guard tripped; one that cannot be evaluated counts as tripped",
            hint="see `migrator doctor` for the remedy of each, then run the same command again",
        )


def list_problems(world: TransferPorts, batch: Batch) -> tuple[str, ...]:
    """Why the batch's chunk list is not the one of the plan."""
    try:
        digest = world.chunk_lists.digest(batch.chunk_list)
    except MigratorError as error:
        return (error.message,)
    if digest != batch.chunk_list_digest:
        return (f"the chunk list {batch.chunk_list} is not the one that the plan was written with",)
    return ()


async def _limit_problems(world: TransferPorts, plan: Plan, left: Sequence[TreeWork]) -> QuotaFindings:
    """Quota problems of the remaining work on these trees. Files that earlier plans copied are replaced, and need no
    more room.

    None if the target has no quotas. If they cannot be queried, the result is a warning when the source limits
    directories: then users are meant to have limits.
    """
    arrived, nothing = world.ledger.passes.arrived(before_plan=plan.name), Need()
    needs = owner_needs(
        plan.owners,
        plan.ranking,
        {
            one.tree: Need(
                size_bytes=max(one.size_bytes - arrived.get(one.tree, nothing).size_bytes, 0),
                inodes=max(one.files - arrived.get(one.tree, nothing).inodes, 0),
            )
            for one in left
        },
        reap=plan.reap,
    )
    look = await read_quotas(world.storage, world.target.root, [one.uid for one in needs])
    if look.failure:
        meant = any(one.kind is SurpriseKind.QUOTA for one in plan.surprises)
        return QuotaFindings(
            warnings=(f"the users' limits on the target are unknown: {look.failure}",) if meant else ()
        )
    return quota_findings(needs, look.quotas, spread=look.spread)
