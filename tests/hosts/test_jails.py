"""What a stream's confinement is."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator.hosts.local import LocalHost
from migrator.hosts.proc import identity_of, lives
from migrator.transfer.engines.rules_rsync import JAIL_FAILED, jail_message
from tests.support.native_builds import built
from tests.support.streams import make_trees
from tests.support.waiting import wait_for

BASH = os.path.realpath(b"/bin/bash")
TREE = b"home/al ice\n"
"""Any name may be one of a tree."""
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TOKEN": "t"}


def said(step: str, code: int, text: str) -> bytes:
    """The one line of a confinement that could not be set up."""
    reason = os.strerror(code) if code else "refused"
    return f"migrator-jail: {step}: {code}: {text}: {reason}\n".encode()


@dataclass(frozen=True, kw_only=True)
class Inside:
    """A program that is confined now. `pid` is its number out here."""

    popen: "subprocess.Popen[bytes]"
    pid: int

    @property
    def proc(self) -> Path:
        """What the kernel says of it."""
        return Path("/proc") / str(self.pid)

    def status(self) -> Mapping[str, str]:
        """/proc/PID/status."""
        lines = (self.proc / "status").read_text().splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    def capabilities(self, name: str) -> set[int]:
        """One of its sets."""
        mask = int(self.status()[name], 16)
        return {number for number in range(64) if mask >> number & 1}


class JailWorld:
    """One tree on both sides, and the program that confines."""

    def __init__(self, scratch: Path) -> None:
        self.argv = (os.fsencode(built()), b"confine")
        self.scratch = scratch
        self.source_root, self.target_root = scratch / "source", scratch / "target"
        self.source, self.target = make_trees(self.source_root, self.target_root, tree=TREE)
        files = asyncio.run(LocalHost().files_of(BASH))
        self.files = tuple(word for path in files for word in (b"--file", path))

    def options(self, *, tree: bytes = TREE) -> tuple[bytes, ...]:
        """Both roots and the tree."""
        roots = (b"--source-root", os.fsencode(self.source_root), b"--target-root", os.fsencode(self.target_root))
        return (*roots, b"--tree", tree)

    def ask(self, *words: bytes, before: Sequence[str] = ()) -> "subprocess.CompletedProcess[bytes]":
        """Run the program with these words, to its end."""
        return subprocess.run(
            [*before, *self.argv, *words], env=ENVIRONMENT, capture_output=True, check=False, stdin=subprocess.DEVNULL
        )

    def run(self, script: str, *, tree: bytes = TREE) -> "subprocess.CompletedProcess[bytes]":
        """Run a script of bash, confined."""
        return self.ask(*self.options(tree=tree), *self.files, b"--", BASH, b"-c", script.encode())

    @contextlib.contextmanager
    def running(self, script: str = "echo up; read line", *, before: Sequence[str] = ()) -> Iterator[Inside]:
        """While a script runs that says `up` and waits for a line."""
        argv: list[str | bytes] = [*before, *self.argv, *self.options(), *self.files]
        argv += [b"--", BASH, b"-c", script.encode()]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            argv, env=ENVIRONMENT, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, cwd=self.scratch
        ) as popen:
            try:
                assert popen.stdout is not None
                assert popen.stdout.readline() == b"up\n", popen.communicate()[1]
                yield Inside(popen=popen, pid=only_child(popen.pid))
            finally:
                popen.kill()


def only_child(pid: int) -> int:
    """The one process that another one has started."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


pytestmark = pytest.mark.needs_root

KEPT = {0, 1, 2, 3, 4, 5, 6, 7, 21, 24, 27, 31}
NET_ADMIN = 12


@pytest.fixture
def world(scratch: Path) -> JailWorld:
    return JailWorld(scratch)


@pytest.mark.guarantee("confined")
def test_it_reads_one_tree_and_writes_the_other(world: JailWorld) -> None:
    (world.source / "file").write_bytes(b"content\n")
    ran = world.run('read line < /source/file; echo "$line" > /target/copy; exit 23')
    assert (ran.returncode, ran.stderr) == (23, b"")
    assert (world.target / "copy").read_bytes() == b"content\n"


@pytest.mark.parametrize("side", ["source", "target"])
def test_devices_and_programs_of_users_are_none_here(world: JailWorld, side: str) -> None:
    tree = world.source if side == "source" else world.target
    os.mknod(tree / "zero", 0o20666, os.makedev(1, 5))
    (tree / "program").write_bytes(Path("/bin/true").read_bytes())
    (tree / "program").chmod(0o755)
    ran = world.run(f"read -n 1 < /{side}/zero; /{side}/program")
    assert ran.returncode == 126
    assert ran.stderr.count(b"Permission denied") == 2


def test_there_is_no_proc_no_network_and_no_other_process(world: JailWorld) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"/dev/tcp/127.0.0.1/{server.getsockname()[1]}"
        assert subprocess.run([BASH, "-c", f": < {there}"], check=False).returncode == 0, "out here it is"
        ran = world.run(
            f"[[ -e /proc || -e /sys ]] && echo there; {{ : < {there}; }} 2>/dev/null && echo there; echo $$"
        )
    assert ran.stdout == b"1\n"
    with world.running() as inside:
        own = Path("/proc/self/ns")
        for name in ("mnt", "pid", "net", "ipc"):
            assert (inside.proc / "ns" / name).readlink() != (own / name).readlink(), name
        assert (inside.proc / "net" / "route").read_text().count("\n") <= 1, "no route but the heading"


