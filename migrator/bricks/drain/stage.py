"""The context of a drain: ports, the call, facts for the preflight checks, snapshots of the volume."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from migrator.bricks.call import BrickCall, BrickLooker, BrickWorld
from migrator.bricks.drain import model, rules
from migrator.bricks.drain.audit import LeftListFile, ReadBlock
from migrator.bricks.drain.directory_times import DirectoryTimes
from migrator.bricks.drain.leftovers import VolumeNames
from migrator.bricks.drain.rules_preflight import catalog_is_old, drain_problems, failure_causes, retained_sources
from migrator.bricks.model import NO_ROOM_TOLD
from migrator.bricks.progress import TaskSample, samples_of
from migrator.bricks.shared import StrangeLook, strange_now
from migrator.catalog.model import BrickContent, CatalogRecord, TreeOnBricks
from migrator.catalog.queries import CatalogReads
from migrator.core.entry import EntryType
from migrator.core.tasks import told
from migrator.core.units import HOUR_S
from migrator.fs.ports import SourceFileSystem
from migrator.fs.probing import ProbeWorld
from migrator.gluster.model import Brick, BrickMarks, DiskFacts, PlaceSeen, TaskProgress, VolumeState, VolumeTask
from migrator.gluster.walks import HostBrickWalks
from migrator.hooks.model import HookEvent, HookStage, HookStep
from migrator.hooks.stage import HookedStep, find_hooks


class DrainWorld(BrickWorld, frozen=True, kw_only=True):
    """The ports. `versions` returns the GlusterFS version by host. `open_files` returns the number of files open on
    bricks below trees (None: not known). `places` inspects the bricks' paths, given the volume's id. `contents` is
    called in a thread. `retain_s` is how long sources are kept. Without `probing` no probes run while Gluster moves
    files. `names` looks up leftovers through the mount. `marks` returns hard-linked
    files with the mark of an earlier drain, on bricks of the volume with the given id (None: not known). `strange`
    returns the paths of a brick that still have no gfid. `left_list` receives all findings of audits, in the directory
    of a run. Without `times` directories may have earlier mtimes after the commit.
    """

    source: SourceFileSystem
    walks: HostBrickWalks
    read_block: ReadBlock
    contents: Callable[[], CatalogReads]
    versions: Callable[[Collection[str]], Awaitable[Mapping[str, str | None]]]
    open_files: Callable[[Sequence[Brick], Sequence[bytes]], Awaitable[int | None]]
    places: Callable[[Sequence[Brick], str], Awaitable[Mapping[str, PlaceSeen]]]
    disks: Callable[[Sequence[str]], Awaitable[Mapping[str, DiskFacts]]]
    probing: ProbeWorld | None = None
    retain_s: float
    names: VolumeNames | None = None
    marks: Callable[[Sequence[Brick], str], Awaitable[tuple[BrickMarks, ...] | None]]
    strange: StrangeLook | None = None
    left_list: Callable[[str], LeftListFile] | None = None
    times: DirectoryTimes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainCall(BrickCall):
    """One call of the verb."""

    log = logging.getLogger("migrator.drain")
    steps = (
        HookStep.DRAIN,
        HookStep.AUDIT,
        HookStep.COMMIT,
        HookStep.WIPE,
        HookStep.HAND_OVER,
        HookStep.STOP,
        HookStep.FAIL,
    )

    world: DrainWorld
    request: model.DrainRequest

    def left_list(self) -> LeftListFile | None:
        """Return the file for all findings of the next audit."""
        make = self.world.left_list
        return None if make is None or self.directory is None else make(self.directory)

    def facts_of(self, record: model.DrainRecord) -> dict[str, Any]:
        notes = record.notes
        return {"brick": ",".join(record.bricks), "files": notes.files, "size_bytes": notes.size_bytes}


def hooked(record: model.DrainRecord, step: HookStep, brick: str | None = None) -> HookedStep:
    """Describe a step of a drain to its hooks, or that of a single brick."""
    shown, key = brick or record.shown_bricks, f"drain {record.id}"
    if step is not HookStep.DRAIN:
        key = f"{key}: {step.value}"
    return HookedStep(
        step=step,
        key=key if brick is None else f"{key} {brick}",
        subject=f"drain of {shown}",
        words=f"the {'stop of the drain' if step is HookStep.STOP else step.value} of {shown}",
    )


def bricks_of(record: model.DrainRecord, known: Sequence[Brick]) -> tuple[Brick, ...]:
    """Return the bricks of a drain, even if the volume no longer lists them."""
    by_name = {brick.name: brick for brick in known}
    parts = {name: name.partition(":/") for name in record.bricks}
    return tuple(
        by_name.get(name)
        or Brick(name=name, host=host, path=b"/" + path.encode("utf-8", "surrogateescape"), online=None)
        for name, (host, _, path) in parts.items()
    )


# Facts for the preflight checks (the checks are in `rules_preflight.py`), and snapshots of the volume and its bricks.


_MIN_FREE_DISK = "cluster.min-free-disk"
_LOOK_TIMEOUT_S = 60.0

_WAYS_ON = {
    model.DrainState.COMMITTED: HookStep.WIPE,
    model.DrainState.WIPING: HookStep.WIPE,
    model.DrainState.WIPED: HookStep.HAND_OVER,
    model.DrainState.HANDING_OVER: HookStep.HAND_OVER,
}


def _most_used(rooms: Sequence[tuple[int | None, int | None]]) -> int | None:
    """Return the use of the fullest brick, from total and free room. All copies of a set have the same content. None if
    one is not known.
    """
    used = [total - free for total, free in rooms if total is not None and free is not None]
    return max(used) if used and len(used) == len(rooms) else None


@dataclass(slots=True, kw_only=True)
class DrainLooker(BrickLooker):
    """Takes snapshots for one drain. Facts for preflight checks that cannot change meanwhile are queried once; `facts`
    are the last ones.

    `audit` is the newest audit by this process, and `check` has the last facts of the preflight checks. `named` is a
    walk that only names leftovers and decides nothing. `host_was_away` is set if a snapshot of this call missed a host.
    The newest snapshot was judged by `samples`.
    """

    call: DrainCall
    audit: model.AuditSeen | None = None
    named: model.AuditSeen | None = None
    check: model.DrainCheck | None = None
    host_was_away: bool = False
    samples: Sequence[TaskSample] = ()
    facts: model.DrainFacts | None = None
    _content: tuple[CatalogRecord, BrickContent] | None = None
    _marks: tuple[BrickMarks, ...] | None = None
    _silent: tuple[str, float] | None = None
    """The task that some host does not report, and since when, by the clock of this process."""

    async def look_at_guards(
        self, record: model.DrainRecord, state: VolumeState, tasks: Sequence[VolumeTask]
    ) -> model.DrainCheck:
        """Gather all facts of the preflight checks, and the failed checks. Changes nothing, and an unreadable fact
        never raises.
        """
        world = self.call.world
        leaving = bricks_of(record, state.bricks)
        rooms = await told(world.volume.rooms())
        min_free_disk = await told(world.volume.option(_MIN_FREE_DISK))
        catalog, content = await self.content(record) or (None, None)
        versions = await world.versions(sorted({brick.host for brick in state.bricks}))
        tops = await self._top_directories()
        open_files = None if tops is None else await world.open_files(leaving, tops)
        links = () if content is None else await self._still_linked(content.linked_symlinks)
        retained = () if content is None else self._retained(content.trees)
        own = [(rooms or {}).get(brick.name, NO_ROOM_TOLD) for brick in leaving if not brick.arbiter]
        size = _most_used([(room.total_bytes, room.free_bytes) for room in own])
        inodes = _most_used([(room.total_inodes, room.free_inodes) for room in own])
        load = None
        if content is not None and size is not None and inodes is not None:
            load = model.BrickLoad(files=inodes, allocated_bytes=size, largest_bytes=content.largest_bytes)
        self.facts = facts = model.DrainFacts(
            bricks=record.bricks,
            state=state,
            tasks=tuple(tasks),
            task_of_record=record.notes.task_id,
            rooms=rooms,
            load=load,
            min_free_disk=min_free_disk,
            versions=versions,
            open_files=open_files,
            open_files_accepted=self.call.request.accept_open_files,
            drains_elsewhere=tuple(
                one.shown_bricks for one in world.ledger.drains.under_way() if set(one.bricks) != set(record.bricks)
            ),
            scanned=catalog is not None,
            catalog_is_old=catalog is not None
            and catalog_is_old(
                catalog.started_at_s, world.ledger.drains.all(), world.ledger.additions.all(), bricks=record.bricks
            ),
            linked_symlinks=links,
            retained=retained,
            retained_accepted=self.call.request.accept_retained,
            strange=await strange_now(world.ledger.scans, world.strange, state.bricks, state.volume_id) or (),
            marks=await self._marks_of(record, leaving, state),
        )
        return model.DrainCheck(
            problems=drain_problems(facts),
            used_bytes=size,
            used_inodes=inodes,
            rooms=None if rooms is None else {name: room for name, room in rooms.items() if name not in record.bricks},
            min_free_disk=min_free_disk,
            versions=versions,
            open_files=open_files,
            catalog=None if catalog is None else catalog.name,
            catalog_at_s=None if catalog is None else catalog.started_at_s,
            files=None if content is None else content.files,
            size_bytes=None if content is None else content.size_bytes,
            largest_bytes=None if content is None else content.largest_bytes,
            linked_symlinks=links,
            retained=retained,
        )

    def _retained(self, trees: Sequence[TreeOnBricks]) -> tuple[model.RetainedSource, ...]:
        """Return the sources of users who work on the target."""
        world = self.call.world
        cutovers = {one.tree: world.ledger.cutovers.latest(one.tree) for one in trees}
        known = {tree: cutover for tree, cutover in cutovers.items() if cutover is not None}
        return retained_sources(trees, known, retain_s=world.retain_s, now_s=self.call.now_s())

    async def _top_directories(self) -> tuple[bytes, ...] | None:
        """Return the directories in the volume's root, which contain every file that users can open. None if the root
        cannot be read.
        """
        world = self.call.world

        def read() -> tuple[bytes, ...] | None:
            blocks = list(world.source.read_directory(b""))
            if any(block.problems for block in blocks):
                return None
            entries = (entry for block in blocks for entry in block.entries)
            return tuple(entry.path for entry in entries if entry.type is EntryType.DIRECTORY)

        return await told(world.blocking(read, timeout_s=_LOOK_TIMEOUT_S))

    async def content(self, record: model.DrainRecord) -> tuple[CatalogRecord, BrickContent] | None:
        """Return the facts about these bricks from the newest complete catalog; None if there is none."""
        if self._content is None:
            scans = [
                one
                for one in self.call.world.ledger.scans.all()
                if one.whole and not one.scope and one.via == "bricks" and one.finished_at_s is not None
            ]
            if not scans:
                return None
            contents = self.call.world.contents()
            found = await told(asyncio.to_thread(contents.content, scans[-1].name, record.bricks))
            if found is not None:
                self._content = (scans[-1], found)
        return self._content

    async def _marks_of(
        self, record: model.DrainRecord, leaving: Sequence[Brick], state: VolumeState
    ) -> tuple[BrickMarks, ...] | None:
        """Read the marks of earlier drains. This reads every directory, so a result without marks is kept. A drain that
        has started sets marks itself, so they are not read then.
        """
        if record.notes.task_id is not None:
            return ()
        if self._marks is None or any(one.files or one.unseen for one in self._marks):
            self._marks = await self.call.world.marks(leaving, state.volume_id)
        return self._marks

    async def _still_linked(self, paths: Sequence[bytes]) -> tuple[bytes, ...]:
        """Return the paths that still have several names. Others may have been fixed since the scan."""
        look = self.call.world.source.look

        def is_linked(path: bytes) -> bool:
            try:
                entry = look(path)
            except OSError:
                return True
            return entry is not None and entry.nlink > 1

        def find() -> tuple[bytes, ...]:
            return tuple(filter(is_linked, paths))

        found = await told(self.call.world.blocking(find, timeout_s=_LOOK_TIMEOUT_S))
        return tuple(paths) if found is None else found

    async def see(self, record: model.DrainRecord, *, hand_over: bool = False) -> model.DrainSeen:
        """Take the snapshot that decides the next step."""
        found = await self.volume()
        if found is None:
            return model.DrainSeen(state=None, audit=self.audit)
        state, tasks = found
        request, seen = self.call.request, model.DrainSeen(state=state, tasks=tasks)
        task, layout = rules.own_task(record, seen), None
        if task is not None:
            seen = replace(seen, progress=await self.progress(task))
        hosts, silent_s = self.silence(record, seen)
        failed = not rules.may_start(record) and rules.ended_badly(seen)
        if rules.may_start(record) or failed:
            self.check = await self.look_at_guards(record, state, tasks)
        for one in tasks:
            if one.id == record.notes.layout_task_id:
                layout = await self.progress(one)
        places = None
        if hand_over and record.state in model.OUT_STATES:
            places = await self.call.world.places(bricks_of(record, state.bricks), record.volume_id)
        still, lost = ("", "") if task is None else self._counted(record, task, seen.progress)
        return replace(
            seen,
            layout=layout,
            preflight=self.check.problems if self.check is not None and rules.may_start(record) else None,
            stalled=still,
            lost=lost,
            silent=rules.why_silent(hosts, for_s=silent_s) if silent_s > request.stall_s else "",
            causes=failure_causes(self.facts) if failed and self.facts is not None else (),
            audit=self.audit,
            places=places,
        )

    def silence(self, record: model.DrainRecord, seen: model.DrainSeen) -> tuple[tuple[str, ...], float]:
        """Return the hosts that report no counters although everything is up, and for how many seconds the snapshots of
        this process have found that.
        """
        hosts, task, now_s = (
            rules.silent_hosts(record, seen),
            rules.own_task(record, seen),
            self.call.world.clock.monotonic_s(),
        )
        if not hosts or task is None:
            self._silent = None
            return (), 0.0
        if self._silent is None or self._silent[0] != task.id:
            self._silent = task.id, now_s
        return hosts, now_s - self._silent[1]

    async def volume(self) -> tuple[VolumeState, tuple[VolumeTask, ...]] | None:
        """Return the volume with its tasks; None if glusterd does not report them."""
        found = await told(self.call.world.volume.state_and_tasks())
        self.host_was_away = self.host_was_away or found is None or bool(found[0].peers_down)
        if found is not None:
            self.note_missing(found[0])
        return found

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        """Return the counters of a task; None if glusterd does not report them."""
        return await told(self.call.world.volume.progress(task))

    async def goes_on(self, record: model.DrainRecord) -> bool:
        """Return whether the next step wipes a brick or hands it over, and hooks exist for it."""
        step = _WAYS_ON.get(record.state)
        if step is None:
            return False
        found = await find_hooks(self.call.world.hooks, self.call.world.blocking)
        return any(hook.stage == HookStage(step=step, event=HookEvent.PRE) for hook in found.hooks)

    def _counted(self, record: model.DrainRecord, task: VolumeTask, progress: TaskProgress | None) -> tuple[str, str]:
        """Return why the drain counts as stalled, and why its rebalance process counts as lost. The current poll is
        included, because earlier samples may be old.
        """
        request = self.call.request
        newest = () if progress is None else samples_of(progress, self.call.now_s())
        drains, recent_s = self.call.world.ledger.drains, 2.0 * max(request.stall_s, HOUR_S)
        self.samples = (*drains.telling_samples(record.id, recent_s=recent_s), *newest)
        return self.standstill(self.samples, task.id, progress, request)
