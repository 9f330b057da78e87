"""Marks of earlier drains on a brick: they are found on its host, and the command that is told takes them off, and nothing else."""

import asyncio
import os
import subprocess
import uuid

import pytest

from migrator.bricks.drain.rules_preflight import unmark_command
from migrator.gluster.model import Brick, BrickMarks
from migrator.gluster.reports import marks_on_bricks, still_strange_on
from tests.support.brick_reports import brick_reports
from tests.support.hand_brick import LINKTO, HandBrick

pytestmark = pytest.mark.needs_root


@pytest.fixture
def made(brick: HandBrick) -> HandBrick:
    """A brick with two hard-linked files that carry a mark, and everything that has one or several names by right."""
    for name, mode in (("marked", 0o644), ("sticky", 0o1644), ("link-to", 0o1000), ("moving", 0o3640)):
        brick.file(f"home/deep/er/{name}", b"" if mode == 0o1000 else b"content", mode=mode, linkto=True)
        os.link(brick.root / f"home/deep/er/{name}", brick.root / f"home/{name} again")
    brick.file("home/alone", linkto=True)
    os.link(brick.file("home/linked"), brick.root / "home/linked-too")
    (brick.root / "home/symlink").symlink_to("deep/er/marked")
    brick.adopt()
    return brick


def marks(brick: HandBrick) -> tuple[BrickMarks, ...] | None:
    at = Brick(name="gl1:/b", host="gl1", path=os.fsencode(brick.root), online=True)
    volume_id = str(uuid.UUID(int=brick.seed))
    return asyncio.run(marks_on_bricks(brick_reports(), (at,), volume_id))


@pytest.mark.guarantee("drain-marks")
def test_marked_files_of_several_names_and_files_placed_past_gluster_are_found_once_each(made: HandBrick) -> None:
    (made.root / "home/placed").write_text("past Gluster")
    (one,) = marks(made) or ()
    assert (one.brick, one.files, one.unseen) == ("gl1:/b", 2, 0)
    assert {path.rpartition(b"/")[2].removesuffix(b" again") for path in one.examples} == {b"marked", b"sticky"}
    assert (one.strange, one.strange_examples) == (1, (b"home/placed",))


def test_of_what_a_scan_found_it_is_seen_what_is_left(made: HandBrick) -> None:
    names = [b"home/placed", b"home/-\xff\n", b"home/deep/gone", b"home/alone", b"nowhere/placed"]
    for name in names[:2]:
        with open(os.fsencode(made.root) + b"/" + name, "wb") as file:
            file.write(b"past Gluster")
    at = Brick(name="gl1:/b", host="gl1", path=os.fsencode(made.root), online=True)
    volume_id = str(uuid.UUID(int=made.seed))
    assert asyncio.run(still_strange_on(brick_reports(), at, volume_id, names)) == frozenset(names[:2])
    # What cannot be looked at counts as left.
    assert asyncio.run(still_strange_on(brick_reports(), at, str(uuid.uuid4()), names)) == frozenset(names)


@pytest.mark.guarantee("drain-marks")
def test_the_command_takes_these_marks_off_and_no_others(made: HandBrick) -> None:
    command = unmark_command(str(made.root))
    assert command == f"`{command[1:-1]}`"
    subprocess.run(["sh", "-c", command[1:-1]], check=False)
    assert marks(made) == (BrickMarks(brick="gl1:/b", files=0),)
    inner = made.root / "home/deep/er"
    left = {name for name in os.listdir(inner) if LINKTO in os.listxattr(inner / name)}
    assert left == {"link-to", "moving"}
    assert (inner / "marked").read_bytes() == b"content"
