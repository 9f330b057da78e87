"""What people are told of drains."""

import pytest

from migrator.core.progress import DrainProgress
from migrator.core.units import GIB
from migrator.render.progress import snapshot_line
from tests.support.making import made

BRICK = "gl3:/srv/b2/data"


def progress(files: int, size_bytes: int, total_files: int | None, total_bytes: int | None) -> str:
    return snapshot_line(
        made(
            DrainProgress,
            bricks=(BRICK,),
            step="draining",
            elapsed_s=60.0,
            files=files,
            size_bytes=size_bytes,
            total_files=total_files,
            total_bytes=total_bytes,
            failures=2,
            skipped=1,
        )
    )


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ((400, 4 * GIB, 1000, 10 * GIB), "400 of 1,000 files, 4.0 GiB of 10.0 GiB"),
        ((1, 37, None, None), "1 file, 37 B"),
        ((1, 37, 0, 0), "1 file, 37 B, with what other bricks had to move"),
        ((1200, 4 * GIB, 1000, 10 * GIB), "1,200 files, 4.0 GiB, with what other bricks had to move"),
    ],
)
def test_progress_in_one_line(told: tuple[int, int, int | None, int | None], words: str) -> None:
    """A share of what lay there is not told where more than that was moved."""
    assert progress(*told) == f"draining {BRICK}: {words}, time left not known yet, 2 failures, 1 skipped, 1 min"
