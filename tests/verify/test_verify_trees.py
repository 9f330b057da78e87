"""Verifying some trees of a batch: what they alone prove, and what they may take away."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.core.errors import ExitCode, UsageError
from migrator.core.states import BatchState
from migrator.verify.model import DifferenceKind, VerificationRecord
from migrator.verify.stage import exit_code
from tests.support.verify_world import OTHER_TREE, TREE, World, verify_world


@pytest.fixture
def world(scratch: Path) -> Iterator[World]:
    """A batch of two trees, which share one hard-linked file."""
    with verify_world(scratch) as made:
        for tree in (TREE, OTHER_TREE):
            (made.source_path / os.fsdecode(tree) / "sub").mkdir(parents=True)
            (made.source_path / os.fsdecode(tree) / "sub" / "file").write_bytes(tree)
        os.link(made.tree / "sub" / "file", made.source_path / os.fsdecode(OTHER_TREE) / "linked")
        made.set_trees((OTHER_TREE, TREE))
        made.copy_trees(OTHER_TREE, TREE)
        yield made


def verify_trees(world: World, *trees: bytes) -> VerificationRecord:
    return world.verify(trees=trees)


def test_only_the_chosen_trees_are_compared(world: World) -> None:
    (world.target_path / os.fsdecode(OTHER_TREE) / "sub" / "file").unlink()
    record = verify_trees(world, TREE)
    assert (record.trees, record.paths, dict(record.differences), record.whole) == ((TREE,), 3, {}, True)
    assert {row["path"] for row in world.manifest_rows(record)} == {TREE, TREE + b"/sub", TREE + b"/sub/file"}
    assert exit_code(record) is ExitCode.DONE
    last = world.progress.snapshots[-1]
    assert getattr(last, "paths", None) == 3
    other = verify_trees(world, OTHER_TREE)
    assert other.differences[DifferenceKind.MISSING.value] == 1
    records = world.ledger.verifications
    assert list(records.of_tree(world.plan.name, 1, TREE)) == [record]
    assert list(records.of_tree(world.plan.name, 1, OTHER_TREE)) == [other]
    assert records.latest(world.plan.name, 1) is None


def test_a_difference_in_one_tree_takes_verified_away_from_the_batch(world: World) -> None:
    world.verify()
    assert dict(verify_trees(world, TREE).differences) == {}
    assert world.batch_state() is BatchState.VERIFIED
    (world.copy / "sub" / "file").write_bytes(b"elsewhere")
    assert exit_code(verify_trees(world, OTHER_TREE)) is ExitCode.ATTENTION
    assert world.batch_state() is BatchState.SEEDED


@pytest.mark.parametrize("tree", [b"home/carol", b"home/alice/sub", b"home/alice/", b""])
def test_a_tree_that_the_batch_does_not_have_is_a_usage_error(world: World, tree: bytes) -> None:
    with pytest.raises(UsageError, match="has no user tree"):
        verify_trees(world, TREE, tree)
    assert list(world.ledger.verifications.all()) == []
