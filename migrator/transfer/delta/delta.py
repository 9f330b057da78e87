"""A pass after the seed: it applies the changes of the source to the target."""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.model import CatalogRecord, VerificationRecord
from migrator.catalog.rules_packing import ChunkLimits, pack
from migrator.core.entry import EntryType
from migrator.core.errors import LedgerCorrupt, MigratorError, Refused
from migrator.core.events import EventKind, Severity
from migrator.core.paths import is_beneath, join, parent, show
from migrator.core.states import PassKind, PassState
from migrator.core.units import format_count, format_duration, format_size, several
from migrator.fs.model import STAGED_NAME, TRASH_NAME, Need, trash_place
from migrator.fs.moving import MovingTarget, Standing
from migrator.fs.rules import shows_time
from migrator.ledger.model import SiteRecord
from migrator.plan.model import Batch, Plan, WrittenList
from migrator.plan.rules import after_delta, moved_trees
from migrator.site.rules_guards import health_problems, shrink_losses, shrink_remedy
from migrator.transfer import bases
from migrator.transfer.attempt import look
from migrator.transfer.context import Invocation, PassUnderWay, World
from migrator.transfer.delta.model import ChangeKind, Changes, ExtrasOfTree, Gone, Rename, TreeChanges, WrittenMoves
from migrator.transfer.governor import governed
from migrator.transfer.guards import mount_findings, mounts_changed
from migrator.transfer.model import (
    BatchSummary,
    FileProblem,
    FileProblemKind,
    PassLimits,
    PassRecord,
    StopReason,
    TreeApart,
)
from migrator.transfer.passes import Copying, remaining
from migrator.transfer.rules import stop_reason

if TYPE_CHECKING:
    from migrator.catalog.manifest import ManifestDirectories
    from migrator.reap.store import ReapListFiles
    from migrator.transfer.delta.store import Comparisons, Extras, FoundExtras, MoveListFiles
    from migrator.transfer.records import PassRecords, TransferLedger

# Applying a move list to the target: renames, and moves to the trash.
#
# A move list is applied in three steps; each may be interrupted anywhere and repeated. First, every renamed path moves
# out of its tree to a staging path in the pass's place of the trash, with the content of a directory before the
# directory. Second, vanished paths move to the trash. Third, a mark is made, and the renamed paths get their new names,
# each directory before its content. Before the mark the trees only lose names, after it they only gain names, so the
# state on disk always shows which work is left.


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
    carrying = _Carrying(under_way, moves, lists, move_list, place)
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


class _Carrying:
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
        with _saying(f"taking {show(rename.old)} out for its new name {show(rename.new)}"):
            if not self._fresh and (self._moves.look(staged) or self._moves.look(missing)):
                return
            seen = self._moves.look(rename.old)
            if seen is not None and self._is_as_listed(seen, rename):
                self._moves.move(rename.old, staged)
                return
            self._moves.trash(rename.old, self._place)
            self._moves.make_directory(missing)

    def _put(self, numbered: tuple[int, Rename]) -> None:
        """Put one path under its new name. Any other entry with that name is stale: the name belongs to this path."""
        number, rename = numbered
        staged = self._staged_path(number)
        with _saying(f"renaming {show(rename.old)} to {show(rename.new)}"):
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

    def _is_as_listed(self, seen: Standing, rename: Rename) -> bool:
        if seen.type is not rename.type:
            return False
        if seen.type is not EntryType.FILE:
            return True
        same_time = shows_time(seen.mtime_ns, rename.mtime_ns, self._pass.capabilities)
        return seen.size_bytes == rename.size_bytes and same_time

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
            lambda: [look(source, self._location(gone)[1]) for gone, _ in there],
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
                    raise _StepStopped(reason, f"looking at {show(gone.path)} on the source: {_words(entry)}")
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
        with _saying(f"moving {show(gone.path)}, which vanished, to the trash"):
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
            with _saying(what):
                return await self._world.blocking(work, timeout_s=self._pass.request.stall_timeout_s)
        except TimeoutError as error:
            raise _StepStopped(stuck, f"{what}: it takes too long") from error

    async def _sync(self) -> None:
        try:
            with _saying("syncing the target"):
                await self._pass.sync.begun_after_now()
        except TimeoutError as error:
            raise _StepStopped(StopReason.TARGET_STUCK, "syncing the target: it takes too long") from error


