"""What a plan has reaped: archives have to be whole, and what was skipped goes only where it was given up by name."""

from collections.abc import Callable, Mapping

from migrator.decide.reap import Releases, standing
from migrator.domain.archives import ArchiveState
from migrator.domain.entry import Entry, EntryType
from migrator.domain.paths import show
from migrator.domain.purge import COVERED, Judgement, Verdict
from migrator.domain.reap import ReapRow, ReapStanding
from migrator.domain.tree import UserTree
from migrator.domain.units import several
from migrator.ports.ledger import Ledger
from migrator.ports.reap import ReleaseRecords
from migrator.stages.reap.archived import ProvenArchives

_KEPT = Verdict(
    judgement=Judgement.OPEN, words="was skipped by the plan, and is on the source alone: nobody has given it up"
)


class Skipped:
    """Judges the skipped paths of one tree. `row_of` is what the reap list says of a path that it skips; `closed`: the tree
    lies where nobody else can change it. Thread-safe.
    """

    def __init__(
        self, tree: UserTree, row_of: Callable[[bytes], ReapRow | None], releases: ReleaseRecords, *, closed: bool
    ) -> None:
        self._tree = tree
        self._row_of = row_of
        self._releases = Releases(releases.of_trees((tree.path,)))
        self._closed = closed

    def verdict(self, entry: Entry, path: bytes) -> Verdict | None:
        """Whether a path of which there is no proof may go. None: it is nothing that was skipped, or it changed since."""
        if entry.type is not EntryType.FILE:
            return None
        row = self._row_of(path)
        # Every name of a file that is removed gives the others another ctime. The whole tree was judged before it was closed.
        ctime_ns = row.ctime_ns if row is not None and self._closed and row.ino == entry.ino else entry.ctime_ns
        found = standing(
            row,
            size_bytes=entry.size_bytes,
            mtime_ns=entry.mtime_ns,
            ctime_ns=ctime_ns,
            archived=False,
            released=self._releases.has(self._tree.path, path),
        )
        if found is ReapStanding.RELEASED:
            return COVERED
        return _KEPT if found is ReapStanding.SKIPPED else None


def archive_sizes(ledger: Ledger, tree: UserTree) -> Mapping[int, int]:
    """The sizes of the archives that count, by their numbers."""
    records = ledger.archives.of_tree(tree.path)
    return {one.number: one.written.archive_bytes for one in records if one.state is ArchiveState.PROVEN}


def archive_problems(archived: ProvenArchives, tree: UserTree) -> tuple[str, ...]:
    """What is wrong with the archives of a tree: each is read whole. A tree without any costs nothing."""
    return tuple(f"{one}: bring it back from a backup of the target" for one in archived.problems(tree.path))


def open_words(tree: UserTree, lacking: int, skipped: int, *, carried: bool, verified: bool) -> tuple[str, ...]:
    """Why a tree may not be freed in which so many paths have no proof, and so many more were skipped and not released.
    `carried`: a rollback that was given up brought files to the source; `verified`: something proves some of them.
    """
    found: list[str] = []
    if lacking:
        found.append(
            f"{several(lacking, 'path')} of {show(tree.path)} {'is' if lacking == 1 else 'are'} not known to be on the "
            f"target: bring over by hand what is missed there, or remove it on the source; or move {tree.user} back with "
            "`migrator rollback`, and over again"
        )
    if lacking and carried:
        found.append(
            f"a rollback of {tree.user} that was given up has carried files to the source"
            + (", and some are not proven" if verified else ", and nothing has verified them")
            + f": `migrator verify --user {tree.user}` compares both sides once more, and what is equal then counts; it moves nobody"
        )
    if skipped:
        found.append(
            f"{several(skipped, 'file')} that the plan skipped {'is' if skipped == 1 else 'are'} on the source alone: give up "
            f"what may go with `migrator reap release --user {tree.user} PATH --confirm-loss`, or move the user back with "
            "`migrator rollback` and archive it"
        )
    return tuple(found)


def released_words(released: int) -> str:
    """What goes without being anywhere else."""
    return f"; with {several(released, 'file')} that the plan skipped and that were released" if released else ""
