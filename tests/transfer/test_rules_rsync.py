"""What rsync is asked, which rsync it is, and the judgement of its end: on what real ones said, and on errors that are made to happen."""

import errno
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.catalog.model import ListedPath
from migrator.core.paths import percent_unescape
from migrator.core.states import ChunkKind
from migrator.core.units import KIB, MIB
from migrator.fs.model import TargetCapabilities
from migrator.hosts.ports import Command
from migrator.plan.chunk_lists import ListedPaths
from migrator.transfer.engines.rsync import ProgressParser, RsyncEngine
from migrator.transfer.engines.rules_rsync import EndedRsync, RsyncFeatures, judge_rsync, parse_features
from migrator.transfer.model import (
    AttemptVerdict,
    FileProblem,
    FileProblemKind,
    StopReason,
    StreamCounters,
    StreamOutcome,
    StreamView,
)
from migrator.transfer.ports import ChunkWork
from tests.conftest import MakeXfs
from tests.support.beegfs_like import BEEGFS_CAPABILITIES
from tests.support.streams import Ran, Streams, engine_of, make_trees, rsync_programs
from tests.support.xfs import run_tool, unmount

TREE = b"home/alice"
IMITATION = b'x" failed: No space left on device (28)'
IMITATION_LINE = b'a\nrsync: [receiver] write failed on "/target/x": No space left on device (28)\nb'
IMITATIONS = (
    IMITATION,
    IMITATION_LINE,
    b'rsync: [receiver] write failed on "/target/x": No space left on device (28)',
    b'/x": Input/output error (5)'[1:],
    b"\\#012rsync error: error in file IO (code 11)",
    b"ERROR: here failed verification -- update discarded.",
)
NOBODY = 65534
ANY = -1
"""Any errno: versions differ."""


@dataclass(frozen=True)
class Expected:
    """`suspects` by name relative to the tree: kind and errno."""

    verdict: AttemptVerdict
    stop: StopReason | None = None
    suspects: tuple[tuple[bytes, FileProblemKind, int | None], ...] = ()


def vanished(*names: bytes) -> tuple[tuple[bytes, FileProblemKind, int | None], ...]:
    return tuple((name, FileProblemKind.VANISHED, errno.ENOENT) for name in names)


def bad(code: int | None, *names: bytes) -> tuple[tuple[bytes, FileProblemKind, int | None], ...]:
    return tuple((name, FileProblemKind.BAD, code) for name in names)


DONE, RETRY, STOP, INTERRUPTED = (
    AttemptVerdict.DONE,
    AttemptVerdict.RETRY,
    AttemptVerdict.STOP,
    AttemptVerdict.INTERRUPTED,
)


@dataclass
class World:
    """Where a scenario plays: `source` and `target` are the tree on both sides."""

    streams: Streams
    source: Path
    target: Path

    def run(self, *names: bytes, **options: object) -> Ran:
        paths = [TREE + b"/" + name for name in names]
        return self.streams.run(paths, tree=TREE, **options)


Scenario = Callable[[World], Ran]


def path_of(directory: Path, name: bytes) -> bytes:
    return os.path.join(os.fsencode(directory), name)


