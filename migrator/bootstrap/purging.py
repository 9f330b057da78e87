"""What a purge is made of."""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from migrator.adapters.catalog.manifest_proofs import ManifestFiles
from migrator.adapters.executors.site_hosts import SiteHosts
from migrator.adapters.filesystems.gluster import GlusterSource
from migrator.adapters.filesystems.posix import PosixSource
from migrator.adapters.filesystems.purging import MountedPlaces
from migrator.adapters.filesystems.storage_targets import NoStorageTargets
from migrator.adapters.filesystems.switching import SymlinkedPaths
from migrator.adapters.filesystems.target import MountedTarget
from migrator.adapters.ledger.sqlite import SqliteLedger
from migrator.adapters.writers.search import BrickWriters, LocalWriters
from migrator.bootstrap import Wiring, new_token
from migrator.bootstrap.archiving import proven_archives
from migrator.bootstrap.back_ledgers import back_ledger
from migrator.bootstrap.examining import link_place
from migrator.bootstrap.hosts import reached
from migrator.bootstrap.ledger_backups import backing_up
from migrator.decide.switching import user_problem
from migrator.domain.cutover import CutoverRecord
from migrator.domain.cutover_seen import BackupSeen
from migrator.domain.paths import join
from migrator.domain.purge import LeadsTo
from migrator.domain.reap import ReapAction, ReapRow
from migrator.domain.tree import UserTree
from migrator.domain.verification import VerificationRecord
from migrator.ports.freezing import WriterSearch
from migrator.ports.progress import Progress
from migrator.stages.carry_back.back_site import PLAN, newest_pass
from migrator.stages.purge import PurgeWorld


@asynccontextmanager
async def purge_world(
    wiring: Wiring, source: PosixSource | GlusterSource, target: MountedTarget, ledger: SqliteLedger, progress: Progress
) -> AsyncIterator[PurgeWorld]:
    """The ports of a purge, for the length of the block. Raises UsageError, OSError where the source cannot be opened."""
    site = wiring.site
    places = MountedPlaces(wiring.source_root)
    try:
        async with reached(site) as hosts:
            yield PurgeWorld(
                source=source,
                target=target,
                places=places,
                manifest=ManifestFiles(temp_dir=wiring.temp_dir),
                manifests=wiring.manifests(),
                storage=wiring.storage_targets() or NoStorageTargets(),
                writers=_writers(wiring, source, hosts),
                link=_link(wiring),
                backup=_recorded(wiring, ledger),
                back_up=backing_up(ledger, site.site.state_dir),
                archived=lambda: proven_archives(wiring, ledger),
                skipped=_skipped(wiring, ledger),
                hooks=wiring.hooks(),
                ledger=ledger,
                locks=wiring.locks(),
                files=wiring.run_files(),
                progress=progress,
                clock=wiring.clock,
                blocking=wiring.blocking(),
                tokens=new_token,
                carried=_carried(wiring),
            )
    finally:
        places.close()


def _writers(wiring: Wiring, source: PosixSource | GlusterSource, hosts: SiteHosts) -> WriterSearch:
    if isinstance(source, GlusterSource):
        return BrickWriters(hosts, tuple(hosts.names), source, processes=wiring.processes)
    return LocalWriters(wiring.processes, source)


def _recorded(wiring: Wiring, ledger: SqliteLedger) -> Callable[[CutoverRecord], BackupSeen]:
    """Whether a backup of the tree is recorded that began after its user was let in."""

    def look(record: CutoverRecord) -> BackupSeen:
        if not wiring.site.cutover.wait_for_backup:
            return BackupSeen.NOT_ASKED
        begun_s, let_in_s = ledger.target_backups.latest(record.tree.path), record.thawed_at_s
        known = begun_s is not None and let_in_s is not None and begun_s >= let_in_s
        return BackupSeen.RECORDED if known else BackupSeen.MISSING

    return look


def _skipped(wiring: Wiring, ledger: SqliteLedger) -> Callable[[CutoverRecord], Iterable[Sequence[ReapRow]]]:
    def look(record: CutoverRecord) -> Iterable[Sequence[ReapRow]]:
        known = ledger.site.read()
        plan, _ = wiring.plans(known.site_id if known else None).read(record.plan)
        reap, lists = plan.reap, wiring.reap_lists()
        if reap is None or reap.reap_list is None:
            return ()
        lists.checked(reap.reap_list, reap.digest or "")
        return lists.paths(reap.reap_list, trees={record.tree.path}, action=ReapAction.SKIP)

    return look


def _carried(wiring: Wiring) -> Callable[[CutoverRecord], Sequence[VerificationRecord] | None]:
    def look(record: CutoverRecord) -> Sequence[VerificationRecord] | None:
        with back_ledger(wiring, record) as ledger:
            if ledger is None or newest_pass(ledger, record) is None:
                return None
            return [one for one in ledger.verifications.of_plan(PLAN) if one.batch == record.id]

    return look


def _link(wiring: Wiring) -> Callable[[UserTree], LeadsTo]:
    """Where the path of a user leads. What a link leads to is compared, without symlinks."""
    place = link_place(wiring.site)
    if place is None:
        return lambda _tree: LeadsTo.UNTOLD
    links = SymlinkedPaths(place)

    def look(tree: UserTree) -> LeadsTo:
        if problem := user_problem(tree.user):
            raise OSError(0, problem, tree.path)
        found = links.read_link(tree.user)
        if found.unread:
            raise OSError(0, found.unread, found.path)
        if found.leads_to is None:
            # While a tree is purged its path on the source is gone: a link that says it leads there all the same.
            says = os.path.normpath(os.path.join(found.directory or b"/", found.text or b""))
            return LeadsTo.SOURCE if says == join(wiring.source_root, tree.path) else LeadsTo.ELSEWHERE
        if found.leads_to == os.path.realpath(join(wiring.target_root, tree.path)):
            return LeadsTo.TARGET
        if found.leads_to == os.path.realpath(join(wiring.source_root, tree.path)):
            return LeadsTo.SOURCE
        return LeadsTo.ELSEWHERE

    return look
