"""Snapshots of a volume for a drain, and the facts for its preflight checks. An unreadable fact never raises."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from migrator.bricks.drain import model, rules
from migrator.bricks.drain.call import DrainCall, bricks_of
from migrator.bricks.drain.model import DrainSnapshot
from migrator.bricks.drain.model_audit import DrainAudit
from migrator.bricks.drain.model_preflight import BrickLoad, DrainCheck, DrainFacts, RetainedSource
from migrator.bricks.drain.rules_preflight import catalog_is_old, drain_problems, failure_causes, retained_sources
from migrator.bricks.model import NO_ROOM_TOLD
from migrator.bricks.progress import StallWatch, TaskSample, samples_of
from migrator.bricks.strange_files import strange_now
from migrator.catalog.model import BrickContent, CatalogRecord, TreeOnBricks
from migrator.core.entry import EntryType
from migrator.core.tasks import result_or_none
from migrator.core.units import HOUR_S
from migrator.gluster.model import Brick, BrickMarks, TaskProgress, VolumeState, VolumeTask
from migrator.hooks.calls import find_hooks
from migrator.hooks.model import HookEvent, HookStage, HookStep

_MIN_FREE_DISK = "cluster.min-free-disk"
_LOOK_TIMEOUT_S = 60.0

_STEPS_AFTER_COMMIT = {
    model.DrainState.COMMITTED: HookStep.WIPE,
    model.DrainState.WIPING: HookStep.WIPE,
    model.DrainState.WIPED: HookStep.HAND_OVER,
    model.DrainState.HANDING_OVER: HookStep.HAND_OVER,
}


def _most_used(rooms: Sequence[tuple[int | None, int | None]]) -> int | None:
    """Return the use of the fullest brick, from total and free room. All copies of a set have the same content. None if
    one is unknown.
    """
    used = [total - free for total, free in rooms if total is not None and free is not None]
    return max(used) if used and len(used) == len(rooms) else None


@dataclass(slots=True, kw_only=True)
class DrainSnapshots:
    """Takes the snapshots of one call. Facts for preflight checks that cannot change meanwhile are queried once; `facts`
    are the last ones.

    `audit` is the newest audit by this process, and `check` has the last facts of the preflight checks. `named` is a
    walk that only names leftovers and decides nothing. `host_was_away` is set if a snapshot of this call missed a host.
    The newest snapshot was judged by `samples`.
    """

    call: DrainCall
    stalls: StallWatch = field(init=False)
    audit: DrainAudit | None = None
    named: DrainAudit | None = None
    check: DrainCheck | None = None
    host_was_away: bool = False
    samples: Sequence[TaskSample] = ()
    facts: DrainFacts | None = None
    _content: tuple[CatalogRecord, BrickContent] | None = None
    _marks: tuple[BrickMarks, ...] | None = None
    _silent_task: tuple[str, float] | None = None
    """The task that some host does not report, and since when, by the clock of this process."""

    def __post_init__(self) -> None:
        self.stalls = StallWatch(incomplete_s=self.call.now_s())

    async def preflight(self, record: model.DrainRecord, state: VolumeState, tasks: Sequence[VolumeTask]) -> DrainCheck:
        """Gather all facts of the preflight checks, and the failed checks. Changes nothing, and an unreadable fact
        never raises.
        """
        ports = self.call.ports
        leaving = bricks_of(record, state.bricks)
        rooms = await result_or_none(ports.volume.rooms())
        min_free_disk = await result_or_none(ports.volume.option(_MIN_FREE_DISK))
        catalog, content = await self.content(record) or (None, None)
        versions = await ports.versions(sorted({brick.host for brick in state.bricks}))
        tops = await self._top_directories()
        open_files = None if tops is None else await ports.open_files(leaving, tops)
        links = () if content is None else await self._still_linked(content.linked_symlinks)
        retained = () if content is None else self._retained(content.trees)
        own = [(rooms or {}).get(brick.name, NO_ROOM_TOLD) for brick in leaving if not brick.arbiter]
        size = _most_used([(room.total_bytes, room.free_bytes) for room in own])
        inodes = _most_used([(room.total_inodes, room.free_inodes) for room in own])
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
            versions=versions,
            open_files=open_files,
            open_files_accepted=self.call.request.accept_open_files,
            drains_elsewhere=tuple(
                one.shown_bricks for one in ports.ledger.drains.under_way() if set(one.bricks) != set(record.bricks)
            ),
            scanned=catalog is not None,
            catalog_is_old=catalog is not None
            and catalog_is_old(
                catalog.started_at_s, [*ports.ledger.drains.all(), *ports.ledger.additions.all()], bricks=record.bricks
            ),
            linked_symlinks=links,
            retained=retained,
            retained_accepted=self.call.request.accept_retained,
            strange=await strange_now(ports.ledger.scans, ports.strange, state.bricks, state.volume_id) or (),
            marks=await self._marks_of(record, leaving, state),
        )
        return DrainCheck(
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

    def _retained(self, trees: Sequence[TreeOnBricks]) -> tuple[RetainedSource, ...]:
        """Return the sources of users who work on the target."""
        ports = self.call.ports
        cutovers = {one.tree: ports.ledger.cutovers.latest(one.tree) for one in trees}
        known = {tree: cutover for tree, cutover in cutovers.items() if cutover is not None}
        return retained_sources(trees, known, retain_s=ports.retain_s, now_s=self.call.now_s())

    async def _top_directories(self) -> tuple[bytes, ...] | None:
        """Return the directories in the volume's root, which contain every file that users can open. None if the root
        cannot be read.
        """
        ports = self.call.ports

        def read() -> tuple[bytes, ...] | None:
            blocks = list(ports.source.read_directory(b""))
            if any(block.problems for block in blocks):
                return None
            entries = (entry for block in blocks for entry in block.entries)
            return tuple(entry.path for entry in entries if entry.type is EntryType.DIRECTORY)

        return await result_or_none(ports.blocking(read, timeout_s=_LOOK_TIMEOUT_S))

    async def content(self, record: model.DrainRecord) -> tuple[CatalogRecord, BrickContent] | None:
        """Return the facts about these bricks from the newest complete catalog; None if there is none."""
        if self._content is None:
            scans = [
                one
                for one in self.call.ports.ledger.scans.all()
                if one.whole and not one.scope and one.via == "bricks" and one.finished_at_s is not None
            ]
            if not scans:
                return None
            contents = self.call.ports.contents()
            found = await result_or_none(asyncio.to_thread(contents.content, scans[-1].name, record.bricks))
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
            self._marks = await self.call.ports.marks(leaving, state.volume_id)
        return self._marks

    async def _still_linked(self, paths: Sequence[bytes]) -> tuple[bytes, ...]:
        """Return the paths that still have several names. Others may have been fixed since the scan."""
        look = self.call.ports.source.look

        def is_linked(path: bytes) -> bool:
            try:
                entry = look(path)
            except OSError:
                return True
            return entry is not None and entry.nlink > 1

        def find() -> tuple[bytes, ...]:
            return tuple(filter(is_linked, paths))

        found = await result_or_none(self.call.ports.blocking(find, timeout_s=_LOOK_TIMEOUT_S))
        return tuple(paths) if found is None else found

    async def take(self, record: model.DrainRecord, *, hand_over: bool = False) -> DrainSnapshot:
        """Take the snapshot that decides the next step."""
        found = await self.volume()
        if found is None:
            return DrainSnapshot(state=None, audit=self.audit)
        state, tasks = found
        request, snapshot = self.call.request, DrainSnapshot(state=state, tasks=tasks)
        task, layout = rules.own_task(record, snapshot), None
        if task is not None:
            snapshot = replace(snapshot, progress=await self.progress(task))
        hosts, silent_s = self.silence(record, snapshot)
        failed = not rules.may_start(record) and rules.ended_badly(snapshot)
        if rules.may_start(record) or failed:
            self.check = await self.preflight(record, state, tasks)
        for one in tasks:
            if one.id == record.notes.layout_task_id:
                layout = await self.progress(one)
        places = None
        if hand_over and record.state in model.OUT_STATES:
            places = await self.call.ports.places(bricks_of(record, state.bricks), record.volume_id)
        still, lost = ("", "") if task is None else self._judged(record, task, snapshot.progress)
        return replace(
            snapshot,
            layout=layout,
            preflight=self.check.problems if self.check is not None and rules.may_start(record) else None,
            stalled=still,
            lost=lost,
            silent=rules.why_silent(hosts, for_s=silent_s) if silent_s > request.stall_s else "",
            causes=failure_causes(self.facts) if failed and self.facts is not None else (),
            audit=self.audit,
            places=places,
        )

    def silence(self, record: model.DrainRecord, snapshot: DrainSnapshot) -> tuple[tuple[str, ...], float]:
        """Return the hosts that report no counters although everything is up, and for how many seconds the snapshots of
        this process have found that.
        """
        hosts, task, now_s = (
            rules.silent_hosts(record, snapshot),
            rules.own_task(record, snapshot),
            self.call.ports.clock.monotonic_s(),
        )
        if not hosts or task is None:
            self._silent_task = None
            return (), 0.0
        if self._silent_task is None or self._silent_task[0] != task.id:
            self._silent_task = task.id, now_s
        return hosts, now_s - self._silent_task[1]

    async def volume(self) -> tuple[VolumeState, tuple[VolumeTask, ...]] | None:
        """Return the volume with its tasks; None if glusterd does not report them."""
        found = await result_or_none(self.call.ports.volume.state_and_tasks())
        self.host_was_away = self.host_was_away or found is None or bool(found[0].peers_down)
        if found is not None:
            self.stalls.note(found[0], self.call.now_s())
        return found

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        """Return the counters of a task; None if glusterd does not report them."""
        return await result_or_none(self.call.ports.volume.progress(task))

    async def has_next_hook(self, record: model.DrainRecord) -> bool:
        """Return whether the next step wipes a brick or hands it over, and hooks exist for it."""
        step = _STEPS_AFTER_COMMIT.get(record.state)
        if step is None:
            return False
        found = await find_hooks(self.call.ports.hooks, self.call.ports.blocking)
        return any(hook.stage == HookStage(step=step, event=HookEvent.PRE) for hook in found.hooks)

    def _judged(self, record: model.DrainRecord, task: VolumeTask, progress: TaskProgress | None) -> tuple[str, str]:
        """Return why the drain counts as stalled, and why its rebalance process counts as lost. The current poll is
        included, because earlier samples may be old.
        """
        request = self.call.request
        newest = () if progress is None else samples_of(progress, self.call.now_s())
        drains, recent_s = self.call.ports.ledger.drains, 2.0 * max(request.stall_s, HOUR_S)
        self.samples = (*drains.telling_samples(record.id, recent_s=recent_s), *newest)
        return self.stalls.judge(
            self.samples, task.id, progress, stall_s=request.stall_s, poll_s=request.poll_s, now_s=self.call.now_s()
        )
