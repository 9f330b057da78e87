"""A site in miniature for tests of archives: a source, a target, a ledger, and reap lists made by looking."""

import asyncio
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from migrator.app.ledger import MigrationLedger
from migrator.beegfs.tool import StorageTargets
from migrator.core.clock import SystemClock
from migrator.core.entry import UserTree
from migrator.fs.acl import GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ, AclEntry, build_acl
from migrator.fs.model import TargetCapabilities
from migrator.fs.reading import PosixSource, ReadingFileSystem
from migrator.fs.rules_owners import SAME_OWNERS, OwnerMap
from migrator.fs.writing import MountedTarget
from migrator.ledger.locks import Locks
from migrator.reap.archive import ArchivePorts, ArchiveRequest, ProvenArchives, archive_trees
from migrator.reap.files import MemberReader, MountedArchiveFolders
from migrator.reap.model import ArchiveLimits, ReapRow, Restored, TreeArchived
from migrator.reap.restore import RestorePorts, RestoreRequest, restore
from migrator.site.model import ReapAction
from tests.support.entries import reap_row
from tests.support.fakes import FakeProgress
from tests.support.records import site_record
from tests.support.snapshots import names_of

TREE = b"home/alice"
ALGORITHM = "xxh3_128"
FRAME_BYTES = 64 * 1024

HOSTILE = (
    b"-rf",
    b"--checkpoint=1",
    b"new\nline",
    b"\xff\xfe\x80",
    b"n" * 255,
    b" leading and trailing ",
    b"glob*[a]?",
    b"back\\slash\\n",
    b"tab\tand\x01control",
    "\u202ereversed".encode(),
    b"100%=percent",
    b"/".join([b"d" * 120] * 12),
)
"""Names that are no trouble for who takes names as bytes."""

ACL = build_acl(
    (
        AclEntry(tag=USER_OBJ, id=0, permissions=6),
        AclEntry(tag=USER, id=1234, permissions=4),
        AclEntry(tag=GROUP_OBJ, id=0, permissions=4),
        AclEntry(tag=GROUP, id=4321, permissions=6),
        AclEntry(tag=MASK, id=0, permissions=6),
        AclEntry(tag=OTHER, id=0, permissions=0),
    )
)
CAPABILITY = struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0)


def write(
    path: Path | bytes, content: bytes = b"content", *, mode: int = 0o640, mtime_ns: int = 1_400_000_000_123_456_789
) -> bytes:
    """A file with its times set, in directories that are made."""
    name = os.fsencode(path)
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "wb") as file:
        file.write(content)
    os.chown(name, 1001, 1002)
    os.chmod(name, mode)  # noqa: PTH101 (the path is bytes)
    os.utime(name, ns=(mtime_ns + 1_000_000_007, mtime_ns))
    return name


def make_odd_tree(tree: bytes) -> None:
    """Everything that an archive can hold, under every kind of name."""
    for number, name in enumerate(HOSTILE):
        write(tree + b"/odd/" + name, b"%d" % number, mtime_ns=1_300_000_000_000_000_001 + number)
    write(tree + b"/empty", b"")
    write(tree + b"/before-1970", mtime_ns=-1_500_000_000)
    write(tree + b"/setuid", mode=0o4755)
    write(tree + b"/large", os.urandom(700_000))
    sparse = write(tree + b"/sparse")
    with open(sparse, "r+b") as file:
        file.truncate(5_000_000)
        file.seek(3_000_000)
        file.write(b"in the middle")
    os.utime(sparse, ns=(5, 6))
    attributes = write(tree + b"/attributes")
    os.setxattr(attributes, b"user.plain", b"value")
    os.setxattr(attributes, b"user.a=b%3Dc", b"\0\xff\n=binary")
    os.setxattr(attributes, b"user.empty", b"")
    os.setxattr(attributes, b"security.capability", CAPABILITY)
    acl = write(tree + b"/acl")
    os.setxattr(acl, b"system.posix_acl_access", ACL)
    os.utime(acl, ns=(1, 2))


