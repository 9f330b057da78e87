"""What speaks against adding bricks now: the guards before an addition, as sentences. Pure. What is not known speaks
against it too.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from migrator.decide.addition_words import host_of, path_of
from migrator.decide.gluster_faults import version_problems
from migrator.decide.strange_files import strange_problems
from migrator.decide.subvolumes import subvolumes
from migrator.decide.volume_options import is_on
from migrator.domain.addition import AdditionRecord
from migrator.domain.addition_seen import AdditionSeen, Wish
from migrator.domain.brick import Brick, VolumeState
from migrator.domain.units import several

_TWO = 2
"""Copies, of which Gluster asks for no quorum by itself."""


def health_problems(record: AdditionRecord, seen: AdditionSeen) -> tuple[str, ...]:
    """Whether the volume is well, and nothing moves files."""
    return tuple(_health(record, seen))


def before_problems(record: AdditionRecord, seen: AdditionSeen, wish: Wish) -> tuple[str, ...]:
    """Whether these bricks make whole sets that the volume can take."""
    if seen.state is None:
        return ("the state of the volume is not known: see `gluster volume status`",)
    return (
        *_sets(record, seen.state),
        *_foreign(record, seen),
        *_versions(record, seen.state, seen, wish),
        *strange_problems(seen.strange or ()),
    )


def swap_problems(record: AdditionRecord, seen: AdditionSeen, wish: Wish) -> tuple[str, ...]:  # noqa: ARG001 - as the other
    """Whether one brick can take the place of another."""
    if seen.state is None:
        return ("the state of the volume is not known: see `gluster volume status`",)
    return (*_swap(record, seen.state, seen), *_foreign(record, seen))


def target_problems(record: AdditionRecord, seen: AdditionSeen) -> tuple[str, ...]:
    """What speaks against giving bricks to the target."""
    return tuple(_target(record, seen))


def _health(record: AdditionRecord, seen: AdditionSeen) -> Iterator[str]:
    state = seen.state
    if state is None:
        return
    for brick in state.bricks:
        # Who exchanges a broken disk has a brick that is down.
        if brick.online is not True and brick.name != record.instead_of:
            yield f"brick {brick.name} is {'down' if brick.online is False else 'not known to be up'}"
    if state.peers_down is None:
        yield "which hosts of the pool are connected is not known: see `gluster pool list`"
    yield from (f"host {host} is not connected: start its glusterd" for host in state.peers_down or ())
    if (state.replica_count > 1 or state.disperse_count > 1) and not state.heals:
        yield "what waits to be healed is not known: see `gluster volume heal VOLUME info summary`"
    for heal in state.heals or ():
        if heal.brick == record.instead_of:
            continue
        if heal.entries is None or heal.status != "Connected":
            yield f"what waits to be healed on {heal.brick} is not known ({heal.status})"
        elif heal.entries and record.instead_of is None:
            # Of a brick that is exchanged they wait on its copies, and only the new one ends that.
            yield f"{several(heal.entries, 'entry', 'entries')} wait to be healed on {heal.brick}: wait until they are"
    for task in seen.tasks or ():
        if task.unfinished:
            of = f" of {', '.join(task.bricks)}" if task.bricks else ""
            yield f"{task.name} ({task.status.value}){of} is not over: wait for its end, commit it or stop it"
    yield from (f"a drain of {name} has not come to rest: see `migrator brick list`" for name in seen.drains)
    yield from (
        f"the addition of {name} has not come to its end: give that command again first" for name in seen.additions
    )


def _sets(record: AdditionRecord, state: VolumeState) -> Iterator[str]:
    if state.stripe_count > 1 or dict(state.options).get("features.shard") in ("on", "enable", "1", "true", "yes"):
        yield "the volume is striped or sharded: a rebalance of it has lost data, and this program does not begin one"
    copies, pieces = max(state.replica_count, 1), max(state.disperse_count, 1)
    size, count = copies * pieces, len(record.bricks)
    if count % size:
        if pieces > 1:
            yield (
                f"the volume is dispersed: every file lies in pieces on {pieces} bricks, so a brick by itself holds nothing "
                f"that can be read; it grows by whole sets of {pieces}, and {count} were named"
            )
        else:
            yield f"the volume keeps {copies} copies: it grows by whole replica sets of {copies} bricks, and {count} were named"
        return
    for start in range(0, count, size):
        members = record.bricks[start : start + size]
        hosts = Counter(host_of(name) for name in members)
        for host, number in hosts.items():
            if size > 1 and number > 1:
                yield (
                    f"{number} bricks of one set are on {host}: the set is lost with that host; name the bricks so that those "
                    f"of a set follow each other and lie on {size} hosts"
                )
    yield from _hosts_known(record, state)


def _hosts_known(record: AdditionRecord, state: VolumeState) -> Iterator[str]:
    for name in record.bricks:
        if not host_of(name) or not path_of(name).startswith("/"):
            yield f"{name} is no brick: it is HOST:/PATH, as in `gluster volume info`"
        elif host_of(name) in (state.peers_down or ()):
            yield f"host {host_of(name)} of the new brick is not connected"


def _swap(record: AdditionRecord, state: VolumeState, seen: AdditionSeen) -> Iterator[str]:
    old = record.instead_of
    names = [brick.name for brick in state.bricks]
    if old not in names:
        yield f"volume {state.volume} has no brick {old}"
        return
    if len(record.bricks) != 1:
        yield f"{several(len(record.bricks), 'brick')} cannot take the place of one"
    if state.disperse_count > 1:
        yield "the volume is dispersed: exchange the brick by hand, this program does not judge whether its set is whole"
        return
    if state.replica_count < 2:
        would = "take it offline" if record.in_place else "exchange it for an empty one"
        yield (
            f"{old} has the only copy of its files: Gluster would {would}. Add the new brick, then drain "
            f"the old one (`migrator brick drain {old}`)"
        )
        return
    members = next(members for members in subvolumes(state) if old in {brick.name for brick in members})
    whole = [brick for brick in members if brick.name != old and not brick.arbiter and brick.online]
    if not whole:
        yield f"no other copy of {old} is up: there is nothing to fill the new brick from"
    if record.in_place:
        yield from _without(old, state, members, seen)
        return
    for name in record.bricks:
        if any(brick.host == host_of(name) for brick in members if brick.name != old):
            yield f"another brick of the same set lies on {host_of(name)} already: the set would be lost with that host"
    yield from _hosts_known(record, state)


def _without(away: str, state: VolumeState, members: Sequence[Brick], seen: AdditionSeen) -> Iterator[str]:
    """Whether a set can be for a while without one of its bricks, and fill it again."""
    place = (seen.places or {}).get(away)
    if any(brick.name == away and brick.online for brick in members) and (place is None or place.unread):
        yield f"what lies at {away} is not known: {'it was not looked at' if place is None else place.unread}"
    if place is not None and place.own and place.mount == path_of(away):
        yield (
            f"{away} is a mount point itself, which Gluster takes into its own place by force alone: add a brick in a directory "
            f"of another file system with `--instead-of {away}`"
        )
    options = dict(state.options)
    up = [brick for brick in members if brick.name != away and brick.online]
    if not has_quorum(members, up, options):
        yield f"while {away} is away users could not write to its set: it has no quorum (cluster.quorum-type) without it"
    if is_on(options, "cluster.self-heal-daemon", default=True) is not True:
        yield "cluster.self-heal-daemon is not on: nothing would fill the new file system"
    if seen.blamed is None:
        yield f"whether the other copies of {away} are whole is not known: their hosts do not tell (see `migrator doctor`)"
        return
    for name, entries in sorted(seen.blamed.items()):
        if name != away and entries:
            yield (
                f"{several(entries, 'entry', 'entries')} at least wait to be healed on {name}: {away} may have the only good copy "
                "of them. Wait until they are healed"
            )


def has_quorum(members: Sequence[Brick], up: Sequence[Brick], options: Mapping[str, str]) -> bool:
    """Whether users can write to a set of copies of which these bricks are up, by what Gluster does where nothing is set."""
    kind = options.get("cluster.quorum-type", "auto" if len(members) > _TWO else "none")
    if kind == "fixed":
        count = options.get("cluster.quorum-count", "")
        return count.isdigit() and len(up) >= int(count)
    if kind != "auto":
        return bool(up)
    # Of an even number half is enough where the first one is among them.
    return 2 * len(up) > len(members) or (2 * len(up) == len(members) and members[0] in up)


def _foreign(record: AdditionRecord, seen: AdditionSeen) -> Iterator[str]:
    if seen.owners is None:
        yield "which bricks belong to a volume already is not known: see `gluster volume info`"
    for name in record.bricks:
        owner = (seen.owners or {}).get(name)
        if owner is not None and record.instead_of != name:
            yield f"{name} is a brick of volume {owner}"
    for name, count in Counter(record.bricks).items():
        if count > 1:
            yield f"{name} is named {count} times"


def _versions(record: AdditionRecord, state: VolumeState, seen: AdditionSeen, wish: Wish) -> Iterator[str]:
    if wish.rebalance:
        hosts = {brick.host for brick in state.bricks} | {host_of(name) for name in record.bricks}
        yield from version_problems(seen.versions, hosts, otherwise="; --no-rebalance moves no file")


def _target(record: AdditionRecord, seen: AdditionSeen) -> Iterator[str]:
    if record.instead_of is not None:
        yield "--instead-of is for bricks of the source"
    yield from _foreign(record, seen)
    for name in record.bricks:
        place = (seen.places or {}).get(name)
        if place is not None and place.served_by:
            yield f"a brick process serves {name} still (pid {place.served_by[0]})"
    yield from (f"{name} is being given to the target too: give that command again first" for name in seen.additions)
    before = record.notes.room_before or seen.target
    if before is None or (before.total_bytes is None and before.storage_targets is None):
        yield "how large the target is, is not known: see `migrator doctor`"
