"""What archives of reaped files are made with, and put back by."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from migrator.adapters.archives.tar import TarArchives
from migrator.adapters.filesystems.archive_folders import MountedArchiveFolders
from migrator.adapters.filesystems.archiving import MemberReader
from migrator.adapters.filesystems.digests import DIGEST_ALGORITHMS
from migrator.adapters.filesystems.reading import ReadingFileSystem
from migrator.adapters.filesystems.restoring import MountedRestorer
from migrator.adapters.filesystems.target import MountedTarget
from migrator.adapters.plans.reap_lists import ReapListFiles
from migrator.bootstrap import Wiring
from migrator.domain.errors import UsageError
from migrator.domain.plan import Plan
from migrator.domain.reap import ReapAction, ReapRow
from migrator.domain.site import TargetCapabilities
from migrator.ports.ledger import Ledger
from migrator.ports.progress import Progress
from migrator.stages.reap.archive import ArchivingWorld, Rows
from migrator.stages.reap.archived import ProvenArchives
from migrator.stages.reap.restore import RestoringWorld


def archive_folders(wiring: Wiring) -> MountedArchiveFolders:
    """The archive directories of the trees on the target."""
    return MountedArchiveFolders(wiring.target_root)


def archive_format(wiring: Wiring) -> TarArchives:
    """The format of archives, with the site's digest."""
    return TarArchives(DIGEST_ALGORITHMS, algorithm=wiring.site.verify.digest)


def proven_archives(wiring: Wiring, ledger: Ledger) -> ProvenArchives:
    """What is archived, by path: for whoever compares or frees trees."""
    return ProvenArchives(ledger.archives, archive_folders(wiring), archive_format(wiring))


def archiving_world(
    wiring: Wiring, plan: Plan, source: ReadingFileSystem, target: MountedTarget, *, ledger: Ledger, progress: Progress
) -> ArchivingWorld:
    """What `reap archive` works with."""
    return ArchivingWorld(
        source=source,
        target=target,
        members=MemberReader(source, algorithm=wiring.site.verify.digest),
        folders=archive_folders(wiring),
        format=archive_format(wiring),
        rows=rows_to_archive(wiring, plan),
        ledger=ledger,
        progress=progress,
        clock=wiring.clock,
        storage=wiring.storage_targets(),
    )


def restoring_world(
    wiring: Wiring, *, to: Path | None, capabilities: TargetCapabilities | None, ledger: Ledger, progress: Progress
) -> RestoringWorld:
    """What `reap restore` works with. `to` is a directory that exists; None: the target, whose `capabilities` are known."""
    if to is not None and not to.is_dir():
        raise UsageError(f"{to} is no directory", hint="make it first: files are restored below it")
    restorer = MountedRestorer(wiring.target_root, capabilities) if to is None else MountedRestorer(os.fsencode(to))
    return RestoringWorld(
        folders=archive_folders(wiring),
        format=archive_format(wiring),
        restorer=restorer,
        ledger=ledger,
        progress=progress,
        clock=wiring.clock,
    )


def rows_to_archive(wiring: Wiring, plan: Plan) -> Rows:
    """What the plan's reap list wants archived of a tree. Raises Refused where the list is not the plan's."""
    reap = plan.reap
    if reap is None or reap.reap_list is None or reap.digest is None:
        return lambda _tree: iter(())
    lists = ReapListFiles(wiring.site.site.plans_dir)
    lists.checked(reap.reap_list, reap.digest)
    reap_list = reap.reap_list

    def rows(tree: bytes) -> Iterator[Sequence[ReapRow]]:
        return lists.paths(reap_list, trees={tree}, action=ReapAction.ARCHIVE)

    return rows
