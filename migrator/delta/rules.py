"""Whether a delta pass may rename or delete, and in which order."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from migrator.core.paths import show
from migrator.core.units import format_count, format_size
from migrator.delta.model import ChangeKind, Changes, Rename, TreeChanges

# Problems that forbid renames and deletions on the target. A path that is missing from a catalog may only have been missed
# by its scan, so anything that cannot be evaluated counts as a problem.


_LOOK = "look at it on the source"
_RIGHT_ALL_THE_SAME = (
    "if it is right, make a new plan with `migrator plan`, whose passes begin from the source as it is now"
)


def deletion_problems(
    changes: Changes,
    *,
    base_whole: bool | None,
    now_whole: bool | None,
    base_fingerprint: str | None,
    now_fingerprint: str | None,
    source_fingerprint: str | None,
    source_problems: Sequence[str] | None,
    mount_problems: Sequence[str] | None,
    max_shrink: float,
) -> tuple[str, ...]:
    """Every problem, each with what to do next; empty if renames and deletions may be applied.

    `base_whole` and `now_whole`: whether both catalogs are whole; the fingerprints are those of the source's health when
    each scan began, and now. `source_problems` are problems and doubts (a rebalance process) of the source, `mount_problems`
    those of both mounts. None stands for unknown. A tree may lose the share `max_shrink` of its names and of its bytes since
    the base; renamed paths are not lost.
    """
    return (
        *_catalog_problems(changes.base, base_whole),
        *_catalog_problems(changes.now, now_whole),
        *_brick_problems(changes, base_fingerprint, now_fingerprint, source_fingerprint),
        *_told("the source", source_problems),
        *_told("the mounts", mount_problems),
        *_share_problems(max_shrink),
        *(problem for tree in changes.trees for problem in _tree_problems(tree, max_shrink)),
    )


def _catalog_problems(name: str, whole: bool | None) -> Iterable[str]:
    if whole is None:
        yield f"whether the catalog {name} is whole is not known: bring it back, or scan again"
    elif not whole:
        yield f"the catalog {name} is not whole, so what it lacks may be there: see `migrator scan`, and scan again"


def _brick_problems(changes: Changes, base: str | None, now: str | None, source: str | None) -> Iterable[str]:
    if not base or not now:
        yield "which bricks the source had when it was scanned is not known: make a new plan with `migrator plan`"
    elif base != now:
        yield (
            f"the source's bricks or options were changed between the catalogs {changes.base} and {changes.now}, so what "
            f"vanished may have been on a brick that was taken away: look at `gluster volume info`; {_RIGHT_ALL_THE_SAME}"
        )
    if not source:
        yield "which bricks the source has now is not known: see `migrator doctor`"
    elif now and now != source:
        yield f"the source's bricks or options were changed since the catalog {changes.now}: scan again"


def _told(what: str, problems: Sequence[str] | None) -> Iterable[str]:
    if problems is None:
        yield f"the state of {what} is not known: see `migrator doctor`"
    else:
        yield from problems


def _share_problems(max_shrink: float) -> Iterable[str]:
    if not 0 <= max_shrink <= 1:
        yield f"how much of a tree may be gone is not known: [transfer] max_shrink is {max_shrink}"


def _tree_problems(tree: TreeChanges, max_shrink: float) -> Iterable[str]:
    gone, new = tree.tally(ChangeKind.VANISHED), tree.tally(ChangeKind.NEW)
    name = f"the user tree {show(tree.tree)}"
    if not gone.paths and not gone.size_bytes:
        return
    if gone.paths > tree.names_before or gone.size_bytes > tree.bytes_before:
        yield (
            f"{name} cannot be judged: {format_count(gone.paths)} names of {format_count(tree.names_before)} and "
            f"{format_size(gone.size_bytes)} of {format_size(tree.bytes_before)} vanished: scan again"
        )
    elif not new.paths and gone.paths == tree.names_before:
        yield f"{name} is empty now, or gone: {_LOOK}; {_RIGHT_ALL_THE_SAME}"
    else:
        lost = []
        if not gone.paths <= max_shrink * tree.names_before:
            lost.append(f"{format_count(gone.paths)} of {format_count(tree.names_before)} names")
        if not gone.size_bytes <= max_shrink * tree.bytes_before:
            lost.append(f"{format_size(gone.size_bytes)} of {format_size(tree.bytes_before)}")
        if lost:
            yield (
                f"{name} has lost {' and '.join(lost)} since the pass before: {_LOOK}; if it is right, allow it once with a "
                f"larger [transfer] max_shrink (now {max_shrink:.0%})"
            )


# The order of renames: each names its path as it is called after the renames before it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    """A path with a new name. `place` is its name if only the directories above it had been renamed; None: its directory is
    gone, and another one has the name `held_by` of that directory.
    """

    path: bytes
    new: bytes
    place: bytes | None
    held_by: bytes | None
    directory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """Positions of relocations in order, each with its name after those before it; and those that are ambiguous in every
    order and cannot be done as renames.
    """

    order: tuple[tuple[int, bytes], ...]
    impossible: tuple[int, ...]


def in_order(relocations: Sequence[Relocation]) -> Ordered:
    """Order all renames of directories, and of files in directories that are gone.

    The directories that hold a new name always come first. Unless that forms a cycle, a path that occupies the new name, or
    a name above it, leaves before; directories come before their content; and paths leave a vanished directory before
    another one gets its name. The result does not depend on the order of the input.
    """
    order = list(_sorted(relocations))
    called = _names(relocations, order)
    impossible = tuple(index for index in _impossible(relocations, order, called))
    return Ordered(order=tuple(zip(order, called, strict=True)), impossible=impossible)


def _sorted(relocations: Sequence[Relocation]) -> Iterator[int]:
    needed, wished = _dependencies(relocations)
    followers: list[list[tuple[int, bool]]] = [[] for _ in relocations]
    for index in range(len(relocations)):
        for before in needed[index]:
            followers[before].append((index, True))
        for before in wished[index]:
            followers[before].append((index, False))
    waits = [len(found) for found in needed]
    wishes = [len(found) for found in wished]
    done = [False] * len(relocations)
    ready: list[tuple[bytes, int]] = []
    possible: list[tuple[bytes, int]] = []

    def offer(index: int) -> None:
        if not waits[index]:
            heapq.heappush(possible if wishes[index] else ready, (relocations[index].new, index))

    for index in range(len(relocations)):
        offer(index)
    while ready or possible:
        # A wish is dropped only in a cycle, when nothing else is left.
        _, index = heapq.heappop(ready or possible)
        if done[index]:
            continue
        done[index] = True
        yield index
        for follower, hard in followers[index]:
            if hard:
                waits[follower] -= 1
            else:
                wishes[follower] -= 1
            if not done[follower]:
                offer(follower)


def _dependencies(relocations: Sequence[Relocation]) -> tuple[list[set[int]], list[set[int]]]:
    by_new = {one.new: index for index, one in enumerate(relocations) if one.directory}
    by_path = {one.path: index for index, one in enumerate(relocations) if one.directory}
    by_place = {one.place: index for index, one in enumerate(relocations) if one.place is not None}
    held: dict[bytes, list[int]] = {}
    for index, one in enumerate(relocations):
        if one.held_by is not None:
            held.setdefault(one.held_by, []).append(index)
    needed: list[set[int]] = [set() for _ in relocations]
    wished: list[set[int]] = [set() for _ in relocations]
    for index, one in enumerate(relocations):
        for above in _above(one.new):
            if above in by_new:
                needed[index].add(by_new[above])
                break
            if above in by_place:
                wished[index].add(by_place[above])
        if one.new in by_place:
            wished[index].add(by_place[one.new])
        wished[index].update(held.get(one.new, ()))
        wished[index].update(by_path[above] for above in _above(one.path) if above in by_path)
        wished[index] -= needed[index]
        wished[index].discard(index)
    return needed, wished


def _names(relocations: Sequence[Relocation], order: Sequence[int]) -> list[bytes]:
    made: dict[bytes, bytes] = {}
    called: list[bytes] = []
    for index in order:
        one = relocations[index]
        called.append(_moved(one.path, made))
        if one.directory:
            made[one.path] = one.new
    return called


def _moved(path: bytes, made: dict[bytes, bytes]) -> bytes:
    for above in _above(path) if made else ():
        if above in made:
            return made[above] + path[len(above) :]
    return path


def _impossible(relocations: Sequence[Relocation], order: Sequence[int], called: Sequence[bytes]) -> Iterator[int]:
    # The reader of the list (`RenameOrder.find`) resolves a name by the new names before it.
    numbers = {relocations[index].new: number for number, index in enumerate(order) if relocations[index].directory}
    leaving = {name: number for number, name in enumerate(called) if relocations[order[number]].directory}
    for number, index in enumerate(order):
        one = relocations[index]
        followed = called[number]
        for above in _above(called[number]):
            if numbers.get(above, number) < number:
                followed = relocations[order[numbers[above]]].path + called[number][len(above) :]
                break
        if followed != one.path or _loses_its_place(one.new, number, numbers, leaving):
            yield index


def _loses_its_place(new: bytes, number: int, numbers: dict[bytes, int], leaving: dict[bytes, int]) -> bool:
    for above in _above(new):
        if above in numbers:
            if numbers[above] > number:
                return True
        elif leaving.get(above, -1) > number:
            return True
    return False


def _above(path: bytes) -> Iterator[bytes]:
    """The directories above a path, the nearest first."""
    end = path.rfind(b"/")
    while end > 0:
        yield path[:end]
        end = path.rfind(b"/", 0, end)


# The location of renamed and vanished paths on the target while renames are applied.
#
# All renamed paths first leave their trees, each for a path of its own, and only then get their new names: cycles need no
# special case, and the only state is the progress in the list. The content of a renamed directory moves with it, so its
# paths have to be followed.


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The location of a path after everything before it in order was taken out: in the directory of the rename `within`,
    or (None) still in its tree; `path` is relative to that. `before` is its name before all renames.
    """

    within: int | None
    path: bytes
    before: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGone:
    """As `Found`, for a vanished path after all renames were taken out; `after` is what it would be called now."""

    within: int | None
    path: bytes
    after: bytes


