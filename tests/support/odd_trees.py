"""Trees that have broken engines, beyond the lab's odd files, and the changes that a delta pass has to carry over."""

import errno
import os
import stat
import struct
from collections.abc import Sequence
from pathlib import Path

from tests.support.entries import acl

LEVELS = 70
"""rsync 3.5 resolves paths of more than 64 directories in another way."""
SPECIAL_MODES = (0o000, 0o600, 0o622, 0o666, 0o777, 0o2755, 0o4711)
KINDS = {
    "fifo": (stat.S_IFIFO, 0),
    "socket": (stat.S_IFSOCK, 0),
    "character": (stat.S_IFCHR, os.makedev(1, 3)),
    "block": (stat.S_IFBLK, os.makedev(259, 77)),
}
FAKE_SUPER = {"user.rsync.%stat": b"100644 0,0 1001:1002", "user.rsync.%aacl": b"\0" * 8, "user.rsync.plain": b"1"}
"""A backup by `rsync --fake-super` keeps owners, devices and ACLs in attributes."""
ODD_IDS = (20001, 4294967294)
TIMES_NS = (-15_552_000 * 10**9 - 1, 1, 2_000_000_000_999_999_999)


def make_odd_tree(tree: Path, times_ns: Sequence[int] = TIMES_NS) -> None:
    """Fill `more` beneath an existing tree. `times_ns` are those of some paths."""
    top = tree / "more"
    top.mkdir()
    _deep(top / "deep")
    for kind in KINDS:
        for mode in SPECIAL_MODES:
            _special(top / kind / f"{mode:04o}", kind, mode)
    _links(top / "links")
    _attributes(top / "attributes")
    _sparse(top / "sparse")
    _times(top / "times", times_ns)


def change_odd_tree(tree: Path, times_ns: Sequence[int] = TIMES_NS) -> None:
    """Change what `make_odd_tree` made: attributes alone, content, kinds, names and links."""
    top = tree / "more"
    for number, kind in enumerate(KINDS):
        others = {mode: SPECIAL_MODES[(at + 1) % len(SPECIAL_MODES)] for at, mode in enumerate(SPECIAL_MODES)}
        for mode, other in others.items():
            (top / kind / f"{mode:04o}").chmod(other)
        os.chown(top / kind / "0600", 20007, 20008)
        os.utime(top / kind / "0666", ns=(1, 1_234_567_890_123_456_789))
        (top / kind / "0777").rename(top / kind / "renamed")
        (top / kind / "0622").unlink()
        _special(top / kind / "0622", list(KINDS)[number - 1], 0o622)
        # A second name appears, and in place of a node a file, a directory, and a symlink.
        os.link(top / kind / "0600", top / kind / "second")
        (top / kind / "0000").unlink()
        (top / kind / "0000").symlink_to("0600")
    (top / "fifo" / "2755").unlink()
    (top / "fifo" / "2755").mkdir(mode=0o2755)
    (top / "socket" / "2755").unlink()
    (top / "socket" / "2755").write_text("a file")
    deepest = _deepest(top / "deep")
    (deepest / "file").write_text("changed")
    (deepest / "file").chmod(0o604)
    (deepest / "new").write_text("new")
    deepest.chmod(0o710)
    for name, value in (("user.rsync.%stat", b"120777 0,0 0:0"), ("user.rsync.%dacl", b"\1" * 8)):
        os.setxattr(top / "attributes" / "file", name, value)
    os.removexattr(top / "attributes" / "directory", "user.rsync.%aacl")
    os.setxattr(top / "attributes" / "fifo", "system.posix_acl_access", acl(7, 1, 1, 1, 1, uid=4321))
    os.removexattr(top / "attributes" / "socket", "system.posix_acl_access")
    if "security.capability" in os.listxattr(top / "attributes" / "capable"):
        os.removexattr(top / "attributes" / "capable", "security.capability")
    with (top / "sparse" / "islands").open("r+b") as file:
        file.seek(3 << 20)
        file.write(b"another island")
    os.truncate(top / "sparse" / "hole", 5 << 20)
    for at, name in enumerate(sorted(os.listdir(top / "times"))):
        os.utime(top / "times" / name, ns=(0, times_ns[at % len(times_ns)] + 7), follow_symlinks=False)


