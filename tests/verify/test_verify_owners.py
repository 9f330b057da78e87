"""A verification with owners that have other numbers on the target."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.fs.model import DifferenceKind
from migrator.fs.rules_owners import owner_map
from migrator.fs.writing import MountedTarget
from tests.support.verify_world import World, verify_world

pytestmark = pytest.mark.needs_root

OWNERS = owner_map([(61001, 71001), (61002, 61003), (61003, 61002)], [(61001, 71009)])


@pytest.fixture
def world(scratch: Path) -> Iterator[World]:
    """A copy with the numbers of the source."""
    with verify_world(scratch) as made:
        (made.tree / "sub").mkdir(parents=True)
        for name in ("file", "sub/deep", "ours"):
            (made.tree / name).write_text("content")
        (made.tree / "link").symlink_to("file")
        for name in ("sub", "link", "file"):
            os.chown(made.tree / name, 61001, 61001, follow_symlinks=False)
        os.chown(made.tree / "sub" / "deep", 61002, 61003)
        subprocess.run(["setfacl", "-m", "u:61001:r", str(made.tree / "ours")], check=True)
        subprocess.run(["setfacl", "-m", "d:u:61002:r,d:u:61003:rx", str(made.tree / "sub")], check=True)
        made.copy_trees()
        made.target.close()
        made.target = MountedTarget(made.target_root, owners=OWNERS)
        yield made
        made.target.close()


def differences(world: World) -> set[tuple[str, DifferenceKind]]:
    examples = world.manifests.examples(world.verify().manifest or "")
    return {(os.fsdecode(one.path).removeprefix("home/alice/"), one.kind) for one in examples.differences}


def test_an_owner_that_was_not_mapped_is_a_difference_and_a_mapped_one_is_none(world: World) -> None:
    owner, acl = DifferenceKind.OWNER, DifferenceKind.ACL
    assert differences(world) == {
        *(("sub", owner), ("sub", acl), ("link", owner), ("file", owner), ("sub/deep", owner), ("ours", acl))
    }
    for name in ("sub", "link", "file"):
        os.chown(world.copy / name, 71001, 71009, follow_symlinks=False)
    os.chown(world.copy / "sub" / "deep", 61003, 61003)
    subprocess.run(["setfacl", "-x", "u:61001", "-m", "u:71001:r", str(world.copy / "ours")], check=True)
    subprocess.run(["setfacl", "-m", "d:u:61003:r,d:u:61002:rx", str(world.copy / "sub")], check=True)
    assert differences(world) == set()
    os.chown(world.copy / "file", 71001, 61001)
    assert differences(world) == {("file", owner)}
