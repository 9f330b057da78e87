"""Adding up what streams brought, by one thing at a time. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from migrator.domain.stream_sums import SizeClass, StreamSum

BY: Mapping[str, Callable[[StreamSum], str]] = {
    "size of files": lambda one: one.size_class.value,
    "host": lambda one: one.host,
    "brick": lambda one: one.brick or "the mount",
    "engine": lambda one: one.engine,
}
"""What the sums can be told apart by."""


def added_up(sums: Sequence[StreamSum], by: str) -> Sequence[tuple[str, StreamSum]]:
    """The sums of all that are alike in one thing; sizes from the smallest, everything else by name."""
    name_of, found = BY[by], dict[str, StreamSum]()
    for one in sums:
        name = name_of(one)
        so_far = found.get(name)
        found[name] = one if so_far is None else _together(so_far, one)
    order = [size_class.value for size_class in SizeClass]
    return sorted(found.items(), key=lambda item: (order.index(item[0]) if item[0] in order else 0, item[0]))


def _together(one: StreamSum, other: StreamSum) -> StreamSum:
    return replace(
        one,
        attempts=one.attempts + other.attempts,
        files=one.files + other.files,
        size_bytes=one.size_bytes + other.size_bytes,
        stream_s=one.stream_s + other.stream_s,
    )
