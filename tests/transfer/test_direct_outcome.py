"""The records that the compiled copying program gets, and how its runs are judged."""

import errno
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.catalog.model import ListedPath
from migrator.core.states import ChunkKind
from migrator.fs.model import TargetCapabilities
from migrator.gluster.model import BrickRules
from migrator.hosts.ports import Completed
from migrator.plan.chunk_lists import ListedPaths
from migrator.transfer.engines.direct import DirectEngine, EndedDirect, PathEvent, judge_direct, parse_event
from migrator.transfer.model import (
    AttemptVerdict,
    FileProblemKind,
    StopReason,
    StreamCounters,
    StreamOutcome,
    StreamView,
)
from migrator.transfer.ports import ChunkWork

PATHS = [b"home/alice/one", b"home/alice/two", b"home/alice/three"]
LISTED = [ListedPath(path=path, size_bytes=1) for path in PATHS]
COUNTERS = StreamCounters(files=1, size_bytes=2)
VIEW = StreamView(source_tree=b"/source", target_tree=b"/target")
TREE = b"home/alice"
ENGINE = DirectEngine(program=b"/opt/migrator-native", privileged=True, name_seed=7)


def work(*paths: ListedPath, **keeps: bool) -> ChunkWork:
    keeps_all = TargetCapabilities(**keeps)  # type: ignore[arg-type]
    return ChunkWork(kind=ChunkKind.FILES, tree=TREE, paths=ListedPaths.of(paths).within(TREE), capabilities=keeps_all)


def judged(*lines: bytes, exit_code: int = 0, stderr: bytes = b"") -> StreamOutcome:
    events: Sequence[PathEvent] = [event for line in lines if (event := parse_event(line)) is not None]
    assert len(events) == len(lines)
    return judge_direct(EndedDirect(exit_code=exit_code, events=events, stderr=stderr, paths=LISTED, counters=COUNTERS))


def test_each_line_gives_the_outcome_of_a_path() -> None:
    outcome = judged(
        b"F 0 vanished source 2 open", b"F 1 moved source 0 -", b"F 2 changed source 0 -", stderr=b"not looked at"
    )
    assert outcome.verdict is AttemptVerdict.DONE
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
    assert (outcome.verdict, outcome.stop) == (AttemptVerdict.DONE if stop is None else AttemptVerdict.STOP, stop)
    kinds = [FileProblemKind.MOVED, FileProblemKind.BAD] if stop is None else []
    assert [problem.kind for problem in outcome.suspects] == kinds
    assert stop is None or outcome.message.startswith("home/alice/two: ")


@pytest.mark.parametrize(
    ("exit_codes", "verdict"),
    [
        ((-9, 143), AttemptVerdict.INTERRUPTED),
        ((1, 64, 127), AttemptVerdict.STOP),
        ((65, 3, 74, 200), AttemptVerdict.RETRY),
    ],
)
def test_other_ends(exit_codes: tuple[int, ...], verdict: AttemptVerdict) -> None:
    for exit_code in exit_codes:
        outcome = judged(exit_code=exit_code, stderr=b"in \x1b words\n")
        assert outcome.verdict is verdict
        assert "in \\x1b words" in outcome.message


def test_a_confinement_that_fails_stops() -> None:
    outcome = judged(exit_code=125, stderr=b"migrator-jail: target-tree: 2: the tree cannot be opened: No such file\n")
    assert (outcome.verdict, outcome.stop) == (AttemptVerdict.STOP, StopReason.MOUNT_CHANGED)