@contextmanager
def _saying(what: str) -> Iterator[None]:
    """Turn an error of a system call into a stop of the step; the message names the operation."""
    try:
        yield
    except TimeoutError:
        raise
    except OSError as error:
        raise _StepStopped(stop_reason(error.errno) or StopReason.TARGET_MOVES, f"{what}: {_words(error)}") from error


def _words(error: OSError) -> str:
    return error.strerror or str(error)


# The move list of one pass: applied once, and reported.


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
    _say_moved(under_way, title, moved)
    if moved.stop is not None:
        reason, detail = moved.stop
        words = await under_way.storage.full_words() if reason is StopReason.TARGET_FULL and under_way.storage else ""
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


def _say_moved(under_way: PassUnderWay, title: str, moved: Moved) -> None:
    said = [
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
    if said:
        batch = under_way.batch.number
        severity = Severity.WARNING if moved.left or moved.to_send else Severity.INFO
        message = f"{title} over batch {batch}, on the target: {'; '.join(said)}"
        under_way.invocation.say(EventKind.PASS_MOVED, severity, f"batch {batch}", message)


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


# Problems that forbid renames and deletions on the target: those of the source and the mounts for the whole pass, and
# those of a tree for this tree alone. A path that is missing from a catalog may only have been missed by its scan, so
# anything that cannot be evaluated counts as a problem.


_LOOK = "look at it on the source"
_RIGHT_ALL_THE_SAME = (
    "if it is right, make a new plan with `migrator plan --activate`, whose passes begin from the source as it is now"
)


def deletion_problems(
    changes: Changes,
    *,
    base_whole: bool | None,
    base_fingerprint: str | None,
    now_fingerprint: str | None,
    source_fingerprint: str | None,
    source_problems: Sequence[str],
    mount_problems: Sequence[str],
) -> tuple[str, ...]:
    """Every problem of the whole pass, each with the next step; empty if renames and deletions may be applied in trees
    without a problem of their own (`shrunk_trees`).

    `base_whole`: whether the catalog of the base is complete; an incomplete one is never compared with the new one. The
    fingerprints are those of the source's health at the start of each scan, and now. `source_problems` are problems and
    doubts (a rebalance process) of the source, `mount_problems` those of both mounts. None means unknown.
    """
    return (
        *_catalog_problems(changes.base, base_whole),
        *_brick_problems(changes, base_fingerprint, now_fingerprint, source_fingerprint),
        *source_problems,
        *mount_problems,
    )


def shrunk_trees(changes: Changes, max_shrink: float) -> Mapping[bytes, str]:
    """The trees that lost too much since the base, each with the reason and the next step. A tree may lose at most the
    share `max_shrink` of its names and of its bytes (see `shrink_losses`); renamed paths do not count as lost.
    """
    return {tree.tree: problem for tree in changes.trees if (problem := _tree_problem(tree, max_shrink)) is not None}


def _catalog_problems(name: str, whole: bool | None) -> Iterable[str]:
    if whole is None:
        yield f"whether the catalog {name} is whole is not known: bring it back, or scan again"
    elif not whole:
        yield f"the catalog {name} is not whole, so what it lacks may be there: see `migrator scan`, and scan again"


def _brick_problems(changes: Changes, base: str | None, now: str | None, source: str | None) -> Iterable[str]:
    if not base or not now:
        yield "which bricks the source had when it was scanned is not known: make a new plan with `migrator plan --activate`"
    elif base != now:
        yield (
            f"the source's bricks or options were changed between the catalogs {changes.base} and {changes.now}, so what "
            f"vanished may have been on a brick that was taken away: look at `gluster volume info`; {_RIGHT_ALL_THE_SAME}"
        )
    if not source:
        yield "which bricks the source has now is not known: see `migrator doctor`"
    elif now and now != source:
        yield f"the source's bricks or options were changed since the catalog {changes.now}: scan again"


def _tree_problem(tree: TreeChanges, max_shrink: float) -> str | None:
    gone, new = tree.tally(ChangeKind.VANISHED), tree.tally(ChangeKind.NEW)
    name = f"the user tree {show(tree.tree)}"
    if not gone.paths and not gone.size_bytes:
        return None
    if gone.paths > tree.names_before or gone.size_bytes > tree.bytes_before:
        return (
            f"{name} cannot be judged: {format_count(gone.paths)} names of {format_count(tree.names_before)} and "
            f"{format_size(gone.size_bytes)} of {format_size(tree.bytes_before)} vanished: scan again"
        )
    if not new.paths and gone.paths == tree.names_before:
        return f"{name} is empty now, or gone: {_LOOK}; {_RIGHT_ALL_THE_SAME}"
    lost = shrink_losses(
        names=gone.paths,
        of_names=tree.names_before,
        size_bytes=gone.size_bytes,
        of_bytes=tree.bytes_before,
        max_shrink=max_shrink,
        floor=True,
    )
    if not lost:
        return None
    return f"{name} has lost {' and '.join(lost)} since the pass before: {_LOOK}; {shrink_remedy(max_shrink)}"


# Extras: paths that an earlier plan or pass left on the target, and that the source no longer has.
#
# A plan starts from the scan of the source. If a path was copied earlier and removed on the source before that scan, a
# comparison of the plan's own catalogs does not show it.


Problems = Callable[[Changes, str], Awaitable[tuple[str, ...]]]
"""Returns the problems that forbid applying changes whose base is this catalog."""


@asynccontextmanager
async def search_extras(
    extras: "Extras | None",
    *,
    invocation: Invocation,
    plan: Plan,
    batch: Batch,
    base: str,
    now: str,
    problems: Problems,
    max_shrink: float,
) -> "AsyncIterator[FoundExtras | None]":
    """Find the extras that a pass over the batch may move to the trash, given its base `base` and the new catalog
    `now`. They are valid inside the block.

    Extras stay and are reported if `problems` forbid deletions, or if their tree would lose more than `max_shrink`; the
    pass continues without them. None if no extras are left. Raises Refused as `Extras` does.
    """

    def where() -> list[ExtrasOfTree]:
        ledger = invocation.world.ledger
        found = (extras_of(ledger, plan.name, batch.number, tree.path) for tree in batch.trees)
        return [one for one in found if one.earlier or one.manifest is not None]

    async def may_go(found: "FoundExtras") -> bool:
        lost = await asyncio.to_thread(lambda: [one for tree in wanted if (one := found.lost(tree.tree))])
        if not lost:
            return False
        # A verification has looked its extras up on the source. Extras of an earlier catalog have had no look-up.
        came_from = {one.tree: {now, *one.earlier} for one in wanted}
        against = dict[bytes, dict[str, None]]()
        for catalog in sorted(set[str]().union(*came_from.values())):
            trees = [one for one in lost if catalog in came_from[one.tree]]
            for tree, words in (await against_trees(problems, catalog, now, trees)).items():
                against.setdefault(tree, {}).update(dict.fromkeys(words))
        shrunk = shrunk_trees(Changes(base=base, now=now, trees=tuple(lost)), max_shrink)
        stay = [one for one in lost if one.tree in against or one.tree in shrunk]
        go = [one for one in lost if one not in stay]
        subject = f"batch {batch.number}"
        if stay:
            reasons = dict.fromkeys(word for words in against.values() for word in words)
            message = f"left on the target: {_extras_words(stay)}: {'; '.join((*reasons, *shrunk.values()))}"
            invocation.say(EventKind.GUARD_REFUSED, Severity.WARNING, subject, message)
        if go:
            await asyncio.to_thread(found.keep, [one.tree for one in go])
            shown = ", ".join(show(tree.tree) for tree in go[:_SHOWN])
            message = f"to the target's trash: {_extras_words(go)}, in {shown}"
            invocation.say(EventKind.PASS_MOVED, Severity.INFO, subject, message)
        return bool(go)

    wanted = await asyncio.to_thread(where)
    if extras is None or not wanted:
        yield None
        return
    opened = extras.open(wanted, base=base, now=now)
    found = await asyncio.to_thread(opened.__enter__)
    try:
        yield found if await may_go(found) else None
    finally:
        await asyncio.to_thread(opened.__exit__, None, None, None)


_SHOWN = 5


async def against_trees(
    problems: Problems, catalog: str, now: str, trees: Sequence[TreeChanges]
) -> Mapping[bytes, tuple[str, ...]]:
    """The trees to which changes since a catalog may not be applied, each with the reasons. A problem of one tree holds up no
    other one: if there is any, each tree is judged alone.
    """

    async def judge(some: Sequence[TreeChanges]) -> tuple[str, ...]:
        return await problems(Changes(base=catalog, now=now, trees=tuple(some)), catalog) if some else ()

    if not await judge(trees):
        return {}
    alone = [(one.tree, await judge([one])) for one in trees]
    return {tree: words for tree, words in alone if words}


def _extras_words(trees: Sequence[TreeChanges]) -> str:
    names = sum(tree.tally(ChangeKind.VANISHED).paths for tree in trees)
    return f"{several(names, 'path')} that the source has no more, and no pass of this plan removed"


def extras_of(ledger: "TransferLedger", plan: str, batch: int, tree: bytes) -> ExtrasOfTree:
    """The catalogs and the manifest to search for extras of a tree before the next pass after the seed of this plan.
    Blocking.
    """
    passes = ledger.passes.over_tree(tree)
    own = [one for one in passes if (one.plan, one.batch) == (plan, batch) and one.kind is not PassKind.SEED]
    earlier: list[str] = []
    if not any(one.state is PassState.DONE for one in own):
        for one in reversed(passes):
            if (one.plan, one.batch) != (plan, batch):
                earlier.append(one.catalog)
                # This pass has removed earlier extras. A seed pass removes nothing.
                if one.kind is not PassKind.SEED and one.state is PassState.DONE:
                    break
    named = standing_verification(ledger, plan, batch, tree)
    return ExtrasOfTree(
        tree=tree,
        brought=tuple(dict.fromkeys(one.catalog for one in passes)),
        earlier=tuple(dict.fromkeys(earlier)),
        manifest=named.manifest if named is not None and named.whole else None,
        differences_digest=None if named is None else named.differences_digest,
    )


def standing_verification(ledger: "TransferLedger", plan: str, batch: int, tree: bytes) -> VerificationRecord | None:
    """The newest verification of a tree, if it found differences and no pass after the seed has covered the
    tree since.
    """
    newest = next(iter(reversed(ledger.verifications.of_tree(plan, batch, tree))), None)
    if newest is None or newest.finished_at_s is None or not newest.differences:
        return None
    since_s = newest.finished_at_s
    done = (one for one in ledger.passes.of_batch(plan, batch) if one.state is PassState.DONE)
    later = (one for one in done if one.kind is not PassKind.SEED and one.started_at_s >= since_s)
    return None if any(bases.covers(ledger.passes, one, (tree,)) for one in later) else newest


# Differences that a verification found: sent again, because size and times may not show them.


def found_to_differ(
    ledger: "TransferLedger", differing: "ManifestDirectories", *, plan: str, batch: int, trees: Collection[bytes]
) -> Sequence[bytes]:
    """Paths that the newest verification of each tree found to differ, unless a pass after the seed has covered the
    tree since. Blocking. Raises Refused if the list of differences is missing or was changed.
    """
    found: set[bytes] = set()
    for tree in trees:
        newest = standing_verification(ledger, plan, batch, tree)
        if newest is not None and newest.manifest is not None:
            paths = differing.differing(newest.manifest, digest=newest.differences_digest)
            found.update(path for path in paths if is_beneath(path, tree))
    return sorted(found)


# One delta or final pass over a batch, or over some of its trees. A delta pass resumes; a final pass is always new.


Scan = Callable[[Sequence[bytes]], Awaitable[CatalogRecord]]
"""Makes a new catalog of user trees."""


class Deltas(Struct, frozen=True, kw_only=True):
    """Ports and limits of delta passes, in addition to those of every run.

    A tree may lose at most the share `max_shrink` of its names and bytes between two scans. `manifests` are those
    that `verify` writes: a pass sends again the paths that were found to differ. With `extras`, it moves paths that only the target has to
    the trash. `again` are paths to send whether they changed or not.
    """

    scan: Scan
    comparisons: "Comparisons"
    move_lists: "MoveListFiles"
    moves: MovingTarget
    chunk_limits: ChunkLimits
    max_shrink: float
    trash_keep_s: float
    limits: PassLimits
    reap_lists: "ReapListFiles"
    manifests: "ManifestDirectories"
    extras: "Extras | None" = None
    again: Sequence[bytes] = ()


class NoTreeLeft(Refused):
    """Every tree of a pass is set apart."""

    def __init__(self, message: str, *, cause: str, hint: str, set_apart: tuple[TreeApart, ...]) -> None:
        super().__init__(message, cause=cause, hint=hint)
        self.set_apart = set_apart


@dataclass(slots=True, kw_only=True)
class DeltaPass(Copying):
    """One delta pass: a new one, or the last one if it is unfinished. A final pass (`kind`) is always new, and also
    sends the paths that an interrupted one did not. It does not change the state of the batch, because its own
    verification follows.

    `batch` may hold only some of its trees: then the pass compares and changes only these. They must have the same base
    (see `same_base`). A tree that the scan could not read everywhere, or that lost too much, is set apart: the pass
    leaves it unchanged, and the summary names it. Call `run` once.
    """

    deltas: Deltas
    kind: PassKind = PassKind.DELTA
    set_apart: tuple[TreeApart, ...] = ()

    async def run(self) -> BatchSummary:
        """Raises Refused if a guard trips before anything is changed (NoTreeLeft if every tree is set apart); a later
        stop is in the summary.
        """
        if self.kind is not PassKind.FINAL:
            return await self._run()
        governor = governed(
            self.world.governing,
            self.world.lanes,
            run_id=None,
            clock=self.world.clock,
            say=partial(self.say, EventKind.STREAMS_SET),
            frozen=True,
        )
        async with governor as self.invocation.governor:
            return await self._run()

    async def _run(self) -> BatchSummary:
        record = None
        if self.kind is PassKind.DELTA:
            record = bases.unfinished_delta(self.world.ledger.passes, self.plan, self.batch)
        if record is None:
            await self.end_earlier()
            record = await self._begin()
        left = remaining(self.world, self.plan, self.batch, record)
        ready = await self.ready(_room(left.need, self.world.ledger.passes.changes(record.id)))
        await self.make_trees()
        record = self._go_on(record)
        summary = await self.carry_out(
            record,
            ready,
            title=_title(record),
            before=lambda under_way: self._move(record, under_way),
        )
        return replace(summary, set_apart=self.set_apart)

    @property
    def _trees(self) -> list[bytes]:
        return [tree.path for tree in self.batch.trees]

    async def end_earlier(self) -> None:
        """Close interrupted passes over these trees that no pass resumes. Finish their move lists: otherwise the
        locations of paths on the target would be unknown. This may change the base of the next passes. May be called
        again. Raises Refused.
        """
        world, passes = self.world, self.world.ledger.passes
        for record in passes.of_batch(self.plan.name, self.batch.number):
            if record.kind is PassKind.SEED or record.state is PassState.DONE:
                continue
            its_own = bases.covered(passes, record) or frozenset()
            if its_own and its_own.isdisjoint(self._trees):
                continue
            if record.state is PassState.RUNNING:
                passes.set_state(record.id, PassState.STOPPED, world.clock.now_s())
            others = its_own - set(self._trees)
            # Nothing may move in a tree whose user works on the target. In that case the other trees are sent again as
            # a whole.
            if bases.has_open_moves(record) and not moved_trees(bases.newest_cutovers(world.ledger.cutovers, others)):
                await self._end_moves(record)

    async def _end_moves(self, record: PassRecord) -> None:
        ready = await self.ready(Need())
        under_way = self.under_way(record, ready)
        try:
            await self._move(record, under_way)
        finally:
            await under_way.confirmations.end()
            under_way.abandon_calls()
        if stopped := under_way.explain_stop():
            raise Refused(
                f"{_title(record)} over batch {self.batch.number}, which was interrupted, could not be finished: "
                + stopped.message,
                cause=stopped.cause,
                hint=stopped.hint,
            )

    async def _begin(self) -> PassRecord:
        """Scan, compare, write the lists, and check the guards. Only then record the pass."""
        world, passes = self.world, self.world.ledger.passes
        number = bases.pass_number(passes, self.plan, self.batch, self.kind)
        trees = self._trees
        base = bases.base_catalog(passes, self.plan.name, self.batch.number, trees)
        began_s = world.clock.monotonic_s()
        catalog = await self.deltas.scan(trees)
        self._set_apart(dict.fromkeys(catalog.set_apart, "; ".join(catalog.reasons)))
        if not catalog.whole_of(self._trees):
            raise Refused(
                f"batch {self.batch.number} is not compared: the scan {catalog.name} is not whole: "
                + "; ".join(catalog.reasons),
                cause="a part of the source could not be read, and what is in it would look as if it had been deleted",
                hint="solve that, then run the same command again: nothing was changed on the target",
            )
        extras_found = search_extras(
            self.deltas.extras,
            invocation=self.invocation,
            plan=self.plan,
            batch=self.batch,
            base=base,
            now=catalog.name,
            problems=lambda changes, before: self._problems(changes, before, catalog),
            max_shrink=self.deltas.max_shrink,
        )
        async with extras_found as extras:
            changes, chunks, moves, shrunk = await asyncio.to_thread(self._make_lists, number, base, catalog, extras)
        self._set_apart(shrunk)
        has_moves = bool(moves.renames or moves.gone)
        # The guards have already judged the extras.
        if moves.renames or changes.tally(ChangeKind.VANISHED).paths:
            await self._ask_guards(changes, base, catalog)
        record = passes.start(
            plan=self.plan.name,
            batch=self.batch.number,
            kind=self.kind,
            number=number,
            catalog=catalog.name,
            base_catalog=base,
            chunk_list=chunks.chunk_list,
            move_list=moves.move_list if has_moves else None,
            move_list_digest=moves.digest if has_moves else None,
            scan_s=world.clock.monotonic_s() - began_s,
            changes=changes,
            chunks=world.chunk_lists.chunks(chunks.chunk_list),
            at_s=world.clock.now_s(),
        )
        self._set_state(sent=not changes.nothing)
        return record

    def _make_lists(
        self, number: int, base: str, catalog: CatalogRecord, extras: "FoundExtras | None"
    ) -> tuple[Changes, WrittenList, WrittenMoves, Mapping[bytes, str]]:
        """Compare both catalogs, and write the chunk list and the move list without the trees that lost too much, which
        are returned with the reasons. Blocking.
        """
        world, deltas = self.world, self.deltas
        trees = self._trees
        missing = world.ledger.passes.not_arrived(self.plan.name, self.batch.number, trees)
        in_chunks = (
            listed.path
            for chunk in missing.chunks
            for listed in world.chunk_lists.paths(chunk.chunk_list, chunk.number)
        )
        differing = found_to_differ(
            world.ledger, deltas.manifests, plan=self.plan.name, batch=self.batch.number, trees=trees
        )
        # Moving an entry out of a directory changes the directory's times on the target.
        emptied = sorted({parent(one.path) for one in extras.gone()}) if extras else []
        with deltas.comparisons.open(
            base,
            catalog.name,
            trees=trees,
            unsettled=(*missing.paths, *in_chunks, *differing, *emptied, *deltas.again),
            unsettled_trees=missing.trees,
            leftovers=missing.paths,
            reap_list=deltas.reap_lists.checked(self.plan.reap),
        ) as comparison:
            shrunk = shrunk_trees(comparison.changes, deltas.max_shrink)
            kept = tuple(one for one in comparison.changes.trees if one.tree not in shrunk)
            moves = deltas.move_lists.write(
                f"{self.plan.name}-batch-{self.batch.number:04d}-{self.kind.value}-{number:04d}",
                (one for one in comparison.renames() if one.tree not in shrunk),
                (one for one in chain(comparison.gone(), extras.gone() if extras else ()) if one.tree not in shrunk),
            )
            bricks = sorted(walk.brick for walk in catalog.bricks)
            listings = comparison.listings([[one.tree for one in kept]])
            packed = pack(listings, deltas.chunk_limits, bricks=bricks)
            plan, batch = self.plan.name, self.batch.number
            chunks = world.chunk_lists.write_pass(plan, batch, number, packed, kind=self.kind)
            return replace(comparison.changes, trees=kept), chunks, moves, shrunk

    def _set_apart(self, reasons: Mapping[bytes, str]) -> None:
        """Leave these trees out of the pass. Raises NoTreeLeft if there is no other."""
        trees = self._trees
        apart = tuple(TreeApart(tree=tree, reason=reasons[tree]) for tree in trees if tree in reasons)
        self.set_apart += apart
        for one in apart:
            message = f"set apart: {show(one.tree)}: {one.reason}; the next pass scans it again"
            self.say(EventKind.TREES_SET_APART, Severity.WARNING, message)
        left = [tree for tree in trees if tree not in reasons]
        if not left:
            raise NoTreeLeft(
                f"batch {self.batch.number}: nothing is changed on the target: "
                + "; ".join(dict.fromkeys(one.reason for one in self.set_apart)),
                cause="what a scan does not see looks as if it had been deleted",
                hint="solve that, then run the same command again: nothing was changed on the target",
                set_apart=self.set_apart,
            )
        if apart:
            self.batch = bases.part_of(self.plan, self.batch, left)

    async def _ask_guards(self, changes: Changes, base: str, catalog: CatalogRecord) -> None:
        """Raises Refused if paths that appear to have vanished may still exist."""
        problems = await self._problems(changes, base, catalog)
        for problem in problems:
            self.say(EventKind.GUARD_REFUSED, Severity.ERROR, problem)
        if problems:
            raise Refused(
                f"batch {self.batch.number}: nothing is renamed or removed on the target: {'; '.join(problems)}",
                cause="what a scan does not see looks as if it had been deleted",
                hint="solve that, then run the same command again: nothing was changed on the target",
            )

    async def _problems(self, changes: Changes, base: str, catalog: CatalogRecord) -> tuple[str, ...]:
        world, timeout_s = self.world, self.timeout_s
        scans = {scan.name: scan for scan in world.ledger.scans.all()}
        health = await world.source.health()
        before = scans.get(base)
        then, now = None if before is None else before.health_fingerprint, catalog.health_fingerprint
        # A recorded drain is no reason against deletions: it has moved every file before its commit.
        if before and world.ledger.drains.explain(before.health_fingerprint, now, since_s=before.started_at_s):
            then = now
        return deletion_problems(
            changes,
            base_whole=None if before is None else before.whole_of(tree.tree for tree in changes.trees),
            base_fingerprint=then,
            now_fingerprint=now,
            source_fingerprint=health.fingerprint,
            source_problems=health_problems(health, health),
            mount_problems=(*await mounts_changed(world, self.site, timeout_s),),
        )

    def _go_on(self, record: PassRecord) -> PassRecord:
        passes = self.world.ledger.passes
        if record.state is not PassState.RUNNING:
            passes.set_state(record.id, PassState.RUNNING, self.world.clock.now_s())
        passes.retry_failed(record.id)
        changes = passes.changes(record.id)
        words = "nothing changed" if changes is None or changes.nothing else change_words(changes)
        message = f"{_title(record)} over batch {self.batch.number}: {words}"
        self.say(EventKind.PASS_STARTED, Severity.INFO, message)
        return passes.read(record.id)

    async def _move(self, record: PassRecord, under_way: PassUnderWay) -> None:
        await carry_out_moves(
            under_way, record, title=_title(record), moves=self.deltas.moves, lists=self.deltas.move_lists
        )

    def _set_state(self, *, sent: bool) -> None:
        if self.kind is PassKind.FINAL:
            return
        now = self.batch_state
        if now is not None and (then := after_delta(now, sent=sent)) is not now:
            self.set_batch_states((then,))


_SAID = {ChangeKind.ATTRIBUTES: "with other attributes", ChangeKind.UNSETTLED: "sent to be sure"}


def change_words(changes: Changes) -> str:
    """The changes, by kind."""
    found = [(kind, changes.tally(kind)) for kind in ChangeKind]
    return ", ".join(
        f"{format_count(tally.paths)} {_SAID.get(kind, kind.value)}" for kind, tally in found if tally.paths
    )


def _room(need: Need, changes: Changes | None) -> Need:
    """The room that new and grown files need. Files that are sent again replace those on the target. If these are
    missing because they failed before, a full target stops the pass.
    """
    if changes is None:
        return need
    new, grown = changes.tally(ChangeKind.NEW), changes.tally(ChangeKind.GROWN)
    return Need(size_bytes=min(need.size_bytes, new.size_bytes + grown.size_bytes), inodes=min(need.inodes, new.paths))


def _title(record: PassRecord) -> str:
    return f"{record.kind.value} pass {record.number}"


# Final passes in one freeze.


_MOST_PASSES = 3


async def final_passes(
    ledger: "TransferLedger", plan: Plan, batch: Batch, run: Callable[[], Awaitable[BatchSummary]]
) -> AsyncIterator[tuple[BatchSummary, PassRecord]]:
    """Make final passes until every rename succeeds. Raises MigratorError if one is skipped or stops.

    A path that was missing on the target, or had changed there, cannot be renamed (a rollback has renamed it already):
    the next pass sends it. Files that change during the pass are no reason for another one: they stop the switch.
    """
    for _ in range(_MOST_PASSES):
        summary = await run()
        if summary.skipped:
            raise MigratorError(summary.skipped)
        if (stopped := summary.stopped) is not None:
            raise MigratorError(f"the final pass stopped: {stopped.message}", cause=stopped.cause, hint=stopped.hint)
        made = ledger.passes.find(plan.name, batch.number, PassKind.FINAL)
        if made is None:
            raise LedgerCorrupt("the ledger has lost the final pass", hint="run the same command again")
        yield summary, made
        if not only_not_renamed(ledger.passes, made.id):
            return


# After a rollback: record that both sides of some trees are equal.


async def note_equal(world: World, deltas: Deltas, plan: Plan, batch: Batch) -> PassRecord:
    """Scan the trees of a batch, and record the scan as a final pass without changes, so that the next pass compares
    with the present source. Otherwise files that users created on the target, and removed after their rollback, would
    stay there.

    Both sides must be proven equal, and be frozen. May be called again. Raises Refused if the scan is incomplete, and
    any error of scanning; nothing is recorded then.
    """
    began_s = world.clock.monotonic_s()
    catalog = await deltas.scan([tree.path for tree in batch.trees])
    if not catalog.whole:
        raise Refused(
            f"what the source of {', '.join(show(tree.path) for tree in batch.trees)} is now could not be read: "
            + "; ".join(catalog.reasons),
            cause="a part of the source could not be read",
            hint="solve that, then run the same command again",
        )
    passes = world.ledger.passes
    number = bases.pass_number(passes, plan, batch, PassKind.FINAL)
    trees = tuple(TreeChanges(tree=tree.path, names_before=0, bytes_before=0) for tree in batch.trees)
    written = await asyncio.to_thread(
        world.chunk_lists.write_pass, plan.name, batch.number, number, (), kind=PassKind.FINAL
    )
    record = passes.start(
        plan=plan.name,
        batch=batch.number,
        kind=PassKind.FINAL,
        number=number,
        catalog=catalog.name,
        base_catalog=catalog.name,
        chunk_list=written.chunk_list,
        scan_s=world.clock.monotonic_s() - began_s,
        changes=Changes(base=catalog.name, now=catalog.name, trees=trees),
        chunks=(),
        at_s=world.clock.now_s(),
    )
    passes.set_state(record.id, PassState.DONE, world.clock.now_s())
    return passes.read(record.id)


# Expiry of the target's trash, before delta passes add to it.


_SUBJECT = "the trash of the target"


async def expire_trash(invocation: Invocation, deltas: Deltas, site: SiteRecord) -> None:
    """Remove places older than the retention time, except those of unfinished passes. May be called again.

    An event reports the removed places. A failure is only a warning: the run continues, and the next run tries again.
    """
    world = invocation.world
    timeout_s = invocation.request.stall_timeout_s
    if await mount_findings(world, world.target, site.target, timeout_s):
        return  # The guards of the first pass report it.
    expire = partial(
        deltas.moves.expire, world.clock.now_s() - deltas.trash_keep_s, keep=unfinished_places(world.ledger)
    )
    try:
        expired = await world.blocking(expire, timeout_s=timeout_s)
    except TimeoutError:
        _warn(invocation, "expired places were not removed in time: the next run continues")
        return
    except (OSError, Refused) as error:
        why = error.message if isinstance(error, Refused) else error.strerror or error
        _warn(invocation, f"expired places are not removed: {why}")
        return
    if expired.places:
        message = (
            f"removed {several(expired.places, 'place')} older than {format_duration(deltas.trash_keep_s)}, "
            f"with {several(expired.names, 'name')}"
        )
        invocation.say(EventKind.TRASH_EXPIRED, Severity.INFO, _SUBJECT, message)
    for problem in expired.problems:
        _warn(invocation, problem)


def unfinished_places(ledger: "TransferLedger") -> frozenset[str]:
    """The trash places of all unfinished passes, which may still need them. An interrupted final pass needs its place
    only until its renames are complete, because it is never resumed.
    """
    return frozenset(
        trash_place(record.started_at_s, record.batch, record.kind.value, record.number)
        for plan in ledger.plans.names()
        for record in ledger.passes.of_plan(plan)
        if record.move_list is not None
        and record.state is not PassState.DONE
        and (record.kind is not PassKind.FINAL or bases.has_open_moves(record))
    )


def _warn(invocation: Invocation, message: str) -> None:
    invocation.say(EventKind.TRASH_EXPIRED, Severity.WARNING, _SUBJECT, message)
