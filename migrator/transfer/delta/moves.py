"""Applying a move list to the target: renames, and moves to the trash.

A move list is applied in three steps; each may be interrupted anywhere and repeated. First, every renamed path moves
out of its tree to a staging path in the pass's place of the trash, with the content of a directory before the
directory. Second, vanished paths move to the trash. Third, a mark is made, and the renamed paths get their new names,
each directory before its content. Before the mark the trees only lose names, after it they only gain names, so the
state on disk always shows which work is left.
"""

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from migrator.core.entry import EntryType
from migrator.core.errors import Refused
from migrator.core.events import EventKind, Severity
from migrator.core.paths import is_beneath, join, show
from migrator.core.units import several
from migrator.fs.model import STAGED_NAME, TRASH_NAME, trash_place
from migrator.fs.moving import MovingTarget
from migrator.fs.rules_equality import may_be_copy
from migrator.transfer.context import PassUnderWay
from migrator.transfer.delta.model import Gone, Rename
from migrator.transfer.judging import look_up
from migrator.transfer.model import (
    FileProblem,
    FileProblemKind,
    PassRecord,
    StopReason,
)
from migrator.transfer.rules import stop_reason

if TYPE_CHECKING:
    from migrator.transfer.delta.store import MoveListFiles
    from migrator.transfer.records import PassRecords

_AT_ONCE = 256
_LOOKS_AT_ONCE = 1024
"""Paths looked up on the source between two checks of its health."""
_PER_DIRECTORY = 1000

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Moved:
    """The result of one call of `apply_moves`, without earlier calls.

    `renamed` paths have their new names. `displaced` paths blocked a new name, or were no directory although one is
    needed there; they are in the trash. `trashed` counts the vanished paths. `left` are paths, by their names now, that
    are on the source again or could not be looked up there: they stay, and the next pass decides.

    `to_send`: renames whose paths were not on the target, or not as listed; complete unless the call was stopped. The
    new names have to be sent; for a directory, everything in it.

    `stop`: why the call could not finish, for display. The next call resumes.
    """

    renamed: int = 0
    displaced: int = 0
    trashed: int = 0
    left: list[bytes] = field(default_factory=list)
    to_send: list[Rename] = field(default_factory=list)
    stop: tuple[StopReason, str] | None = None


async def apply_moves(
    under_way: PassUnderWay, moves: MovingTarget, lists: "MoveListFiles", *, move_list: str, digest: str, place: str
) -> Moved:
    """Apply the rest of a move list; if it returns without a stop, all of it is durable.

    `place` is the pass's own in the trash, always the same for one list. May be called again after any crash, but not
    concurrently, nor after the chunks of the pass have begun. The caller has checked both mounts. Raises Refused if the
    list does not have this digest, or the trash cannot be used.
    """
    if lists.digest(move_list) != digest:
        raise Refused(
            f"the move list {move_list!r} is not the one that its delta pass was begun with",
            cause="the state directory was changed while the pass was in progress",
            hint="bring the state directory back as it was",
        )
    carrying = _MoveList(under_way, moves, lists, move_list, place)
    try:
        await carrying.carry_out()
    except _StepStopped as stopped:
        reason, detail = stopped.args
        carrying.moved.stop = (reason, detail)
    return carrying.moved


class _StepStopped(Exception):
    """Its arguments are a StopReason and the detail."""


_StillThere = tuple[Gone, EntryType]
"""A vanished path, and the type of its present entry on the target."""


