"""The volume under drains, additions and retirements: where its bricks are, whether all of it is up, and which work is in
progress. An unknown fact is a problem. Pure.
"""

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Any

from migrator.bricks.model import BrickOperation
from migrator.core.collected import collected
from migrator.core.units import several
from migrator.gluster.model import VolumeState, VolumeTask
from migrator.operations.model import Halt

# The volume of an operation, and its bricks there.


class Membership(Enum):
    """The place of an operation's bricks: in the volume, out of it, or only some of them in it."""

    IN = auto()
    OUT = auto()
    SOME = auto()


def halt_until(words: str, remedy: str, *, reasons: tuple[str, ...] = (), look_again: bool = False) -> Halt:
    """Halt until the admin has applied the remedy."""
    return Halt(words=words, hint=f"{remedy}, then run the same command again", reasons=reasons, look_again=look_again)


def volume_unknown(record: BrickOperation[Any, Any]) -> Halt:
    """Halt because glusterd does not report the volume."""
    words = f"the state of volume {record.volume} is unknown"
    return halt_until(words, "check `gluster volume status`, and start glusterd", look_again=True)


def wrong_volume(record: BrickOperation[Any, Any], state: VolumeState, *, started: bool = True) -> Halt | None:
    """Return why an operation must not go on in this volume; None if it may. `started`: it must be started."""
    if (state.volume, state.volume_id) != (record.volume, record.volume_id):
        words = (
            f"volume {state.volume} is not the one that the {record.kind} was begun on (its id is {state.volume_id})"
        )
        return Halt(
            words=words, hint="check [source] volume in site.toml, and the cluster that the gluster command queries"
        )
    if started and not state.started:
        return halt_until(f"volume {record.volume} is not started", "start it", look_again=True)
    return None


def membership(record: BrickOperation[Any, Any], state: VolumeState | None) -> Membership:
    """Return where the bricks are, by the volume's own list. The state must be known."""
    inside = {brick.name for brick in state.bricks if brick.name in record.bricks} if state is not None else set()
    if not inside:
        return Membership.OUT
    return Membership.IN if inside == set(record.bricks) else Membership.SOME


def only_some(record: BrickOperation[Any, Any]) -> Halt:
    """Halt because only some of the bricks are in the volume."""
    words = f"only some of {record.shown_bricks} are in the volume: it was changed outside of this program"
    return halt_until(words, "see `gluster volume info`, fix the set by hand")


def host_of(name: str) -> str:
    """Return the host in a brick's name."""
    return name.partition(":/")[0]


def path_of(name: str) -> str:
    """Return the path in a brick's name."""
    return "/" + name.partition(":/")[2]


# Hosts, bricks, heals and work in progress.


@collected
def parts_missing(state: VolumeState, *, instead_of: str | None = None) -> Iterator[str]:
    """Return hosts and bricks of a volume that are not seen to be up, as sentences. The brick `instead_of`
    may be down.
    """
    if state.peers_down is None:
        yield "the connected hosts of the pool are unknown: see `gluster pool list`"
    yield from (f"host {host} is not connected: start its glusterd" for host in state.peers_down or ())
    for brick in state.bricks:
        if brick.online is not True and brick.name != instead_of:
            yield f"brick {brick.name} is {'down' if brick.online is False else 'in an unknown state'}"


@collected
def condition_problems(state: VolumeState, *, instead_of: str | None = None) -> Iterator[str]:
    """Return bricks, hosts and heals of a volume that are not in order. The brick `instead_of` is being replaced: it
    may be down, and its copies have pending heals until the new brick is there.
    """
    if not state.started:
        yield f"volume {state.volume} is not started"
    yield from parts_missing(state, instead_of=instead_of)
    if (state.replica_count > 1 or state.disperse_count > 1) and not state.heals:
        yield "pending heals are unknown: see `gluster volume heal VOLUME info summary`"
    for heal in state.heals or ():
        if heal.brick == instead_of:
            continue
        if heal.entries is None or heal.status != "Connected":
            yield f"pending heals on {heal.brick} are unknown ({heal.status})"
        elif heal.entries and instead_of is None:
            yield f"{several(heal.entries, 'entry', 'entries')} of {heal.brick} have pending heals: wait until they are healed"


def other_work(
    tasks: Sequence[VolumeTask] = (), drains: Sequence[str] = (), additions: Sequence[str] = ()
) -> Iterator[str]:
    """Return the tasks of Gluster, drains and additions that have not ended."""
    yield from (f"{one.text} has not ended: wait for its end, commit it or stop it" for one in tasks if one.unfinished)
    yield from (f"a drain of {name} has not ended: finish it, or stop it with `migrator brick stop`" for name in drains)
    yield from (f"an addition of {name} has not ended: `migrator brick add` resumes it" for name in additions)
