"""A small target on disk with what changed on its source: for tests that carry move lists out."""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from migrator.core.entry import EntryType
from migrator.fs.model import TRASH_NAME, SourceHealth, TargetCapabilities, trash_place
from migrator.fs.moving import MovingTarget
from migrator.transfer.delta.model import Gone, Rename, WrittenMoves
from migrator.transfer.delta.moves import Moved, apply_moves
from tests.support.fake_filesystem import FakeFileSystem
from tests.support.fakes import inline
from tests.support.kills import Killed

TREE = b"home/alice"
PLACE = trash_place(1_700_000_000, 1, "delta", 1)
MTIME_NS = 1_600_000_000_000_000_000
HEALTHY = SourceHealth(problems=(), doubts=())


@dataclass
class Counted:
    """The real moves; after `left` calls that change something, the program is killed: `torn` after it, else before."""

    real: MovingTarget
    left: int | None = None
    torn: bool = False
    calls: int = 0
    errors: dict[tuple[str, bytes], OSError] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        real = getattr(self.real, name)
        if name in ("look", "entries", "expire"):
            return real  # type: ignore[no-any-return]

        def call(*args: Any, **options: Any) -> Any:
            if (error := self.errors.get((name, args[0]))) is not None:
                raise error
            self.calls += 1
            if self.left is not None and self.calls >= self.left:
                if self.torn:
                    real(*args, **options)
                raise Killed
            return real(*args, **options)

        return call


@dataclass
class Lists:
    """Move lists in memory."""

    kept_renames: Sequence[Rename] = ()
    kept_gone: Sequence[Gone] = ()

    def write(self, name: str, renames: Iterable[Rename], gone: Iterable[Gone]) -> WrittenMoves:
        self.kept_renames, self.kept_gone = list(renames), list(gone)
        return WrittenMoves(move_list=name, digest="d", renames=len(self.kept_renames), gone=len(self.kept_gone))

    def renames(self, move_list: str) -> Iterator[Rename]:
        return iter(self.kept_renames)

    def gone(self, move_list: str) -> Iterator[Gone]:
        return iter(self.kept_gone)

    def digest(self, move_list: str) -> str:
        return "d"


class MoveWorld:
    """The target's root is `root`; names in the tree are given without it. Every file has the same size and time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.source = FakeFileSystem()
        self.source.add(TREE)
        self.lists = Lists()
        self.moves = Counted(MovingTarget(os.fsencode(root)))
        self.health: list[SourceHealth] = []
        self.health_looks = 0
        self.capabilities = TargetCapabilities()
        os.makedirs(self.at(b""), exist_ok=True)

    def at(self, name: bytes) -> bytes:
        return os.path.join(os.fsencode(self.root), TREE, name)

    def file(self, name: bytes, content: bytes = b"", *, mtime_ns: int = MTIME_NS) -> None:
        """A file on the target; its content (8 bytes) tells it from all others."""
        self.directory(os.path.dirname(name))
        with open(self.at(name), "wb") as stream:
            stream.write((content or name[-8:]).ljust(8))
        os.utime(self.at(name), ns=(mtime_ns, mtime_ns))

    def directory(self, name: bytes) -> None:
        os.makedirs(self.at(name), exist_ok=True)

    def renamed(self, *pairs: tuple[bytes, bytes], type: EntryType = EntryType.FILE) -> None:  # noqa: A002
        new = [
            Rename(tree=TREE, old=_full(old), new=_full(new), type=type, size_bytes=8, mtime_ns=MTIME_NS)
            for old, new in pairs
        ]
        self.lists.kept_renames = [*self.lists.kept_renames, *new]

    def vanished(self, *names: bytes) -> None:
        new = [Gone(tree=TREE, path=_full(name)) for name in names]
        self.lists.kept_gone = [*self.lists.kept_gone, *new]

    def apply(self) -> Moved:
        under_way: Any = SimpleNamespace(
            world=SimpleNamespace(source=self.source, blocking=inline),
            request=SimpleNamespace(stall_timeout_s=60.0),
            capabilities=self.capabilities,
            sync=SimpleNamespace(begun_after_now=self._sync),
            health=SimpleNamespace(begun_after_now=self._health),
        )
        moves, lists = cast("Any", self.moves), cast("Any", self.lists)
        moved = asyncio.run(apply_moves(under_way, moves, lists, move_list="list", digest="d", place=PLACE))
        assert self.moves.real.look(TREE) is not None
        return moved

    def names(self) -> Mapping[bytes, bytes | None]:
        """What is in the tree: content of files, None for directories."""
        return dict(_contents(self.at(b"")))

    def trashed(self) -> Mapping[bytes, bytes | None]:
        """What of the tree is in the trash, apart from what is staged."""
        place = os.path.join(os.fsencode(self.root), TRASH_NAME, PLACE.encode(), TREE)
        return dict(_contents(place)) if os.path.lexists(place) else {}

    def contents(self) -> set[bytes]:
        """The contents of all files below the root, the trash among them."""
        return {content for _, content in _contents(os.fsencode(self.root)) if content is not None}

    def close(self) -> None:
        self.moves.real.close()
        shutil.rmtree(self.root)

    async def _sync(self) -> None:
        """Nothing is lost."""

    async def _health(self) -> SourceHealth:
        self.health_looks += 1
        return self.health.pop(0) if self.health else HEALTHY


def _full(name: bytes) -> bytes:
    return TREE + b"/" + name


def _contents(top: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    for directory, directories, files in os.walk(top):
        for name in directories:
            yield os.path.relpath(os.path.join(directory, name), top), None
        for name in files:
            with open(os.path.join(directory, name), "rb") as stream:
                yield os.path.relpath(os.path.join(directory, name), top), stream.read().strip()
