"""Both sides compared by other means than the program's own: rsync's dry run, and digests by hashlib."""

import hashlib
import os
import stat
import subprocess
from pathlib import Path

_ROOT_LINE = b"./"


def rsync_differences(source: Path, target: Path, tree: str) -> list[bytes]:
    """What rsync would still do, names and attributes, content by checksum; the closed root of the tree aside."""
    done = subprocess.run(
        [
            "rsync", "-naHAXi", "--checksum", "--delete", "--numeric-ids", "--modify-window=-1", "-8",
            "--filter=-x system.*", "--filter=-x trusted.*",
            f"{source / tree}/", f"{target / tree}/",
        ],
        capture_output=True,
        check=False,
    )  # fmt: skip
    # A path that is too long for rsync itself makes it complain; those are compared by digest below.
    lines = [line for line in done.stdout.split(b"\n") if line]
    return [line for line in lines if line.split(b" ", 1)[1] != _ROOT_LINE]


def digests(root: Path) -> dict[bytes, str]:
    """The content of every regular file, by path relative to the root, whatever the path's length."""
    found: dict[bytes, str] = {}
    for directory, _, names, fd in os.fwalk(os.fsencode(root), follow_symlinks=False):
        for name in names:
            if stat.S_ISREG(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=fd)
                with open(file, "rb") as stream:
                    path = os.path.relpath(directory, os.fsencode(root)) + b"/" + name
                    found[path] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def assert_equal(source: Path, target: Path, trees: list[str]) -> None:
    for tree in trees:
        assert rsync_differences(source, target, tree) == []
        assert digests(source / tree) == digests(target / tree)
