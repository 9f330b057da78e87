"""The preflight checks of a drain, and sources that it would move for nothing."""

from typing import Any

import pytest
from msgspec.structs import replace

from migrator.bricks.add.model import AdditionRecord, AdditionState
from migrator.bricks.drain.model import DrainRecord, DrainState
from migrator.bricks.drain.model_preflight import BrickLoad, DrainFacts, RetainedSource
from migrator.bricks.drain.rules import structure_problems
from migrator.bricks.drain.rules_preflight import catalog_is_old, drain_problems, purge_commands, retained_sources
from migrator.catalog.model import StrangeFiles, TreeOnBricks
from migrator.core.entry import UserTree
from migrator.core.units import DAY_S, GIB
from migrator.cutover.model import CutoverRecord, CutoverState
from migrator.gluster.model import BrickHeal, BrickMarks, BrickRoom, TaskKind, TaskStatus, VolumeState
from tests.support.making import made
from tests.support.volumes import remove_brick
from tests.support.volumes import volume as volume_of


def volume(count: int = 3, *, replicas: int = 1, **changes: Any) -> VolumeState:
    names = [f"gl{number}:/b" for number in range(1, count + 1)]
    heals = tuple(BrickHeal(brick=name, status="Connected", entries=0) for name in names)
    facts = {"volume_id": "v", "replica_count": replicas, "peers_down": (), "heals": heals, **changes}
    return volume_of(*names, **facts)


ROOM = BrickRoom(total_bytes=100 * GIB, free_bytes=50 * GIB, total_inodes=10**6, free_inodes=10**6)
TASK = remove_brick("gl2:/b", status=TaskStatus.FAILED)
GOOD = made(
    DrainFacts,
    bricks=("gl1:/b",),
    state=volume(),
    rooms={f"gl{number}:/b": ROOM for number in range(1, 7)},
    load=BrickLoad(files=1000, allocated_bytes=60 * GIB, largest_bytes=GIB),
    min_free_disk="10%",
    versions={"gl1": "10.3", "gl2": "10.3", "gl3": "11.1"},
    open_files=0,
    scanned=True,
)


def problems(**changes: Any) -> tuple[str, ...]:
    return drain_problems(replace(GOOD, **changes))


@pytest.mark.parametrize("name", ["rooms", "load", "min_free_disk", "open_files", "marks", "scanned"])
def test_an_unknown_fact_refuses_the_drain(name: str) -> None:
    (found,) = problems(**{name: None})
    assert "unknown" in found


def with_last_brick(online: bool | None) -> VolumeState:
    state = volume()
    return replace(state, bricks=(*state.bricks[:2], replace(state.bricks[2], online=online)))


