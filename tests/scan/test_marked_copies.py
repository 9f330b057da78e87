"""Marks on the copies of a replicated volume: the target gets what the mount shows, and nothing else counts as proof."""

import os
import random
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from migrator.lab.model import LabBrick, VolumeType
from tests.scan.test_scan_bricks import brick_scans
from tests.support.cluster.brick_runs import brick_runs
from tests.support.cluster.fixtures import lab_of, with_ssh
from tests.support.cluster.handle import LabHandle
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root]

TREE = "home/marked"
SEED = 20_261_128
NAMES = 8
"""Files of each state."""
DATA, METADATA, ENTRY = (bytes(4 * place) + b"\0\0\0\2" + bytes(8 - 4 * place) for place in range(3))
LONG_AGO_NS = 1_700_000_000 * 10**9


@pytest.fixture(scope="module")
def copies(lab_parent: Path) -> Iterator[LabHandle]:
    """A volume of three copies whose daemons heal and scrub nothing by themselves."""
    with lab_of(
        lab_parent / "marked", volume_type=VolumeType.REPLICA3, bricks_per_host=1, users=1, files=20, odd=False
    ) as lab:
        volume = lab.state.spec.volume
        for option in (
            "cluster.self-heal-daemon",
            *(f"cluster.{kind}-self-heal" for kind in ("data", "metadata", "entry")),
        ):
            lab.gluster("volume", "set", volume, option, "off")
        lab.gluster("volume", "bitrot", volume, "enable")
        yield lab


def restart(lab: LabHandle) -> None:
    """Start the bricks anew: they read the marks of a file when they first see it."""
    volume = lab.state.spec.volume
    lab.gluster("--mode=script", "volume", "stop", volume)
    lab.gluster("volume", "start", volume)
    lab.let_client_know()
    wait_for((lab.source / "home").is_dir, "the mount shows the trees again")


def on(lab: LabHandle, brick: LabBrick, name: str) -> Path:
    """A path of the tree on a brick."""
    return lab.brick_directory(brick) / TREE / name


def overwrite(file: Path, content: bytes) -> None:
    """Other content with the same mtime."""
    facts = file.stat()
    with file.open("r+b") as stream:
        stream.write(content)
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def blame(lab: LabHandle, name: str, stale: LabBrick, pending: bytes) -> None:
    """The other copies blame a stale one."""
    number = lab.bricks.index(stale)
    for brick in lab.bricks:
        if brick is not stale:
            os.setxattr(on(lab, brick, name), f"trusted.afr.{lab.state.spec.volume}-client-{number}", pending)


def corrupted(lab: LabHandle, name: str, chance: random.Random) -> None:
    """A copy rots, and the scrubber has marked it. With two of three marked, no client can open the file (EIO)."""
    brick = chance.choice(lab.bricks)
    overwrite(on(lab, brick, name), b"rotten")
    os.setxattr(on(lab, brick, name), "trusted.bit-rot.bad-file", b"\0")


def stale(lab: LabHandle, name: str, chance: random.Random) -> None:
    """One copy missed a write of the same length."""
    brick = chance.choice(lab.bricks)
    overwrite(on(lab, brick, name), b"before")
    blame(lab, name, brick, DATA)


def stale_twice(lab: LabHandle, name: str, chance: random.Random) -> None:
    """Two copies missed a write, and only the third knows."""
    right = chance.choice(lab.bricks)
    for number, brick in enumerate(lab.bricks):
        if brick is not right:
            overwrite(on(lab, brick, name), b"before")
            os.setxattr(on(lab, right, name), f"trusted.afr.{lab.state.spec.volume}-client-{number}", DATA)


def stale_mode(lab: LabHandle, name: str, chance: random.Random) -> None:
    """One copy missed a chmod that closed the file."""
    brick = chance.choice(lab.bricks)
    on(lab, brick, name).chmod(0o666)
    blame(lab, name, brick, METADATA)


def left_by_a_move(lab: LabHandle, name: str, chance: random.Random) -> None:
    """The marks of a move that failed."""
    del chance
    for brick in lab.bricks:
        os.setxattr(on(lab, brick, name), "trusted.glusterfs.dht.linkto", b"vol1-client-0\0")
        on(lab, brick, name).chmod(0o3644)


STATES: tuple[Callable[[LabHandle, str, random.Random], None], ...] = (
    *(corrupted, stale, stale_twice, stale_mode, left_by_a_move),
)


def make_tree(lab: LabHandle) -> Path:
    tree = lab.source / TREE
    tree.mkdir()
    for state in STATES:
        for number in range(NAMES):
            (tree / f"{state.__name__}-{number}").write_text(f"right content of {number}" * 3)
    for number in range(3):
        (tree / f"sound-{number}").write_text("sound")
    (tree / "lacks-one").mkdir()
    (tree / "lacks-one" / "file").write_text("on two copies of three")
    (tree / "lacks-one" / "below").mkdir()
    (tree / "lacks-one" / "below" / "deeper").write_text("on two copies of three")
    os.sync()
    return tree


