"""A user tree on a real file system that changes in every way that delta passes tell apart."""

import os
import shutil
import subprocess
import time
from pathlib import Path

from migrator.catalog.model import SETTLED_BEFORE_SCAN_S
from migrator.fs.model import JOURNAL_NAME

MANY = 1000
"""Files in the directory that is renamed."""
MANY_BYTES = 2000


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def rewrite(path: Path, content: bytes) -> None:
    """Other content, with the times as they were."""
    facts = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def build(tree: Path) -> None:
    """What is there before the seed pass."""
    for number in range(20):
        write(tree / "kept" / f"{number}", f"kept {number}" * 50)
    for number in range(MANY):
        write(tree / "many" / f"sub-{number % 5}" / f"{number}", f"{number:04d}" * (MANY_BYTES // 4))
    for name in ("grown", "rewritten", "chmod", "chown", "acl", "xattr", "renamed", "one", "other", "vanished"):
        write(tree / "files" / name, f"{name} before")
    for name in ("becomes-directory", "replaced-by-fifo", "new\nline \N{SNOWMAN}"):
        write(tree / "files" / name, name)
    write(tree / "becomes-file" / "inner" / "deep", "deep")
    write(tree / "vanishes" / "inner" / "deep", "goes with it")
    write(tree / "links" / "name", "linked")
    write(tree / "links" / "alone", "will be linked")
    os.link(tree / "links" / "name", tree / "links" / "second")
    os.link(tree / "links" / "name", tree / "links" / "third")
    (tree / "symlink").symlink_to("kept/0")
    (tree / "symlink-renamed").symlink_to("kept/1")
    write(tree / "swap-a" / "in-a", "a")
    write(tree / "swap-b" / "in-b", "b")
    os.mkfifo(tree / "fifo")
    for above, directories, files in os.walk(tree):
        for name in (*directories, *files, "."):
            os.chown(os.path.join(above, name), 60001, 60001, follow_symlinks=False)


def change(tree: Path) -> None:
    """Every way to change; what lies in `kept` stays as it is."""
    files = tree / "files"
    write(tree / "new" / "deep" / "file", "new")
    (tree / "empty").mkdir()
    with (files / "grown").open("a") as grown:
        grown.write("and more")
    rewrite(files / "rewritten", b"REWRITTEN AFTER!")
    (files / "chmod").chmod(0o640)
    os.chown(files / "chown", 60002, 60003)
    subprocess.run(["setfacl", "-m", "u:60005:r", str(files / "acl")], check=True)
    os.setxattr(files / "xattr", "user.note", b"new")
    (files / "renamed").rename(files / "has another name")
    (tree / "many").rename(tree / "new" / "moved along")
    exchange(files / "one", files / "other")
    exchange(tree / "swap-a", tree / "swap-b")
    os.link(tree / "links" / "alone", tree / "links" / "not alone")
    (tree / "links" / "third").unlink()
    (files / "becomes-directory").unlink()
    write(files / "becomes-directory" / "inner", "in a directory now")
    shutil.rmtree(tree / "becomes-file")
    write(tree / "becomes-file", "a file now")
    (files / "vanished").unlink()
    shutil.rmtree(tree / "vanishes")
    (tree / "symlink").unlink()
    (tree / "symlink").symlink_to("kept/2")
    (tree / "symlink-renamed").rename(tree / "symlink has another name")
    (files / "replaced-by-fifo").unlink()
    os.mkfifo(files / "replaced-by-fifo")
    os.mkfifo(tree / "another fifo", 0o620)
    (tree / "fifo").unlink()


VANISHED = ("files/vanished", "vanishes/inner/deep", "links/third", "fifo")
"""What the trash holds after a pass over these changes, besides what became something else."""


def exchange(one: Path, other: Path) -> None:
    """Give each the name of the other."""
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


def let_settle() -> None:
    """Wait until what was changed before is so old that a scan that begins now believes its times."""
    time.sleep(SETTLED_BEFORE_SCAN_S + 0.1)


def standing(tree: Path) -> dict[str, tuple[int, int, int]]:
    """Inode, mtime and ctime of every file in a directory, whatever the length of its path: what was sent again has others.
    The journal is left out, which every command writes to.
    """
    found: dict[str, tuple[int, int, int]] = {}
    for above, _, names, fd in os.fwalk(tree):
        for name in names:
            if os.fsencode(name) == JOURNAL_NAME:
                continue
            facts = os.stat(name, dir_fd=fd, follow_symlinks=False)
            path = str(Path(above, name).relative_to(tree))
            found[path] = (facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns)
    return found
