"""What every walker of bricks does about what it cannot read or is not asked rightly: a problem told, a refusal, an early end."""

import errno
import os
import shutil
import struct
import subprocess
from contextlib import ExitStack

import pytest

from tests.gluster.walks import Walk
from tests.support.hand_brick import MDATA, HandBrick, mdata
from tests.support.xfs import run_tool

pytestmark = pytest.mark.needs_root


def test_times_that_cannot_be_told_are_problems(brick: HandBrick, walk: Walk) -> None:
    for name in ("short", "version", "nanoseconds", "far", "early", "good"):
        brick.file(name)
    brick.adopt()
    good = mdata(-1, -2_000_000_001, 3)
    values = {
        "short": good[:-1],
        "version": b"\2" + good[1:],
        "nanoseconds": good[:-8] + struct.pack(">Q", 1_000_000_000),
        "far": struct.pack(">BQ6q", 1, 0, *[2**62, 0] * 3),
        "early": struct.pack(">BQ6q", 1, 0, *[-(2**62), 5] * 3),
        "good": good,
    }
    for name, value in values.items():
        os.setxattr(brick.root / name, MDATA, value)
    walked = walk(brick.root)
    row = walked.rows[b"good"]
    assert (row["ctime_ns"], row["mtime_ns"], row["atime_ns"]) == (-1, -2_000_000_001, 3)
    for name in ("short", "version", "nanoseconds"):
        assert walked.rows[name.encode()]["mtime_ns"] == (brick.root / name).stat().st_mtime_ns
    assert walked.rows[b"far"]["mtime_ns"] == 2**63 - 1
    assert walked.rows[b"early"]["mtime_ns"] == -(2**63)
    unknown = "trusted.glusterfs.mdata has a form that is not known"
    outside = "a time lies outside the years 1677 to 2262"
    assert sorted((problem.path, problem.operation, problem.reason) for problem in walked.failed) == [
        (b"early", "times", outside),
        (b"far", "times", outside),
        (b"nanoseconds", "times", unknown),
        (b"short", "times", unknown),
        (b"version", "times", unknown),
    ]


def test_what_is_mounted_beneath_is_told_and_not_entered(brick: HandBrick, walk: Walk) -> None:
    other, bound = brick.root / "home" / "other file system", brick.root / "home" / "bound"
    other.mkdir(parents=True)
    bound.mkdir()
    brick.file("home/elsewhere/inside")
    brick.adopt()
    with ExitStack() as stack:
        for place, argv in (
            (other, ("-t", "tmpfs", "none")),
            (bound, ("--bind", str(brick.root / "home" / "elsewhere"))),
        ):
            run_tool("mount", *argv, str(place))
            stack.callback(run_tool, "umount", str(place))
        (other / "foreign").write_text("x")
        walked = walk(brick.root)
    assert set(walked.rows) == {b"home", b"home/elsewhere", b"home/elsewhere/inside"}
    assert {(problem.path, problem.errno) for problem in walked.failed} == {
        (b"home/bound", errno.EXDEV),
        (b"home/other file system", errno.EXDEV),
    }


def test_a_root_that_is_no_bricks_is_refused(brick: HandBrick, walk: Walk) -> None:
    brick.file("file")
    brick.adopt()
    for spoil in (
        lambda: (brick.root / ".glusterfs").rename(brick.root / "moved"),
        lambda: os.removexattr(brick.root, "trusted.glusterfs.volume-id"),
    ):
        spoil()
        walked = walk(brick.root)
        assert (walked.exit_code, walked.rows, walked.end) == (3, {}, None)
        assert "is its file system mounted?" in walked.stderr
    assert walked.hello is not None
    assert (walked.hello.volume_id, walked.hello.root_gfid) == (None, bytes(15) + b"\1")


def failures_by_strace(call: str, injected: str) -> list[str]:
    """Makes calls of a program fail; where strace is."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    return ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{injected}"]


# The leak sanitizer traces its own process, and so does strace.
not_sanitized = pytest.mark.parametrize("walker_argv", ["native"], indirect=True)


@not_sanitized
@pytest.mark.parametrize(
    "case",
    [("llistxattr", "xattrs", b"d/file"), ("readlink", "readlink", b"d/link"), ("fchdir", "open", b"d/file")],
    ids=lambda case: case[0],
)
def test_an_error_is_a_row_of_its_own_and_the_walk_goes_on(
    brick: HandBrick, walk: Walk, case: tuple[str, str, bytes]
) -> None:
    call, operation, lost = case
    brick.file("d/file")
    (brick.root / "d" / "link").symlink_to("file")
    brick.adopt()
    # Every call of its kind fails: only what needs none is left.
    walked = walk(brick.root, workers=1, wrapper=failures_by_strace(call, "error=EIO"))
    assert walked.exit_code == 0
    assert walked.end is not None
    assert lost not in walked.rows
    assert {(problem.operation, problem.errno, problem.reason) for problem in walked.failed} >= {
        (operation, errno.EIO, os.strerror(errno.EIO))
    }
    assert walked.end.problems == len(walked.failed)


@not_sanitized
def test_what_gluster_is_just_making_is_looked_at_again(brick: HandBrick, walk: Walk) -> None:
    """As between the two calls by which a brick makes a file: it has its gfid only at the second look."""
    brick.file("new")
    brick.adopt()
    walked = walk(brick.root, workers=1, wrapper=failures_by_strace("llistxattr", "retval=0:when=1"))
    assert walked.end is not None
    assert (set(walked.rows), walked.strange, walked.failed) == ({b"new"}, [], [])
    walked = walk(brick.root, workers=1, wrapper=failures_by_strace("llistxattr", "retval=0"))
    assert [problem.path for problem in walked.strange] == [b"new"]


@not_sanitized
def test_what_is_gone_when_it_is_looked_at_is_counted_and_no_problem(brick: HandBrick, walk: Walk) -> None:
    for number in range(5):
        brick.file(f"file-{number}")
    brick.adopt()
    walked = walk(brick.root, workers=1, wrapper=failures_by_strace("llistxattr", "error=ENOENT:when=2+2"))
    assert walked.end is not None
    assert (walked.failed, walked.end.vanished, len(walked.rows)) == ([], 2, 3)


def test_a_wrong_call_is_refused_with_words(brick: HandBrick, walker_argv: list[str]) -> None:
    right = ["walk", "--brick", str(brick.root), "--times", "mdata"]
    for argv, given in (
        (["walk"], b""),
        ([*right[:-1], "guessed"], b""),
        ([*right, "--workers", "0"], b""),
        ([*right, "--workers", "x"], b""),
        ([*right, "--block-rows", "-1"], b""),
        ([*right, "more"], b""),
        ([*right, "--unknown"], b""),
        ([*right, "--only-trees=home"], b""),
        ([*right, "--only-trees"], b"home/cut"),
        (right, b"home/cut"),
    ):
        done = subprocess.run([*walker_argv, *argv], input=given, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (2, b""), argv
        assert done.stderr
    gone = subprocess.run(
        [*walker_argv, *right[:2], "/no/such", *right[3:]], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert (gone.returncode, gone.stdout) == (1, b"")
    assert b"/no/such: No such file or directory" in gone.stderr