def _deep(place: Path) -> None:
    for level in range(LEVELS):
        place.mkdir()
        (place / "file").write_text(f"{level}")
        (place / "file").chmod(0o640)
        os.setxattr(place / "file", "user.level", b"%d" % level)
        os.setxattr(place / "file", "system.posix_acl_access", acl(6, 4, 4, 0, 0, uid=12345))
        (place / "link").symlink_to("file")
        os.link(place / "file", place / "second")
        for kind in KINDS:
            _special(place / kind, kind, 0o646)
        os.chown(place / "file", 20001, 20002)
        for name in ("file", "link"):
            os.utime(place / name, ns=(level, 10**18 + level), follow_symlinks=False)
        os.setxattr(place, "user.level", b"%d" % level)
        place = place / "d"


def _deepest(place: Path) -> Path:
    while (place / "d").exists():
        place = place / "d"
    return place


def _special(path: Path, kind: str, mode: int) -> None:
    path.parent.mkdir(exist_ok=True)
    file_type, device = KINDS[kind]
    os.mknod(path, file_type | 0o600, device)
    os.chown(path, 20001, 20002)
    path.chmod(mode)
    os.utime(path, ns=(10**18, 10**18 + mode))


def _links(place: Path) -> None:
    """Two names of each kind of path, in directories that are listed apart."""
    (place / "a").mkdir(parents=True)
    (place / "z").mkdir()
    for kind in KINDS:
        _special(place / "a" / kind, kind, 0o640)
    (place / "a" / "symlink").symlink_to("nowhere")
    (place / "a" / "file").write_bytes(b"linked" * 1000)
    for name in (*KINDS, "symlink", "file"):
        os.link(place / "a" / name, place / "z" / name, follow_symlinks=False)
        os.link(place / "a" / name, place / "a" / f"{name} again\n", follow_symlinks=False)


def _attributes(place: Path) -> None:
    place.mkdir()
    (place / "file").write_text("file")
    (place / "directory").mkdir()
    (place / "capable").write_text("capable")
    for kind in KINDS:
        _special(place / kind, kind, 0o666)
        os.setxattr(place / kind, "system.posix_acl_access", acl(6, 4, 6, 4, 0, uid=12345))
        _try_setxattr(place / kind, "security.NTACL", b"of a node")
    (place / "symlink").symlink_to("file")
    _try_setxattr(place / "symlink", "security.NTACL", b"of a symlink")
    for name, value in FAKE_SUPER.items():
        os.setxattr(place / "file", name, value)
        os.setxattr(place / "directory", name, value)
    for number in range(100):
        os.setxattr(place / "file", f"user.many-{number}", b"%d" % number)
    os.setxattr(place / "directory", "system.posix_acl_default", acl(7, 5, 7, 5, 0, uid=12345))
    os.setxattr(place / "directory", "security.NTACL", bytes(range(256)) * 100)
    _try_setxattr(place / "capable", "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0))
    os.chown(place / "directory", *ODD_IDS)
    # Attributes of what nobody may read, and of what is inherited and does not apply.
    (place / "directory" / "closed").write_text("closed")
    os.removexattr(place / "directory" / "closed", "system.posix_acl_access")
    (place / "directory" / "closed").chmod(0)
    _special(place / "directory" / "fifo", "fifo", 0o666)


def _try_setxattr(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP):
            raise


def _sparse(place: Path) -> None:
    place.mkdir()
    with (place / "hole").open("wb") as file:
        file.truncate(9 << 20)
    with (place / "islands").open("wb") as file:
        for at in (0, 5 << 20, 8 << 20):
            file.seek(at + 4096)
            file.write(b"island" * 100)
        file.truncate((9 << 20) + 1)


def _times(place: Path, times_ns: Sequence[int]) -> None:
    place.mkdir()
    for number, time_ns in enumerate(times_ns):
        (place / f"file-{number}").write_text("file")
        (place / f"directory-{number}").mkdir()
        (place / f"symlink-{number}").symlink_to("file")
        for kind in ("file", "directory", "symlink"):
            os.utime(place / f"{kind}-{number}", ns=(0, time_ns), follow_symlinks=False)
