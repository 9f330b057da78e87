"""The odd files: all kinds are really there, and equal seeds give equal trees."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.lab.model import OddFiles, OddKind
from migrator.lab.odd import ODD_FUNCTIONS
from tests.support.lab_facts import ODD_PROOFS, walk


def test_every_kind_has_a_function_and_a_proof() -> None:
    assert set(ODD_FUNCTIONS) == set(OddKind)
    assert set(ODD_PROOFS) == set(OddKind)


@pytest.mark.needs_root
def test_every_kind_is_really_there(odd_tree: tuple[Path, OddFiles]) -> None:
    tree, made = odd_tree
    assert made.skipped == {}
    facts = walk(os.fsencode(tree))
    missing = [kind for kind in OddKind if not any(ODD_PROOFS[kind](path, fact) for path, fact in facts.items())]
    assert missing == []
    listed = {path for paths in made.paths.values() for path in paths}
    assert listed <= set(facts)
    assert max(map(len, facts)) > 5000
    assert not [path for path, fact in facts.items() if fact.type_is(stat.S_IFREG) and fact.permissions == 0o1000]


@pytest.mark.needs_root
def test_without_root_what_cannot_be_made_is_said(scratch: Path) -> None:
    tree = scratch / "tree"
    tree.mkdir()
    os.chown(tree, 20001, 20001)
    program = (
        "import os, sys\n"
        "from migrator.lab.odd import odd_files\n"
        "os.setgroups([]); os.setresgid(20001, 20001, 20001); os.setresuid(20001, 20001, 20001)\n"
        "print('\\n'.join(odd_files(os.fsencode(sys.argv[1])).skipped))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tree)], check=True, capture_output=True, text=True)
    skipped = {OddKind(line) for line in done.stdout.splitlines()}
    assert skipped == {
        OddKind.CHARACTER_DEVICE,
        OddKind.BLOCK_DEVICE,
        OddKind.FOREIGN_OWNER,
        OddKind.FILE_CAPABILITY,
        OddKind.HARD_LINK_ACROSS_TREES,
    }
