"""What a drain works with: context, snapshots, preflight checks, hooks, throttle."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from migrator.bricks.drain.audit import LeftList, ReadBlock
from migrator.bricks.drain.model import (
    OUT_STATES,
    AuditSeen,
    BrickContent,
    BrickLoad,
    BrickMarks,
    ChangedOption,
    DrainCheck,
    DrainFacts,
    DrainNotes,
    DrainRecord,
    DrainRequest,
    DrainSeen,
    DrainState,
    DrainStep,
    PlaceSeen,
    RetainedSource,
)
from migrator.bricks.drain.rules import (
    audit_left,
    audit_state,
    ended_badly,
    lost_after_s,
    lost_movers,
    may_start,
    options_to_restore,
    own_task,
    parts_missing,
    silent_hosts,
    taken_back,
    why_silent,
)
from migrator.bricks.drain.rules_preflight import catalog_is_old, drain_problems, failure_causes, retained_sources
from migrator.bricks.drain.rules_progress import quorum_problems, samples_of, stalled
from migrator.bricks.recover.stage import LeftoverBricks, Recovery, VolumeRecovery
from migrator.bricks.shared import BrickCall, Ended, StrangeLook, ThrottleRules, Throttling, drain_failure, strange_now
from migrator.catalog.model import CatalogRecord
from migrator.core.clock import Clock
from migrator.core.entry import EntryType
from migrator.core.errors import MigratorError, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.progress import Progress
from migrator.core.tasks import Blocking
from migrator.core.windows import Window
from migrator.cutover.model import StepResult
from migrator.fs.ports import SourceFileSystem
from migrator.fs.probing import ProbeWorld
from migrator.gluster.model import Brick, TaskProgress, VolumeState, VolumeTask
from migrator.gluster.rules import is_on
from migrator.gluster.volume import BrickContents, DrainCommands
from migrator.gluster.walks import BrickWalks
from migrator.hooks.model import HookEvent, HookFacts, HookStage, HookState, HookStep
from migrator.hooks.stage import HookedStep, Hooks, find_hooks
from migrator.ledger.locks import Locks
from migrator.ledger.model import SiteRecord
from migrator.plan.ports import PlanDocuments
from migrator.transfer.ports import RunFiles

if TYPE_CHECKING:
    from migrator.ledger.ledger import Ledger

# ---
# What a drain works with: the ports, and the call that it is part of.


LOG = logging.getLogger("migrator.drain")

DRAIN_STEPS = (
    HookStep.DRAIN,
    HookStep.AUDIT,
    HookStep.COMMIT,
    HookStep.WIPE,
    HookStep.HAND_OVER,
    HookStep.STOP,
    HookStep.FAIL,
)
"""What this verb calls hooks around."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainWorld:
    """The ports. `versions` tells GlusterFS by host, `open_files` how many files are open on bricks below trees (None:
    that cannot be seen), `places` what lies where bricks are, given the volume's id. `contents` is asked in a thread.
    `plans` are asked what is purged when, `retain_s` is how long sources are kept. `back_up` keeps a copy of the ledger under a name (blocking). `throttle` None: the option is left alone; with `windows`
    it holds in these alone, and lower steps of it while probes of the source pass `max_latency_s` (None: no limit). `probing`
    None: nobody probes while Gluster moves files. `local_time` gives weekday (0 is Monday) and minute of the day on this machine. `leftovers` and
    `recovery` bring back what a drain left on its bricks. `marks` tells of hard-linked files with the mark of an earlier drain,
    on bricks of the volume of an id (None: that cannot be seen), `strange` which paths of a brick have no gfid still. `left_list` is
    what audits write all into that they find, in the directory of a run.
    """

    volume: DrainCommands
    source: SourceFileSystem
    target_root: bytes
    walks: BrickWalks
    read_block: ReadBlock
    contents: Callable[[], BrickContents]
    versions: Callable[[Collection[str]], Awaitable[Mapping[str, str | None]]]
    open_files: Callable[[Sequence[Brick], Sequence[bytes]], Awaitable[int | None]]
    places: Callable[[Sequence[Brick], str], Awaitable[Mapping[str, PlaceSeen]]]
    back_up: Callable[[str], None]
    throttle: str | None
    windows: tuple[Window, ...]
    local_time: Callable[[float], tuple[int, int]]
    max_latency_s: float | None = None
    probing: ProbeWorld | None = None
    hooks: Hooks | None
    ledger: "Ledger"
    locks: Locks
    files: RunFiles
    progress: Progress
    clock: Clock
    blocking: Blocking
    tokens: Callable[[], str]
    plans: PlanDocuments | None = None
    retain_s: float = 0.0
    leftovers: LeftoverBricks | None = None
    recovery: VolumeRecovery | None = None
    marks: Callable[[Sequence[Brick], str], Awaitable[tuple[BrickMarks, ...] | None]] | None = None
    strange: StrangeLook | None = None
    left_list: Callable[[str], LeftList] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainCall(BrickCall):
    """One call of the verb; `run_id` and `directory` are None where nothing is changed."""

    world: DrainWorld
    request: DrainRequest
    site: SiteRecord
    run_id: int | None
    directory: str | None = None

    @property
    def log(self) -> logging.Logger:
        """Where its events are logged."""
        return LOG

    @property
    def source_root(self) -> bytes:
        """The source, as hooks are told."""
        return self.world.source.root

    def left_list(self) -> LeftList | None:
        """What the next audit writes all into that it finds."""
        make = self.world.left_list
        return None if make is None or self.directory is None else make(self.directory)

    def facts(
        self,
        record: DrainRecord,
        *,
        brick: str | None = None,
        state: str = "",
        failed: HookStep | None = None,
        reason: str | None = None,
    ) -> HookFacts:
        """What a hook is told."""
        return HookFacts(
            run_id=self.run_id or 0,
            brick=brick or ",".join(record.bricks),
            files=record.notes.files,
            size_bytes=record.notes.size_bytes,
            state=state,
            failed=failed,
            reason=reason,
            started_at_s=self.now_s(),
        )