def remove_below(directory: Path) -> None:
    for path in sorted(directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def mark_all(lab: LabHandle, chance: random.Random) -> None:
    for state in STATES:
        for number in range(NAMES):
            state(lab, f"{state.__name__}-{number}", chance)
    brick = chance.choice(lab.bricks)
    remove_below(on(lab, brick, "lacks-one"))
    blame(lab, "lacks-one", brick, ENTRY)
    restart(lab)


def looked_up(lab: LabHandle, paths: Iterable[bytes]) -> dict[bytes, tuple[int, int, int, bytes]]:
    """Mode, size, mtime and content of each file, by a client that has listed nothing: what it lists may come from any copy. So
    may what a client shows for a second after it has read a file: the next one has read nothing.
    """
    lab.drop_client_cache()
    found: dict[bytes, tuple[int, int, int, bytes]] = {}
    for path in sorted(paths):
        facts, content = (lab.source / os.fsdecode(path)).lstat(), (lab.source / os.fsdecode(path)).read_bytes()
        found[path] = (stat.S_IMODE(facts.st_mode), facts.st_size, facts.st_mtime_ns, content)
    lab.drop_client_cache()
    return found


@pytest.mark.guarantee("bricks-and-mount")
def test_target_gets_what_the_mount_shows(copies: LabHandle, scratch: Path) -> None:
    lab = with_ssh(copies)
    tree = make_tree(lab)
    files = [os.fsencode(path.relative_to(lab.source)) for path in tree.rglob("*") if path.is_file()]
    mark_all(lab, random.Random(SEED))
    shown = looked_up(lab, files)
    assert all(b"rotten" not in content and b"before" not in content for *_, content in shown.values())
    with brick_scans(lab, scratch / "scans") as scans:
        record = scans.scan("bricks", restart=True)
        assert record.whole, record.reasons
        rows = {path: row for path, row in scans.rows(record).items() if row["tree"] and row["type"] == "file"}
        rows = {path: rows[path] for path in rows if path.startswith(os.fsencode(TREE))}
    assert {path: (row["mode"], row["size"], row["mtime_ns"]) for path, row in rows.items()} == {
        path: facts[:3] for path, facts in shown.items()
    }
    by_mount = {path for path, row in rows.items() if row["brick"] is None}
    marked = {os.fsencode(f"{TREE}/{state.__name__}-{number}") for state in STATES for number in range(NAMES)}
    assert by_mount - {path for path in rows if b"lacks-one" in path} == marked
    with brick_runs(lab, scratch / "site", trees="home/marked") as runs:
        for words in (["scan"], ["plan", "--activate"], ["run", "--all"], ["verify", "--all"]):
            runs.site.json(*words)
        for path, facts in shown.items():
            copied = runs.site.target / os.fsdecode(path)
            assert (stat.S_IMODE(copied.stat().st_mode), *facts[1:]) == (facts[0], *_of(copied)), path


def _of(file: Path) -> tuple[int, int, bytes]:
    return file.stat().st_size, file.stat().st_mtime_ns, file.read_bytes()


def test_proof_of_a_rotten_copy_ends_with_its_mark(copies: LabHandle, scratch: Path) -> None:
    lab = with_ssh(copies)
    late = "home/late/file"
    (lab.source / late).parent.mkdir()
    (lab.source / late).write_text("right content")
    os.sync()
    on_bricks = [lab.brick_directory(brick) / late for brick in lab.bricks]
    # Whichever copy a stream reads is rotten. Two of them get their content back before the last one is found out.
    for file in on_bricks:
        overwrite(file, b"rotten")
    with brick_runs(lab, scratch / "site", trees="home/late") as runs:
        for words in (["scan"], ["plan", "--activate"], ["run", "--all"], ["verify", "--all"]):
            runs.site.json(*words)
        copied = runs.site.target / late
        assert copied.read_bytes() == b"rottencontent"
        assert (lab.source / late).read_bytes() == b"rottencontent"
        for file in on_bricks[1:]:
            overwrite(file, b"right ")
        os.setxattr(on_bricks[0], "trusted.bit-rot.bad-file", b"\0")
        restart(lab)
        # The mount's client usually shows the rotten content still, because the mtime is the same (quick-read); not if it has
        # dropped it meanwhile.
        runs.site.json("verify", "--all", code=3)
        runs.site.json("run", "--all")
        assert copied.read_bytes() == b"right content"
        runs.site.json("verify", "--all")
