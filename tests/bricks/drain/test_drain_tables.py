"""What people are told of drains."""

from dataclasses import replace

import pytest

from migrator.bricks.add import model as add
from migrator.bricks.drain.model import DrainCheck, DrainEnding, DrainStanding, DrainState, DrainSummary, RetainedSource
from migrator.bricks.model import BrickRoom
from migrator.bricks.view import addition_document, brick_standings_document, drain_document
from migrator.core.progress import DrainProgress
from migrator.core.units import GIB
from migrator.render.document import Document
from migrator.render.progress import snapshot_line
from migrator.render.text import to_markdown
from tests.support.making import made

BRICK = "gl3:/srv/b2/data"
STANDING = made(
    DrainStanding,
    bricks=(BRICK,),
    state=DrainState.DRAINING,
    files=1000,
    size_bytes=10 * GIB,
    moved_files=400,
    moved_bytes=4 * GIB,
    left_s=150.0,
)
ADDITION = made(
    add.AdditionStanding,
    side=add.AdditionSide.SOURCE,
    bricks=(BRICK,),
    instead_of="gl1:/old",
    state=add.AdditionState.BALANCING,
    size_bytes=10 * GIB,
    files=400,
    lookups=100,
    bytes_per_s=60.0,
    left_s=30.0,
    failure="a host did not answer",
)
CHECK = made(
    DrainCheck,
    rooms={"gl1:/srv/b1/data": BrickRoom(total_bytes=20 * GIB, free_bytes=15 * GIB)},
    min_free_disk="10%",
    versions={"gl1": "10.3", "gl3": None},
    catalog="scan-1",
    linked_symlinks=(b"home/a/li\nnk",),
    retained=(made(RetainedSource, user="alice", files=3, size_bytes=GIB),),
)
SUMMARY = made(
    DrainSummary,
    bricks=(BRICK,),
    ending=DrainEnding.HALTED,
    words="the drain has failed",
    hint="put that right",
    reasons=("1 file left on the bricks",),
    left_behind=(b"home/a/x\x1b[31m",),
    standing=STANDING,
)


DRY_RUN = replace(SUMMARY, dry_run=True, check=CHECK, left_behind=(), confirm="abc123")
DRAINS = add.BrickStandings(drains=(replace(STANDING, failure="no room"),), additions=())
ADDITIONS = add.BrickStandings(drains=(), additions=(ADDITION,))


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (drain_document(SUMMARY), "the drain has failed;1 file left on the bricks;home/a/x;brick stop;put that right"),
        (
            drain_document(DRY_RUN),
            "nothing was changed;10%;gl3: not known;scan-1;gl1:/srv/b1/data;abc123;cp -P;3 files (1.0 GiB) of 1 user",
        ),
        (brick_standings_document(DRAINS), "draining;600;6.0 GiB;no room;2 min 30 s;No brick was added"),
        (
            brick_standings_document(ADDITIONS),
            "balancing;gl1:/old;100 of 400;60 B/s;30 s;the source;a host did not answer;No brick was ever drained",
        ),
    ],
    ids=["leftovers", "dry-run", "drains", "additions"],
)
def test_documents_have_what_an_admin_must_know(document: Document, words: str) -> None:
    shown = to_markdown(document)
    assert [one for one in words.split(";") if one not in shown] == []
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("ending", "shown"),
    [(add.AdditionEnding.DONE, False), (add.AdditionEnding.PLANNED, True), (add.AdditionEnding.HALTED, True)],
)
def test_what_lies_there_is_not_told_once_the_target_has_the_brick(ending: add.AdditionEnding, shown: bool) -> None:
    """By then its file system is mounted elsewhere, and what lies there is something else."""
    added = made(
        add.AdditionSummary,
        side=add.AdditionSide.TARGET,
        volume="vol1",
        bricks=(BRICK,),
        ending=ending,
        state=add.AdditionState.SETTLED,
        places=(add.NewPlace(name=BRICK, mount="/srv", own=True, filesystem="tmpfs"),),
        moved_files=1,
    )
    assert ("tmpfs" in to_markdown(addition_document(added))) is shown
    assert "1 file, 0 B" in to_markdown(addition_document(added))


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