class RenameOrder:
    """The renamed directories of one move list, in order and numbered as in the list."""

    def __init__(self, directories: Iterable[tuple[int, Rename]]) -> None:
        self._news: dict[bytes, int] = {}
        self._last_olds: dict[bytes, int] = {}
        self._new_names: dict[int, bytes] = {}
        self._befores: dict[bytes, int] = {}
        self._before_names: dict[int, bytes] = {}
        for number, rename in directories:
            before = self.find(number, rename.old).before
            self._before_names[number] = before
            self._befores[before] = number
            self._last_olds[rename.old] = number
            self._news[rename.new] = number
            self._new_names[number] = rename.new

    def find(self, number: int, old: bytes) -> Found:
        """The location of the old name of a rename, after those before it were taken out."""
        for above in _above(old) if self._news else ():
            within = self._news.get(above)
            if within is not None and within < number:
                below = old[len(above) + 1 :]
                return Found(within=within, path=below, before=self._before_names[within] + b"/" + below)
        return Found(within=None, path=old, before=old)

    def find_gone(self, path: bytes) -> FoundGone:
        """The location of a vanished path, after all renames were taken out."""
        for above in _above(path) if self._befores else ():
            within = self._befores.get(above)
            if within is not None:
                below = path[len(above) + 1 :]
                return FoundGone(within=within, path=below, after=self._new_names[within] + b"/" + below)
        return FoundGone(within=None, path=path, after=path)

    def is_out_of_order(self, number: int, new: bytes) -> bool:
        """Whether a later rename gives a name above `new` to a directory or takes it away, so that the path would end up
        elsewhere. No list should have such a rename; it is not applied.
        """
        for above in _above(new) if self._news else ():
            if (named := self._news.get(above)) is not None:
                if named > number:
                    return True
            elif self._last_olds.get(above, -1) > number:
                return True
        return False
