"""What is told of bricks, from a look and a catalog."""

from typing import Any

from msgspec.structs import replace

from migrator.bricks.list import Uses, brick_listing
from migrator.bricks.model import BrickListing, BrickState
from migrator.catalog.model import BrickUse
from migrator.core.entry import UserTree
from migrator.gluster.model import BrickRoom, TaskProgress, VolumeState
from migrator.gluster.volume import VolumeOverview
from tests.support.catalogs import whole_catalog
from tests.support.volumes import brick, remove_brick
from tests.support.volumes import volume as volume_of


def use(user: str | None, files: int, size_bytes: int) -> BrickUse:
    return BrickUse(user=user, files=files, size_bytes=size_bytes, allocated_bytes=4096)


def volume(count: int = 3, *, replicas: int = 1, arbiter: bool = False) -> VolumeState:
    bricks = (brick(f"gl{n}:/b", arbiter=arbiter and n % replicas == 0) for n in range(1, count + 1))
    return volume_of(*bricks, replica_count=replicas, peers_down=())


CATALOG = whole_catalog(
    name="catalog-1",
    trees=(UserTree(path=b"home/alice", user="alice"), UserTree(path=b"home/new", user="new")),
    started_at_s=5.0,
    finished_at_s=6.0,
)
USES: Uses = {
    "gl1:/b": (use("alice", 3, 300), use(None, 1, 5)),
    "gl2:/b": (),
    "gl3:/b": (use("bob", 2, 20), use("alice", 1, 1)),
}


def listing(state: VolumeState | None = None, **changes: Any) -> BrickListing:
    seen: dict[str, Any] = {"state": state or volume(), "version": "10.3", "rooms": {}, "tasks": (), "progress": {}}
    facts: dict[str, Any] = {"versions": dict.fromkeys(("gl1", "gl2", "gl3"), "10.3"), "catalog": CATALOG, "uses": USES}
    overview = VolumeOverview(**{name: changes.pop(name, value) for name, value in seen.items()})
    return brick_listing(overview, **facts | changes)


def test_every_brick_with_what_is_known_of_it() -> None:
    room, state = BrickRoom(device="/dev/sda", free_bytes=7), volume()
    bricks = tuple(replace(brick, online=up) for brick, up in zip(state.bricks, (True, False, None), strict=True))
    found = listing(replace(state, bricks=bricks), rooms={"gl2:/b": room})
    assert [(one.name, one.state, one.subvolume, one.files, one.size_bytes) for one in found.bricks] == [
        ("gl1:/b", BrickState.UP, 1, 4, 305),
        ("gl2:/b", BrickState.DOWN, 2, 0, 0),
        ("gl3:/b", BrickState.UNKNOWN, 3, 3, 21),
    ]
    assert [brick.room for brick in found.bricks] == [BrickRoom(), room, BrickRoom()]
    assert (found.notes, found.catalog, found.catalog_at_s) == ((), "catalog-1", 5.0)


def test_the_faults_of_every_version_in_the_pool_are_listed() -> None:
    mixed = listing(versions={"gl1": "10.3", "gl2": "11.0"})
    assert any(fault.reference == "#4148" and fault.stops_drain for fault in mixed.faults)
    assert mixed.faults[0].stops_drain
    assert len(set(mixed.faults)) == len(mixed.faults)
    assert any("10.3 on gl1, 11.0 on gl2" in note for note in mixed.notes)
    assert not any(fault.reference == "#4148" for fault in listing().faults)
    silent = listing(versions={"gl1": "10.3", "gl2": None})
    assert any(fault.reference == "#4148" for fault in silent.faults)
    assert any("on gl2 is unknown" in note for note in silent.notes)
    assert any("[source.hosts]" in note for note in listing(versions={}).notes)


def test_only_faults_of_the_layout_and_of_the_options_are_listed() -> None:
    def faults(**changes: Any) -> str:
        return " ".join(fault.fault for fault in listing(replace(volume(), **changes)).faults)

    on, off = (faults(options=(("cluster.lookup-optimize", value),)) for value in ("on", "off"))
    assert "while `cluster.lookup-optimize` is on" in on
    assert "while `cluster.lookup-optimize` is off" not in on
    assert "while `cluster.lookup-optimize` is off" in off
    assert "a drain that was stopped" in on
    assert "a drain that was stopped" not in faults(replica_count=3)
    assert "gets the default ACL of its directory" in on
    assert "gets the default ACL of its directory" not in faults(replica_count=3)
    assert "directories are not seen after `add-brick`" in faults(replica_count=3)


def test_of_a_replica_set_one_copy_was_read_and_the_others_hold_the_same() -> None:
    state = volume(6, replicas=3, arbiter=True)
    found = listing(state, uses={"gl2:/b": (use("alice", 3, 300),), "gl4:/b": ()})
    first, second, arbiter, *others = found.bricks
    assert first.uses == second.uses == (use("alice", 3, 300),)
    assert arbiter.uses == (BrickUse(user="alice", files=3, size_bytes=0, allocated_bytes=0),)
    assert [brick.uses for brick in others] == [(), (), ()]
    assert [brick.subvolume for brick in found.bricks] == [1, 1, 1, 2, 2, 2]


def test_no_catalog_one_that_is_not_whole_and_one_of_other_bricks() -> None:
    assert "nothing was scanned yet" in listing(catalog=None, uses={}).notes[0]
    assert listing(catalog=None, uses={}).catalog is None
    assert "is not whole" in listing(catalog=replace(CATALOG, whole=False)).notes[0]
    (note,) = listing(uses={**USES, "gl9:/b": ()}).notes
    assert "gl9:/b" in note
    (note,) = listing(uses={**USES, None: (use("alice", 2, 1),)}).notes
    assert note.startswith("2 files of catalog catalog-1 were read through the mount")


def test_a_drain_with_and_without_counters() -> None:
    task = remove_brick("gl2:/b", id="t")
    found = listing(tasks=(task,), progress={"t": TaskProgress(task_id="t", counters=())})
    assert [brick.draining for brick in found.bricks] == [False, True, False]
    assert (found.tasks[0].bricks, found.tasks[0].counters) == (("gl2:/b",), ())
    assert listing(tasks=(task,)).tasks[0].counters is None