def hooked(record: DrainRecord, step: HookStep, brick: str | None = None) -> HookedStep:
    """A step of a drain, as hooks are called around it; of one of its bricks where there are several."""
    shown = brick or record.shown_bricks
    key = f"drain {record.id}" if step is HookStep.DRAIN else f"drain {record.id}: {step.value}"
    words = {
        HookStep.DRAIN: "the drain of",
        HookStep.AUDIT: "the audit of",
        HookStep.COMMIT: "the commit of",
        HookStep.WIPE: "wiping",
        HookStep.HAND_OVER: "handing over",
        HookStep.STOP: "taking back the drain of",
    }[step]
    return HookedStep(
        step=step, key=key if brick is None else f"{key} {brick}", subject=f"drain of {shown}", words=f"{words} {shown}"
    )


def hooked_failure(record: DrainRecord, step_id: int) -> HookedStep:
    """A failure of a drain, by the step of it that it is known by."""
    shown = record.shown_bricks
    return HookedStep(
        step=HookStep.FAIL,
        key=f"drain {record.id}: failure at step {step_id}",
        subject=f"drain of {shown}",
        words=f"the failure of the drain of {shown}",
    )


def bricks_of(record: DrainRecord, known: Sequence[Brick]) -> tuple[Brick, ...]:
    """The bricks of a drain, also where the volume does not list them any more."""
    by_name = {brick.name: brick for brick in known}
    return tuple(by_name.get(name) or _from_name(name) for name in record.bricks)


def _from_name(name: str) -> Brick:
    host, _, path = name.partition(":/")
    return Brick(name=name, host=host, path=b"/" + path.encode("utf-8", "surrogateescape"), online=None)


# ---
# The throttle of a drain: what it was is written down before it is changed, and put back when the drain comes to rest.


@dataclass(slots=True, kw_only=True)
class Throttle:
    """Sets the option for one drain, and puts it back."""

    call: DrainCall
    _record: DrainRecord | None = None
    _throttling: Throttling = field(init=False)

    def __post_init__(self) -> None:
        world = self.call.world
        self._throttling = Throttling(
            volume=world.volume,
            rules=ThrottleRules(
                throttle=world.throttle,
                windows=world.windows,
                local_time=world.local_time,
                max_latency_s=world.max_latency_s,
            ),
            probes=world.ledger.probes,
            now_s=self.call.now_s,
            note=self._note,
            say=self._say,
            left=lambda state: left_by_additions(world.ledger, state.volume_id),
        )

    def notes(self, state: VolumeState) -> DrainNotes:
        """What is to be known before a drain starts."""
        return DrainNotes(options=self._throttling.before(state))

    async def follow(self, record: DrainRecord) -> None:
        """Set what holds now, where this process has not done so yet. Raises ToolFailed."""
        self._record = record
        await self._throttling.follow(record.notes.options or ())

    async def restore(self, record: DrainRecord) -> str:
        """Put back what this drain has changed and nobody else since; what was done, in words. Raises ToolFailed."""
        # What was written down since the record was read, too.
        noted = self.call.world.ledger.drains.read(record.id).notes.options or ()
        names = await self._throttling.restore(noted)
        return f"put back: {', '.join(names)}" if names else ""

    def _note(self, option: ChangedOption) -> None:
        if self._record is not None:
            self.call.world.ledger.drains.note(self._record.id, DrainNotes(options=(option,)))

    def _say(self, words: str) -> None:
        shown = "" if self._record is None else self._record.shown_bricks
        self.call.say(EventKind.THROTTLE_SET, Severity.INFO, f"drain of {shown}", words)


