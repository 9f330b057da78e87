"""The listings of both sides: of the source by a scan of its bricks if that is possible, otherwise as the mounts show them."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.errors import Interrupted, MigratorError, Refused
from migrator.core.events import EventKind, Severity
from migrator.core.tasks import task_group
from migrator.fs.model import TRASH_NAME
from migrator.fs.ports import FileSystem, SourceFileSystem, TargetFileSystem
from migrator.gluster.walks import walk_mount
from migrator.hosts.process import LocalProcesses
from migrator.native.program import native_program
from migrator.verify.content import Readers
from migrator.verify.joined import ListingWriter, SideListing

if TYPE_CHECKING:
    from migrator.catalog.manifest import ManifestDirectories, ParquetDraft


class Listings(Struct, kw_only=True):
    """Lists the sides of one verification. `by_mount_alone` is set once no reading counts that may be of a brick."""

    source: SourceFileSystem
    target: TargetFileSystem
    manifests: "ManifestDirectories"
    readers: Readers | None
    report: Callable[[EventKind, Severity, str], None]
    by_mount_alone: bool = False

    async def of_both(self, trees: Sequence[bytes], directory: Path) -> tuple[SideListing, SideListing]:
        """The source, as a scan of the bricks lists it if that is possible, and the target."""
        if not trees:
            return SideListing(), SideListing()
        async with task_group() as group:
            target = group.create_task(self._list(self.target, trees, directory / "target"))
            source = await self._list_from_bricks(trees)
            if source is None:
                source = await self._list(self.source, trees, directory / "source")
                source = replace(source, marked=await self._marked(trees))
        return source, target.result()

    async def _marked(self, trees: Sequence[bytes]) -> tuple[bytes, ...]:
        """The files whose content on a brick may not be the mount's. If the marks cannot be read, no reading counts that may be
        of a brick.
        """
        if self.readers is None or self.readers.marks is None:
            return ()
        marks = await self.readers.marks(trees)
        if marks.kept:
            raise Refused(f"nothing is verified: {'; '.join(marks.kept)}", hint="then run the same command again")
        if marks.reasons:
            self.by_mount_alone = True
            message = f"all content is read through the mount: {'; '.join(marks.reasons)}"
            self.report(EventKind.VERIFY_STARTED, Severity.WARNING, message)
        return tuple(sorted(marks.paths))

    @staticmethod
    async def _list(side: FileSystem, trees: Sequence[bytes], directory: Path) -> SideListing:
        """A side as its mount shows it."""
        await asyncio.to_thread(directory.mkdir)
        writer = ListingWriter(directory, trees)
        await walk_mount(
            LocalProcesses(), native_program().path, side.held_path(), trees=trees, listener=writer, owners=side.owners
        )
        return await asyncio.to_thread(writer.close)

    async def of_trash(self, draft: "ParquetDraft") -> SideListing:
        """The trash of the target, if files of the target have names outside the compared trees. Names that cannot be read
        there explain nothing.
        """
        if not await asyncio.to_thread(draft.has_other_names):
            return SideListing()
        trash = await asyncio.to_thread(self.target.look, TRASH_NAME)
        return SideListing() if trash is None else await self._list(self.target, (TRASH_NAME,), draft.scratch / "trash")

    async def _list_from_bricks(self, trees: Sequence[bytes]) -> SideListing | None:
        if self.readers is None or self.readers.scan is None:
            return None
        try:
            record = await self.readers.scan(trees)
            reasons = record.reasons
            if record.whole:
                files = await asyncio.to_thread(self.manifests.rows_of, record.name)
                return SideListing(files=tuple(files), from_bricks=True)
        except Interrupted:
            raise
        except MigratorError as error:
            reasons = (error.message,)
        message = f"directories are read through the mount, not from the bricks: {'; '.join(reasons)}"
        self.report(EventKind.VERIFY_STARTED, Severity.WARNING, message)
        return None
