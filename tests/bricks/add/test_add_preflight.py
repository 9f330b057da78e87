"""Reasons against adding bricks, as sentences, and how far additions are."""

import shlex

import pytest
from msgspec.structs import replace

from migrator.bricks.add import model as add
from migrator.bricks.add.model import AdditionSnapshot
from migrator.bricks.add.rules import addition_blockers, grown, next_step, problems_before, standing
from migrator.catalog.model import StrangeFiles
from migrator.core.units import GIB, TIB
from migrator.gluster.model import (
    Brick,
    BrickHeal,
    BrickRoom,
    DiskFacts,
    ListedDirectory,
    NewPlace,
    TaskStatus,
    VolumeState,
)
from migrator.operations.model import Act, Halt
from tests.support.making import made
from tests.support.volumes import brick as brick_of
from tests.support.volumes import drain_sample, remove_brick
from tests.support.volumes import volume as volume_of

S = add.AdditionState
WISH = add.Wish()


def brick(host: int, **facts: object) -> Brick:
    return brick_of(f"gl{host}:/srv/b/data", **facts)


def volume(count: int = 2, *, replica: int = 1, disperse: int = 0, arbiter: bool = False) -> VolumeState:
    bricks = [brick(number, arbiter=arbiter and number % replica == 0) for number in range(1, count + 1)]
    heals = tuple(BrickHeal(brick=one.name, status="Connected", entries=0) for one in bricks)
    return volume_of(
        *bricks,
        volume_id="aa-bb",
        replica_count=replica,
        disperse_count=disperse,
        heals=heals if replica > 1 or disperse > 1 else (),
        peers_down=(),
    )


def place(name: str, **facts: object) -> NewPlace:
    known = {"mount": "/srv/b", "own": True, "filesystem": "xfs", "total_bytes": 40 * TIB, **facts}
    return NewPlace(name=name, **known)  # type: ignore[arg-type]


def record(
    *names: str, side: add.AdditionSide = add.AdditionSide.SOURCE, instead_of: str | None = None
) -> add.AdditionRecord:
    bricks = names or ("gl9:/srv/b/data",)
    facts = {"side": side, "volume": "vol1", "volume_id": "aa-bb", "bricks": bricks, "instead_of": instead_of}
    return made(add.AdditionRecord, **facts, state=S.PLANNED, times={S.PLANNED: 1.0})


def seen(one: add.AdditionRecord, state: VolumeState | None = None, **facts: object) -> AdditionSnapshot:
    state = volume() if state is None else state
    room = BrickRoom(filesystem="xfs", total_bytes=40 * TIB)
    known: dict[str, object] = {
        "state": state,
        "tasks": (),
        "owners": {member.name: "vol1" for member in state.bricks},
        "places": {name: place(name) for name in one.bricks},
        "rooms": {member.name: room for member in state.bricks},
        "versions": dict.fromkeys(("gl9", "gl8", "gl7", *(member.host for member in state.bricks)), "10.3"),
        "target": add.TargetRoom(total_bytes=TIB, storage_targets=3),
        **facts,
    }
    return AdditionSnapshot(**known)  # type: ignore[arg-type]


def problems(one: add.AdditionRecord, look: AdditionSnapshot, wish: add.Wish = WISH) -> list[str]:
    return list(problems_before(one, look, wish, prepared=True))


def only(one: add.AdditionRecord, look: AdditionSnapshot) -> str:
    (problem,) = problems(one, look)
    return problem


def test_a_new_brick_on_a_healthy_volume_is_refused_only_for_files_that_were_put_on_bricks_past_gluster() -> None:
    assert problems(record(), seen(record())) == problems(record(), seen(record(), strange=None)) == []
    found = StrangeFiles(brick="gl2:/b", files=2, paths=(b"home/placed",))
    assert "2 files without a gfid were put on gl2:/b" in only(record(), seen(record(), strange=(found,)))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"own": False, "mount": "/"}, "not on one of its own"),
        ({"mount": "/srv/b/data"}, "is a mount point: name a directory in it"),
        ({"served_by": (17,)}, "pid 17"),
        ({"entries": ("home",)}, "is not empty: it holds what is left (home)"),
        ({"entries": ("home",), "volume_id": "aabb"}, "of an old brick"),
        ({"others": ("/srv/b/lost",)}, "has other entries: "),
        ({"unread": "host gl9 cannot be reached"}, "cannot be reached"),
        ({"marked_above": ("/srv/b",), "gfid": "01"}, "directories above"),
        ({"filesystem": "ext4"}, "the other bricks are xfs"),
        ({"total_bytes": 31 * TIB}, "it would be full first"),
        ({"total_bytes": None}, "unknown: accept that with --accept-unlike"),
    ],
)
def test_a_place_that_gluster_must_not_have(facts: dict[str, object], words: str) -> None:
    one = record()
    assert words in only(one, seen(one, places={one.bricks[0]: place(one.bricks[0], **facts)}))


