"""Archives of reaped files in a cutover: handed over with the tree, taken back with it, and complete before anybody is frozen."""

from dataclasses import dataclass

from migrator.domain.archives import ArchivedMember, same_file
from migrator.domain.entry import Entry
from migrator.domain.errors import MigratorError
from migrator.domain.reap import ReapRow
from migrator.stages.cutover.context import Sight
from migrator.stages.reap.archived import ProvenArchives

COUNTED = 10_000
"""So many files that lack an archive are counted one by one; each takes a look at the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeArchives:
    """The archives of one tree. All blocking. A tree that has none, and of which nothing is to be archived, costs nothing."""

    sight: Sight
    tree: bytes

    def hand_over(self) -> None:
        """Let whoever has the tree's top on the target read them. May be called again. Raises OSError."""
        if self._has_any:
            top = self.sight.run.target.look(self.tree)
            if top is not None:
                self.sight.world.archive_folders.hand_over(self.tree, uid=top.uid, gid=top.gid)

    def take_back(self) -> None:
        """Make them root's alone. May be called again. Raises OSError."""
        if self._has_any:
            self.sight.world.archive_folders.take_back(self.tree)

    def lacking(self) -> int | str | None:
        """How many files the plan archives that no archive holds that was read back, although they are as the plan has them
        and not on the target: the verification would miss them. At most COUNTED. A sentence where archives cannot be read, None where the source
        cannot.
        """
        world, count = self.sight.world, 0
        try:
            archived: ProvenArchives | None = None
            for rows in world.to_archive(self.sight.plan, self.tree):
                archived = archived or world.archived()
                known = archived.of_block(self.tree, [row.path for row in rows])
                for row in rows:
                    count += self._lacks(row, known.get(row.path))
                    if count == COUNTED:
                        return count
        except MigratorError as error:
            return error.message
        except OSError:
            return None
        return count

    def _lacks(self, row: ReapRow, member: ArchivedMember | None) -> bool:
        if member is not None and _facts(member.entry) == (row.ino, row.size_bytes, row.mtime_ns, row.ctime_ns):
            return False
        run = self.sight.run
        entry = run.source.look(row.path)
        if entry is None or _facts(entry)[1:] != (row.size_bytes, row.mtime_ns, row.ctime_ns):
            # It moves as any other file.
            return False
        if member is not None and same_file(member, entry):
            return False
        return run.target.look(row.path) is None

    @property
    def _has_any(self) -> bool:
        """By the ledger: a directory of that name may be the user's own."""
        return bool(self.sight.ledger.archives.of_tree(self.tree))


def _facts(entry: Entry) -> tuple[int, int, int, int]:
    return entry.ino, entry.size_bytes, entry.mtime_ns, entry.ctime_ns
