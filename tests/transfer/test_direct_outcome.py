"""The records that the compiled copying program gets, and how its runs are judged."""

import errno
from collections.abc import Sequence
from dataclasses import replace

import pytest

from migrator.core.states import ChunkKind
from migrator.fs.model import TargetCapabilities
from migrator.gluster.model import BrickRules
from migrator.hosts.ports import Completed
from migrator.plan.model import ListedPath
from migrator.transfer.engines.direct import DirectEngine, EndedDirect, PathEvent, judge_direct, parse_event
from migrator.transfer.model import FileProblemKind, Outcome, StopReason, StreamCounters, StreamView, Verdict
from migrator.transfer.ports import ChunkWork

PATHS = [b"home/alice/one", b"home/alice/two", b"home/alice/three"]
COUNTERS = StreamCounters(files=1, size_bytes=2)
VIEW = StreamView(source_tree=b"/source", target_tree=b"/target")
TREE = b"home/alice"
ENGINE = DirectEngine(program=b"/opt/migrator-native", privileged=True)


def work(*paths: ListedPath, **keeps: bool) -> ChunkWork:
    return ChunkWork(kind=ChunkKind.FILES, tree=TREE, paths=paths, capabilities=TargetCapabilities(**keeps))  # type: ignore[arg-type]


def judged(*lines: bytes, exit_code: int = 0, stderr: bytes = b"") -> Outcome:
    events: Sequence[PathEvent] = [event for line in lines if (event := parse_event(line)) is not None]
    assert len(events) == len(lines)
    return judge_direct(EndedDirect(exit_code=exit_code, events=events, stderr=stderr, paths=PATHS, counters=COUNTERS))


@pytest.mark.parametrize(
    "said",
    [
        *(b"F", b"F 1 bad", b"F 1 lost source 2 open", b"F x bad source 2 open", b"F 1 bad nowhere 2 open"),
        *(b"F 1 bad source 2 open; rm", b"F -1 bad source 2 open", b"F 9 bad source 2 open", b"hello", b"x" * 10000),
    ],
)
def test_what_cannot_be_understood_is_never_done(said: bytes) -> None:
    reader = ENGINE.reader(work(*(ListedPath(path=path, size_bytes=1) for path in PATHS)), VIEW)
    reader.stdout(said + b"\n")
    outcome = reader.outcome(Completed(exit_code=0, stdout=b"", stderr=b"", timed_out=False))
    assert outcome.verdict is Verdict.RETRY


def test_what_became_of_paths() -> None:
    outcome = judged(
        b"F 0 vanished source 2 open", b"F 1 moved source 0 -", b"F 2 changed source 0 -", stderr=b"not looked at"
    )
    assert outcome.verdict is Verdict.DONE
    assert [(problem.path, problem.kind, problem.errno) for problem in outcome.suspects] == [
        (PATHS[0], FileProblemKind.VANISHED, errno.ENOENT),
        (PATHS[1], FileProblemKind.MOVED, None),
        (PATHS[2], FileProblemKind.CHANGED, None),
    ]


@pytest.mark.parametrize(
    ("side", "code", "operation", "stop"),
    [
        (b"target", errno.ENOSPC, b"write", StopReason.TARGET_FULL),
        (b"target", errno.EDQUOT, b"create", StopReason.TARGET_QUOTA),
        (b"target", errno.EROFS, b"make directory", StopReason.TARGET_READ_ONLY),
        (b"target", errno.EIO, b"close", StopReason.IO_ERROR),
        (b"target", errno.ENOTCONN, b"rename", StopReason.DISCONNECTED),
        (b"target", errno.ESTALE, b"open", StopReason.DISCONNECTED),
        (b"source", errno.ENOTCONN, b"read", StopReason.DISCONNECTED),
        # Some of them concern a file alone.
        (b"target", errno.ENOSPC, b"set xattr", None),
        (b"target", errno.EDQUOT, b"set xattr", None),
        (b"source", errno.ENOSPC, b"read", None),
        (b"source", errno.ESTALE, b"open", None),
        (b"source", errno.EIO, b"read", None),
    ],
)
def test_errors_that_concern_more_than_a_file_stop(
    side: bytes, code: int, operation: bytes, stop: StopReason | None
) -> None:
    lines = [b"F 0 moved source 0 -", b"F 1 bad %s %d %s" % (side, code, operation)]
    outcome = judged(*lines, exit_code=0 if stop is None else 3)
    assert (outcome.verdict, outcome.stop) == (Verdict.DONE if stop is None else Verdict.STOP, stop)
    kinds = [FileProblemKind.MOVED, FileProblemKind.BAD] if stop is None else []
    assert [problem.kind for problem in outcome.suspects] == kinds
    assert stop is None or outcome.message.startswith("home/alice/two: ")


@pytest.mark.parametrize(
    ("exit_codes", "verdict"),
    [
        ((-9, 143), Verdict.INTERRUPTED),
        ((1, 64, 127), Verdict.STOP),
        ((65, 3, 74, 200), Verdict.RETRY),
    ],
)
def test_other_ends(exit_codes: tuple[int, ...], verdict: Verdict) -> None:
    for exit_code in exit_codes:
        outcome = judged(exit_code=exit_code, stderr=b"in \x1b words\n")
        assert outcome.verdict is verdict
        assert "in \\x1b words" in outcome.message


def test_a_confinement_that_fails_stops() -> None:
    outcome = judged(exit_code=125, stderr=b"migrator-jail: target-tree: 2: the tree cannot be opened: No such file\n")
    assert (outcome.verdict, outcome.stop) == (Verdict.STOP, StopReason.MOUNT_CHANGED)


def path(name: bytes, **facts: int | bool) -> ListedPath:
    return ListedPath(path=TREE + b"/" + name, **({"size_bytes": 1, "file_size_bytes": 7} | facts))  # type: ignore[arg-type]


def test_a_record_has_what_a_path_needs_and_no_more() -> None:
    listed = (path(b"plain", mtime_ns=5), path(b"linked", link_group=2**70 + 3))
    assert ENGINE.command(work(*listed), VIEW).stdin == b":plain\0l3:linked\0"
    assert ENGINE.command(work(*listed, keeps_hard_links=False), VIEW).stdin == b":plain\0:linked\0"
    rules = BrickRules(times_from_mdata=True, distributed=True)
    assert ENGINE.command(replace(work(*listed), brick=rules), VIEW).stdin == b"m5:plain\0l3:linked\0"
