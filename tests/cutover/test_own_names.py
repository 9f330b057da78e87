"""Names that look like the program's own are the user's: they move, come back and move again, at every depth."""

import os
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
import xxhash

import migrator
from tests.conftest import MakeXfs
from tests.support.cut_site import OWNERS, CutSite, cut_site
from tests.support.delta_changes import let_settle

pytestmark = pytest.mark.needs_root

_PREFIX = re.compile(rb"\.migrator-[a-z]+(?:-[a-z]+)*")
_PLAIN = ("f", "notes.txt", "big")


def prefixes() -> set[str]:
    """All names, and beginnings of names, that occur in the program: a new one is tried without a word here."""
    root = Path(migrator.__file__).parent
    files = [file for kind in ("*.py", "*.c", "*.h") for file in root.rglob(kind)]
    found = {match.decode() for file in files for match in _PREFIX.findall(file.read_bytes())}
    assert {".migrator-archive", ".migrator-copy", ".migrator-tmp", ".migrator-trash"} <= found
    return found


def names() -> list[str]:
    """Plain names, and what each of them is called by a program that copies it, by every rule it has ever had."""
    made = [*_PLAIN]
    for prefix in sorted(prefixes()):
        hashes = (xxhash.xxh3_128_hexdigest(os.fsencode(name)) for name in _PLAIN)
        made += [prefix, f"{prefix}-0123456789abcdef", *(f"{prefix}-{one}" for one in hashes)]
    return made + [f".{name}.{ending}" for name in _PLAIN for ending in ("ABCdef", "000001")]


_TURNS = count()


def write(directory: Path, *, owner: int) -> None:
    """Every name in the directory, as a file, with content of its own at every call."""
    directory.mkdir(exist_ok=True)
    os.chown(directory, owner, owner)
    for name in names():
        (directory / name).write_text(f"{name} {next(_TURNS)}")
        os.chown(directory / name, owner, owner)


def fill(tree: Path) -> None:
    """Every name as a file at three depths, and every name of the program as a directory of the top."""
    tree.mkdir(parents=True, exist_ok=True)
    owner = OWNERS[tree.name]
    for directory in (tree / "files", tree / "files" / "deep", tree / "files" / "deep" / "deeper"):
        write(directory, owner=owner)
    for prefix in prefixes():
        for directory in (tree / prefix, tree / "files" / f"{prefix}-directory"):
            directory.mkdir(exist_ok=True)
            for name in ("000001.tar.zst", "f"):
                (directory / name).write_text(f"{directory.name} {name} {next(_TURNS)}")
                os.chown(directory / name, owner, owner)
            os.chown(directory, owner, owner)
    os.chown(tree, owner, owner)


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[CutSite]:
    with cut_site(scratch, make_xfs(), make_xfs(), stages=("pre-freeze",), fill=fill) as made:
        yield made


@pytest.mark.guarantee("own-names")
def test_names_of_the_program_in_a_tree_go_there_and_back_and_there_again(site: CutSite) -> None:
    fill(site.source())
    let_settle()
    expected = site.snapshot()
    site.call("run", "--user", "ann", "--deltas", "1")
    site.cutover()
    site.assert_works_on("target", expected)
    fill(site.target())
    let_settle()
    expected = site.snapshot()
    site.rollback()
    site.assert_works_on("source", expected)
    fill(site.source())
    let_settle()
    expected = site.snapshot()
    site.cutover()
    site.assert_works_on("target", expected)