def record(of: ChunkWork, row: ListedPath) -> bytes:
    """The record of one row."""
    ranges = of.kind is ChunkKind.RANGES
    in_ranges = ranges or of.kind is ChunkKind.RANGED_FILES
    fields = (
        (b"s", in_ranges, row.file_size_bytes, in_ranges),
        (b"m", in_ranges or of.brick, row.mtime_ns, ranges),
        (b"o", ranges, row.range_offset_bytes, ranges),
        (b"n", ranges, row.range_length_bytes, ranges),
        (b"l", of.capabilities.keeps_hard_links and not ranges, row.link_group, False),
    )
    if any(needed and number is None for _, _, number, needed in fields):
        raise ValueError
    given = [b"%b%d" % (letter, number) for letter, on, number, _ in fields if on and number is not None]
    return b",".join([*given, *[b"r"] * (of.kind is ChunkKind.RANGED_FILES)]) + b":" + row.path[len(TREE) + 1 :] + b"\0"


NUMBERS = st.integers(0, 2**63 - 1)
ROWS = st.builds(
    ListedPath,
    path=st.just(TREE) | st.lists(st.integers(1, 255), min_size=1).map(bytes).map((TREE + b"/").__add__),
    size_bytes=NUMBERS,
    link_group=st.none() | st.integers(0, 2**64 - 1),
    mtime_ns=st.none() | st.integers(-(2**63), 2**63 - 1),
    range_offset_bytes=st.sampled_from([2**40, 0, None]),
    range_length_bytes=NUMBERS,
    file_size_bytes=st.sampled_from([7, 2**41, None]),
)


@given(
    st.lists(ROWS),
    st.sampled_from([kind for kind in ChunkKind if kind not in (ChunkKind.LINKS, ChunkKind.TREE)]),
    st.sampled_from([None, BrickRules(times_from_mdata=True, distributed=True)]),
    st.booleans(),
)
def test_a_list_has_what_each_path_needs_and_no_more(
    rows: list[ListedPath], kind: ChunkKind, brick: BrickRules | None, links: bool
) -> None:
    chunk = replace(work(*rows, keeps_hard_links=links), kind=kind, brick=brick)
    try:
        expected = b"".join(record(chunk, row) for row in rows if row.path != TREE)
    except ValueError:
        with pytest.raises(ValueError, match="without"):
            ENGINE.command(chunk, VIEW)
    else:
        assert ENGINE.command(chunk, VIEW).stdin == expected


GOOD = (b"D 1 2 3 -4 5 ab", b"D ", b"P 1 2", b"F 1 moved source 0 -")
BAD = (
    *(b"D", b"Dx 1", b" D 1", b"", b"P 1", b"P 1 2\x0bD 1", b"\rD 1", b"hello", b"x" * 10000),
    *(b"F", b"F 1 bad", b"F 1 lost source 2 open", b"F x bad source 2 open", b"F 1 bad nowhere 2 open"),
    *(b"F 1 bad source 2 open; rm", b"F -1 bad source 2 open", b"F 9 bad source 2 open"),
)


@pytest.mark.parametrize("bad", [None, *BAD])
@given(st.lists(st.sampled_from(GOOD)), st.sampled_from([b"", b"D 1", b"P 1 2"]), st.lists(st.integers(0, 99)))
def test_output_is_cut_anywhere_and_never_done_if_not_understood(
    bad: bytes | None, lines: list[bytes], rest: bytes, cuts: list[int]
) -> None:
    reader = ENGINE.reader(work(*LISTED), VIEW)
    output = b"".join(line + b"\n" for line in (*lines, *([] if bad is None else [bad]), *lines)) + rest
    for first, end in pairwise([0, *sorted(cuts), None]):
        reader.stdout(output[first:end])
    outcome = reader.outcome(Completed(exit_code=0, stdout=b"", stderr=b"", timed_out=False))
    assert outcome.verdict is (AttemptVerdict.DONE if bad is None and not rest else AttemptVerdict.RETRY)
    assert reader.counters == (COUNTERS if b"P 1 2" in lines else StreamCounters())
    moved = outcome.verdict is AttemptVerdict.DONE and GOOD[3] in lines
    assert [suspect.path for suspect in outcome.suspects] == [PATHS[1]] * moved
