"""A directory passed through by FUSE, read-only, whose answers a test decides.

Run as `python -m tests.support.answering_mount BACKING MOUNT_POINT CONTROL`, in a process of its own, or by
`answering_mount`. CONTROL is a directory with `answers.json`, which is read again whenever it has changed.
"""

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from migrator.fs.beneath import Root, entry_path
from tests.support.beegfs_like import DEADLINE_S


class AnsweringMount:
    """`path` is the mount point."""

    def __init__(self, path: Path, control: Path) -> None:
        self.path = path
        self._control = control

    def answer(
        self,
        *,
        errors: Mapping[str, int] | None = None,
        doubled: Sequence[str] = (),
        dies_at: str | None = None,
    ) -> None:
        """From now on, a listing of these paths fails, others list each entry twice, and every request fails (ENOTCONN)
        once `dies_at` is listed, until the next call.
        """
        answers = {"errors": dict(errors or {}), "doubled": list(doubled), "dies_at": dies_at, "at": time.time_ns()}
        made = self._control / "answers.new"
        made.write_text(json.dumps(answers))
        made.rename(self._control / "answers.json")


@contextmanager
def answering_mount(directory: Path, backing: Path) -> Iterator[AnsweringMount]:
    """`backing`, mounted in an existing directory for the length of the block."""
    mount_point, control = directory / "answering", directory / "control"
    mount_point.mkdir()
    control.mkdir()
    made = AnsweringMount(mount_point, control)
    made.answer()
    log = directory / "answering.log"
    with log.open("wb") as output:
        argv = [
            sys.executable,
            "-m",
            "tests.support.answering_mount",
            str(backing),
            str(mount_point),
            str(control),
        ]
        process = subprocess.Popen(
            argv, cwd=Path(__file__).parents[2], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + DEADLINE_S
        while not os.path.ismount(mount_point):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the file system did not come up: {log.read_text(errors='replace')}")
            time.sleep(0.01)
        yield made
    finally:
        if subprocess.run(["fusermount3", "-u", "-q", str(mount_point)], check=False).returncode != 0:
            # A test that failed has it open.
            subprocess.run(["umount", "-l", str(mount_point)], check=False)
            process.kill()
        process.wait()


def _serve(backing: bytes, mount_point: str, control: Path) -> None:
    import mfusepy

    class Answering(mfusepy.Operations):  # type: ignore[misc]
        use_ns = True

        def __init__(self) -> None:
            self._root = Root(backing)
            self._answers: dict[str, Any] = {}
            self._read_at = 0
            self._dead = False

        def _begin(self) -> None:
            changed_at = os.stat(control / "answers.json").st_mtime_ns
            if changed_at != self._read_at:
                self._answers = json.loads((control / "answers.json").read_text())
                self._read_at, self._dead = changed_at, False
            if self._dead:
                raise OSError(errno.ENOTCONN, "dead")

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            self._begin()
            name = os.fsencode(path).lstrip(b"/")
            if name:
                with self._root.parent(name) as (fd, last):
                    facts = os.stat(last, dir_fd=fd, follow_symlinks=False)
            else:
                facts = os.stat(backing)
            shown: dict[str, Any] = {
                key: getattr(facts, key)
                for key in ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks", "st_ino", "st_rdev")
            }
            return shown | {key: getattr(facts, f"{key}_ns") for key in ("st_atime", "st_mtime", "st_ctime")}

        def opendir(self, path: str) -> int:
            name = path.lstrip("/")
            self._begin()
            if name == self._answers["dies_at"]:
                self._dead = True
                raise OSError(errno.ENOTCONN, "dead")
            if name in self._answers["errors"]:
                raise OSError(self._answers["errors"][name], "as the test decides")
            return 0

        def readdir(self, path: str, fh: int) -> Iterator[tuple[str, dict[str, int], int]]:
            name = path.lstrip("/")
            self._begin()
            fd = self._root.open(os.fsencode(name), os.O_PATH | os.O_DIRECTORY)
            try:
                with os.scandir(f"/proc/self/fd/{fd}") as listing:
                    found = [(one.name, one.stat(follow_symlinks=False)) for one in listing]
            finally:
                os.close(fd)
            for entry, facts in found * (2 if name in self._answers["doubled"] else 1):
                yield entry, {"st_mode": facts.st_mode, "st_ino": facts.st_ino}, 0

        def readlink(self, path: str) -> str:
            self._begin()
            with self._root.parent(os.fsencode(path).lstrip(b"/")) as (fd, name):
                return os.fsdecode(os.readlink(name, dir_fd=fd))

        def listxattr(self, path: str) -> list[str]:
            self._begin()
            with self._named(path) as named:
                return os.listxattr(named, follow_symlinks=False)

        def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
            self._begin()
            with self._named(path) as named:
                return os.getxattr(named, os.fsencode(name), follow_symlinks=False)

        def statfs(self, path: str) -> dict[str, int]:
            room = os.statvfs(backing)
            facts = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_namemax")
            return {key: getattr(room, key) for key in facts}

        def open(self, path: str, flags: int) -> int:
            self._begin()
            return self._root.open(os.fsencode(path).lstrip(b"/"), flags & os.O_ACCMODE)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            self._begin()
            return os.pread(fh, size, offset)

        def release(self, path: str, fh: int) -> int:
            os.close(fh)
            return 0

        @contextmanager
        def _named(self, path: str) -> Iterator[bytes]:
            name = os.fsencode(path).lstrip(b"/")
            if not name:
                yield backing
                return
            with self._root.parent(name) as (fd, last):
                yield entry_path(fd, last)

    mfusepy.FUSE(
        Answering(),
        mount_point,
        fsname="answering",
        max_threads=128,
        **dict.fromkeys(("foreground", "allow_other", "ro", "use_ino"), True),
        negative_timeout=0.0,
        **dict.fromkeys(("entry_timeout", "attr_timeout"), 0.0),
    )


if __name__ == "__main__":
    _serve(os.fsencode(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
