"""What `doctor` looks at on the target: the mount, storage targets, room, what it keeps of a file."""

from collections.abc import Sequence

from migrator.decide.site_checks import check_capabilities, check_mount, check_target_room
from migrator.decide.site_guards import mount_problems
from migrator.decide.storage_checks import check_quota, check_storage_targets, check_stripe
from migrator.domain.errors import ToolFailed
from migrator.domain.events import Event, EventKind, Severity
from migrator.domain.finding import Finding, failure
from migrator.domain.site import Capacity, MountIdentity, TargetCapabilities
from migrator.ports.ledger import Ledger
from migrator.ports.site import SiteRecord
from migrator.ports.storage_targets import StorageTargets
from migrator.stages.doctor.world import PROBE_TIMEOUT_S, DoctorWorld, ask
from migrator.stages.storage_looks import look_at_storage


async def examine_target(
    world: DoctorWorld, record: SiteRecord | None, source_room: Capacity | None
) -> tuple[list[Finding], MountIdentity | None]:
    """The findings about the target, and what is mounted. `record` is what `init` recorded, None before it. Where the
    recorded target is mounted, what it keeps of a file is tried out and written into the ledger.
    """
    identity, error = await ask(world, world.target.identity)
    kind = world.site.target.kind
    findings = [check_mount("target", kind, record.target if record else None, identity, error)]
    # Asked also where the mount does not answer: this may be why.
    storage = await look_at_storage(world.storage)
    if world.storage is not None:
        findings += check_storage_targets(storage.seen, storage.failure, storage.hint)
        findings += check_stripe(world.site.target.stripe, storage.seen)
        findings += await _quota(world, world.storage)
    if identity is None:
        return findings, None
    room, error = await ask(world, world.target.capacity)
    findings += check_target_room(
        storage.room(room),
        source_room,
        inodes_free=world.site.target.inodes_free,
        reserve_bytes=world.site.transfer.reserve_bytes,
        error=error,
    )
    if record is None or world.ledger is None:
        findings.append(failure("target keeps", "not known before `init`", "run `migrator init`, then this again"))
        return findings, identity
    findings += await _capabilities(world, world.ledger, record, identity)
    return findings, identity


async def _quota(world: DoctorWorld, storage: StorageTargets) -> list[Finding]:
    try:
        limits = len(await world.source.quotas())
    except (OSError, ToolFailed):
        return []  # what the source cannot tell is told of the source
    return check_quota(limits, await storage.quota_problem() if limits else None)


async def _capabilities(
    world: DoctorWorld, ledger: Ledger, record: SiteRecord, identity: MountIdentity
) -> Sequence[Finding]:
    if mount_problems(record.target, identity):
        return check_capabilities(None, record.capabilities, "nothing is tried out on another file system")
    probed, error = await ask(world, world.target.probe, timeout_s=PROBE_TIMEOUT_S)
    if probed is not None:
        _record(world, ledger, record, probed)
    return check_capabilities(probed, record.capabilities, error)


def _record(world: DoctorWorld, ledger: Ledger, record: SiteRecord, probed: TargetCapabilities) -> None:
    at_s = world.clock.now_s()
    ledger.site.record_capabilities(probed, at_s)
    if probed == record.capabilities:
        return
    first = record.capabilities is None
    ledger.events.add(
        Event(
            at_s=at_s,
            kind=EventKind.CAPABILITIES_PROBED,
            severity=Severity.INFO if first else Severity.WARNING,
            subject="target",
            message="found out what the target keeps" if first else "the target keeps other things than before",
        )
    )
