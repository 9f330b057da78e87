"""`doctor`: everything that should be known before a migration begins, each finding with its fix.

It changes nothing but this: where the target is the recorded one, it tries out in a directory of its own what the target
keeps of a file, and writes that into the ledger.
"""

import os

from migrator.decide.reap import atime_problem, check_atime
from migrator.decide.site_places import check_places
from migrator.domain.finding import Finding
from migrator.domain.mounts import mount_of
from migrator.stages.doctor.hosts import examine_hosts
from migrator.stages.doctor.links import examine_links
from migrator.stages.doctor.machine import examine_machine, examine_syncing
from migrator.stages.doctor.slurm import examine_slurm
from migrator.stages.doctor.source import SourceExamined, examine_source
from migrator.stages.doctor.target import examine_target
from migrator.stages.doctor.world import DoctorWorld, real_path


async def examine(world: DoctorWorld) -> tuple[Finding, ...]:
    """All findings, in the order in which they are best mended. May be called at any time, also while a run goes on.

    A file system that does not answer is a finding after half a minute. Raises LedgerCorrupt and what the ledger raises.
    """
    record = world.ledger.site.read() if world.ledger is not None else None
    findings = await examine_machine(world)
    source = await examine_source(world, record)
    findings += source.findings
    on_target, target = await examine_target(world, record, source.room)
    findings += on_target
    findings += await examine_syncing(world, target)
    sides = (
        ("source", world.site.source.kind, world.source.root, source.identity),
        ("target", world.site.target.kind, os.fsencode(world.site.target.mount), target),
    )
    # Only what answered is asked for its real path: a mount that hangs must not hang this check.
    answered = [(side, kind, real_path(root)) for side, kind, root, identity in sides if identity is not None]
    findings += check_places(answered, world.mounts, source.identity, target)
    findings += _reaping(world, source)
    if world.hosts is not None:
        recorded = record.target if record is not None else None
        findings += await examine_hosts(world.hosts, world.site, target=recorded, state=source.state)
    findings += await examine_links(world.links, world.site, world.ledger, world.blocking, world.hooks)
    if world.site.transfer.movers == "slurm":
        findings += await examine_slurm(world.processes, world.find_program, world.site.slurm)
    return tuple(findings)


def _reaping(world: DoctorWorld, source: SourceExamined) -> list[Finding]:
    """Whether the source tells when files were read, where a rule of [reap] asks; what did not answer tells nothing."""
    policy = world.site.reap.policy
    needed = source.identity is not None and any(rule.needs_atime for rule in (policy.rule, *policy.by_name.values()))
    mount = mount_of(world.mounts, real_path(world.source.root)) if needed else None
    options = None if source.state is None else dict(source.state.options)
    return check_atime(needed, atime_problem(world.site.source.kind, options, mount) if needed else None)
