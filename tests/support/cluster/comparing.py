"""Comparing what a mount shows with what it showed before bricks came and went."""

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from migrator.core.entry import ACL_ACCESS
from tests.support.waiting import wait_for

Name = TypeVar("Name", str, bytes)


def everything(source: Path) -> dict[str, bytes]:
    """What every file holds, by its path; but for those below a directory `writing`, where tests write meanwhile."""
    return {
        str(path.relative_to(source)): path.read_bytes()
        for path in source.rglob("*")
        if path.is_file() and not path.is_symlink() and "writing" not in path.parts
    }


def wait_until_is_there(
    look: Callable[[], Mapping[Name, object]], before: Mapping[Name, object], *, more: bool = False
) -> None:
    """Until everything is as it was, and nothing else is there unless `more`. For some moments after a commit or a crash clients
    ask bricks that have gone, or have not reached all that have come (GlusterFS 10.3). What was the matter is told at the end.
    """
    failed: list[str] = []
    other: list[Name] = []

    def there() -> bool:
        failed.clear()
        other.clear()
        try:
            now = look()
        except OSError as error:
            failed.append(str(error))
            return False
        names = before.keys() if more else now.keys() | before.keys()
        other.extend(sorted(name for name in names if now.get(name) != before.get(name)))
        return not other

    try:
        wait_for(there, "everything is as it was")
    except AssertionError as error:
        raise AssertionError(f"{error}: {failed}, {len(other)} are not, as {other[:5]}") from error


def private_files(source: Path) -> list[Path]:
    """Files of mode 0640 without an ACL, in a directory whose default ACL grants more. GlusterFS 10.3 alone would open them
    when it moves them.
    """
    directory = source / "private"
    directory.mkdir()
    files = [directory / f"file-{number}" for number in range(40)]
    for file in files:
        file.touch()
        file.chmod(0o640)
    subprocess.run(["setfacl", "-d", "-m", "u:20500:rwx", directory], check=True)
    return files


def opened(files: Iterable[Path]) -> dict[str, tuple[str, str]]:
    """Mode and ACL of those that are not as `private_files` made them."""
    modes = {file: f"{file.stat().st_mode:o}" for file in files}
    acls = {file: acl_of(file) for file in files}
    return {file.name: (modes[file], acls[file]) for file in files if modes[file] != "100640" or acls[file]}


def acl_of(file: Path) -> str:
    """The access ACL; empty if it has none."""
    return os.getxattr(file, ACL_ACCESS).hex() if ACL_ACCESS in map(os.fsencode, os.listxattr(file)) else ""