@dataclass
class World:
    source_path: Path
    target_path: Path
    ledger: MigrationLedger
    source: PosixSource
    target: MountedTarget
    progress: FakeProgress = field(default_factory=FakeProgress)
    members: MemberReader | None = None
    storage: StorageTargets | None = None
    owners: OwnerMap = SAME_OWNERS

    @property
    def tree(self) -> bytes:
        return os.fsencode(self.source_path) + b"/" + TREE

    @property
    def copy(self) -> bytes:
        return os.fsencode(self.target_path) + b"/" + TREE

    @property
    def archives(self) -> Path:
        return Path(os.fsdecode(self.target_path)) / os.fsdecode(self.folders.path(TREE))

    @property
    def folders(self) -> MountedArchiveFolders:
        return MountedArchiveFolders(os.fsencode(self.target_path), 7)

    @property
    def proven(self) -> ProvenArchives:
        return ProvenArchives(self.ledger.archives, self.folders)

    def rows(self, paths: Sequence[bytes] | None = None) -> list[ReapRow]:
        """The reap list of all that is no directory, or of some paths that are relative to the tree."""
        return [self.row(path) for path in (names_of(self.tree)[1] if paths is None else paths)]

    def row(self, path: bytes) -> ReapRow:
        entry = self.source.look(TREE + b"/" + path)
        assert entry is not None
        return reap_row(entry, TREE, ReapAction.ARCHIVE)

    def archive(
        self, rows: Sequence[ReapRow], *, limits: ArchiveLimits | None = None, settle_s: float = 0.0
    ) -> TreeArchived:
        limits = limits or ArchiveLimits(frame_bytes=FRAME_BYTES)
        trees = (UserTree(path=TREE, user="alice"),)
        request = ArchiveRequest(plan="plan", batch=1, trees=trees, limits=limits, settle_s=settle_s)
        [done] = asyncio.run(archive_trees(request, self.archiving(rows)))
        return done

    def archiving(self, rows: Sequence[ReapRow]) -> ArchivePorts:
        def blocks(tree: bytes) -> Iterator[Sequence[ReapRow]]:
            assert tree == TREE
            for start in range(0, len(rows), 100):
                yield rows[start : start + 100]

        return ArchivePorts(
            source=self.source,
            target=self.target,
            members=self.members or MemberReader(self.source, algorithm=ALGORITHM),
            folders=self.folders,
            rows=blocks,
            ledger=self.ledger,
            progress=self.progress,
            clock=SystemClock(),
            storage=self.storage,
        )

    def restore(self, *patterns: bytes, to: Path | None = None, overwrite: bool = False) -> Restored:
        request = RestoreRequest(trees=(TREE,), patterns=patterns, in_place=to is None, overwrite=overwrite)
        destination = ReadingFileSystem(os.fsencode(to or self.target_path), owners=self.owners)
        world = RestorePorts(
            folders=self.folders,
            destination=destination,
            capabilities=TargetCapabilities(),
            ledger=self.ledger,
            locks=Locks(self.target_path.parent / "locks", SystemClock()),
            progress=self.progress,
            clock=SystemClock(),
        )
        try:
            [done] = asyncio.run(restore(request, world))
        finally:
            destination.close()
        return done


@contextmanager
def archive_world(directory: Path) -> Iterator[World]:
    """A site over two new directories, with the tree `home/alice`; it goes on where one in the same directory was."""
    source_path, target_path = directory / "source", directory / "target"
    (source_path / os.fsdecode(TREE)).mkdir(parents=True, exist_ok=True)
    target_path.mkdir(exist_ok=True)
    source, target = PosixSource(os.fsencode(source_path)), MountedTarget(os.fsencode(target_path))
    with MigrationLedger.open(directory / "ledger.db", create=True) as ledger:
        if ledger.site.read() is None:
            ledger.site.create(site_record(source.identity(), target.identity()))
        try:
            yield World(source_path=source_path, target_path=target_path, ledger=ledger, source=source, target=target)
        finally:
            source.close()
            target.close()


def restored_tree(place: Path) -> bytes:
    """Where the tree is that was put back there."""
    return os.fsencode(place) + b"/" + TREE


def flip_bit(file: Path, place: int) -> None:
    """Damage one byte."""
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
