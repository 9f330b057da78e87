"""Comparing what a mount shows with what it showed before bricks came and went."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from tests.support.waiting import wait_for

Name = TypeVar("Name", str, bytes)


def everything(source: Path) -> dict[str, bytes]:
    """What every file holds, by its path; but for those in a directory `writing`, where tests write meanwhile."""
    return {
        str(path.relative_to(source)): path.read_bytes()
        for path in source.rglob("*")
        if path.is_file() and not path.is_symlink() and path.parent.name != "writing"
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
