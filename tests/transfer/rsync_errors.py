"""Errors that really happen to rsync, each with what the program must make of it.

A scenario sets up a source and a target, runs one chunk, and gives back how it ended. What rsync said is kept under
`tests/fixtures/rsync/VERSION/` (written when MIGRATOR_RECORD_RSYNC names that directory), so that the judgement can be
tested on it without any rsync.
"""

import errno
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from migrator.core.paths import percent_escape
from migrator.core.units import KIB, MIB
from migrator.transfer.model import FileProblem, FileProblemKind, StopReason, Verdict
from tests.support.streams import Ran, Streams
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

    verdict: Verdict
    stop: StopReason | None = None
    suspects: tuple[tuple[bytes, FileProblemKind, int | None], ...] = ()


def vanished(*names: bytes) -> tuple[tuple[bytes, FileProblemKind, int | None], ...]:
    return tuple((name, FileProblemKind.VANISHED, errno.ENOENT) for name in names)


def bad(code: int | None, *names: bytes) -> tuple[tuple[bytes, FileProblemKind, int | None], ...]:
    return tuple((name, FileProblemKind.BAD, code) for name in names)


DONE, RETRY, STOP, INTERRUPTED = Verdict.DONE, Verdict.RETRY, Verdict.STOP, Verdict.INTERRUPTED


@dataclass
class World:
    """Where a scenario plays: `source` and `target` are the tree on both sides."""

    streams: Streams
    source: Path
    target: Path

    def run(self, *names: bytes, **options: object) -> Ran:
        paths = [TREE + b"/" + name for name in names]
        return self.streams.run(paths, tree=TREE, **options)  # type: ignore[arg-type]


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


def record(directory: Path, name: str, ran: Ran) -> None:
    """Keep what rsync said."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.stderr").write_bytes(ran.stderr)
    (directory / f"{name}.stdout").write_bytes(ran.stdout)
    facts = {
        "exit_code": ran.completed.exit_code,
        "source_tree": percent_escape(ran.view.source_tree),
        "target_tree": percent_escape(ran.view.target_tree),
        "link_groups": {
            percent_escape(listed.path): listed.link_group for listed in ran.work.paths if listed.link_group is not None
        },
        "paths": [percent_escape(listed.path) for listed in ran.work.paths],
    }
    (directory / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n")