def test_marks_are_explained_with_the_command_only_where_nothing_has_the_brick() -> None:
    one = record("gl9:/srv/it's/data")
    name = one.bricks[0]
    marked = place(name, volume_id="aabb", gfid="01", has_gluster_directory=True, mount="/srv/it's")
    told = only(one, seen(one, places={name: marked}))
    quoted = shlex.quote("/srv/it's/data")
    assert f"`setfattr -x trusted.glusterfs.volume-id {quoted} && setfattr -x trusted.gfid {quoted} && rm -rf" in told
    for look in (
        seen(one, places={name: marked}, owners=None),
        seen(one, places={name: marked}, owners={name: "vol2"}),
        seen(one, places={name: replace(marked, served_by=(3,))}),
        seen(one, places={name: replace(marked, entries=("home",))}),
    ):
        assert problems(one, look)
        assert not any("setfattr" in problem for problem in problems(one, look))


def test_only_unlike_bricks_can_be_accepted() -> None:
    one = record()
    small = {one.bricks[0]: place(one.bricks[0], total_bytes=GIB, filesystem="ext4")}
    assert len(problems(one, seen(one, places=small))) == 2
    assert problems(one, seen(one, places=small), add.Wish(accept_unlike=True)) == []
    full = {one.bricks[0]: place(one.bricks[0], entries=("home",))}
    assert problems(one, seen(one, places=full), add.Wish(accept_unlike=True))


def test_sets_come_whole_and_on_different_hosts() -> None:
    three = volume(3, replica=3)
    one = record("gl7:/srv/b/data", "gl8:/srv/b/data")
    assert "whole replica sets of 3 bricks, and 2 were named" in problems(one, seen(one, three))[0]
    same = record("gl7:/srv/b/data", "gl7:/srv/c/data", "gl8:/srv/b/data")
    places = {name: place(name, mount=name.rpartition("/")[0]) for name in same.bricks}
    assert "2 bricks of one set are on gl7" in only(same, seen(same, three, places=places))
    whole = record("gl7:/srv/b/data", "gl8:/srv/b/data", "gl9:/srv/b/data")
    assert problems(whole, seen(whole, three)) == []
    dispersed = volume(3, disperse=3)
    assert "whole disperse sets of 3 bricks" in only(record(), seen(record(), dispersed))
    assert problems(whole, seen(whole, dispersed)) == []
    # The arbiter of a set may be small; a brick of data may not.
    arbiters = volume(3, replica=3, arbiter=True)
    sizes = {name: place(name, total_bytes=GIB if name.startswith("gl9") else 40 * TIB) for name in whole.bricks}
    assert problems(whole, seen(whole, arbiters, places=sizes)) == []
    assert any("full first" in problem for problem in problems(whole, seen(whole, three, places=sizes)))


def test_a_volume_that_is_not_well_or_busy() -> None:
    one, state = record(), volume()
    down = replace(state, bricks=(brick(1, online=False), brick(2, online=None)), peers_down=("gl2",))
    assert len(problems(one, seen(one, down))) == 3
    assert "gluster pool list" in only(one, seen(one, replace(state, peers_down=None)))
    task = remove_brick("b", status=TaskStatus.COMPLETED)
    assert "commit it or stop it" in only(one, seen(one, tasks=(task,)))
    assert "has not ended" in only(one, seen(one, drains=("gl1:/b",)))
    assert "is a brick of volume vol2" in only(one, seen(one, owners={one.bricks[0]: "vol2"}))
    sharded = replace(state, options=(("features.shard", "on"),))
    assert "striped or sharded" in only(one, seen(one, sharded))


@pytest.mark.parametrize("version", ["11.0", None, "unheard of"])
def test_a_version_that_loses_files_adds_only_without_a_rebalance(version: str | None) -> None:
    one = record()
    for host in ("gl1", "gl2", "gl9"):
        versions = {**dict.fromkeys(("gl1", "gl2", "gl9"), "11.1"), host: version}
        problem = only(one, seen(one, versions=versions))
        assert f"on {host}" in problem
        assert "--no-rebalance" in problem
        assert problems(one, seen(one, versions=versions), add.Wish(rebalance=False)) == []
    assert "unknown" in only(one, seen(one, versions=None))


def test_a_brick_takes_the_place_of_another_only_where_there_is_another_copy() -> None:
    old, three = "gl3:/srv/b/data", volume(3, replica=3)
    one = record("gl9:/srv/b/data", instead_of=old)
    assert problems(one, seen(one, three)) == []
    broken = replace(
        three, bricks=(*three.bricks[:2], brick(3, online=False)), heals=three.heals[:2] if three.heals else ()
    )
    assert problems(one, seen(one, broken)) == []
    alone = replace(three, bricks=tuple(brick(number, online=False) for number in (1, 2, 3)))
    assert any("nothing to fill the new brick from" in problem for problem in problems(one, seen(one, alone)))
    distribute = record("gl9:/srv/b/data", instead_of="gl2:/srv/b/data")
    assert "only copy" in only(distribute, seen(distribute))
    beside = record("gl1:/srv/c/data", instead_of=old)
    assert "is on gl1: " in only(beside, seen(beside, three))
    dispersed = record("gl9:/srv/b/data", instead_of=old)
    assert "dispersed" in only(dispersed, seen(dispersed, volume(3, disperse=3)))
    unknown = record("gl9:/srv/b/data", instead_of="gl8:/b")
    assert "has no brick gl8:/b" in only(unknown, seen(unknown, three))


