"""The script that is sent to hosts."""

import os
from pathlib import Path

import pytest

from migrator.bench import far_bench


def test_equal_seeds_make_equal_trees_and_one_file_has_what_is_searched_for() -> None:
    made = dict(far_bench._files(1, 40, 12, 900))
    assert made == dict(far_bench._files(1, 40, 12, 900))
    assert made != dict(far_bench._files(2, 40, 12, 900))
    assert len(made) == 40
    assert len({path.rpartition("/")[0] for path in made}) == 12
    assert sum(b"zyzzyva" in content for content in made.values()) == 1
    assert max(len(content) for content in made.values()) <= 1800 + 10


def test_no_two_blocks_of_a_transfer_are_equal_and_what_comes_back_is_compared(tmp_path: Path) -> None:
    size = 2 * far_bench._BLOCK_BYTES + 17
    far_bench.upload(1, str(tmp_path / "up"), 2, size)
    files = [(tmp_path / "up" / name).read_bytes() for name in ("000000", "000001")]
    assert [len(content) for content in files] == [size, size]
    starts = {content[at : at + 17] for content in files for at in range(0, size, far_bench._BLOCK_BYTES)}
    assert len(starts) == 6
    far_bench.compare(1, str(tmp_path / "up"), 2, size)
    with (tmp_path / "up/000001").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(bytes([files[1][-1] ^ 1]))
    with pytest.raises(ValueError, match="another content"):
        far_bench.compare(1, str(tmp_path / "up"), 2, size)


def test_prints_and_large_writes_write_the_same_text(tmp_path: Path) -> None:
    """Zeros would be no work for a file system that compresses, and the two are held against each other."""
    size = 2 * far_bench._BLOCK_BYTES + 50
    for record in (100, far_bench._BLOCK_BYTES):
        far_bench.write(1, str(tmp_path / str(record)), size, record)
    prints, large = ((tmp_path / str(record)).read_bytes() for record in (100, far_bench._BLOCK_BYTES))
    assert len(prints) == len(large) == size
    assert set(large) == set(prints)
    assert 0 not in prints
