"""The option by which Gluster is told how hard to move files: which value it is to have, and what it was before. Pure."""

from collections.abc import Iterable, Sequence

from migrator.domain.brick import VolumeState
from migrator.domain.drain import ChangedOption

SLOWEST_FIRST = ("lazy", "normal", "aggressive")
"""The values of `cluster.rebal-throttle`."""


def slowed(value: str, down: int) -> str:
    """What a value is so many steps down; the slowest one stays."""
    return SLOWEST_FIRST[max(SLOWEST_FIRST.index(value) - down, 0)]


def steps_below(value: str) -> int:
    """How many steps down there are from a value."""
    return SLOWEST_FIRST.index(value)


def still_changed(options: Iterable[ChangedOption], state: VolumeState) -> tuple[str, ...]:
    """Options that still have a value that this program has given them. One that somebody else has changed since is his."""
    now = dict(state.options)
    return tuple(
        option.name
        for option in options
        if (value := now.get(option.name)) is not None and value != option.before and value in option.given
    )


def value_before(name: str, state: VolumeState, left: Sequence[ChangedOption]) -> str | None:
    """What an option is without this program: its value now (None: not set), or, where something that was killed has left it
    changed, what it was before that.
    """
    value = dict(state.options).get(name)
    for option in left:
        if option.name == name and name in still_changed((option,), state):
            return option.before
    return value
