"""The guards before a drain: what they look at is gathered here, and decided in `decide/drain_preflight.py`."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from migrator.decide.drain_preflight import catalog_is_old, drain_problems
from migrator.decide.drain_retained import retained_sources
from migrator.decide.drain_standing import quorum_problems
from migrator.domain.brick import Brick, VolumeState
from migrator.domain.drain import DrainRecord
from migrator.domain.drain_preflight import BrickContent, BrickLoad, BrickMarks, DrainFacts, RetainedSource
from migrator.domain.drain_run import DrainCheck
from migrator.domain.entry import EntryType
from migrator.domain.errors import MigratorError
from migrator.domain.scan import CatalogRecord
from migrator.domain.volume_tasks import VolumeTask
from migrator.stages.bricks.drain_context import DrainCall, bricks_of
from migrator.stages.bricks.strange import strange_now

_MIN_FREE_DISK = "cluster.min-free-disk"
_LOOK_TIMEOUT_S = 60.0

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Guarding:
    """Gathers the facts for one call; what cannot change meanwhile is asked once. `facts` are those gathered last."""

    call: DrainCall
    facts: DrainFacts | None = None
    _versions: dict[str, str | None] = field(default_factory=dict)
    _content: tuple[CatalogRecord, BrickContent] | None = None
    _marks: tuple[BrickMarks, ...] | None = None

    async def check(self, record: DrainRecord, state: VolumeState, tasks: Sequence[VolumeTask]) -> DrainCheck:
        """Everything that the guards look at, and what speaks against a start. Changes nothing, and never raises for what
        cannot be seen.
        """
        world = self.call.world
        leaving = bricks_of(record, state.bricks)
        rooms = await _told(world.volume.rooms())
        min_free_disk = await _told(world.volume.option(_MIN_FREE_DISK))
        known = await self.content(record)
        catalog, content = (None, None) if known is None else known
        await self._ask_versions(state)
        tops = await self._top_directories()
        open_files = None if tops is None else await world.open_files(leaving, tops)
        links = None if content is None else await self._still_linked(content.linked_symlinks)
        retained, unread_plan = self._retained(record, content)
        own = [None if rooms is None else rooms.get(brick.name) for brick in leaving if not brick.arbiter]
        used_bytes = [
            None
            if room is None or room.total_bytes is None or room.free_bytes is None
            else room.total_bytes - room.free_bytes
            for room in own
        ]
        used_inodes = [
            None
            if room is None or room.total_inodes is None or room.free_inodes is None
            else room.total_inodes - room.free_inodes
            for room in own
        ]
        size, inodes = _most(used_bytes), _most(used_inodes)
        load = None
        if content is not None and size is not None and inodes is not None:
            load = BrickLoad(files=inodes, allocated_bytes=size, largest_bytes=content.largest_bytes)
        self.facts = facts = DrainFacts(
            bricks=record.bricks,
            state=state,
            tasks=tuple(tasks),
            task_of_record=record.notes.task_id,
            rooms=rooms,
            load=load,
            min_free_disk=min_free_disk,
            quorum=quorum_problems(state),
            versions=dict(self._versions),
            open_files=open_files,
            open_files_accepted=self.call.request.accept_open_files,
            linked_symlinks=links,
            drains_elsewhere=tuple(
                one.shown_bricks for one in world.ledger.drains.under_way() if set(one.bricks) != set(record.bricks)
            ),
            retained=retained,
            retained_accepted=self.call.request.accept_retained,
            unread_plan=unread_plan,
            marks=await self._marks_of(record, leaving, state),
            catalog_is_old=self._is_old(record, catalog),
            strange=await strange_now(world.ledger.scans, world.strange, state.bricks, state.volume_id),
        )
        return DrainCheck(
            problems=drain_problems(facts),
            used_bytes=size,
            used_inodes=inodes,
            rooms=None if rooms is None else {name: room for name, room in rooms.items() if name not in record.bricks},
            min_free_disk=min_free_disk,
            versions=dict(self._versions),
            open_files=open_files,
            catalog=None if catalog is None else catalog.name,
            catalog_at_s=None if catalog is None else catalog.started_at_s,
            files=None if content is None else content.files,
            size_bytes=None if content is None else content.size_bytes,
            largest_bytes=None if content is None else content.largest_bytes,
            linked_symlinks=links,
            retained=retained,
        )

    def _is_old(self, record: DrainRecord, catalog: CatalogRecord | None) -> bool | None:
        ledger = self.call.world.ledger
        if catalog is None:
            return None
        return catalog_is_old(catalog.started_at_s, ledger.drains.all(), ledger.additions.all(), bricks=record.bricks)

    def _retained(
        self, record: DrainRecord, content: BrickContent | None
    ) -> tuple[tuple[RetainedSource, ...] | None, str]:
        """Sources of users who work on the target, and why the plan in force cannot be read (empty where it can)."""
        if content is None:
            return None, ""
        world = self.call.world
        cutovers = {one.tree: world.ledger.cutovers.latest(one.tree) for one in content.trees}
        plan, unread = None, ""
        latest = world.ledger.plans.latest()
        if latest is not None and world.plans is not None:
            try:
                plan, _ = world.plans.read(latest.name)
            except MigratorError as error:
                unread = error.message
        sources = retained_sources(
            content.trees,
            {tree: cutover for tree, cutover in cutovers.items() if cutover is not None},
            plan,
            bricks=record.bricks,
            retain_s=world.retain_s,
            now_s=self.call.now_s(),
        )
        return sources, unread

    async def _top_directories(self) -> tuple[bytes, ...] | None:
        """The directories in the volume's root: whatever users can have open lies below one. None where it cannot be read."""
        world = self.call.world

        def read() -> tuple[bytes, ...] | None:
            blocks = list(world.source.read_directory(b""))
            if any(block.problems for block in blocks):
                return None
            entries = (entry for block in blocks for entry in block.entries)
            return tuple(entry.path for entry in entries if entry.type is EntryType.DIRECTORY)

        try:
            return await world.blocking(read, timeout_s=_LOOK_TIMEOUT_S)
        except (OSError, MigratorError):
            return None

    async def content(self, record: DrainRecord) -> tuple[CatalogRecord, BrickContent] | None:
        """What the newest whole catalog of the bricks knows of these; None where none does."""
        if self._content is None:
            scans = [
                one
                for one in self.call.world.ledger.scans.all()
                if one.whole and not one.scope and one.via == "bricks" and one.finished_at_s is not None
            ]
            if not scans:
                return None
            contents = self.call.world.contents()
            try:
                found = await asyncio.to_thread(contents.content, scans[-1].name, record.bricks)
            except MigratorError:
                return None
            if found is not None:
                self._content = (scans[-1], found)
        return self._content

    async def _marks_of(
        self, record: DrainRecord, leaving: Sequence[Brick], state: VolumeState
    ) -> tuple[BrickMarks, ...] | None:
        """Every directory is read for it, so it is asked once where there are none. A drain that was begun sets marks itself, and
        goes on by them.
        """
        ask = self.call.world.marks
        if ask is None or record.notes.task_id is not None:
            return ()
        if self._marks is None or any(one.files or one.unseen for one in self._marks):
            self._marks = await ask(leaving, state.volume_id)
        return self._marks

    async def _ask_versions(self, state: VolumeState) -> None:
        hosts = {brick.host for brick in state.bricks}
        missing = sorted(host for host in hosts if self._versions.get(host) is None)
        if missing:
            self._versions.update(await self.call.world.versions(missing))

    async def _still_linked(self, paths: Sequence[bytes]) -> tuple[bytes, ...]:
        """Those that still have several names: they may have been put right since they were scanned."""
        look = self.call.world.source.look

        def is_linked(path: bytes) -> bool:
            try:
                entry = look(path)
            except OSError:
                return True
            return entry is not None and entry.nlink > 1

        def find() -> tuple[bytes, ...]:
            return tuple(filter(is_linked, paths))

        try:
            return await self.call.world.blocking(find, timeout_s=_LOOK_TIMEOUT_S)
        except (OSError, TimeoutError):
            return tuple(paths)


async def _told(asked: Awaitable[T]) -> T | None:
    """None where it is not told: every guard takes that for a reason against."""
    try:
        return await asked
    except MigratorError:
        return None


def _most(found: Sequence[int | None]) -> int | None:
    """All copies of a set hold the same: the fullest counts. None where one of them is not known."""
    known = [one for one in found if one is not None]
    return max(known) if known and len(known) == len(found) else None