def write(directory: Path, name: bytes, content: bytes = b"content\n") -> None:
    path = path_of(directory, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def listed_but_gone(world: World) -> Ran:
    write(world.source, b"here")
    return world.run(b"here", b"gone", b"gone/deeper")


def gone_in_mid_copy(world: World) -> Ran:
    write(world.source, b"a-big", os.urandom(2 * MIB))
    write(world.source, b"z-gone")

    def on_stdout(_: bytes) -> None:
        (world.source / "z-gone").unlink(missing_ok=True)

    return world.run(b"a-big", b"z-gone", bwlimit_bytes_per_s=1 * MIB, on_stdout=on_stdout)


def truncated_in_mid_copy(world: World) -> Ran:
    write(world.source, b"shrinks", os.urandom(4 * MIB))

    def on_stdout(_: bytes) -> None:
        os.truncate(world.source / "shrinks", 1000)

    return world.run(b"shrinks", bwlimit_bytes_per_s=1 * MIB, on_stdout=on_stdout)


def unreadable(world: World) -> Ran:
    write(world.source, b"closed")
    write(world.source, b"open")
    (world.source / "closed").chmod(0)
    for path in (world.source, world.target):
        os.chown(path, NOBODY, NOBODY)
        for above in list(path.parents)[:-1]:
            above.chmod(above.stat().st_mode | 0o055)
    world.streams.as_uid = NOBODY
    return world.run(b"closed", b"open")


def no_room(world: World) -> Ran:
    write(world.source, b"big", os.urandom(40 * MIB))
    write(world.source, b"small")
    return world.run(b"big", b"small")


@contextmanager
def remounted_read_only(world: World) -> Iterator[None]:
    mount = run_tool("findmnt", "-n", "-o", "TARGET", "-T", str(world.target)).strip()
    run_tool("mount", "-o", "remount,ro", mount)
    try:
        yield
    finally:
        run_tool("mount", "-o", "remount,rw", mount)


def read_only_target(world: World) -> Ran:
    write(world.source, b"one")
    (world.source / "two").symlink_to("one")
    with remounted_read_only(world):
        return world.run(b"one", b"two")


@contextmanager
def mounted(world: World, *mount_argv: str) -> Iterator[None]:
    run_tool("mount", *mount_argv, str(world.target))
    try:
        yield
    finally:
        unmount(world.target)


def attributes_unknown_to_target(world: World) -> Ran:
    for name in ("acl", "xattr", "plain", "both", "d/acl"):
        write(world.source, name.encode())
    for name in ("acl", "both", "d/acl"):
        run_tool("setfacl", "-m", "u:12345:r", str(world.source / name))
    for name in ("xattr", "both"):
        os.setxattr(world.source / name, "user.colour", b"blue")
    with mounted(world, "-t", "ramfs", "none"):
        return world.run(b"acl", b"xattr", b"plain", b"both", b"d/acl")


def directory_in_the_way(world: World) -> Ran:
    write(world.source, b"name: No space left on device (28)")
    write(world.target, b"name: No space left on device (28)/occupied")
    return world.run(b"name: No space left on device (28)")


@contextmanager
def immutable(*paths: bytes) -> Iterator[None]:
    for path in paths:
        subprocess.run([b"chattr", b"+i", path], check=True)
    try:
        yield
    finally:
        for path in paths:
            subprocess.run([b"chattr", b"-i", path], check=True)


def immutable_on_target(world: World) -> Ran:
    names = (b"plain", IMITATION, b".hidden", b"n" * 255, b"\xff" * 255)
    for name in names:
        write(world.source, name, b"new content\n")
        write(world.target, name)
    with immutable(*(path_of(world.target, name) for name in names)):
        return world.run(*names)


CLOSED = (b"d/plain", b'd/a" -> "b', b"d/.hidden", b"d/" + b"n" * 255, b"d/" + b"\xc3\xa9" * 127)


def directory_closed_to_new_files(world: World) -> Ran:
    for name in CLOSED:
        write(world.source, name)
    (world.source / 'd/s" -> "t').symlink_to("nowhere")
    os.link(path_of(world.source, b"d/plain"), path_of(world.source, b"d/second"))
    os.mkfifo(path_of(world.source, b"d/fifo"))
    (world.target / "d").mkdir()
    with immutable(path_of(world.target, b"d")):
        return world.run(*CLOSED, b'd/s" -> "t', b"d/second", b"d/fifo")


def source_disk_fails(world: World) -> Ran:
    """The backing file of a loop device is cut off: what lay there gives EIO."""
    image = world.streams.target_root / "failing.img"
    with image.open("wb") as file:
        file.truncate(64 * MIB)
    run_tool("mkfs.ext4", "-q", "-E", "lazy_itable_init=0", str(image))
    run_tool("mount", "-o", "loop", str(image), str(world.source))
    try:
        write(world.source, b"early", os.urandom(64 * KIB))
        write(world.source, b"late", os.urandom(40 * MIB))
        unmount(world.source)
        size_bytes = image.stat().st_size
        os.truncate(image, 12 * MIB)
        os.truncate(image, size_bytes)
        run_tool("mount", "-o", "loop,ro,noload", str(image), str(world.source))
        os.truncate(image, 12 * MIB)
        return world.run(b"early", b"late")
    finally:
        unmount(world.source)


def killed(world: World) -> Ran:
    """As soon as it has said something."""
    write(world.source, b"big", os.urandom(4 * MIB))
    told: list[int] = []

    def on_start(process: object) -> None:
        told.append(process.pid)  # type: ignore[attr-defined]

    def on_stdout(_: bytes) -> None:
        if told:
            os.kill(told.pop(), signal.SIGKILL)

    return world.run(b"big", bwlimit_bytes_per_s=1 * MIB, on_start=on_start, on_stdout=on_stdout)


def replaced(tree: Path, *, by_link: bool) -> None:
    """A tree that is gone, or a symlink to a directory beside it."""
    write(tree.parent / "other", b"one")
    tree.rmdir()
    if by_link:
        tree.symlink_to("other")


def source_tree_gone(world: World) -> Ran:
    replaced(world.source, by_link=False)
    return world.run(b"one", b"two")


def source_tree_is_a_symlink(world: World) -> Ran:
    replaced(world.source, by_link=True)
    return world.run(b"one")


def target_tree_gone(world: World) -> Ran:
    replaced(world.target, by_link=False)
    return world.run(b"one")


def names_that_imitate_errors(world: World) -> Ran:
    write(world.source, b"here")
    return world.run(b"here", *IMITATIONS)


def directory_swapped_for_one_outside(world: World) -> Ran:
    (world.source / "d").symlink_to("/etc")
    return world.run(b"d/passwd")


SCENARIOS: dict[str, tuple[Scenario, Expected]] = {
    scenario.__name__: (scenario, expected)
    for scenario, expected in (
        (listed_but_gone, Expected(DONE, suspects=vanished(b"gone", b"gone/deeper"))),
        (gone_in_mid_copy, Expected(DONE, suspects=vanished(b"z-gone"))),
        (truncated_in_mid_copy, Expected(DONE, suspects=bad(errno.ENODATA, b"shrinks"))),
        (unreadable, Expected(DONE, suspects=bad(errno.EACCES, b"closed"))),
        (no_room, Expected(STOP, StopReason.TARGET_FULL)),
        (read_only_target, Expected(STOP, StopReason.TARGET_READ_ONLY)),
        (
            attributes_unknown_to_target,
            Expected(DONE, suspects=bad(errno.EOPNOTSUPP, b"acl", b"both", b"xattr", b"d/acl")),
        ),
        (directory_in_the_way, Expected(DONE, suspects=bad(None, b"name: No space left on device (28)"))),
        (
            immutable_on_target,
            Expected(DONE, suspects=bad(errno.EPERM, b"plain", IMITATION, b".hidden", b"n" * 255, b"\xff" * 255)),
        ),
        (
            directory_closed_to_new_files,
            Expected(DONE, suspects=bad(errno.EPERM, *CLOSED, b'd/s" -> "t', b"d/fifo", b"d/second")),
        ),
        (source_disk_fails, Expected(DONE, None, bad(errno.EIO, b"late"))),
        (killed, Expected(INTERRUPTED)),
        (source_tree_gone, Expected(DONE, suspects=vanished(b"one", b"two"))),
        (source_tree_is_a_symlink, Expected(DONE, suspects=(((b"one", FileProblemKind.VANISHED, errno.ENOTDIR),)))),
        (target_tree_gone, Expected(STOP, StopReason.MOUNT_CHANGED)),
        (names_that_imitate_errors, Expected(DONE, suspects=vanished(*IMITATIONS))),
        (directory_swapped_for_one_outside, Expected(DONE, suspects=((b"d/passwd", FileProblemKind.VANISHED, ANY),))),
    )
}


def matches(suspects: Sequence[FileProblem], expected: Expected) -> bool:
    """Whether these are the very files, each with the kind and the errno that it must have."""
    found = {(suspect.path, suspect.kind): suspect.errno for suspect in suspects}
    wanted = {(TREE + b"/" + name, kind): code for name, kind, code in expected.suspects}
    return (
        len(found) == len(suspects)
        and found.keys() == wanted.keys()
        and all(code in (ANY, found[key]) for key, code in wanted.items())
    )


_FIXTURES = Path(__file__).parents[1] / "fixtures" / "rsync"
_COUNTERS = StreamCounters(files=3, size_bytes=1000)
_VIEW = StreamView(source_tree=b"/source", target_tree=b"/target")


def _judge(
    stderr: bytes, *names: bytes, exit_code: int = 23, groups: dict[bytes, int] | None = None, cut: bool = False
) -> StreamOutcome:
    return judge_rsync(
        EndedRsync(
            exit_code=exit_code,
            stderr=stderr,
            stderr_cut=cut,
            tree=TREE,
            names=names,
            view=_VIEW,
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


BROKEN_OFF, NOT_USED = (3, 11, 23), (1, 126, 127)


@pytest.mark.parametrize(
    ("exit_codes", "line", "stop"),
    [
        (
            BROKEN_OFF,
            b'rsync: [receiver] write failed on "/target/a": Disk quota exceeded (122)',
            StopReason.TARGET_QUOTA,
        ),
        (BROKEN_OFF, b'rsync: [receiver] close failed on "/target/a": Input/output error (5)', StopReason.IO_ERROR),
        (
            BROKEN_OFF,
            b'rsync: [sender] link_stat "/source/a" failed: Transport endpoint is not connected (107)',
            StopReason.DISCONNECTED,
        ),
        (
            BROKEN_OFF,
            b'rsync: [receiver] mkstemp "/target/.a.XyZ123" failed: Stale file handle (116)',
            StopReason.DISCONNECTED,
        ),
        (
            BROKEN_OFF,
            b'rsync: [receiver] write failed on "/target/a": Connection timed out (110)',
            StopReason.TARGET_STUCK,
        ),
        (NOT_USED, b"rsync: --frobnicate: unknown option", StopReason.TOOL_MISSING),
        ((125,), b"migrator-jail: source-root: 2: the root cannot be opened: No such file", StopReason.MOUNT_CHANGED),
        ((125,), b"migrator-jail: source-tree: 107: the tree cannot be opened: Transport", StopReason.DISCONNECTED),
        ((125,), b"migrator-jail: target-root: 116: the root cannot be opened: Stale", StopReason.DISCONNECTED),
        ((125,), b"migrator-jail: namespace: 1: unshare: Operation not permitted", StopReason.TOOL_MISSING),
    ],
)
def test_errors_that_concern_everything_stop(exit_codes: tuple[int, ...], line: bytes, stop: StopReason) -> None:
    for exit_code in exit_codes:
        outcome = _judge(line + b"\n", b"a", b"b", exit_code=exit_code)
        assert (outcome.verdict, outcome.stop) == (AttemptVerdict.STOP, stop)
        assert exit_code not in NOT_USED or "frobnicate" in outcome.message


def test_an_io_error_of_the_target_is_not_blamed_on_source_files() -> None:
    source = b'rsync: [sender] read errors mapping "/source/a": Input/output error (5)\n'
    target = b'rsync: [receiver] write failed on "/target/b": Input/output error (5)\n'
    alone = _judge(source, b"a", b"b")
    assert (alone.verdict, [suspect.path for suspect in alone.suspects]) == (AttemptVerdict.DONE, [TREE + b"/a"])
    both = _judge(source + target, b"a", b"b", exit_code=11)
    assert (both.stop, both.suspects) == (StopReason.IO_ERROR, ())


def test_no_user_stops_the_pool_by_swapping_a_directory() -> None:
    """As rsync 3.2.7 ends when it meets a symlink where the list had a directory."""
    stderr = (
        b'file has vanished: "/source/d"\n'
        b"ABORTING due to invalid path from sender: d/f0\n"
        b"rsync error: protocol incompatibility (code 2) at generator.c(1320) [generator=3.2.7]\n"
    )
    assert _judge(stderr, b"d/f0", b"d/f1", exit_code=2).verdict is AttemptVerdict.RETRY


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
        b"rsync: [generator] set_acl: sys_acl_delete_def_file(%s): Invalid argument (22)",
        b'file has vanished: "/source/%s"',
        b"could not make way for new regular file: %s",
        b"ERROR: %s failed verification -- update discarded.",
        b'do_chmod: no symlink-safe chmod for "%s"; mode not set',
        b"a new message: of another form: %s",
    ],
)
def test_no_name_stops_the_pool_or_hides(line: bytes, name: bytes, other: bytes) -> None:
    shown = _printed(name)
    stderr = line.replace(b"%s", shown) + b"\n"
    outcome = _judge(stderr, name, other)
    assert outcome.verdict is AttemptVerdict.DONE
    assert TREE + b"/" + name in {suspect.path for suspect in outcome.suspects}


def test_a_name_that_went_while_it_was_sent_leaves_its_other_names_in_doubt() -> None:
    gone = b'file has vanished: "/source/a"'
    outcome = _judge(gone, b"a", b"b", b"c", exit_code=24, groups={b"a": 7, b"b": 7, b"c": 8})
    assert {suspect.path for suspect in outcome.suspects} == {TREE + b"/a", TREE + b"/b"}


def test_an_unexplained_line_means_another_try() -> None:
    known = b'rsync: [sender] link_stat "/source/a" failed: No such file or directory (2)\n'
    assert _judge(known, b"a").verdict is AttemptVerdict.DONE
    assert _judge(known, b"a", cut=True).verdict is AttemptVerdict.RETRY, "the rest could not be kept"
    for strange in (
        b"rsync: [receiver] something new: Resource temporarily unavailable (11)\n",
        b'rsync: [receiver] chown "/target/elsewhere" failed: Operation not permitted (1)\n',
        b"segfault\n",
    ):
        assert _judge(known + strange, b"a").verdict is AttemptVerdict.RETRY


@pytest.mark.parametrize("exit_code", [0, 23])
def test_a_message_with_the_last_component_alone_concerns_every_path_with_it(exit_code: int) -> None:
    """As rsync 3.5.0 prints it for devices and sockets without /proc, before it ends with 0."""
    for last in (b"fifo", b".fifo.AbC123"):
        line = b'do_chmod: no symlink-safe chmod for "%s"; mode not set\n' % last
        outcome = _judge(line, b"fifo", b"d/fifo", b"d/other", exit_code=exit_code)
        expected = {TREE + b"/fifo", TREE + b"/d/fifo"}
        assert outcome.verdict is AttemptVerdict.DONE
        assert {suspect.path for suspect in outcome.suspects} == expected


@pytest.mark.parametrize(
    ("line", "cut"),
    [
        (b"out of file descriptors resolving a deep path; raise the open-file limit\n", False),
        (b'rsync: [receiver] chown "/target/elsewhere" failed: Operation not permitted (1)\n', False),
        (b"", True),
    ],
)
def test_a_message_about_no_listed_path_concerns_all_of_them_although_the_exit_code_is_0(
    line: bytes, cut: bool
) -> None:
    outcome = _judge(line, b"a", b"d/b", exit_code=0, cut=cut)
    assert outcome.verdict is AttemptVerdict.DONE
    assert {suspect.path for suspect in outcome.suspects} == {TREE + b"/a", TREE + b"/d/b"}


@pytest.mark.needs_root
@pytest.mark.parametrize("program", rsync_programs())
@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_an_error_is_judged(name: str, program: str, scratch: Path, make_xfs: MakeXfs) -> None:
    scenario, expected = SCENARIOS[name]
    source_root = scratch / "source"
    target = make_xfs(size_bytes=32 << 20, max_inodes=640) if name == "no_room" else make_xfs()
    source, target_tree = make_trees(source_root, target.path, tree=TREE)
    ran = scenario(World(Streams(engine_of(program), source_root, target.path), source, target_tree))
    outcome = ran.outcome
    detail = (ran.completed.exit_code, ran.stderr, outcome)
    assert outcome.verdict is expected.verdict, detail
    assert outcome.stop is expected.stop, detail
    assert matches(outcome.suspects, expected), detail


_OLD = RsyncFeatures(version=(3, 2, 7))
_NEW = RsyncFeatures(version=(3, 5, 0), fsync=True)
_PLAIN = TargetCapabilities()


def _command(*, capabilities: TargetCapabilities = _PLAIN, features: RsyncFeatures = _NEW) -> Command:
    engine = RsyncEngine(program=b"/usr/bin/rsync", features=features, privileged=True)
    paths = ListedPaths.of([ListedPath(path=b"home/alice/x", size_bytes=0)])
    return engine.command(
        ChunkWork(kind=ChunkKind.FILES, tree=b"home/alice", paths=paths, capabilities=capabilities), _VIEW
    )


def test_options_follow_the_targets_capabilities() -> None:
    """Options whose effect real copies on one machine (`test_rsync.py`) do not show."""
    plain, beegfs = _command().argv, _command(capabilities=BEEGFS_CAPABILITIES).argv
    assert b"--numeric-ids" in plain
    assert (b"--modify-window=-1" in plain, b"--modify-window=-1" in beegfs) == (True, False)
    assert b"--fsync" not in _command(features=_OLD, capabilities=BEEGFS_CAPABILITIES).argv
    nothing = TargetCapabilities(
        keeps_acls=False,
        keeps_user_xattrs=False,
        keeps_security_xattrs=False,
        keeps_hard_links=False,
        keeps_sparse=False,
        keeps_symlink_times=False,
        makes_devices=False,
        makes_sockets=False,
    )
    argv = _command(capabilities=nothing).argv
    assert not {b"-A", b"-X", b"-H", b"-S"} & set(argv)
    assert {b"-J", b"--no-devices", b"--no-specials"} <= set(argv)


@pytest.mark.parametrize("version", ["3.2.7", "3.5.0"])
def test_real_output_in_any_pieces(version: str) -> None:
    stdout = (_FIXTURES / version / "gone_in_mid_copy.stdout").read_bytes()
    for size in (1, 2, 7, 100, 10_000):
        parser = ProgressParser()
        for start in range(0, len(stdout), size):
            before = parser.counters
            parser.take(stdout[start : start + size])
            assert parser.counters.files >= before.files
            assert parser.counters.size_bytes >= before.size_bytes
        assert parser.counters == StreamCounters(files=2, size_bytes=2_097_160)


@pytest.mark.parametrize("version", ["3.2.7", "3.5.0"])
def test_features_of_real_ones(version: str) -> None:
    features = parse_features(
        (_FIXTURES / version / "version.out").read_bytes(), (_FIXTURES / version / "help.out").read_bytes()
    )
    assert features is not None
    assert features.version_text == version
    assert features.fsync
    assert features.lacks == ()
    assert features.problem() is None


def test_too_old_or_cut_down_ones_are_named() -> None:
    assert "too old" in (RsyncFeatures(version=(3, 1, 3)).problem() or "")
    text = (_FIXTURES / "3.5.0" / "version.out").read_bytes().replace(b" ACLs,", b" no ACLs,").replace(b"ACL-at, ", b"")
    features = parse_features(text, b"")
    assert features is not None
    assert features.lacks == ("ACLs",)
    assert "ACLs" in (features.problem() or "")
