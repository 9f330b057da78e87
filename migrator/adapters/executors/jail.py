"""Runs one program in a mount namespace that holds one tree of the source, one of the target, and nothing else.

Stand-alone: standard library only, so that it can be run by any Python 3.9 or later on any host:

    python3 -I -S jail.py [--source-root R] [--target-root R] [--tree T] [--file F ...] [--parent PID] [--system D]
        -- PROGRAM ARG...

As root on Linux. PROGRAM sees `R/T` of the source at `/source`, read-only, `R/T` of the target at `/target`, and each F
(itself, its loader, its libraries) read-only under its own path; /dev/null and /dev/urandom, no /proc, no network, no other process. The
trees are opened component by component without following symlinks and bound through the descriptors, so that a
component that is swapped meanwhile fails. With this process, or with the one of `--parent`, everything in it dies.

With `--system D`, for scripts that need a shell and other programs, it sees besides: the installed programs and their
libraries (`/usr`, `/bin`, `/lib`, ...), read-only; a /proc of its own processes alone, read-only; an empty /tmp; and D,
writable, at `/work`. This ends when PROGRAM and everything that it has started has ended, as PROGRAM did; 128 and the
signal's number where one ended it.

It exits as PROGRAM does; with 125 where the confinement could not be set up, and one line on standard error:
`migrator-jail: STEP: ERRNO: TEXT: REASON`, where STEP is one of the constants below.

`migrator-native confine` (adapters/native/src/confine.c) is its twin for all but `--system`, many times as fast to
start; this is for scripts, and for hosts where that program does not run. One suite of tests holds for both.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import stat
import struct
import sys

SET_UP_FAILED = 125

STEP_USAGE = "usage"
STEP_NAMESPACE = "namespace"
STEP_SOURCE_ROOT = "source-root"
STEP_SOURCE_TREE = "source-tree"
STEP_TARGET_ROOT = "target-root"
STEP_TARGET_TREE = "target-tree"
STEP_PROGRAM = "program"

_CLONE_NEWNS = 0x00020000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWPID = 0x20000000
_CLONE_NEWNET = 0x40000000

_MS_RDONLY = 0x1
_MS_NOSUID = 0x2
_MS_NODEV = 0x4
_MS_NOEXEC = 0x8
_MS_REMOUNT = 0x20
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_PRIVATE = 1 << 18
_MNT_DETACH = 0x2
_TMPFS_OPTIONS = b"size=1m,nr_inodes=1024,mode=0755"

_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_READ = 23
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITY_VERSION_3 = 0x20080522

# linux/capability.h. What copying any file with all its attributes needs: chown, dac_override, dac_read_search, fowner,
# fsetid, kill, setgid, setuid, sys_admin (security.* attributes), sys_resource (quotas and reserved blocks, as root has
# them everywhere else), mknod, setfcap.
_KEPT_CAPABILITIES = frozenset({0, 1, 2, 3, 4, 5, 6, 7, 21, 24, 27, 31})
_CAPABILITIES = range(64)

_DEVICES = (b"/dev/null", b"/dev/urandom")
"""Without random numbers rsync 3.5.0 gives its temporary files the same names every time."""

_SYSTEM = (b"/usr", b"/bin", b"/sbin", b"/lib", b"/lib32", b"/lib64", b"/libx32", b"/etc/alternatives", b"/etc/perl")
"""Programs and their libraries, where there are such directories: nothing of the machine's settings and secrets."""
_SYSTEM_FILES = (b"/etc/ld.so.cache",)
_SYSTEM_TMPFS_OPTIONS = b"size=256m,mode=1777"

_DIRECTORY_FLAGS = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_STAGING_DIRECTORIES = (b"/tmp", b"/run", b"/mnt", b"/var")
"""The new root is built over one of them, in a namespace of its own: nothing is written there."""

_libc = ctypes.CDLL(None, use_errno=True)