def left_changed(ledger: "Ledger", state: VolumeState) -> tuple[DrainRecord, ...]:
    """Drains that came to rest, and were killed before the options were put back. What somebody has set since it was put
    back is his.
    """
    drains = ledger.drains
    return tuple(
        record
        for record in drains.all()
        if record.volume_id == state.volume_id
        and record.state in OUT_STATES | {DrainState.STOPPED}
        and options_to_restore(record, state)
        and not any(
            step.step is DrainStep.RESTORE and step.result is StepResult.DONE for step in drains.steps(record.id)
        )
    )


def left_by_additions(ledger: "Ledger", volume_id: str, *, but: int | None = None) -> Sequence[ChangedOption]:
    """The options that additions to a volume have changed and not put back, apart from one of them."""
    return [
        option
        for record in ledger.additions.all()
        if record.volume_id == volume_id and record.id != but
        for option in record.notes.options or ()
    ]


# ---
# The guards before a drain: what they look at is gathered here, and decided in `bricks/drain/rules_preflight.py`.


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


# ---
# Looking at the world: what there is to see of bricks that are drained.


_WAYS_ON = {
    DrainState.COMMITTED: HookStep.WIPE,
    DrainState.WIPING: HookStep.WIPE,
    DrainState.WIPED: HookStep.HAND_OVER,
    DrainState.HANDING_OVER: HookStep.HAND_OVER,
}