class _MoveList:
    def __init__(
        self, under_way: PassUnderWay, moves: MovingTarget, lists: "MoveListFiles", move_list: str, place: str
    ) -> None:
        self._pass = under_way
        self._world = under_way.world
        self._moves = moves
        self._lists = lists
        self._list = move_list
        self._place = place
        self._staged = b"/".join((TRASH_NAME, place.encode("ascii"), STAGED_NAME))
        self._mark = self._staged + b"/all-taken-out"
        self._directories: dict[bytes, tuple[int, Rename]] = {}
        self._fresh = False
        self.moved = Moved()

    async def carry_out(self) -> None:
        directories = [(number, one) for number, one in self._renames() if one.type is EntryType.DIRECTORY]
        self._directories = {one.old: (number, one) for number, one in directories}
        begun, marked = await self._call("making a place in the trash of the target", self._open)
        self._fresh = not begun
        if not marked:
            await self._each(self._renames(), self._take_out)
            await self._trash_gone()
            if next(self._renames(), None) is not None:
                # All earlier work must be on the disks before the mark, and the mark before all later work.
                await self._sync()
                await self._call(
                    "making a directory in the trash of the target", lambda: self._moves.make_directory(self._mark)
                )
                await self._sync()
        await self._each(sorted(directories, key=lambda numbered: numbered[1].new), self._put)
        files = ((number, one) for number, one in self._renames() if one.type is not EntryType.DIRECTORY)
        await self._each(files, self._put)
        await self._sync()

    def _open(self) -> tuple[bool, bool]:
        self._moves.open_place(self._place)
        return self._moves.look(self._staged) is not None, self._moves.look(self._mark) is not None

    def _renames(self) -> Iterator[tuple[int, Rename]]:
        for number, rename in enumerate(self._lists.renames(self._list)):
            self._check(rename.tree, rename.old)
            self._check(rename.tree, rename.new)
            yield number, rename

    def _check(self, tree: bytes, path: bytes) -> None:
        """Raises Refused if the list would remove a whole tree, or touch a path outside the trees."""
        if not tree or path == tree or not is_beneath(path, tree):
            raise Refused(
                f"the move list {self._list!r} names {show(path)}, which does not lie in the user tree {show(tree)}",
                cause="it was not written by a delta pass",
                hint="bring the state directory back as it was",
            )

    def _staged_path(self, number: int) -> bytes:
        return b"%s/%06d/%d" % (self._staged, number // _PER_DIRECTORY, number)

    def _missing_path(self, number: int) -> bytes:
        return b"%s/missing/%06d/%d" % (self._staged, number // _PER_DIRECTORY, number)

    def _location(self, gone: Gone) -> tuple[bytes, bytes]:
        """The location of a vanished path after all renames were taken out, and the name that it would have on the
        source now.
        """
        end = len(gone.path)
        while (end := gone.path.rfind(b"/", 0, end)) > 0:
            if (above := self._directories.get(gone.path[:end])) is not None:
                number, rename = above
                return self._staged_path(number) + gone.path[end:], rename.new + gone.path[end:]
        return gone.path, gone.path

    def _take_out(self, numbered: tuple[int, Rename]) -> None:
        """Move one renamed path out of its tree; if that is impossible, record it durably."""
        number, rename = numbered
        staged, missing = self._staged_path(number), self._missing_path(number)
        with _stopping_step(f"taking {show(rename.old)} out for its new name {show(rename.new)}"):
            if not self._fresh and (self._moves.look(staged) or self._moves.look(missing)):
                return
            seen = self._moves.look(rename.old)
            if seen is not None and may_be_copy(rename, seen, self._pass.capabilities):
                self._moves.move(rename.old, staged)
                return
            self._moves.trash(rename.old, self._place)
            self._moves.make_directory(missing)

    def _put(self, numbered: tuple[int, Rename]) -> None:
        """Put one path under its new name. Any other entry with that name is stale: the name belongs to this path."""
        number, rename = numbered
        staged = self._staged_path(number)
        with _stopping_step(f"renaming {show(rename.old)} to {show(rename.new)}"):
            if self._moves.look(staged) is None:
                if self._moves.look(self._missing_path(number)) is not None:
                    self.moved.to_send.append(rename)
                return
            try:
                self._moves.move(staged, rename.new)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTDIR, errno.ELOOP):
                    raise
                self._clear_way(rename)
                self._moves.move(staged, rename.new)
            self.moved.renamed += 1

    def _clear_way(self, rename: Rename) -> None:
        """Move the entry with the new name, or a non-directory above it, to the trash."""
        position = len(rename.tree)
        while (position := rename.new.find(b"/", position + 1)) > 0:
            above = rename.new[:position]
            seen = self._moves.look(above)
            if seen is None:
                return
            if seen.type is not EntryType.DIRECTORY:
                self._moves.trash(above, self._place)
                self.moved.displaced += 1
                return
        if self._moves.trash(rename.new, self._place) is not None:
            self.moved.displaced += 1

    async def _trash_gone(self) -> None:
        """Move vanished paths to the trash, if the source now proves their absence."""
        vanished = iter(self._lists.gone(self._list))
        while block := list(islice(vanished, _LOOKS_AT_ONCE)):
            for gone in block:
                self._check(gone.tree, gone.path)

            def find(block: Sequence[Gone] = block) -> list[_StillThere]:
                found = ((gone, self._moves.look(self._location(gone)[0])) for gone in block)
                return [(gone, standing.type) for gone, standing in found if standing is not None]

            if there := await self._call("looking at vanished paths on the target", find):
                await self._each(await self._proven(there), self._trash_one)

    async def _proven(self, there: Sequence[_StillThere]) -> Sequence[Gone]:
        """Paths that are proven absent on a source that was healthy before the first and after the last look-up: their
        name is unused, or exactly one of source and target has a directory there. If both have one, each entry in the
        target's directory is looked up the same way.

        A vanished name may be in use again: by an entry that another pass has sent since, or by one that was made since
        the scan.
        """
        proven: list[Gone] = []
        while there:
            absent, again = await self._compare_names(there)
            proven += absent
            there = await self._call("looking at vanished directories on the target", partial(self._within, again))
        return proven

    def _within(self, directories: Sequence[Gone]) -> Sequence[_StillThere]:
        return [
            (Gone(tree=one.tree, path=join(one.path, name)), standing.type)
            for one in directories
            for name, standing in self._moves.entries(self._location(one)[0])
        ]

    async def _compare_names(self, there: Sequence[_StillThere]) -> tuple[Sequence[Gone], Sequence[Gone]]:
        """The paths that are proven absent, and those that are directories on both sides."""
        await self._check_health()
        source = self._world.source
        seen = await self._call(
            "looking at vanished paths on the source",
            lambda: [look_up(source, self._location(gone)[1]) for gone, _ in there],
            stuck=StopReason.DISCONNECTED,
        )
        await self._check_health()
        proven: list[Gone] = []
        again: list[Gone] = []
        for (gone, kind), entry in zip(there, seen, strict=True):
            if entry is None:
                proven.append(gone)
            elif isinstance(entry, OSError):
                # One path that cannot be read, as in a split-brain, holds up no other. Health shows whether all of it fails.
                reason = stop_reason(entry.errno)
                if reason is not None and reason is not StopReason.IO_ERROR:
                    raise _StepStopped(reason, f"looking at {show(gone.path)} on the source: {_reason(entry)}")
                self.moved.left.append(self._location(gone)[1])
            elif (entry.type is EntryType.DIRECTORY) is not (kind is EntryType.DIRECTORY):
                # The new source entry of this name cannot be created on the target until this one is gone.
                proven.append(gone)
            elif kind is EntryType.DIRECTORY:
                again.append(gone)
            else:
                self.moved.left.append(self._location(gone)[1])
        return proven, again

    def _trash_one(self, gone: Gone) -> None:
        with _stopping_step(f"moving {show(gone.path)}, which vanished, to the trash"):
            if self._moves.trash(self._location(gone)[0], self._place, name=gone.path) is not None:
                self.moved.trashed += 1

    async def _check_health(self) -> None:
        health = await self._pass.health.begun_after_now()
        if against := health.problems or health.doubts:
            raise _StepStopped(
                StopReason.SOURCE_UNHEALTHY, f"nothing can be known to have vanished: {'; '.join(against)}"
            )

    async def _each(self, items: Iterable[T], work: Callable[[T], None]) -> None:
        left = iter(items)
        while block := list(islice(left, _AT_ONCE)):

            def some(block: Sequence[T] = block) -> None:
                for item in block:
                    work(item)

            await self._call("renaming on the target", some)

    async def _call(self, what: str, work: Callable[[], T], *, stuck: StopReason = StopReason.TARGET_STUCK) -> T:
        try:
            with _stopping_step(what):
                return await self._world.blocking(work, timeout_s=self._pass.request.stall_timeout_s)
        except TimeoutError as error:
            raise _StepStopped(stuck, f"{what}: it takes too long") from error

    async def _sync(self) -> None:
        try:
            with _stopping_step("syncing the target"):
                await self._pass.sync.begun_after_now()
        except TimeoutError as error:
            raise _StepStopped(StopReason.TARGET_STUCK, "syncing the target: it takes too long") from error


@contextmanager
def _stopping_step(what: str) -> Iterator[None]:
    """Turn an error of a system call into a stop of the step; the message names the operation."""
    try:
        yield
    except TimeoutError:
        raise
    except OSError as error:
        raise _StepStopped(stop_reason(error.errno) or StopReason.TARGET_MOVES, f"{what}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


_NOT_RENAMED = "renamed on the source, and not found as it was on the target: the next pass sends it"
_LEFT = "not in the scan of the source, but there again or not readable before its removal from the target: the next pass decides"


async def carry_out_moves(
    under_way: PassUnderWay,
    record: PassRecord,
    *,
    title: str,
    moves: MovingTarget,
    lists: "MoveListFiles",
) -> None:
    """Apply the move list of a pass, unless an earlier call has done so; a stop is in `under_way`. May be called again
    after any crash. Paths that could not be renamed are recorded with the pass, and the next one sends them. Raises
    Refused.
    """
    world, batch = under_way.world, under_way.batch.number
    if record.moved_at_s is not None or record.move_list is None:
        return
    moved = await apply_moves(
        under_way,
        moves,
        lists,
        move_list=record.move_list,
        digest=record.move_list_digest or "",
        place=trash_place(record.started_at_s, batch, record.kind.value, record.number),
    )
    _report_moved(under_way, title, moved)
    if moved.stop is not None:
        reason, detail = moved.stop
        words = (
            await under_way.storage.fullest_targets() if reason is StopReason.TARGET_FULL and under_way.storage else ""
        )
        under_way.stop(reason, f"{detail}; {words}" if words else detail)
        return
    world.ledger.passes.note(record.id, [*_not_renamed(moved), *_left(moved)], world.clock.now_s())
    world.ledger.passes.moves_done(record.id, world.clock.now_s())


def only_not_renamed(passes: "PassRecords", pass_id: int) -> bool:
    """Whether the only changed paths of a pass are those that it could not rename on the target. They changed before it
    began, and the next pass sends them.
    """
    changed = passes.attention(pass_id, FileProblemKind.CHANGED)
    return bool(changed) and all(problem.reason == _NOT_RENAMED for problem in changed)


def _report_moved(under_way: PassUnderWay, title: str, moved: Moved) -> None:
    parts = [
        f"{several(count, 'path', 'paths')} {what}"
        for count, what in (
            (moved.renamed, "renamed"),
            (moved.trashed, "moved to the trash"),
            (moved.displaced, "in the way of others, moved to the trash"),
            (len(moved.left), "on the source again or not known to be gone, left to the next pass"),
            (len(moved.to_send), "to be sent with the next pass instead of being renamed"),
        )
        if count
    ]
    if parts:
        batch = under_way.batch.number
        severity = Severity.WARNING if moved.left or moved.to_send else Severity.INFO
        message = f"{title} over batch {batch}, on the target: {'; '.join(parts)}"
        under_way.invocation.report(EventKind.PASS_MOVED, severity, f"batch {batch}", message)


def _not_renamed(moved: Moved) -> list[FileProblem]:
    """For a directory, the next pass sends its whole user tree: this is simple, and rare."""
    paths = {one.tree if one.type is EntryType.DIRECTORY else one.new for one in moved.to_send}
    return [
        FileProblem(path=path, kind=FileProblemKind.CHANGED, errno=None, reason=_NOT_RENAMED) for path in sorted(paths)
    ]


def _left(moved: Moved) -> list[FileProblem]:
    return [
        FileProblem(path=path, kind=FileProblemKind.CHANGED, errno=None, reason=_LEFT)
        for path in sorted(set(moved.left))
    ]