class SetUpFailed(Exception):
    """A step could not be done. `code` is an errno, or 0."""

    def __init__(self, step: str, code: int, text: str) -> None:
        super().__init__(text)
        self.step = step
        self.code = code
        self.text = text


class Request:
    """What the command line asks for."""

    def __init__(self, arguments: list[bytes]) -> None:
        self.source_root = b""
        self.target_root = b""
        self.tree = b""
        self.files: list[bytes] = []
        self.parent_pid = 0
        self.work = b""
        left = list(arguments)
        while left and left[0] != b"--":
            if len(left) < 2:
                raise SetUpFailed(STEP_USAGE, 0, "an option without a value")
            self._take(left.pop(0), left.pop(0))
        self.argv = left[1:]
        if not self.argv:
            raise SetUpFailed(STEP_USAGE, 0, "no program")

    def _take(self, option: bytes, value: bytes) -> None:
        if option == b"--source-root":
            self.source_root = value
        elif option == b"--target-root":
            self.target_root = value
        elif option == b"--tree":
            self.tree = value
        elif option == b"--file":
            self.files.append(value)
        elif option == b"--parent":
            if not value.isdigit():
                raise SetUpFailed(STEP_USAGE, 0, "the parent is not a process number")
            self.parent_pid = int(value)
        elif option == b"--system":
            self.work = value
        else:
            raise SetUpFailed(STEP_USAGE, 0, "an unknown option")


def open_tree(root: bytes, tree: bytes, root_step: str, tree_step: str) -> int:
    """The directory of a tree, without following a symlink beneath the root."""
    try:
        fd = os.open(root, _DIRECTORY_FLAGS)
    except OSError as error:
        raise SetUpFailed(root_step, error.errno or 0, "the root of the file system cannot be opened") from error
    for component in tree.split(b"/") if tree else ():
        if component in (b"", b".", b".."):
            raise SetUpFailed(STEP_USAGE, 0, "the tree is not a plain relative path")
        try:
            deeper = os.open(component, _DIRECTORY_FLAGS | os.O_NOFOLLOW, dir_fd=fd)
        except OSError as error:
            raise SetUpFailed(tree_step, error.errno or 0, "the tree cannot be opened") from error
        finally:
            os.close(fd)
        fd = deeper
    return fd


def confine(request: Request) -> None:
    """Replace everything that this process sees; it must be in a mount namespace of its own."""
    _mount(None, b"/", None, _MS_REC | _MS_PRIVATE)
    trees = []
    if request.source_root:
        fd = open_tree(request.source_root, request.tree, STEP_SOURCE_ROOT, STEP_SOURCE_TREE)
        trees.append((b"source", fd, _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC))
    if request.target_root:
        fd = open_tree(request.target_root, request.tree, STEP_TARGET_ROOT, STEP_TARGET_TREE)
        trees.append((b"target", fd, _MS_NOSUID | _MS_NODEV | _MS_NOEXEC))
    # Opened before the staging directory is covered: they may lie in it.
    files = [(path, _open_file(path), _MS_NODEV) for path in request.files]
    files += [(path, os.open(path, os.O_PATH | os.O_CLOEXEC), _MS_NOEXEC) for path in _DEVICES]
    system = System(request.work) if request.work else None
    staging = next((path for path in _STAGING_DIRECTORIES if _is_directory(path)), None)
    if staging is None:
        raise SetUpFailed(STEP_NAMESPACE, 0, "no directory to build the root in")
    _mount(b"tmpfs", staging, b"tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, _TMPFS_OPTIONS)
    for name, fd, flags in trees:
        place = staging + b"/" + name
        os.mkdir(place, 0o700)  # noqa: PTH102 - paths are bytes
        _bind(fd, place, flags)
    if system is not None:
        system.build(staging)
    for path, fd, flags in files:
        place = staging + b"/" + path.lstrip(b"/")
        os.makedirs(os.path.dirname(place), 0o755, exist_ok=True)
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o755))
        _bind(fd, place, _MS_RDONLY | _MS_NOSUID | flags)
    _mount(None, staging, None, _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, _TMPFS_OPTIONS)
    # The old root comes to lie on the new one and is taken off: pivot_root(2), "pivot_root(".", ".")".
    os.chdir(staging)
    _check(_libc.pivot_root(b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _MNT_DETACH), "umount of the old root")
    os.chdir(b"/")
    _check_read_only(request)


