"""What speaks against the exchange of a brick's disk in its place, and what is done next where it is not clear how far it is."""

import dataclasses

import pytest
from msgspec.structs import replace

from migrator.bricks.add import model as add
from migrator.bricks.add.model import AdditionSnapshot
from migrator.bricks.add.rules import next_step, problems_before
from migrator.bricks.add.rules_guards import has_quorum
from migrator.gluster.model import Brick
from migrator.operations.model import Act, Halt
from tests.bricks.add.grown_volume import ROOM
from tests.bricks.add.replica_volume import ALL, OWN, SECOND, THIRD, VOLUME_ID, Disk, ReplicaVolume
from tests.support.making import made

S = add.AdditionState
OLD, NEW = Disk("old", marked=True, files=3), Disk("new-1")


def record(state: add.AdditionState = S.PLANNED) -> add.AdditionRecord:
    return made(
        add.AdditionRecord,
        volume="vol1",
        volume_id=VOLUME_ID,
        bricks=(OWN,),
        instead_of=OWN,
        state=state,
        times={S.PLANNED: 1.0, state: 2.0},
        notes=add.AdditionNotes(filesystem_before="old", filesystem_id="new-1"),
    )


def seen(world: ReplicaVolume | None = None, **facts: object) -> AdditionSnapshot:
    world = world or ReplicaVolume()
    known: dict[str, object] = {
        "state": world.state(),
        "tasks": (),
        "owners": dict.fromkeys(ALL, "vol1"),
        "places": {OWN: world.place()},
        "rooms": dict.fromkeys(ALL, ROOM),
        "versions": dict.fromkeys(("gl1", "gl2", "gl3"), "10.3"),
        "blamed": world.blamed,
        **facts,
    }
    return AdditionSnapshot(**known)  # type: ignore[arg-type]


def after(state: add.AdditionState, look: AdditionSnapshot, *, take_back: bool = False) -> add.Step:
    return next_step(record(state), look, add.Wish(take_back=take_back))


def refused(one: add.AdditionRecord, look: AdditionSnapshot, wish: add.Wish) -> tuple[str, ...]:
    return problems_before(one, look, wish, prepared=False)


def only(look: AdditionSnapshot) -> str:
    (problem,) = refused(record(), look, add.Wish())
    return problem


def away(disk: Disk | None = OLD) -> ReplicaVolume:
    return ReplicaVolume(disk=None if disk is None else dataclasses.replace(disk), up=False)


def test_every_other_copy_has_to_be_up_and_whole() -> None:
    down = refused(record(), seen(ReplicaVolume(others_up=False)), add.Wish())
    assert any(f"brick {SECOND} is down" in problem for problem in down)
    assert f"3 entries or more have pending heals on {THIRD}" in only(seen(blamed={THIRD: 3, OWN: 9}))
    assert "unknown" in only(seen(blamed=None))
    arbiter = seen().state
    assert arbiter is not None
    # Names alone fill nothing.
    names = tuple(replace(brick, arbiter=brick.name != OWN) for brick in arbiter.bricks)
    assert "nothing to fill the new brick from" in only(seen(state=replace(arbiter, bricks=names)))


def test_the_set_needs_a_quorum_and_a_readable_place_without_the_brick() -> None:
    assert "no quorum" in only(
        seen(ReplicaVolume(options={"cluster.quorum-type": "fixed", "cluster.quorum-count": "3"}))
    )
    assert "self-heal-daemon" in only(seen(ReplicaVolume(options={"cluster.self-heal-daemon": "off"})))
    assert "gl1 cannot be reached" in only(seen(ReplicaVolume(reached=False)))
    mounted = replace(ReplicaVolume().place(), mount="/srv/b/data")
    assert "is a mount point itself" in only(seen(places={OWN: mounted}))


@pytest.mark.parametrize(
    ("count", "up", "options", "writable"),
    [
        (3, (1, 2), {}, True),
        (3, (2,), {}, False),
        (2, (0,), {}, True),
        (2, (1,), {"cluster.quorum-type": "auto"}, False),
        (4, (0, 3), {}, True),
        (4, (1, 3), {}, False),
        (3, (1,), {"cluster.quorum-type": "none"}, True),
        (3, (1, 2), {"cluster.quorum-type": "fixed"}, False),
    ],
)
def test_a_quorum_is_what_gluster_takes_for_one(
    count: int, up: tuple[int, ...], options: dict[str, str], writable: bool
) -> None:
    members = [Brick(name=f"gl{number}:/b", host=f"gl{number}", path=b"/b", online=True) for number in range(count)]
    assert has_quorum(members, [members[number] for number in up], options) is writable


def test_marks_alone_on_a_file_system_are_reported_with_the_command_that_removes_them() -> None:
    (told,) = problems_before(record(S.PREPARING), seen(away(Disk("new-1", marked=True))), add.Wish(), prepared=True)
    assert "setfattr -x trusted.glusterfs.volume-id /srv/b/data" in told
    nameless = replace(ReplicaVolume(disk=NEW, up=False).place(), filesystem_id="")
    (told,) = problems_before(record(S.PREPARING), seen(away(NEW), places={OWN: nameless}), add.Wish(), prepared=True)
    assert "no id" in told


def test_an_incomplete_snapshot_is_repeated() -> None:
    state = seen().state
    assert state is not None
    unlisted = seen(state=replace(state, bricks=state.bricks[1:]))
    unknown = seen(state=replace(state, bricks=(replace(state.bricks[0], online=None), *state.bricks[1:])))
    unreached = seen(ReplicaVolume(disk=NEW, up=False, reached=False))
    listed = (add.AWAY_STATES | add.IN_STATES) - {S.HEALED, S.BALANCED}
    for look, states in ((unlisted, listed), (unknown, {S.OFFLINE, S.ADDING}), (unreached, {S.ADDING})):
        for one in states:
            step = after(one, look)
            assert isinstance(step, Halt), (one, step)
            assert step.look_again


@pytest.mark.parametrize(
    ("disk", "words"),
    [
        (None, "no file system is mounted"),
        (NEW, "is no brick of this volume"),
        (Disk("new-3", marked=True), "another file system is mounted"),
    ],
)
def test_only_what_the_brick_held_is_served_again(disk: Disk | None, words: str) -> None:
    for state in (S.OFFLINE, S.TAKING_BACK):
        halted = after(state, seen(away(disk)), take_back=True)
        assert isinstance(halted, Halt)
        assert words in halted.words
    served = after(S.OFFLINE, seen(away()), take_back=True)
    assert isinstance(served, Act)
    assert (served.step, served.seen_done) == (add.AdditionStep.TAKE_BACK, False)
