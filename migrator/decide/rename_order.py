"""The order in which renames are listed, so that each can name its path as it is called when those before it are made."""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    """A path that has another name now. `place` is what it would be called if only the directories above it had been
    renamed; None: it lay in a directory that is gone, whose place `held_by` another one has now.
    """

    path: bytes
    new: bytes
    place: bytes | None
    held_by: bytes | None
    directory: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """Positions of relocations in order with what each is called when those before it are made; and those that no order
    makes unambiguous, which cannot be done as renames.
    """

    order: tuple[tuple[int, bytes], ...]
    impossible: tuple[int, ...]


def in_order(relocations: Sequence[Relocation]) -> Ordered:
    """Order all renames of directories, and those of files that lie in directories which are gone.

    What a new name lies in comes first, always. As far as there is no cycle: what has the new name, or a name above it,
    leaves before; directories come before what lies in them; what is taken out of a directory that is gone comes before
    another one gets its name. Same relocations in another order: the same result.
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
        # Wishes are given up only where nothing else is left: a cycle.
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
    # Who reads the list follows the names that it has, new ones before all others.
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
