"""`doctor`: all preflight checks, each finding with its fix.

Its only change: if the target is the recorded one, it probes which attributes of a file the target keeps, records that in
the ledger, and writes as a run does; both in directories of its own.
"""

import os

from migrator.core.entry import UserTree
from migrator.core.errors import MigratorError
from migrator.core.events import Finding, failure, ok
from migrator.core.paths import join
from migrator.cutover.links import SymlinkedPaths, links_of, real_place
from migrator.cutover.rules_preflight import check_way_back
from migrator.cutover.rules_states import check_frozen, frozen_users
from migrator.cutover.rules_writers import search_gaps
from migrator.doctor.call import DoctorPorts, real_path
from migrator.doctor.hosts import examine_hosts, examine_slurm
from migrator.doctor.machine import examine_machine
from migrator.doctor.sides import SourceExamined, examine_source, examine_target, retired_source
from migrator.fs.model import MountIdentity, mount_of
from migrator.gluster.volume import GlusterSource
from migrator.ledger.locks import of_tree
from migrator.plan.document import PlanFiles
from migrator.reap.rules import atime_problem, check_atime
from migrator.site import rules_guards
from migrator.site.rules_links import check_link_names, check_links, naming_problem


async def examine(ports: DoctorPorts) -> tuple[Finding, ...]:
    """All findings, in the order in which they are best fixed. May be called at any time, also during a run. A file
    system that does not answer is a finding after 30 seconds. Raises LedgerCorrupt and other errors of the ledger.
    """
    record = ports.ledger.site.read() if ports.ledger is not None else None
    findings = [*_frozen(ports), *await examine_machine(ports)]
    source = retired_source(ports.ledger) or await examine_source(ports, record)
    findings += source.findings
    on_target, target = await examine_target(ports, record, source.room)
    findings += on_target
    sides = (
        ("source", ports.site.source.kind, ports.source.root, source.identity),
        ("target", ports.site.target.kind, os.fsencode(ports.site.target.mount), target),
    )
    # Resolve only paths of file systems that answered: a mount that hangs must not hang this check.
    answered = [(side, kind, real_path(root)) for side, kind, root, identity in sides if identity is not None]
    findings += rules_guards.check_places(answered, ports.mounts, source.identity, target)
    findings += _reaping(ports, source)
    if ports.hosts is not None:
        recorded = record.target if record is not None else None
        volume = ports.source if isinstance(ports.source, GlusterSource) else None
        state = source.state
        findings += await examine_hosts(
            ports.site, ports.hosts, volume, ports.place_native, target=recorded, state=state
        )
    findings += await _links(ports)
    findings += await _way_back(ports, target)
    if ports.site.transfer.movers == "slurm":
        findings += await examine_slurm(ports.processes, ports.find_program, ports.site.slurm)
    return tuple(findings)


def _frozen(ports: DoctorPorts) -> list[Finding]:
    if ports.ledger is None:
        return []
    held = {name for holder in ports.holders() for name in holder.names}
    users = frozen_users(ports.ledger.cutovers.under_way(), at_work=lambda tree: of_tree(tree) in held)
    return check_frozen(users, now_s=ports.clock.now_s())


async def _way_back(ports: DoctorPorts, target: MountIdentity | None) -> list[Finding]:
    if ports.target_writers is None or target is None:
        return []
    cutover = ports.site.cutover
    try:
        found = await ports.target_writers(())
    except (MigratorError, OSError):
        doubts = None
    else:
        doubts = search_gaps(found, vouched=cutover.freeze == "hook")
    return check_way_back(doubts, required=cutover.require_rollback)


def _reaping(ports: DoctorPorts, source: SourceExamined) -> list[Finding]:
    """Check that the source keeps access times, if a rule of [reap] uses them; no finding if the source did not answer."""
    needed = source.identity is not None and ports.site.reap.policy.needs_atime
    mount = mount_of(ports.mounts, real_path(ports.source.root)) if needed else None
    options = None if source.state is None else dict(source.state.options)
    return check_atime(needed, atime_problem(ports.site.source.kind, options, mount) if needed else None)


# Links by which users reach their trees, if a cutover switches them


_TIMEOUT_S = 300.0


async def _links(ports: DoctorPorts) -> list[Finding]:
    """A finding for every link of the active plan that cannot be switched now; none if no cutover is configured."""
    links, ledger = links_of(ports.site), ports.ledger
    if links is None:
        return []
    record = ledger.site.read() if ledger is not None else None
    active = ledger.plans.active() if ledger is not None else None
    if record is None or active is None:
        return [ok("links", f"{links.place.link}: checked once there is a plan")]
    try:
        plan, _ = PlanFiles(ports.site.site.plans_dir, site_id=record.site_id).read(active.name)
    except MigratorError as error:
        return [failure("links", error.message, error.hint or "make a plan: `migrator plan`")]
    trees = tuple(tree for batch in plan.batches for tree in batch.trees)
    try:
        looked = await ports.blocking(lambda: _look_at_links(links, trees), timeout_s=_TIMEOUT_S)
        return [*check_link_names(links.place.link, trees), *looked]
    except TimeoutError:
        return [
            failure("links", f"no answer within {_TIMEOUT_S:.0f} s", "check the mounts that they lead to: one may hang")
        ]
    except OSError as error:
        fix = "repair the file system that holds them"
        return [failure("links", f"links cannot be read: {error.strerror or error}", fix)]


def _look_at_links(links: SymlinkedPaths, trees: tuple[UserTree, ...]) -> list[Finding]:
    place = real_place(links.place)
    real = {tree.path: (join(place.source_root, tree.path), join(place.target_root, tree.path)) for tree in trees}
    looks = [(tree, links.read_link(tree)) for tree in trees if naming_problem(place.link, tree) is None]
    return check_links(place, looks, real=real, euid=os.geteuid())
