"""Files that are drawn from a catalog."""

from pathlib import Path

import pytest

from migrator.catalog.ports import Scratch
from migrator.catalog.queries import CatalogFileSamples
from migrator.core.entry import Entry
from migrator.core.errors import UsageError
from migrator.core.units import KIB, MIB
from tests.support.catalogs import closed_catalogs, directory, invented, symlink, write_catalog

TREE = b"home/\xff ann"
CLASSES = (1, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 17 * MIB)


def entries() -> list[Entry]:
    found = [directory(TREE), symlink(TREE + b"/away", b"/etc"), invented(TREE + b"/empty")]
    for number in range(300):
        found.append(invented(TREE + b"/small %d\n" % number, size_bytes=10 + number))
    for size_bytes in CLASSES[2:]:
        found.append(invented(TREE + b"/of %d" % size_bytes, size_bytes=size_bytes))
    return found


@pytest.fixture
def samples(tmp_path: Path) -> CatalogFileSamples:
    others = [directory(b"home/ben"), invented(b"home/ben/x", size_bytes=9)]
    write_catalog(tmp_path / "catalogs", [*entries(), *others], [TREE, b"home/ben"], name="one")
    return CatalogFileSamples(closed_catalogs(tmp_path / "catalogs"), scratch=Scratch(tmp_path / "temp"))


def test_every_class_of_size_is_there_at_once_and_the_same_seed_draws_the_same(samples: CatalogFileSamples) -> None:
    drawn = list(samples.draw("one", TREE, count=50, seed=7))
    assert len(drawn) == len(set(drawn)) == 50
    assert {b"of %d" % size for size in CLASSES[2:]} <= set(drawn[:5]), "one of each class before any class comes again"
    assert all(name.startswith((b"small ", b"of ")) for name in drawn), (
        "neither empty files nor links, nor those of others"
    )
    assert drawn == list(samples.draw("one", TREE, count=50, seed=7))
    assert drawn != list(samples.draw("one", TREE, count=50, seed=8))


def test_a_tree_without_files_and_a_catalog_that_is_not_there(samples: CatalogFileSamples) -> None:
    assert list(samples.draw("one", b"home/nobody", count=50, seed=7)) == []
    with pytest.raises(UsageError):
        samples.draw("two", TREE, count=50, seed=7)