def test_privileges_that_copying_does_not_need_are_dropped(world: JailWorld) -> None:
    """Also what the caller lets its programs inherit, which the bounding set alone would not stop."""
    before = ("setpriv", "--inh-caps=+net_admin", "--ambient-caps=+net_admin")
    with world.running(before=before) as inside:
        outer = Inside(popen=inside.popen, pid=inside.popen.pid)
        assert NET_ADMIN in outer.capabilities("CapAmb"), "the caller did hand it on"
        for name in ("CapEff", "CapPrm", "CapBnd"):
            # A container may have less than root elsewhere.
            assert inside.capabilities(name) == KEPT & outer.capabilities("CapBnd"), name
        for name in ("CapInh", "CapAmb"):
            assert inside.capabilities(name) == set(), name
        assert inside.status()["NoNewPrivs"] == "1"


def test_a_killed_program_is_told_as_killed(world: JailWorld) -> None:
    with world.running() as inside:
        os.kill(inside.pid, signal.SIGKILL)
        assert inside.popen.wait() == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_program_decides_how_it_ends(world: JailWorld, number: signal.Signals) -> None:
    # Bash may miss a signal that comes right before a read without a limit.
    script = f"trap 'exit 7' {int(number)}; echo up; until read -t 0.1 line; do :; done"
    with world.running(script) as inside:
        outer = Inside(popen=inside.popen, pid=inside.popen.pid)
        wait_for(lambda: bool(int(outer.status()["SigIgn"], 16) >> (number - 1) & 1))
        os.kill(outer.pid, number)  # to the one outside alone: nothing ends
        os.killpg(inside.popen.pid, number)
        assert inside.popen.wait() == 7


def test_with_its_parent_all_of_it_dies(world: JailWorld) -> None:
    launcher = '"$@" <&0 & echo $!; wait'
    script = b"trap '' TERM HUP INT; echo up; read line"
    confined = (*world.argv, *world.options(), *world.files, b"--", BASH, b"-c", script)
    pipe = subprocess.PIPE
    argv: list[str | bytes] = [BASH, "-c", launcher, "launcher", *confined]
    with subprocess.Popen(argv, env=ENVIRONMENT, stdin=pipe, stdout=pipe) as parent:
        assert parent.stdout is not None
        words = {parent.stdout.readline(), parent.stdout.readline()}
        (outer,) = (int(word) for word in words - {b"up\n"})
        identities = (identity_of(outer), identity_of(only_child(outer)))
        parent.kill()
        wait_for(lambda: not any(one is not None and lives(one) for one in identities), "both have ended")


def test_the_parent_has_to_be_the_one_that_asked(world: JailWorld) -> None:
    true = (*world.files, b"--", BASH, b"-c", b":")
    assert world.ask(b"--parent", b"%d" % os.getpid(), *true).returncode == 0
    ran = world.ask(b"--parent", b"1", *true)
    assert (ran.returncode, ran.stderr) == (
        JAIL_FAILED,
        said("namespace", 0, "the program that asked for this stream is gone"),
    )


@pytest.mark.parametrize("tree", [b"home/../../etc", b"..", b"home//x", b"./home", b"home/", b"/home"])
def test_a_tree_that_is_no_plain_path(world: JailWorld, tree: bytes) -> None:
    ran = world.run(":", tree=tree)
    assert (ran.returncode, ran.stderr) == (JAIL_FAILED, said("usage", 0, "the tree is not a plain relative path"))


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("instead", ["nothing", "symlink", "symlink above", "file", "no root", "root is a file"])
def test_trees_that_are_not_there(world: JailWorld, side: str, instead: str) -> None:
    root, tree = (world.source_root, world.source) if side == "source" else (world.target_root, world.target)
    moved, code = {
        "nothing": (tree, 2),
        "symlink": (tree, 20),  # ENOTDIR, as O_DIRECTORY is asked for as well
        "symlink above": (tree.parent, 20),
        "file": (tree, 20),
        "no root": (root, 2),
        "root is a file": (root, 20),
    }[instead]
    elsewhere = world.scratch / "elsewhere"
    moved.rename(elsewhere)
    if "symlink" in instead:
        moved.symlink_to(elsewhere)
    elif "file" in instead:
        moved.write_bytes(b"")
    ran = world.run("echo x > /target/x")
    of_root = "root" in instead
    text = "the root of the file system cannot be opened" if of_root else "the tree cannot be opened"
    step = f"{side}-{'root' if of_root else 'tree'}"
    assert (ran.returncode, ran.stdout, ran.stderr) == (JAIL_FAILED, b"", said(step, code, text))
    message = jail_message(ran.stderr)
    assert message is not None
    assert (message.step, message.errno) == (step, code)


def test_without_root_nothing_runs(world: JailWorld) -> None:
    world.scratch.chmod(0o755)
    before = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs")
    ran = world.ask(*world.files, b"--", BASH, b"-c", b"echo ran", before=before)
    assert (ran.returncode, ran.stdout, ran.stderr) == (JAIL_FAILED, b"", said("namespace", 1, "unshare"))


def test_scripts_without_their_directory_do_not_run(world: JailWorld) -> None:
    ran = world.ask(b"--system", b"/no/such/directory", b"--", b"/bin/sh")
    assert (ran.returncode, ran.stderr[:28]) == (JAIL_FAILED, b"migrator-jail: namespace: 2:")
