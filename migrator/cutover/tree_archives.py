"""Archives of reaped files: assigned to the user with the tree, and checked before the freeze."""

from msgspec.structs import replace

from migrator.catalog.model import ArchivedMember
from migrator.core.entry import UserTree
from migrator.core.errors import MigratorError
from migrator.core.units import several
from migrator.cutover.call import CutoverSession
from migrator.fs.rules_equality import FileState
from migrator.reap.archive import ProvenArchives
from migrator.reap.files import MountedArchiveFolders
from migrator.reap.model import ReapRow, same_file
from migrator.transfer.context import TransferPorts

COUNTED = 10_000
"""The count of files without an archive stops here: each costs a look-up on the source."""


def _archive_folders(session: CutoverSession) -> MountedArchiveFolders:
    target = session.ports.target
    return MountedArchiveFolders(target.root, session.ledger.site.required().name_seed, owners=target.owners)


def assign_archives(session: CutoverSession, tree: bytes, *, to_user: bool) -> None:
    """Let the owner of the tree's top on the target read its archives, or restrict them to root. Blocking; may be
    called again. Raises OSError.
    """
    if not session.ledger.archives.of_tree(tree):
        return
    folders = _archive_folders(session)
    if not to_user:
        folders.take_back(tree)
    elif (top := session.ports.target.look(tree)) is not None:
        folders.hand_over(tree, uid=top.uid, gid=top.gid)


def lacking_archives(session: CutoverSession, tree: UserTree) -> tuple[str, ...] | None:
    """Why the archives of a tree are incomplete; None if the source cannot be read. Blocking.

    Files that the plan archives may be missing from all archives that were read back, although they are unchanged and
    not on the target: the verification would report them missing. Or an archive cannot be read.
    """
    count, archived = 0, None
    try:
        for rows in session.call.to_archive(session.plan, tree.path):
            archived = archived or ProvenArchives(session.ledger.archives, _archive_folders(session))
            known = archived.of_block(tree.path, [row.path for row in rows])
            count += sum(_lacks_archive(session.ports, row, known.get(row.path)) for row in rows)
            if count >= COUNTED:
                break
    except MigratorError as error:
        return (error.message,)
    except OSError:
        return None
    if not count:
        return ()
    lacks = f"{several(count, 'file')} of {tree.user} that the plan archives {'is' if count == 1 else 'are'}"
    return (f"{lacks} in no archive that was read back: `migrator reap archive --user {tree.user}`",)


def _lacks_archive(run: TransferPorts, row: ReapRow, member: ArchivedMember | None) -> bool:
    planned = FileState.of(row)
    if member is not None and FileState.of(member.entry) == planned:
        return False
    entry = run.source.look(row.path)
    if entry is None or (member is not None and same_file(member, entry)):
        return False
    # A file that has changed moves like any other file. Another inode number alone is no change.
    if replace(FileState.of(entry), ino=planned.ino) != planned:
        return False
    return run.target.look(row.path) is None