@dataclass(slots=True, kw_only=True)
class DrainLooker:
    """Looks at the bricks of one drain. Changes nothing. `audit` is the newest one that this process has made, `check` the
    guards as they were looked at last. `named` is a walk that only names what is left, and
    decides nothing. `recovered`: this call has brought back what it could. `host_was_away`: a look of this call missed a host.
    `not_whole_s` is when a part of the volume was missing last, as far as this call knows (when it began, at first): what moves
    files may have been waiting for it.
    """

    call: DrainCall
    guarding: Guarding
    audit: AuditSeen | None = None
    named: AuditSeen | None = None
    recovered: bool = False
    check: DrainCheck | None = None
    host_was_away: bool = False
    not_whole_s: float = 0.0
    _silent: tuple[str, float] | None = None
    """The task that not every host tells of, and since when, by the clock of this process."""

    def __post_init__(self) -> None:
        self.not_whole_s = self.call.now_s()

    async def see(self, record: DrainRecord, *, hand_over: bool = False) -> DrainSeen:
        """Everything that the next step is decided by."""
        found = await self.volume()
        if found is None:
            return DrainSeen(state=None, tasks=None, audit=self.audit)
        state, tasks = found
        own = own_task(record, DrainSeen(state=state, tasks=tasks))
        progress = None if own is None else await self.progress(own)
        hosts, silent_s = self.silence(record, DrainSeen(state=state, tasks=tasks, progress=progress))
        failed = not may_start(record) and ended_badly(DrainSeen(state=state, tasks=tasks, progress=progress))
        if may_start(record) or failed:
            self.check = await self.guarding.check(record, state, tasks)
        wants_places = hand_over and record.state in OUT_STATES
        bricks = bricks_of(record, state.bricks)
        still, lost = ("", "") if own is None else self._standstill(record, own, progress)
        return DrainSeen(
            state=state,
            tasks=tasks,
            progress=progress,
            layout=await self._layout(record, tasks),
            preflight=self.check.problems if self.check is not None and may_start(record) else None,
            stalled=still,
            lost=lost,
            silent=why_silent(hosts, for_s=silent_s) if silent_s > self.call.request.stall_s else "",
            causes=failure_causes(self.guarding.facts) if failed and self.guarding.facts is not None else (),
            audit=self.audit,
            may_recover=self.may_recover,
            places=await self.call.world.places(bricks, record.volume_id) if wants_places else None,
        )

    @property
    def may_recover(self) -> bool:
        """Whether what is left is still to be brought back by this call."""
        return self.call.request.recover and not self.recovered

    def silence(self, record: DrainRecord, seen: DrainSeen) -> tuple[tuple[str, ...], float]:
        """Who tells no counters in a look although everything is up, and for how long the looks of this process have found
        that, in seconds.
        """
        hosts, task, now_s = silent_hosts(record, seen), own_task(record, seen), self.call.world.clock.monotonic_s()
        if not hosts or task is None:
            self._silent = None
            return (), 0.0
        if self._silent is None or self._silent[0] != task.id:
            self._silent = task.id, now_s
        return hosts, now_s - self._silent[1]

    async def volume(self) -> tuple[VolumeState, tuple[VolumeTask, ...]] | None:
        """The volume with its tasks; None where glusterd does not tell."""
        try:
            state, tasks = await self.call.world.volume.state_and_tasks()
        except MigratorError:
            self.host_was_away = True
            return None
        self.host_was_away = self.host_was_away or bool(state.peers_down)
        if parts_missing(state):
            self.not_whole_s = self.call.now_s()
        return state, tasks

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        """The counters of a task; None where glusterd does not tell them."""
        try:
            return await self.call.world.volume.progress(task)
        except MigratorError:
            return None

    async def goes_on(self, record: DrainRecord) -> bool:
        """Whether there are hooks that wipe a brick, or give it away, where that is next."""
        hooks, step = self.call.world.hooks, _WAYS_ON.get(record.state)
        if hooks is None or step is None:
            return False
        found = await find_hooks(hooks, self.call.world.blocking)
        return any(hook.stage == HookStage(step=step, event=HookEvent.PRE) for hook in found.hooks)

    async def _layout(self, record: DrainRecord, tasks: tuple[VolumeTask, ...]) -> TaskProgress | None:
        wanted = record.notes.layout_task_id
        task = next((task for task in tasks if task.id == wanted), None)
        return None if task is None else await self.progress(task)

    def _standstill(self, record: DrainRecord, task: VolumeTask, progress: TaskProgress | None) -> tuple[str, str]:
        """Why it is said to stand still, and to have lost what moves files; also by what this look tells: nobody may have
        watched for long, while files were moved.
        """
        request, now_s = self.call.request, self.call.now_s()
        names = {} if progress is None else progress.names
        newest = () if progress is None else samples_of(progress, now_s)
        samples = (*self.call.world.ledger.drains.samples(record.id), *newest)
        still = stalled(samples, task_id=task.id, now_s=now_s, limit_s=request.stall_s, names=names)
        lost_s, since_s = lost_after_s(request.poll_s), self.not_whole_s
        lost = lost_movers(samples, task_id=task.id, since_s=since_s, now_s=now_s, limit_s=lost_s, names=names)
        return still, lost


# ---
# The site's hooks around the steps of a drain. A step that they are called around stays open in the ledger until all were.


_CLOSED_AT_THE_END = (HookStep.STOP, HookStep.COMMIT, HookStep.AUDIT, HookStep.DRAIN)
"""What was begun last ends first."""


def owes_hooks(world: DrainWorld, record: DrainRecord) -> bool:
    """Whether a killed call has left steps of a drain open, whose `post` hooks are called when it is over."""
    if world.hooks is None:
        return False
    return any(world.ledger.hooks.open_since(step, hooked(record, step).key) for step in _CLOSED_AT_THE_END)


