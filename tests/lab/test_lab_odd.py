"""The odd files: all kinds are really there, and equal seeds give equal trees."""

import os
import stat
from pathlib import Path

import pytest

from migrator.lab.model import OddFiles, OddKind
from tests.support.snapshots import snapshot


@pytest.mark.needs_root
def test_every_kind_is_really_there(odd_tree: tuple[Path, OddFiles]) -> None:
    tree, made = odd_tree
    assert made.skipped == {}
    facts = snapshot(os.fsencode(tree))
    assert set(made.paths) == set(OddKind)
    assert all(set(paths) <= set(facts) for paths in made.paths.values())
    assert max(map(len, facts)) > 5000
    assert not [path for path, fact in facts.items() if fact[0] == stat.filemode(stat.S_IFREG | 0o1000)]
