"""The context of an addition: ports, the call, snapshots of the volume, self-heal, the audit after a rebalance."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from migrator.bricks import shared
from migrator.bricks.add import model
from migrator.bricks.add.known_directories import DirectoryFiles, MountedDirectories
from migrator.bricks.add.rules import healed, may_add
from migrator.bricks.call import BrickCall, BrickLooker, BrickWorld
from migrator.bricks.progress import samples_of
from migrator.bricks.volume import host_of
from migrator.catalog.model import CatalogRecord
from migrator.core.errors import MigratorError, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.tasks import told
from migrator.core.units import HOUR_S, format_duration, several
from migrator.fs.probing import ProbeWorld
from migrator.gluster import model as gluster
from migrator.gluster.looks import HostDirectories
from migrator.gluster.model import NewPlace
from migrator.gluster.rules import is_on, subvolumes
from migrator.hooks.model import HookStep
from migrator.hooks.stage import HookedStep


class DirectoryWorld(Struct, frozen=True, kw_only=True):
    """The means to restore owner and mode of directories that lost them. `mount` is the path at which users see the
    volume.
    """

    walks: HostDirectories
    memory: DirectoryFiles
    mender: MountedDirectories
    mount: bytes


Scan = Callable[[], Awaitable[CatalogRecord]]
Blamed = Callable[[gluster.VolumeState, str], Awaitable[Mapping[str, int] | None]]


class AdditionWorld(BrickWorld, frozen=True, kw_only=True):
    """The ports. `places` inspects the paths of new bricks on their hosts, and `disks` the rest of those disks.
    `versions` returns the GlusterFS version by host, and `target_room` the capacity of the target. None of these
    raises. `strange` returns the paths of a brick that still have
    no gfid. `scan` reads all bricks into a new catalog. `blamed` returns, for the set of a brick, the number of pending
    heals that the bricks that are up hold against each member; it is None if one of them does not report.

    Without `probing` no probes run meanwhile. Without `directories` no directory is restored. Without `scan` a
    rebalance is not audited.
    """

    places: Callable[[Sequence[str]], Awaitable[Mapping[str, NewPlace]]]
    disks: Callable[[Sequence[str]], Awaitable[Mapping[str, gluster.DiskFacts]]]
    versions: Callable[[Collection[str]], Awaitable[Mapping[str, str | None]]]
    target_room: Callable[[], Awaitable[model.TargetRoom]]
    probing: ProbeWorld | None = None
    directories: DirectoryWorld | None = None
    strange: shared.StrangeLook | None = None
    scan: Scan | None = None
    blamed: Blamed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionCall(BrickCall):
    """One call of the verb."""

    log = logging.getLogger("migrator.addition")
    steps = (HookStep.ADD, HookStep.ATTACH, HookStep.FAIL)

    world: AdditionWorld
    request: model.AdditionRequest

    def facts_of(self, record: model.AdditionRecord) -> dict[str, Any]:
        return {"brick": ",".join(record.bricks), "side": record.side.value, "size_bytes": record.notes.size_bytes}


def attached(record: model.AdditionRecord) -> HookedStep:
    """Describe to the hooks the step in which they give bricks to the target."""
    return HookedStep(
        step=HookStep.ATTACH,
        key=f"addition {record.id}: attach",
        subject=record.subject,
        words=f"giving {record.shown_bricks} to the target",
    )


def hooked(record: model.AdditionRecord) -> HookedStep:
    """Describe an addition to the hooks that are called around it."""
    return HookedStep(
        step=HookStep.ADD,
        key=f"addition {record.id}",
        subject=record.subject,
        words=f"adding {record.shown_bricks} to the {record.side.value}",
    )


@dataclass(slots=True, kw_only=True)
class AdditionLooker(BrickLooker):
    """Takes the snapshots for one call. It keeps the last places and counters, which are shown to the admin."""

    call: AdditionCall
    places: dict[str, NewPlace] = field(default_factory=dict)
    progress: gluster.TaskProgress | None = None
    copies: int = 1

    async def see(self, record: model.AdditionRecord) -> model.AdditionSeen | None:
        """Query only the facts that this state needs. Return None if Gluster does not answer."""
        world = self.call.world
        found = await told(world.volume.state_and_tasks())
        if found is None:
            return None
        state, tasks = found
        self.copies = max(state.replica_count, 1)
        if record.side is model.AdditionSide.TARGET or may_add(record):
            return await self._before(record, state, tasks)
        task = next((one for one in tasks if one.kind is gluster.TaskKind.REBALANCE), None)
        self.progress = None if task is None else await told(world.volume.progress(task))
        still = "" if task is None else self._stalled(record, state, task)
        return model.AdditionSeen(state=state, tasks=tasks, progress=self.progress, stalled=still)

    async def _before(
        self, record: model.AdditionRecord, state: gluster.VolumeState, tasks: tuple[gluster.VolumeTask, ...]
    ) -> model.AdditionSeen:
        world, ledger = self.call.world, self.call.world.ledger
        self.places = dict(await world.places(record.bricks))
        to_target = record.side is model.AdditionSide.TARGET
        over = model.ADDITION_ENDED_STATES | model.UNTOUCHED_STATES
        # Only one drain or addition may change a side at a time. An addition to the target moves nothing on the source.
        others = [
            one
            for one in ledger.additions.all()
            if one.id != record.id
            and one.state not in over
            and (one.side is record.side or (not to_target and set(one.bricks) & set(record.bricks)))
        ]
        hosts = {brick.host for brick in state.bricks} | {host_of(name) for name in record.bricks}
        return model.AdditionSeen(
            state=state,
            tasks=tasks,
            owners=await told(world.volume.owners()),
            places=self.places,
            disks=await world.disks(record.bricks) if to_target else {},
            rooms=await told(world.volume.rooms()) if state.started else {},
            versions=None if to_target else await world.versions(sorted(hosts)),
            drains=tuple(one.shown_bricks for one in ledger.drains.under_way()),
            additions=tuple(one.shown_bricks for one in others),
            target=await world.target_room() if to_target else None,
            strange=()
            if to_target
            else await shared.strange_now(ledger.scans, world.strange, state.bricks, state.volume_id),
            blamed=await self._blamed(record, state),
        )

    async def _blamed(self, record: model.AdditionRecord, state: gluster.VolumeState) -> Mapping[str, int] | None:
        blamed = self.call.world.blamed
        if not record.in_place or record.state in model.IN_STATES or blamed is None:
            return None
        return await blamed(state, record.bricks[0])

    def _stalled(self, record: model.AdditionRecord, state: gluster.VolumeState, task: gluster.VolumeTask) -> str:
        newest = () if self.progress is None else samples_of(self.progress, self.call.now_s())
        samples = (*self.call.world.ledger.additions.samples(record.id), *newest)
        self.note_missing(state)
        still, lost = self.standstill(samples, task.id, self.progress, self.call.request)
        return lost or still


# Reading directories from bricks while others are added to the volume.


Take = Callable[[Sequence[gluster.DirectoryFacts]], None]
_ASKED_AT_ONCE = 1000


async def walk_older(
    call: AdditionCall,
    record: model.AdditionRecord,
    world: DirectoryWorld,
    take: Take,
    *,
    only: Sequence[bytes] | None = None,
) -> int:
    """Read every directory (or those in `only`) on one brick that was there before. Each such brick has all
    directories, and GlusterFS changes all copies alike. The first readable brick is used with its times; times of
    another brick are dropped, because they cannot be compared with the recorded ones. Return the number of directories
    that could not be read. Raises ToolFailed if no brick can be read.
    """
    state = await _state(call)
    reasons: list[str] = []
    for brick in _readable(state.bricks):
        if brick.name in record.bricks:
            continue
        take_it = _without_times(take) if reasons or not _has_times(state) else take
        try:
            return await world.walks.walk(brick, volume_id=state.volume_id, take=take_it, only=only)
        except MigratorError as error:
            reasons.append(error.message)
    raise ToolFailed(
        "no brick tells what directories have now: " + ("; ".join(dict.fromkeys(reasons)) or "none of them is up"),
        cause="while bricks are added, directories can lose owner and mode, and have to get them back",
        hint="see that a brick is up whose host has a section in site.toml, then run the same command again",
    )


async def walk_new(call: AdditionCall, record: model.AdditionRecord, world: DirectoryWorld, take: Take) -> None:
    """Read every directory on one brick of each new set. Raises MigratorError."""
    state = await _state(call)
    for bricks in subvolumes(state):
        new = [one for one in _readable(bricks) if one.name in record.bricks]
        if new:
            await world.walks.walk(new[0], volume_id=state.volume_id, take=take)


async def look_everywhere_at(
    call: AdditionCall, world: DirectoryWorld, paths: Callable[[], Sequence[bytes]], take: Take
) -> None:
    """Read directories on one brick of every set in turn, for as long as `paths` returns any that another brick could
    clarify. Reads nothing if copies have no times. Raises MigratorError.
    """
    state = await _state(call)
    if not _has_times(state):
        return
    for bricks in subvolumes(state):
        for brick in _readable(bricks)[:1]:
            if not (asked := paths()[:_ASKED_AT_ONCE]):
                return
            await world.walks.walk(brick, volume_id=state.volume_id, take=take, only=asked)


async def _state(call: AdditionCall) -> gluster.VolumeState:
    state, _ = await call.world.volume.state_and_tasks()
    return state


def _has_times(state: gluster.VolumeState) -> bool:
    """Return whether Gluster keeps its own record of times up to date. The record remains, unchanged, when the option
    is turned off.
    """
    return is_on(dict(state.options), "features.ctime", default=True) is True


def _readable(bricks: Sequence[gluster.Brick]) -> list[gluster.Brick]:
    return [brick for brick in bricks if brick.online and not brick.arbiter]


def _without_times(take: Take) -> Take:
    return lambda found: take([replace(one, changed_ns=None, modified_ns=None) for one in found])


# Waiting for self-heal of a replaced copy.


_TELL_EVERY_S = HOUR_S
NUDGE_AFTER_S = 60.0
"""The daemons are asked to heal if the pending heals have not changed for this long, and again after each such
interval. By themselves they do not retry for ten minutes after an attempt that came too early or found a file locked.
"""


async def until_healed(call: AdditionCall, record: model.AdditionRecord) -> None:
    """Return when no brick has pending heals. Their number is reported at first, then each time it has halved, and
    every hour. The self-heal daemons are asked to run if the number has not changed for a minute. Raises ToolFailed if
    it has not changed for the stall limit of a drain.
    """
    clock = call.world.clock
    seen: Sequence[gluster.BrickHeal] | None = None
    changed_s = told_s = nudged_s = clock.monotonic_s()
    told_entries: int | None = None
    while True:
        found = await told(call.world.volume.state_and_tasks())
        if found is not None and healed(record, found[0]):
            return
        heals = () if found is None else found[0].heals or ()
        waiting = [one for one in heals if one.entries != 0 or one.status != "Connected"]
        now_s = clock.monotonic_s()
        if waiting != seen:
            seen, changed_s, nudged_s = waiting, now_s, now_s
        if now_s - changed_s >= call.request.stall_s:
            raise _stalled(waiting, now_s - changed_s)
        if now_s - nudged_s >= NUDGE_AFTER_S:
            # A refusal, for instance while a brick comes up, is retried.
            await told(call.world.volume.heal())
            nudged_s = now_s
        entries = sum(one.entries or 0 for one in waiting)
        if waiting and (told_entries is None or entries <= told_entries / 2 or now_s - told_s >= _TELL_EVERY_S):
            told_entries, told_s = entries, now_s
            call.say(EventKind.ADDITION_STEP, Severity.INFO, record.subject, f"healing: {_words(waiting)}")
        await clock.sleep(call.request.poll_s)


def _stalled(waiting: Sequence[gluster.BrickHeal], for_s: float) -> ToolFailed:
    return ToolFailed(
        f"{_words(waiting)}, and that has not changed for {format_duration(for_s)}",
        cause="a copy is in split-brain, a brick is down, or its self-heal daemon does not run",
        hint="see `gluster volume heal VOLUME info split-brain` and `gluster volume status VOLUME`, put that right, "
        "then run the same command again: it keeps waiting",
    )


def _words(waiting: Sequence[gluster.BrickHeal]) -> str:
    if not waiting:
        return "what waits to be healed is not known"
    counted = [one for one in waiting if one.entries is not None and one.status == "Connected"]
    parts = [f"{several(one.entries or 0, 'entry', 'entries')} on {one.brick}" for one in counted]
    parts += [f"what waits on {one.brick} is not known ({one.status})" for one in waiting if one not in counted]
    return ("waiting to be healed: " if counted else "") + ", ".join(parts)


# The audit after a rebalance: reads all bricks and reports what a move can leave behind.


_SCANS = 2
"""Renames by users can make a single scan doubtful. A doubt counts if both scans find one."""

_PATIENCE_S = 900.0
"""How long the bricks may be unreadable. On copies that users write to, an entry has pending heals now and then."""


async def audit_bricks_after(
    call: AdditionCall, record: model.AdditionRecord, scan: Scan
) -> tuple[str, tuple[str, ...]]:
    """Scan all bricks for paths and files that exist twice, files that were moved in part, and directories that differ.
    Return a summary and the remaining doubts. A scan that fails is retried for a while, which is reported, and is then a
    doubt. The scan becomes the newest catalog.
    """
    doubts: tuple[str, ...] = ()
    clock, made = call.world.clock, 0
    nudged_s = clock.monotonic_s()
    until_s = nudged_s + _PATIENCE_S
    reason, reported_s = "", nudged_s
    while made < _SCANS:
        try:
            catalog = await scan()
        except MigratorError as error:
            doubts = (f"the bricks could not be read after the rebalance: {error.message}",)
            now_s = clock.monotonic_s()
            if now_s >= until_s:
                break
            if error.message != reason and (not reason or now_s - reported_s >= NUDGE_AFTER_S):
                reason, reported_s = error.message, now_s
                left = format_duration(until_s - now_s)
                words = f"the audit waits, for at most {left}, until the bricks can be read: {reason}"
                call.say(EventKind.ADDITION_STEP, Severity.INFO, record.subject, words)
            if now_s - nudged_s >= NUDGE_AFTER_S:
                # By themselves the self-heal daemons look for pending heals every ten minutes. A volume without copies
                # refuses this.
                await told(call.world.volume.heal())
                nudged_s = now_s
            await clock.sleep(call.request.poll_s)
            continue
        made += 1
        doubts = _doubts(catalog)
        if not doubts:
            return f"audit: {several(catalog.rows, 'path')} on all bricks, nothing twice and nothing half moved", ()
    for doubt in doubts:
        call.say(EventKind.ADDITION_FAILED, Severity.WARNING, record.subject, f"audit: {doubt}")
    return f"audit: {'; '.join(doubts)}", doubts


def _doubts(catalog: CatalogRecord) -> tuple[str, ...]:
    if catalog.via != "bricks":
        return ("the bricks could not be read after the rebalance", *catalog.way_reasons)
    if catalog.whole:
        return ()
    return catalog.reasons or ("the scan after the rebalance is not whole",)