@dataclass(slots=True, kw_only=True)
class DrainHooks:
    """Calls them, in one call of the verb. Nothing is called where nothing is changed."""

    call: DrainCall
    _asked: bool = False

    async def ask(self, record: DrainRecord) -> None:
        """Those before a drain, once in every process that is about to begin it: they are guards. Raises Refused."""
        hooking = self.call.hooking()
        if hooking is not None and not self._asked:
            await hooking.before(hooked(record, HookStep.DRAIN), self.call.facts(record))
        self._asked = True

    async def ask_back(self, record: DrainRecord) -> None:
        """Those before a drain is taken back: they are guards as well. Raises Refused."""
        hooking = self.call.hooking()
        if hooking is not None:
            await hooking.before(hooked(record, HookStep.STOP), self.call.facts(record))

    async def goes_on(self, record: DrainRecord) -> None:
        """A drain that goes on: where a call was killed that asked whether it may be taken back, that comes to nothing."""
        if not taken_back(record.state):
            await self._catch_up(record, HookStep.STOP, HookState.FAILED)

    async def end(self, record: DrainRecord) -> None:
        """Those after a drain that is over, and what killed calls owe of its steps. May be called again."""
        out = record.state in OUT_STATES
        state = HookState.DONE if out else HookState.STOPPED
        for step in _CLOSED_AT_THE_END:
            stopped = HookState.FAILED if out else HookState.DONE
            await self._catch_up(record, step, stopped if step is HookStep.STOP else state)

    async def _catch_up(self, record: DrainRecord, step: HookStep, state: HookState) -> None:
        hooking = self.call.hooking()
        if hooking is not None:
            await hooking.catch_up(hooked(record, step), self.call.facts(record, state=state))

    async def around_audit(self, record: DrainRecord, audit: Callable[[], Awaitable[AuditSeen]]) -> AuditSeen:
        """The audit before a commit. Raises HookSkipped, Refused."""
        hooking = self.call.hooking()
        if hooking is None:
            return await audit()

        async def after(_: HookFacts, found: AuditSeen) -> HookFacts:
            return self.call.facts(record, state=audit_state(found), reason="; ".join(audit_left(found)) or None)

        return await hooking.around(hooked(record, HookStep.AUDIT), audit, facts=self.call.facts(record), after=after)

    async def around_commit(self, record: DrainRecord, commit: Callable[[], Awaitable[None]]) -> None:
        """The commit. Raises HookSkipped, Refused."""
        hooking = self.call.hooking()
        if hooking is None:
            await commit()
            return

        async def after(_: HookFacts, __: None) -> HookFacts:
            return self.call.facts(record, state=HookState.DONE)

        await hooking.around(hooked(record, HookStep.COMMIT), commit, facts=self.call.facts(record), after=after)

    async def after_commit(self, record: DrainRecord) -> None:
        """Those that a killed call owes after a commit that is seen to be made."""
        await self._catch_up(record, HookStep.COMMIT, HookState.DONE)

    async def do(
        self,
        record: DrainRecord,
        step: HookStep,
        look: Callable[[DrainRecord, str], Awaitable[None]],
        *,
        seen_done: bool,
    ) -> None:
        """A step that is done by its `pre` hooks, one brick after the other; then it is looked at. Raises HookSkipped, Refused,
        ToolFailed.
        """
        hooking = self.call.hooking()
        if hooking is None:
            raise ToolFailed("there are no hooks that could do it")

        async def after(facts: HookFacts, __: None) -> HookFacts:
            return self.call.facts(record, brick=facts.brick, state=HookState.DONE)

        for name in record.bricks:
            place, facts = hooked(record, step, name), self.call.facts(record, brick=name)
            if seen_done:
                await hooking.catch_up(place, self.call.facts(record, brick=name, state=HookState.DONE))
            else:
                await hooking.around(place, partial(look, record, name), facts=facts, after=after)

    async def tell_failure(self, record: DrainRecord, ended: Ended | None, *, back: bool) -> None:
        """Those that people are told by that they have to look, once for each failure; `ended` None: the call begins, or ended by
        an exception. `back`: it is to take the drain back. May be called again.
        """
        hooking = self.call.hooking()
        if hooking is None:
            return
        failure = drain_failure(record, self.call.world.ledger.drains.steps(record.id), ended, back=back)
        if failure is None:
            return
        failed = HookStep.STOP if taken_back(record.state) else HookStep.DRAIN
        facts = self.call.facts(record, state=HookState.FAILED, failed=failed, reason=failure.reason)
        tell = hooking.once if failure.certain else hooking.catch_up
        await tell(hooked_failure(record, failure.step_id), facts)


# ---
# What a recovery works with, as a part of a drain.


def recovery_of(
    call: DrainCall, record: DrainRecord, found: tuple[VolumeState, tuple[VolumeTask, ...]] | None
) -> Recovery | None:
    """The recovery for a drain; None where none was asked for, or where it is not known whether its bricks are in the volume."""
    world = call.world
    if not call.request.recover or found is None or world.leftovers is None or world.recovery is None:
        return None
    state, _ = found
    return Recovery(
        bricks=bricks_of(record, state.bricks),
        volume_id=record.volume_id,
        in_volume=any(brick.name in record.bricks for brick in state.bricks),
        own_times=is_on(dict(state.options), "features.ctime", default=True) is not False,
        leftovers=world.leftovers,
        volume=world.recovery,
        blocking=world.blocking,
        clock=world.clock,
    )