class System:
    """What a script needs of the machine; opened before the staging directory is covered."""

    def __init__(self, work: bytes) -> None:
        self._work = open_tree(work, b"", STEP_NAMESPACE, STEP_NAMESPACE)
        self._links = [(path, os.readlink(path)) for path in _SYSTEM if _is_link(path)]  # noqa: PTH115 - bytes
        self._directories = [(path, os.open(path, _DIRECTORY_FLAGS)) for path in _SYSTEM if _is_directory(path)]
        self._files = [(path, _open_file(path)) for path in _SYSTEM_FILES if _is_file(path)]

    def build(self, staging: bytes) -> None:
        """Lay it all out below the new root."""
        for path, target in self._links:
            os.symlink(target, _parents_made(staging + path))  # noqa: PTH211 - paths are bytes
        for path, fd in self._directories:
            os.mkdir(_parents_made(staging + path), 0o755)  # noqa: PTH102 - paths are bytes
            _bind(fd, staging + path, _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
        for path, fd in self._files:
            os.close(os.open(_parents_made(staging + path), os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o644))
            _bind(fd, staging + path, _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
        for name in (b"/work", b"/tmp", b"/proc"):
            os.mkdir(staging + name, 0o755)  # noqa: PTH102 - paths are bytes
        without = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
        _bind(self._work, staging + b"/work", without)
        _mount(b"tmpfs", staging + b"/tmp", b"tmpfs", without, _SYSTEM_TMPFS_OPTIONS)
        # This process is the first of the new pid namespace already: that is the one that is shown.
        _mount(b"proc", staging + b"/proc", b"proc", without | _MS_RDONLY)


def drop_privileges() -> None:
    """Leave what copying files needs."""
    for capability in _CAPABILITIES:
        if capability not in _KEPT_CAPABILITIES:
            # EINVAL beyond the last capability that this kernel knows.
            _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
            if _libc.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) == 1:
                raise SetUpFailed(STEP_NAMESPACE, errno.EPERM, "a capability cannot be dropped")
    _forget_inheritable()
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def _forget_inheritable() -> None:
    """They pass the bounding set at exec: root's program would have them again. Ambient ones go with them."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    data = ctypes.create_string_buffer(24)
    _check(_libc.capget(header, data), "capget")
    # Twice effective, permitted, inheritable: 32 capabilities each.
    words = struct.unpack("=6I", data.raw)
    _check(_libc.capset(header, struct.pack("=6I", words[0], words[1], 0, words[3], words[4], 0)), "capset")


def run(request: Request) -> int:
    """Fork into the namespaces, wait, and return the exit code; minus the signal's number where a signal ended it."""
    _die_with_parent()
    if request.parent_pid and os.getppid() != request.parent_pid:
        raise SetUpFailed(STEP_NAMESPACE, 0, "the program that asked for this stream is gone")
    flags = _CLONE_NEWNS | _CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWIPC
    _check(_libc.unshare(flags), "unshare")
    # The first child of a process that has a new pid namespace is its init: when it dies, the kernel ends all of them.
    alive, held = os.pipe()
    # The group's TERM reaches the program as well: it decides how to end, this process reports it.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _ended_in_set_up)
    child = os.fork()
    if child == 0:
        os.close(held)
        os._exit(_be_confined(request, alive))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The program must see the end of its input, and its reader the end of its output.
    for fd in (0, 1, alive):
        os.close(fd)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _be_confined(request: Request, alive: int) -> int:
    try:
        _die_with_parent()
        poll = select.poll()
        poll.register(alive, 0)
        if poll.poll(0):
            return SET_UP_FAILED  # the parent died before it could be tied to this process
        confine(request)
        drop_privileges()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if request.work and (program := os.fork()):
            return _attend(program)
        try:
            os.execv(request.argv[0], request.argv)  # noqa: S606 - no shell is what is wanted
        except OSError as error:
            raise SetUpFailed(STEP_PROGRAM, error.errno or 0, "the program cannot be started") from error
    except SetUpFailed as failure:
        _report(failure)
    except OSError as error:
        _report(SetUpFailed(STEP_NAMESPACE, error.errno or 0, "the new root cannot be built"))
    return SET_UP_FAILED


def _attend(program: int) -> int:
    """Be the first process of the namespace: it inherits and reaps what others leave, and with it all of them end.
    So it stays until the last one has ended by itself, and hands on what asks it to end.
    """

    def end_all(number: int, _frame: object) -> None:
        try:
            os.kill(-1, number)
        except ProcessLookupError:
            return

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end_all)
    result = SET_UP_FAILED
    while True:
        try:
            ended, status = os.wait()
        except ChildProcessError:
            return result
        if ended == program:
            code = os.waitstatus_to_exitcode(status)
            result = code if code >= 0 else 128 - code


