"""The judgement of rsync's end, on what real rsyncs said, and on lines that want to be something else."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.paths import percent_unescape
from migrator.transfer.engines.rules_rsync import EndedRsync, judge_rsync
from migrator.transfer.model import Outcome, StopReason, StreamCounters, StreamView, Verdict
from tests.transfer.rsync_errors import SCENARIOS, TREE, matches

_FIXTURES = Path(__file__).parents[1] / "fixtures" / "rsync"
_COUNTERS = StreamCounters(files=3, size_bytes=1000)


def _judge(stderr: bytes, *names: bytes, exit_code: int = 23, groups: dict[bytes, int] | None = None) -> Outcome:
    return judge_rsync(
        EndedRsync(
            exit_code=exit_code,
            stderr=stderr,
            tree=TREE,
            names=names,
            view=StreamView(source_tree=b"/source", target_tree=b"/target"),
            counters=_COUNTERS,
            link_groups=groups or {},
        )
    )


@pytest.mark.parametrize("version", ["3.2.7", "3.5.0"])
@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_real_ends(version: str, name: str) -> None:
    expected = SCENARIOS[name][1]
    directory = _FIXTURES / version
    facts = json.loads((directory / f"{name}.json").read_text())
    paths = [percent_unescape(path) for path in facts["paths"]]
    outcome = judge_rsync(
        EndedRsync(
            exit_code=facts["exit_code"],
            stderr=(directory / f"{name}.stderr").read_bytes(),
            tree=TREE,
            names=[path.removeprefix(TREE + b"/") for path in paths],
            view=StreamView(**{side: percent_unescape(facts[side]) for side in ("source_tree", "target_tree")}),
            counters=_COUNTERS,
            link_groups={
                percent_unescape(path).removeprefix(TREE + b"/"): group for path, group in facts["link_groups"].items()
            },
        )
    )
    assert outcome.verdict is expected.verdict, outcome
    assert outcome.stop is expected.stop, outcome
    assert matches(outcome.suspects, expected), outcome
    assert outcome.counters == _COUNTERS


@pytest.mark.parametrize(
    ("line", "stop"),
    [
        (b'rsync: [receiver] write failed on "/target/a": Disk quota exceeded (122)', StopReason.TARGET_QUOTA),
        (b'rsync: [receiver] close failed on "/target/a": Input/output error (5)', StopReason.IO_ERROR),
        (
            b'rsync: [sender] link_stat "/source/a" failed: Transport endpoint is not connected (107)',
            StopReason.DISCONNECTED,
        ),
        (b'rsync: [receiver] mkstemp "/target/.a.XyZ123" failed: Stale file handle (116)', StopReason.DISCONNECTED),
        (b'rsync: [receiver] write failed on "/target/a": Connection timed out (110)', StopReason.TARGET_STUCK),
    ],
)
@pytest.mark.parametrize("exit_code", [3, 11, 23])
def test_errors_that_concern_everything_stop(line: bytes, stop: StopReason, exit_code: int) -> None:
    outcome = _judge(line + b"\n", b"a", b"b", exit_code=exit_code)
    assert (outcome.verdict, outcome.stop) == (Verdict.STOP, stop)


def test_an_io_error_of_the_target_is_not_blamed_on_source_files() -> None:
    source = b'rsync: [sender] read errors mapping "/source/a": Input/output error (5)\n'
    target = b'rsync: [receiver] write failed on "/target/b": Input/output error (5)\n'
    alone = _judge(source, b"a", b"b")
    assert (alone.verdict, [suspect.path for suspect in alone.suspects]) == (Verdict.DONE, [TREE + b"/a"])
    both = _judge(source + target, b"a", b"b", exit_code=11)
    assert (both.stop, both.suspects) == (StopReason.IO_ERROR, ())


def test_no_user_stops_the_pool_by_swapping_a_directory() -> None:
    """As rsync 3.2.7 ends when it meets a symlink where the list had a directory."""
    stderr = (
        b'file has vanished: "/source/d"\n'
        b"ABORTING due to invalid path from sender: d/f0\n"
        b"rsync error: protocol incompatibility (code 2) at generator.c(1320) [generator=3.2.7]\n"
    )
    assert _judge(stderr, b"d/f0", b"d/f1", exit_code=2).verdict is Verdict.RETRY


def test_output_that_could_not_be_kept_is_unexplained() -> None:
    stderr = b'rsync: [sender] link_stat "/source/a" failed: No such file or directory (2)\n'
    ended = EndedRsync(
        exit_code=23,
        stderr=stderr,
        stderr_cut=True,
        tree=TREE,
        names=[b"a"],
        view=StreamView(source_tree=b"/source", target_tree=b"/target"),
        counters=_COUNTERS,
    )
    assert judge_rsync(ended).verdict is Verdict.RETRY


@pytest.mark.parametrize("exit_code", [1, 126, 127])
def test_a_program_that_cannot_be_used_stops(exit_code: int) -> None:
    outcome = _judge(b"rsync: --frobnicate: unknown option\n", b"a", exit_code=exit_code)
    assert (outcome.verdict, outcome.stop) == (Verdict.STOP, StopReason.TOOL_MISSING)
    assert "frobnicate" in outcome.message


@pytest.mark.parametrize(
    ("line", "stop"),
    [
        (
            b"migrator-jail: source-root: 2: the root cannot be opened: No such file or directory",
            StopReason.MOUNT_CHANGED,
        ),
        (b"migrator-jail: source-tree: 107: the tree cannot be opened: Transport", StopReason.DISCONNECTED),
        (b"migrator-jail: target-root: 116: the root cannot be opened: Stale", StopReason.DISCONNECTED),
        (b"migrator-jail: namespace: 1: unshare: Operation not permitted", StopReason.TOOL_MISSING),
    ],
)
def test_a_confinement_that_fails_stops(line: bytes, stop: StopReason) -> None:
    outcome = _judge(line + b"\n", b"a", exit_code=125)
    assert (outcome.verdict, outcome.stop) == (Verdict.STOP, stop)


def _printed(name: bytes) -> bytes:
    """A name as rsync prints it in the C locale (`filtered_fwrite` in its log.c)."""
    shown = bytearray()
    for position, byte in enumerate(name):
        ambiguous = (
            byte == ord("\\")
            and name[position + 1 : position + 2] == b"#"
            and name[position + 2 : position + 5].isdigit()
        )
        if ambiguous or (not 0x20 <= byte < 0x7F and byte != ord("\t")):
            shown += b"\\#%03o" % byte
        else:
            shown.append(byte)
    return bytes(shown)


_NAMES = st.binary(min_size=1, max_size=60).filter(
    lambda name: not {0, ord("/")} & set(name) and name not in (b".", b"..")
) | st.lists(
    st.sampled_from(
        [
            b'"',
            b"x",
            b" failed: No space left on device (28)",
            b"\n",
            b"rsync: [receiver] ",
            b"\\#012",
            b"\\",
            b": ",
            b"\xff",
        ]
    ),
    min_size=1,
    max_size=8,
).map(b"".join)


@given(name=_NAMES, other=_NAMES)
@pytest.mark.parametrize(
    "line",
    [
        b'rsync: [sender] link_stat "/source/%s" failed: No such file or directory (2)',
        b'rsync: [sender] send_files failed to open "/source/%s": Permission denied (13)',
        b'rsync: [receiver] rename "/target/.%s.AbC123" -> "%s": Operation not permitted (1)',
        b'rsync: [receiver] rsync_xal_set: fsetxattr("/target/%s","user.x") failed: No space left on device (28)',
        b'rsync: [generator] symlink "/target/%s" -> "%s" failed: Operation not permitted (1)',
        b"rsync: [receiver] set_acl: xacl_set(%s, ACL_TYPE_ACCESS): No space left on device (28)",
        b'file has vanished: "/source/%s"',
        b"could not make way for new regular file: %s",
        b"ERROR: %s failed verification -- update discarded.",
    ],
)
def test_no_name_stops_the_pool_or_hides(line: bytes, name: bytes, other: bytes) -> None:
    shown = _printed(name)
    stderr = line.replace(b"%s", shown) + b"\n"
    outcome = _judge(stderr, name, other)
    assert outcome.verdict is Verdict.DONE
    assert TREE + b"/" + name in {suspect.path for suspect in outcome.suspects}


def test_a_name_that_went_while_it_was_sent_leaves_its_other_names_in_doubt() -> None:
    gone = b'file has vanished: "/source/a"'
    outcome = _judge(gone, b"a", b"b", b"c", exit_code=24, groups={b"a": 7, b"b": 7, b"c": 8})
    assert {suspect.path for suspect in outcome.suspects} == {TREE + b"/a", TREE + b"/b"}


def test_an_unexplained_line_means_another_try() -> None:
    known = b'rsync: [sender] link_stat "/source/a" failed: No such file or directory (2)\n'
    assert _judge(known, b"a").verdict is Verdict.DONE
    for strange in (
        b"rsync: [receiver] something new: Resource temporarily unavailable (11)\n",
        b'rsync: [receiver] chown "/target/elsewhere" failed: Operation not permitted (1)\n',
        b"segfault\n",
    ):
        assert _judge(known + strange, b"a").verdict is Verdict.RETRY
