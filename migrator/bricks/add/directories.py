"""Directories lose owner and mode when Gluster creates them on new bricks. This module records both first, then restores them."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from msgspec.structs import replace

from migrator.bricks.add import rules_directories
from migrator.bricks.add.call import AdditionCall, DirectoryPorts
from migrator.bricks.add.model import AdditionNotes, AdditionRecord, AdditionSide, AdditionState
from migrator.bricks.directory_owners import same_owner
from migrator.bricks.known_directories import KnownDirectoryFile
from migrator.core.errors import MigratorError, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.core.tasks import beside
from migrator.core.units import several
from migrator.gluster.model import Brick, BrickDirectory, ListedDirectory, VolumeState
from migrator.gluster.rules import is_on, subvolumes
from migrator.operations.engine import reason_of

_V = rules_directories.DirectoryVerdict

_PAUSE_S, _PAUSE_FACTOR = 1.0, 2.0
"""Pause between two walks: at least so many seconds, or this multiple of a walk. It is short because users have no access to
damaged directories, and a new directory is protected only after a walk has recorded it.
"""
_LATER_PAUSE_S, _LATER_PAUSE_FACTOR = 30.0, 10.0
"""The same while files are moved: every directory has its layout by then."""

_TIMEOUT_S = 24 * 3600.0
_EXAMPLES = 10
_LISTED = 1000
_AT_ONCE = 100_000
"""The next walk restores the rest."""
_TIMES = 3
"""Users continue to work during a walk."""


def own_name(record: AdditionRecord) -> str:
    """A name of the addition that is unique over all ledgers: an older one gives numbers again, and owners and modes that were
    recorded for another addition must not be restored.
    """
    return f"{record.id}-{record.times[AdditionState.PLANNED] * 1000:.0f}"


async def record_directories(call: AdditionCall, record: AdditionRecord) -> None:
    """Record owner and mode of every directory just before bricks are added, because they may be lost afterwards. May be called
    again. Raises ToolFailed if no brick can be read.
    """
    ports = _ports(call, record)
    if ports is None:
        return
    with ports.memory.opened(own_name(record)) as known:
        unseen = await walk_older(call, record, ports, known.keep)
        known.done()
    if unseen:
        words = f"{several(unseen, 'directory', 'directories')} could not be read before bricks were added"
        _warn(call, record, f"{words}: their losses cannot be detected")


@asynccontextmanager
async def restoring_directories(call: AdditionCall, record: AdditionRecord) -> AsyncIterator[None]:
    """Repeat `restore_directories` during the block: a fix-layout of millions of directories takes days."""
    if _ports(call, record) is None:
        yield
        return
    async with beside(_again_and_again(call, record), "the watch of directories"):
        yield


async def _again_and_again(call: AdditionCall, record: AdditionRecord) -> None:
    clock = call.ports.clock
    pause_s, factor = _PAUSE_S, _PAUSE_FACTOR
    if record.state is AdditionState.BALANCING:
        pause_s, factor = _LATER_PAUSE_S, _LATER_PAUSE_FACTOR
    while True:
        began_s = clock.monotonic_s()
        await restore_directories(call, record)
        await clock.sleep(max(pause_s, factor * (clock.monotonic_s() - began_s)))


async def restore_directories(call: AdditionCall, record: AdditionRecord, *, copies: bool = False) -> bool:
    """Restore what directories lost, and list those that an admin must check. Returns whether any was restored. Successes and
    failures are reported; neither stops the addition. May be called again. `copies`: also repair copies on the new bricks that
    differ from the others.
    """
    ports = _ports(call, record)
    if ports is None:
        return False
    try:
        with ports.memory.opened(own_name(record)) as known:
            sweep = _Sweep(known=known)
            await walk_older(call, record, ports, sweep.take)
            known.done()
            try:
                await _examine_copies(call, record, ports, sweep, copies=copies)
            except MigratorError as error:
                _warn(call, record, f"not every copy of directories can be read ({error.message})")
        found = await call.ports.blocking(lambda: _give_back(ports, sweep.suspects), timeout_s=_TIMEOUT_S)
        with ports.memory.opened(own_name(record)) as known:
            # Recorded with their new times: otherwise the repair would look like a change by users.
            known.keep(found.mended)
            known.done()
    except (MigratorError, OSError, TimeoutError) as error:
        _warn(call, record, f"lost owners and modes of directories cannot be detected ({reason_of(error)})")
        return False
    _tell(call, record, found)
    return bool(found.mended)


async def restore_all_directories(call: AdditionCall, record: AdditionRecord) -> None:
    """Repeat `restore_directories` with all copies after a layout ends, until it restores nothing, and at most three times."""
    for _ in range(_TIMES):
        if not await restore_directories(call, record, copies=True):
            return


async def _examine_copies(
    call: AdditionCall, record: AdditionRecord, ports: DirectoryPorts, sweep: "_Sweep", *, copies: bool
) -> None:
    """Examine the copies of undecided directories on other bricks; with `copies` also those on the new bricks."""
    if copies:
        await walk_new(call, record, ports, sweep.take_copies)
    if sweep.copies:
        # The older brick now has any change that users made between the two walks.
        await walk_older(call, record, ports, sweep.take_again, only=list(sweep.copies))
    await walk_every_set(call, ports, sweep.undecided, sweep.take_other_copies)


def forget_directories(call: AdditionCall, record: AdditionRecord) -> None:
    """Delete the recorded directories, unless some still wait for an admin. May be called again."""
    ports = _ports(call, record)
    if ports is not None and not call.ports.ledger.additions.read(record.id).notes.directories:
        with ports.memory.opened(own_name(record)) as known:
            known.remove()


async def still_shut_directories(call: AdditionCall, record: AdditionRecord) -> AdditionRecord:
    """After an addition ended, keep only the listed directories that are still shut."""
    ports, waiting = _ports(call, record), record.notes.directories
    if ports is None or not waiting:
        return record

    def still_shut() -> tuple[ListedDirectory, ...]:
        seen = ((one, ports.mender.look(one.path, bytes.fromhex(one.gfid))) for one in waiting)
        return tuple(one for one, facts in seen if facts is not None and facts.shut)

    try:
        left = await call.ports.blocking(still_shut, timeout_s=_TIMEOUT_S)
    except (OSError, TimeoutError) as error:
        _warn(call, record, f"the listed directories cannot be read ({reason_of(error)})")
        return record
    return call.ports.ledger.additions.note(record.id, AdditionNotes(directories=left))


@dataclass(slots=True, kw_only=True)
class _Suspect:
    """`copy` is what one copy has where the others have what is known: the mount may show either."""

    verdict: rules_directories.DirectoryVerdict
    known: BrickDirectory | None
    seen: BrickDirectory
    copy: BrickDirectory | None = None
    above: BrickDirectory | None = None

    @property
    def later(self) -> bool:
        """True if its ctime has changed since it was last known to be right."""
        return self.known is not None and self.seen.changed_ns != self.known.changed_ns

    def is_as(self, shown: BrickDirectory) -> bool:
        """True if the mount shows the owner and mode that the walk found."""
        return rules_directories.shown_as(shown, self.seen, self.above) or (
            self.copy is not None and same_owner(shown, self.copy)
        )


@dataclass(slots=True, kw_only=True)
class _Sweep:
    """One walk: records correct directories, and collects suspects to check through the mount."""

    known: KnownDirectoryFile
    suspects: dict[bytes, _Suspect] = field(default_factory=dict)
    copies: dict[bytes, BrickDirectory] = field(default_factory=dict)

    def take(self, found: Sequence[BrickDirectory]) -> None:
        before = dict(self.known.of(list({gfid for one in found for gfid in (one.gfid, one.above) if gfid})))
        right: list[BrickDirectory] = []
        for one in found:
            known = before.get(one.gfid)
            above = before.get(one.above)
            verdict = rules_directories.judge(known, one, above)
            if verdict not in rules_directories.LET_ALONE:
                self._suspect(one.gfid, _Suspect(verdict=verdict, known=known, seen=one, above=above))
            elif known != one:
                before[one.gfid] = one
                right.append(one)
        self.known.keep(right)

    def take_copies(self, found: Sequence[BrickDirectory]) -> None:
        """Collect copies on a new brick that differ from the recorded facts. Called after the walk of the older bricks."""
        right = self.known.of([one.gfid for one in found])
        for one in found:
            known = right.get(one.gfid)
            if known is None or one.gfid in self.suspects or len(self.copies) >= _AT_ONCE:
                continue
            if not same_owner(known, one):
                self.copies[one.path] = one

    def take_again(self, found: Sequence[BrickDirectory]) -> None:
        """Check directories again on the older brick if their new copies differ."""
        right = self.known.of([one.gfid for one in found])
        for one in found:
            known, copy = right.get(one.gfid), self.copies.get(one.path)
            if known is None or copy is None or copy.gfid != one.gfid:
                continue
            if same_owner(known, one):
                self._suspect(one.gfid, _Suspect(verdict=_V.TAKEN, known=known, seen=one, copy=copy))

    def undecided(self) -> list[bytes]:
        """Paths of changed directories whose own times do not decide; another copy may."""
        return [
            one.seen.path for one in self.suspects.values() if one.verdict in rules_directories.UNDECIDED and one.later
        ]

    def take_other_copies(self, found: Sequence[BrickDirectory]) -> None:
        """Decide such directories by their copies on another brick."""
        for copy in found:
            one = self.suspects.get(copy.gfid)
            if one is None or one.known is None or not one.later:
                continue
            if rules_directories.untouched_since(one.known, copy):
                one.verdict = _V.TAKEN

    def _suspect(self, gfid: bytes, suspect: "_Suspect") -> None:
        if len(self.suspects) < _AT_ONCE:
            self.suspects[gfid] = suspect


@dataclass(slots=True, kw_only=True)
class _Found:
    """The suspects that were restored, with their current facts, those of them that users had changed, and those that
    wait for an admin.
    """

    mended: list[BrickDirectory] = field(default_factory=list)
    outdated: list[BrickDirectory] = field(default_factory=list)
    waiting: list[ListedDirectory] = field(default_factory=list)


def _give_back(ports: DirectoryPorts, suspects: Mapping[bytes, _Suspect]) -> _Found:
    found = _Found()
    for one in suspects.values():
        failure = ""
        try:
            shown = ports.mender.look(one.seen.path, one.seen.gfid)
            if shown is None or not one.is_as(shown):
                # Gone, renamed or changed since: the next walk decides.
                continue
            if one.verdict in rules_directories.RESTORED and one.known is not None:
                now = ports.mender.put_back(shown, one.known)
                if now is not None:
                    known = replace(one.known, path=now.path, above=one.seen.above, changed_ns=now.changed_ns)
                    found.mended.append(known)
                    if one.verdict is _V.OUTDATED:
                        found.outdated.append(known)
                    continue
                failure = "it changed meanwhile"
        except OSError as error:
            failure = error.strerror or str(error)
        found.waiting.append(
            rules_directories.listed(one.verdict, one.known, one.seen, root=ports.mount, failure=failure)
        )
    return found


def _tell(call: AdditionCall, record: AdditionRecord, found: _Found) -> None:
    if found.mended:
        words = f"{several(len(found.mended), 'directory', 'directories')} had lost owner or mode on the way to the new bricks"
        _warn(call, record, f"{words}, and have them back: {_examples([one.path for one in found.mended])}")
    for one in found.outdated[:_LISTED]:
        _warn(call, record, rules_directories.restored(one))
    before = call.ports.ledger.additions.read(record.id).notes.directories or ()
    waiting = tuple(found.waiting[:_LISTED])
    if waiting != before:
        call.ports.ledger.additions.note(record.id, AdditionNotes(directories=waiting))
    known = {one.path for one in before}
    new = [one for one in waiting if one.path not in known]
    if new:
        words = f"{several(len(new), 'directory waits', 'directories wait')} for an admin"
        _warn(
            call,
            record,
            f"{words}: {_examples([one.path for one in new])}; `migrator brick status` has the command for each",
        )


def _examples(paths: Sequence[bytes]) -> str:
    more = ", ..." if len(paths) > _EXAMPLES else ""
    return ", ".join(show(path) for path in paths[:_EXAMPLES]) + more


def _ports(call: AdditionCall, record: AdditionRecord) -> DirectoryPorts | None:
    """None if directories are not watched, or if the addition creates none (a replaced brick, the target)."""
    made = record.side is AdditionSide.SOURCE and record.instead_of is None
    return call.ports.directories if made else None


def _warn(call: AdditionCall, record: AdditionRecord, words: str) -> None:
    call.emit(EventKind.ADDITION_STEP, Severity.WARNING, record.subject(), words)


# Reading directories from bricks while others are added to the volume.


Take = Callable[[Sequence[BrickDirectory]], None]
_ASKED_AT_ONCE = 1000


async def walk_older(
    call: AdditionCall,
    record: AdditionRecord,
    ports: DirectoryPorts,
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
            return await ports.walks.walk(brick, volume_id=state.volume_id, take=take_it, only=only)
        except MigratorError as error:
            reasons.append(error.message)
    raise ToolFailed(
        "no brick reports the current attributes of directories: "
        + ("; ".join(dict.fromkeys(reasons)) or "none of them is up"),
        cause="while bricks are added, directories can lose owner and mode, and have to get them back",
        hint="see that a brick is up whose host has a section in site.toml, then run the same command again",
    )


async def walk_new(call: AdditionCall, record: AdditionRecord, ports: DirectoryPorts, take: Take) -> None:
    """Read every directory on one brick of each new set. Raises MigratorError."""
    state = await _state(call)
    for bricks in subvolumes(state):
        new = [one for one in _readable(bricks) if one.name in record.bricks]
        if new:
            await ports.walks.walk(new[0], volume_id=state.volume_id, take=take)


async def walk_every_set(
    call: AdditionCall, ports: DirectoryPorts, paths: Callable[[], Sequence[bytes]], take: Take
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
            await ports.walks.walk(brick, volume_id=state.volume_id, take=take, only=asked)


async def _state(call: AdditionCall) -> VolumeState:
    state, _ = await call.ports.volume.state_and_tasks()
    return state


def _has_times(state: VolumeState) -> bool:
    """Return whether Gluster keeps its own record of times up to date. The record remains, unchanged, when the option
    is turned off.
    """
    return is_on(dict(state.options), "features.ctime", default=True) is True


def _readable(bricks: Sequence[Brick]) -> list[Brick]:
    return [brick for brick in bricks if brick.online and not brick.arbiter]


def _without_times(take: Take) -> Take:
    return lambda found: take([replace(one, changed_ns=None, modified_ns=None) for one in found])