def test_the_target_gets_no_brick_of_a_volume_and_needs_a_known_size() -> None:
    one = record(side=add.AdditionSide.TARGET)
    assert problems(one, seen(one)) == []
    assert "is a brick of volume vol1" in only(one, seen(one, owners={one.bricks[0]: "vol1"}))
    assert "the size of the target is unknown" in only(
        one, seen(one, target=add.TargetRoom(total_bytes=None, storage_targets=None))
    )
    assert "pid 5" in only(one, seen(one, places={one.bricks[0]: place(one.bricks[0], served_by=(5,))}))
    beside = DiskFacts(name=one.bricks[0], mount="/srv/b", unexplained=("/srv/b/live (a brick of volume 5e)",))
    assert "/srv/b/live (a brick" in only(one, seen(one, disks={one.bricks[0]: beside}))
    first = next_step(one, seen(one), WISH)
    assert isinstance(first, Act)
    assert first.result is S.PREPARED
    # Hooks are called again after a crash: what grew meanwhile may be somebody else's work.
    handing = replace(
        one, state=S.HANDING, notes=add.AdditionNotes(room_before=add.TargetRoom(total_bytes=1, storage_targets=3))
    )
    again = next_step(handing, seen(one), WISH)
    assert isinstance(again, Act)
    assert not again.seen_done


@pytest.mark.parametrize(
    ("before", "now", "size_bytes", "seen_it"),
    [
        # The target's own list is exact; bytes may have come from elsewhere.
        ((100, 3), (900, 3), 100, False),
        ((100, None), (180, None), 100, True),
        ((100, None), (179, None), 100, False),
        ((100, 3), (200, None), 100, True),
        ((None, None), (900, 9), 1, False),
        (None, (900, 9), 1, False),
    ],
)
def test_when_the_target_shows_what_it_was_given(
    before: tuple[int | None, int | None] | None, now: tuple[int, int | None], size_bytes: int | None, seen_it: bool
) -> None:
    def room(of: tuple[int | None, int | None]) -> add.TargetRoom:
        return add.TargetRoom(total_bytes=of[0], storage_targets=of[1])

    assert grown(before and room(before), room(now), bricks=1, size_bytes=size_bytes) is seen_it


def test_another_volume_and_half_a_set_are_left_alone() -> None:
    one = record("gl1:/srv/b/data", "gl9:/srv/b/data")
    half = next_step(one, seen(one), WISH)
    assert isinstance(half, Halt)
    other = next_step(one, seen(one, replace(volume(), volume_id="cc")), WISH)
    assert isinstance(other, Halt)


# How far additions are, and when somebody has to be told.


NINE = "gl9:/srv/b/data"


def moving(state: add.AdditionState, **changes: object) -> add.AdditionRecord:
    notes = add.AdditionNotes(task_id="balance", size_bytes=1000, files=400)
    return replace(record(NINE), state=state, times={state: 5.0}, **{"notes": notes, **changes})


@pytest.mark.parametrize("state", list(add.AdditionState))
def test_unwatched_additions_are_blockers_and_no_others(state: add.AdditionState) -> None:
    one = standing(moving(state, failure="no room", instead_of="gl1:/old"), [drain_sample(at_s=20.0)])
    found = list(addition_blockers([one], at_work=False, now_s=80.0))
    assert list(addition_blockers([one], at_work=True, now_s=80.0)) == []
    if state in (S.PLANNED, S.SETTLED, S.TAKEN_BACK, S.FORGOTTEN):
        assert found == []
        return
    (blocker,) = found
    assert NINE in blocker.subject
    assert "no room" in blocker.on
    assert f"migrator brick add {NINE} --to source --instead-of gl1:/old" in blocker.hint
    assert ("1 min ago" in blocker.on) == (state is not S.FAILED)


def listed(number: int) -> ListedDirectory:
    return made(ListedDirectory, path=b"home/a\xff/%d" % number, reason="shut", command=f"chmod {number}")


@pytest.mark.parametrize("at_work", [False, True])
def test_directories_wait_each_with_its_command_also_when_everything_else_is_over(at_work: bool) -> None:
    notes = add.AdditionNotes(directories=tuple(map(listed, range(7))))
    one = standing(moving(S.SETTLED, notes=notes), ())
    *first, more = addition_blockers([one], at_work=at_work, now_s=80.0)
    assert [(blocker.subject, blocker.on, blocker.hint) for blocker in first] == [
        (rf"home/a\xff/{number}", "shut", f"`chmod {number}`") for number in range(5)
    ]
    assert more.on.startswith("2 more directories wait")
