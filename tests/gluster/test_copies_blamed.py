"""Which copies lack something, by the index and the attributes of a brick as GlusterFS 10.3 writes them; and which file system it is."""

import asyncio
import os
import subprocess
import uuid
from pathlib import Path

import pytest

from migrator.bricks.drain.model import PlaceSeen
from migrator.gluster import far_blamed
from migrator.gluster.looks import blamed_in_set, look_at_new_places, look_at_places
from migrator.gluster.model import Brick, VolumeState
from tests.conftest import MakeXfs
from tests.support.hand_brick import HandBrick
from tests.support.one_host import OneHost

pytestmark = pytest.mark.needs_root

CLIENTS = {b"vol1-client-0": "gl1:/srv/b", b"vol1-client-7": "gl2:/srv/b", b"vol1-client-2": "gl3:/srv/b"}
DATA, ENTRY, NOTHING = b"\0\0\0\1" + bytes(8), bytes(8) + b"\0\0\0\2", bytes(12)


@pytest.fixture
def brick(make_xfs: MakeXfs) -> HandBrick:
    made = HandBrick(root=make_xfs().path / "a brick")
    made.make_root()
    return made


def waits(brick: HandBrick, path: Path, pending: dict[str, bytes]) -> str:
    """Have an entry wait to be healed, as Gluster does: in the index by its identity, and on itself what which copy lacks."""
    gfid = str(uuid.uuid4())
    store = brick.root / ".glusterfs" / gfid[:2] / gfid[2:4]
    store.mkdir(parents=True)
    if path.is_dir() and not path.is_symlink():
        (store / gfid).symlink_to(f"../../00/00/{uuid.UUID(int=1)}/{path.name}")
    else:
        os.link(path, store / gfid, follow_symlinks=False)
    for name, value in pending.items():
        os.setxattr(path, f"trusted.afr.{name}", value, follow_symlinks=False)
    (brick.root / ".glusterfs/indices/xattrop" / gfid).touch()
    return gfid


def blamed(brick: HandBrick) -> dict[str, int]:
    return far_blamed.blamed(os.fsencode(brick.root), CLIENTS, "gl1:/srv/b")


def test_what_is_held_against_each_copy_is_counted_by_entry(brick: HandBrick) -> None:
    root = brick.root / ".glusterfs" / "00" / "00"
    root.mkdir(parents=True)
    (root / str(uuid.UUID(int=1))).symlink_to("../../..")
    (brick.root / ".glusterfs/indices/xattrop" / f"xattrop-{uuid.uuid4()}").touch()
    assert blamed(brick) == {}
    (brick.root / "home").mkdir()
    (brick.root / "a").write_text("a")
    (brick.root / "b").write_text("b")
    # A symlink of a user: what it leads to is nobody's copy.
    (brick.root / "outside").mkdir()
    os.setxattr(brick.root / "outside", "trusted.afr.vol1-client-2", DATA)
    (brick.root / "link").symlink_to("outside")
    waits(brick, brick.root / "home", {"vol1-client-0": ENTRY, "vol1-client-2": NOTHING})
    waits(brick, brick.root / "a", {"vol1-client-0": DATA, "vol1-client-7": DATA})
    waits(brick, brick.root / "b", {"dirty": DATA})
    waits(brick, brick.root / "link", {"vol1-client-0": DATA})
    gone = waits(brick, brick.root / "a", {})
    (brick.root / ".glusterfs" / gone[:2] / gone[2:4] / gone).unlink()
    assert blamed(brick) == {"gl1:/srv/b": 3, "gl2:/srv/b": 1}


def test_a_copy_that_glusterd_does_not_know_is_no_answer(brick: HandBrick) -> None:
    (brick.root / "a").write_text("a")
    waits(brick, brick.root / "a", {"vol1-client-5": DATA})
    with pytest.raises(ValueError, match="knows no brick vol1-client-5"):
        blamed(brick)


def test_names_of_copies_are_those_that_glusterd_keeps(tmp_path: Path) -> None:
    kept = tmp_path / "vol1" / "bricks"
    kept.mkdir(parents=True)
    for client, name in CLIENTS.items():
        host, _, path = name.partition(":")
        lines = [f"hostname={host}", f"path={path}", "listen-port=0", f"brick-id={client.decode()}", "mount_dir=/b"]
        (kept / name.replace("/", "-")).write_text("\n".join([*lines, ""]))
    assert far_blamed.clients_of("vol1", str(tmp_path)) == CLIENTS


def test_nobody_knows_where_a_brick_that_is_up_does_not_tell(brick: HandBrick) -> None:
    names = ("gl1:/b", "gl2:/b", "gl3:/b")
    path = os.fsencode(brick.root)
    state = VolumeState(
        volume="a-volume-of-no-glusterd",
        volume_id=str(uuid.UUID(int=brick.seed)),
        type="Replicate",
        started=True,
        bricks=tuple(Brick(name=name, host=name[:3], path=path, online=False) for name in names),
        options=(),
        tasks=(),
        replica_count=3,
    )
    assert asyncio.run(blamed_in_set(OneHost(), state, "gl1:/b")) == {}
    up = tuple(Brick(name=name, host=name[:3], path=path, online=name == "gl2:/b") for name in names)
    asked = VolumeState(**{**{name: getattr(state, name) for name in state.__slots__}, "bricks": up})
    assert asyncio.run(blamed_in_set(OneHost(), asked, "gl1:/b")) is None
    assert asyncio.run(blamed_in_set(OneHost(), state, "gl9:/b")) is None


def test_a_file_system_is_told_by_its_uuid(make_xfs: MakeXfs) -> None:
    """Not by its device, which may have another file system tomorrow."""
    mount = make_xfs()
    told = subprocess.run(["xfs_admin", "-u", mount.device], capture_output=True, check=True, text=True).stdout.split()[
        -1
    ]
    name = f"gl1:{mount.path}/data"
    assert asyncio.run(look_at_new_places(OneHost(), [name]))[name].filesystem_id == told.replace("-", "")


def test_what_lies_where_a_brick_was_is_told(make_xfs: MakeXfs) -> None:
    mount = make_xfs()
    path, volume_id = mount.path / "bricks" / "data", str(uuid.UUID(int=7))
    brick = Brick(name=f"gl1:{path}", host="gl1", path=os.fsencode(path), online=None)

    def place() -> PlaceSeen:
        return asyncio.run(look_at_places(OneHost(), [brick], volume_id=volume_id))[brick.name]

    assert place() is PlaceSeen.EMPTY
    path.parent.mkdir()
    assert place() is PlaceSeen.UNMOUNTED, "as where the mount point of the brick is a directory of another file system"
    path.mkdir()
    assert place() is PlaceSeen.EMPTY
    (mount.path / "lost+found").mkdir()
    assert place() is PlaceSeen.EMPTY
    for other in (mount.path / "other", path / "file", path / ".glusterfs"):
        other.mkdir()
        assert place() is PlaceSeen.OTHER
        other.rmdir()
    os.setxattr(path, "trusted.glusterfs.volume-id", uuid.UUID(int=8).bytes)
    assert place() is PlaceSeen.OTHER
    os.setxattr(path, "trusted.glusterfs.volume-id", uuid.UUID(int=7).bytes)
    assert place() is PlaceSeen.BRICK