def _ended_in_set_up(number: int, _frame: object) -> None:
    os._exit(128 + number)


def _die_with_parent() -> None:
    _check(_libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl")


def _is_directory(path: bytes) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _is_link(path: bytes) -> bool:
    return os.path.islink(path)  # noqa: PTH114 - paths are bytes


def _is_file(path: bytes) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


def _parents_made(place: bytes) -> bytes:
    os.makedirs(os.path.dirname(place), 0o755, exist_ok=True)
    return place


def _open_file(path: bytes) -> int:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise SetUpFailed(STEP_PROGRAM, error.errno or 0, "a file of the program cannot be opened") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise SetUpFailed(STEP_PROGRAM, 0, "a file of the program is not a regular file")
    return fd


def _bind(fd: int, place: bytes, flags: int) -> None:
    _mount(b"/proc/self/fd/%d" % fd, place, None, _MS_BIND)
    _mount(None, place, None, _MS_REMOUNT | _MS_BIND | flags)
    os.close(fd)


def _check_read_only(request: Request) -> None:
    places = [b"/"] + ([b"/source"] if request.source_root else []) + ([b"/usr", b"/proc"] if request.work else [])
    for place in places:
        if not os.statvfs(place).f_flag & os.ST_RDONLY:
            raise SetUpFailed(STEP_NAMESPACE, 0, "a part that must be read-only is not")


def _mount(what: bytes | None, place: bytes, kind: bytes | None, flags: int, options: bytes | None = None) -> None:
    _check(_libc.mount(what, place, kind, ctypes.c_ulong(flags), options), "mount")


def _check(result: int, call: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise SetUpFailed(STEP_NAMESPACE, code, call)


def _report(failure: SetUpFailed) -> None:
    reason = os.strerror(failure.code) if failure.code else "refused"
    line = f"migrator-jail: {failure.step}: {failure.code}: {failure.text}: {reason}\n"
    os.write(2, line.encode("ascii", "backslashreplace"))


def main() -> int:
    """Run what the command line asks for, confined."""
    try:
        result = run(Request([os.fsencode(argument) for argument in sys.argv[1:]]))
    except SetUpFailed as failure:
        _report(failure)
        return SET_UP_FAILED
    except OSError as error:
        _report(SetUpFailed(STEP_NAMESPACE, error.errno or 0, "the namespaces cannot be made"))
        return SET_UP_FAILED
    if result < 0:
        if -result not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-result, signal.SIG_DFL)
        os.kill(os.getpid(), -result)
    return result


if __name__ == "__main__":
    sys.exit(main())