ENDED = replace(TASK, kind=TaskKind.REBALANCE, status=TaskStatus.COMPLETED, bricks=())
MARKED = BrickMarks(brick="gl1:/srv/b 1", files=5, examples=(b"home/a", b"home/b\n", b"home/c", b"home/d"))
UNKNOWN_VERSION = "the version of GlusterFS on gl3, and so its faults, are unknown"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": volume(started=False)}, ("is not started",)),
        ({"state": volume(peers_down=None)}, ("gluster pool list",)),
        ({"state": volume(peers_down=("gl3",))}, ("host gl3 is not connected",)),
        ({"state": with_last_brick(online=False)}, ("gl3:/b", "is down")),
        ({"state": with_last_brick(online=None)}, ("gl3:/b", "unknown")),
        ({"tasks": (TASK,)}, ("Remove brick (failed) of gl2:/b",)),
        ({"tasks": (replace(ENDED, status=TaskStatus.IN_PROGRESS),)}, ("Remove brick (in progress)",)),
        ({"drains_elsewhere": ("gl9:/b",)}, ("a drain of gl9:/b",)),
        ({"catalog_is_old": True}, ("migrator scan --via bricks",)),
        ({"versions": {"gl1": "10.3", "gl2": "11.0", "gl3": "10.3"}}, ("GlusterFS 11.0 on gl2", "#4148")),
        ({"versions": {"gl1": "10.3", "gl2": "10.3"}}, (UNKNOWN_VERSION,)),
        ({"versions": {"gl1": "10.3", "gl2": "10.3", "gl3": None}}, (UNKNOWN_VERSION,)),
        ({"versions": {"gl1": "10.3", "gl2": "10.3", "gl3": "a version"}}, (UNKNOWN_VERSION,)),
        ({"open_files": 3}, ("3 files are open",)),
        ({"rooms": {"gl2:/b": ROOM, "gl3:/b": replace(ROOM, free_inodes=None)}}, ("the room on gl3:/b is unknown",)),
        ({"rooms": {"gl3:/b": ROOM}}, ("the room on gl2:/b is unknown",)),
        ({"marks": (BrickMarks(brick="gl1:/b", files=0, unseen=1),)}, ("1 entry of gl1:/b cannot be read",)),
        (
            {"marks": (MARKED, BrickMarks(brick="gl2:/b", files=0))},
            (
                "5 hard-linked files of gl1:/srv/b 1 carry the mark of an earlier drain",
                "home/c, and 2 more.",
                "on gl1: `find '/srv/b 1' -xdev",
            ),
        ),
        (
            {"strange": (StrangeFiles(brick="gl2:/b", files=1, paths=(b"home/placed",)),)},
            ("1 file without a gfid was put on gl2:/b past Gluster (home/placed)", "move them off the brick"),
        ),
        # A leaving brick was read for marks just now, which counts.
        (
            {
                "marks": (BrickMarks(brick="gl1:/b", files=0, strange=2, strange_examples=(b"home/a", b"home/b")),),
                "strange": (StrangeFiles(brick="gl1:/b", files=1, paths=(b"home/a",)),),
            },
            ("2 files without a gfid",),
        ),
        (
            {"linked_symlinks": tuple(b"home/\xff%d" % number for number in range(12))},
            ("12 symlinks with several names", "home/\\xff0, ", ", and 7 more"),
        ),
        # By weight: 300 of 400 GiB get three quarters, whatever their room.
        (
            {
                "rooms": {
                    **(GOOD.rooms or {}),
                    "gl3:/b": replace(ROOM, total_bytes=300 * GIB, free_bytes=77 * GIB),
                }
            },
            ("47.3 GiB for its share",),
        ),
    ],
)
def test_one_problem_refuses_the_drain(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    (problem,) = problems(**changes)
    assert all(one in problem for one in words), problem


@pytest.mark.parametrize(
    "changes",
    [
        {"tasks": (TASK,), "task_of_record": "t1"},
        {"tasks": (ENDED,)},
        {"open_files": 3, "open_files_accepted": True},
        {"open_files": None, "open_files_accepted": True},
        {"marks": (BrickMarks(brick="gl2:/b", files=0),)},
        # The leaving brick itself may be full.
        {"rooms": {**(GOOD.rooms or {}), "gl1:/b": replace(ROOM, free_bytes=0, free_inodes=0)}},
        *({"min_free_disk": one} for one in ("10%", "10.0%", "5GB", "5368709120", "5368709120B", "5120MB", " 5GB ")),
    ],
)
def test_a_drain_is_not_refused(changes: dict[str, Any]) -> None:
    assert problems(**changes) == ()


def test_pending_heals_refuse_the_drain() -> None:
    load = BrickLoad(files=1, allocated_bytes=0, largest_bytes=0)
    whole: dict[str, Any] = {
        "load": load,
        "bricks": tuple(f"gl{n}:/b" for n in (1, 2, 3)),
        "versions": {f"gl{n}": "10.3" for n in range(1, 7)},
    }
    assert problems(state=volume(6, replicas=3), **whole) == ()
    assert "unknown" in problems(state=volume(6, replicas=3, heals=None), **whole)[0]
    for heal, words in (
        (BrickHeal(brick="gl5:/b", status="Connected", entries=2), "2 entries of gl5:/b"),
        (BrickHeal(brick="gl5:/b", status="Transport endpoint is not connected", entries=None), "unknown"),
    ):
        (problem,) = problems(state=volume(6, replicas=3, heals=(heal,)), **whole)
        assert words in problem


TIMES = {DrainState.STARTED: 100.0, DrainState.DRAINING: 110.0, DrainState.DRAINED: 200.0, DrainState.COMMITTED: 300.0}


@pytest.mark.parametrize(
    ("scanned_at_s", "other", "expected"),
    [
        (50.0, True, True),
        (150.0, True, True),
        (199.0, True, True),
        # What was committed had been moved before.
        (201.0, True, False),
        # A drain takes files off its own bricks.
        (50.0, False, False),
    ],
)
def test_a_scan_is_too_old_when_another_drain_moved_files_since(
    scanned_at_s: float, *, other: bool, expected: bool
) -> None:
    bricks = ("gl2:/b",) if other else ("gl1:/b",)
    drain = made(DrainRecord, bricks=bricks, state=DrainState.COMMITTED, times=TIMES)
    assert catalog_is_old(scanned_at_s, [drain], bricks=("gl1:/b",)) is expected


def test_a_scan_is_too_old_when_an_addition_balanced_since() -> None:
    times = {AdditionState.ADDED: 10.0, AdditionState.BALANCING: 20.0, AdditionState.BALANCED: 90.0}
    addition = made(AdditionRecord, bricks=("gl4:/b",), state=AdditionState.BALANCED, times=times)
    assert catalog_is_old(50.0, [addition], bricks=("gl1:/b",))
    assert not catalog_is_old(91.0, [addition], bricks=("gl1:/b",))
    unbalanced = replace(addition, times={AdditionState.ADDED: 10.0, AdditionState.LAID_OUT: 95.0})
    assert not catalog_is_old(50.0, [unbalanced], bricks=("gl1:/b",))


def test_every_brick_needs_room_for_its_share_and_the_largest_file() -> None:
    """60 GiB on two bricks with 40 GiB each beyond the 10 %: 31.5 GiB and 1 GiB."""
    tight = replace(ROOM, free_bytes=42 * GIB)
    rooms = {**(GOOD.rooms or {}), "gl3:/b": tight}
    (problem,) = problems(rooms=rooms)
    assert problem.startswith("gl3:/b has 32.0 GiB beyond cluster.min-free-disk (10%)")
    assert problems(rooms=rooms, min_free_disk="9%") == ()
    assert problems(rooms=rooms, min_free_disk="5GB") == ()
    assert len(problems(load=BrickLoad(files=1, allocated_bytes=0, largest_bytes=41 * GIB))) == 2
    many = BrickLoad(files=6000, allocated_bytes=0, largest_bytes=0)
    (problem,) = problems(rooms={**rooms, "gl3:/b": replace(ROOM, free_inodes=3000)}, load=many)
    assert problem.startswith("gl3:/b has 3,000 free inodes, and needs 3,15")


@pytest.mark.parametrize("option", ["", "much", "-5%", "101%", "nan%", "inf", "-1", "5 apples"])
def test_an_option_that_is_not_understood_refuses_the_drain(option: str) -> None:
    found = problems(min_free_disk=option)
    assert len(found) == 2
    assert all("not understood" in problem for problem in found)


@pytest.mark.parametrize(
    ("state", "bricks", "words"),
    [
        (volume(1), ("gl1:/b",), "the last subvolume"),
        (volume(3, replicas=3), ("gl1:/b", "gl2:/b", "gl3:/b"), "the last subvolume"),
        (volume(6, replicas=3), ("gl4:/b", "gl5:/b"), "gl6:/b belongs to it too"),
        (volume(4), ("gl1:/b", "gl2:/b"), "2 subvolumes at once"),
        (volume(6, disperse_count=3), ("gl1:/b",), "dispersed"),
        (volume(4, stripe_count=2), ("gl1:/b",), "striped"),
        (volume(3, options=(("features.shard", "on"),)), ("gl1:/b",), "sharded"),
        (volume(4, replicas=3), ("gl1:/b",), "not understood"),
        (volume(), (), "has no brick"),
        (volume(), ("gl1:/b", "gl9:/b"), "has no brick"),
    ],
)
def test_layouts_that_are_never_drained(state: VolumeState, bricks: tuple[str, ...], words: str) -> None:
    assert any(words in problem for problem in structure_problems(state, bricks))
    assert structure_problems(volume(6, replicas=3), ("gl4:/b", "gl6:/b", "gl5:/b")) == ()


def cut(state: CutoverState) -> CutoverRecord:
    tree = UserTree(path=b"home/alice", user="alice")
    return made(CutoverRecord, plan="plan", tree=tree, state=state, times={CutoverState.THAWED: 100.0, state: 100.0})


def sources(record: CutoverRecord) -> tuple[RetainedSource, ...]:
    on_brick = [TreeOnBricks(tree=record.tree.path, files=10, size_bytes=GIB)]
    now_s = 100.0 + 30 * DAY_S
    return retained_sources(on_brick, {record.tree.path: record}, retain_s=14 * DAY_S, now_s=now_s)


@pytest.mark.parametrize("state", list(CutoverState))
def test_only_who_works_on_the_target_and_is_not_purged_has_a_retained_source(state: CutoverState) -> None:
    expected = state in (CutoverState.THAWED, CutoverState.RETAINED, CutoverState.PURGING)
    assert bool(sources(cut(state))) == expected


def test_commands_name_the_plan_of_the_cutover_and_are_safe_to_paste() -> None:
    (one,) = sources(cut(CutoverState.RETAINED))
    commands = purge_commands([one, replace(one, plan="old", user="o'neil; rm"), one])
    assert commands == (
        "`migrator purge --plan plan --user alice --dry-run`",
        "`migrator purge --plan old --user 'o'\"'\"'neil; rm' --dry-run`",
    )
