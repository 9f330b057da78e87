"""Reports about entries of a brick, each made by a walk of the brick on its own host. Walks change nothing."""

import asyncio
import struct
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from enum import StrEnum
from functools import partial

from msgspec import Struct

from migrator.core.errors import ToolFailed
from migrator.core.paths import show
from migrator.core.tasks import result_or_none
from migrator.gluster.model import Brick, BrickDirectory, BrickMarks
from migrator.gluster.walks import BrickHello, WalkFinding, WalkProblems, run_walk
from migrator.hosts.ports import Host, Hosts
from migrator.native.program import malformed


class Report(StrEnum):
    """The kinds of reports, as in `native/src/walk_reports.h`."""

    DIRECTORIES = "directories"
    WITHOUT_ACL = "without-acl"
    LINK_MARKS = "link-marks"
    STRANGE = "strange"
    NAMES = "names"


class Unreported(Struct, frozen=True, kw_only=True):
    """Entries without a finding: the number of those that could not be read, the first reason, and those without a gfid."""

    unreadable: int
    reason: str = ""
    strange: tuple[bytes, ...] = ()
    strange_count: int = 0


_EXAMPLES = 20
Take = Callable[[Sequence[WalkFinding]], None]


class BrickReports:
    """Makes reports of bricks on their hosts. `place` puts the compiled program on a host; it raises HostLost, ToolFailed."""

    def __init__(self, hosts: Hosts, place: Callable[[Host], Awaitable[bytes]]) -> None:
        self._hosts = hosts
        self._place = place

    async def make(
        self,
        report: Report,
        brick: Brick,
        *,
        volume_id: str,
        take: Take,
        gfids: Sequence[bytes] = (),
        only: Sequence[bytes] | None = None,
    ) -> Unreported:
        """Pass on the findings of a whole brick, or of `only` these paths, in blocks. `gfids` are the files whose names are
        looked for. Raises ToolFailed, also if the brick is not one of this volume, HostLost, UsageError, and the errors
        of `take`.
        """
        if only is not None and not only:
            return Unreported(unreadable=0)
        host = await self._hosts.reach(brick.host)
        listener = _ReportListener(brick.name, volume_id, len(only or ()))
        options = (
            (b"--wanted", [str(uuid.UUID(bytes=gfid)).encode() for gfid in gfids]),
            (b"--only", list(only or ())),
        )
        argv = (
            *(await self._place(host), b"walk", b"--brick", brick.path, b"--own", b"--report", report.value.encode()),
            *(word for option, words in options if words for word in (option, b"%d" % len(words))),
        )
        words = [word for _, given in options for word in given]
        await run_walk(host.processes, argv, words, f"brick {brick.name}", listener, take_findings=take)
        return listener.unreported()


class _ReportListener:
    """The `BrickListener` port: checks whose brick it is, and counts problems. A report has no rows."""

    def __init__(self, brick: str, volume_id: str, asked: int) -> None:
        self._brick = brick
        self._volume_id = volume_id
        self._kept = max(_EXAMPLES, asked)
        self._unreadable = self._strange_count = 0
        self._reason = ""
        self._strange: list[bytes] = []

    def unreported(self) -> Unreported:
        return Unreported(
            unreadable=self._unreadable,
            reason=self._reason,
            strange=tuple(self._strange),
            strange_count=self._strange_count,
        )

    async def hello(self, hello: BrickHello) -> None:
        if hello.volume_id is None or uuid.UUID(hello.volume_id) != uuid.UUID(self._volume_id):
            raise ToolFailed(
                f"{self._brick} cannot be read: there is no brick of this volume",
                cause="its file system is not mounted, or another volume's brick has its place",
                hint="look at that directory on its host and at `gluster volume info`",
            )

    async def rows(self, payload: memoryview) -> None:
        raise malformed(f"a report has a frame of rows of {len(payload)} bytes")

    directories = listings = rows

    async def problems(self, found: WalkProblems) -> None:
        for one in found.unreadable:
            self._reason = self._reason or f"{show(one.path)}: {one.reason}"
        self._unreadable += len(found.unreadable)
        self._strange_count += len(found.strange)
        self._strange += [one.path for one in found.strange][: self._kept - len(self._strange)]


# Directories with owner, mode and ACLs.


_FACTS = struct.Struct("<16s16sIIIIqqII")
_UNKNOWN_GFID = bytes(16)


class HostDirectories:
    """Lists directories of bricks on their hosts."""

    def __init__(self, reports: BrickReports) -> None:
        self._reports = reports

    async def walk(
        self,
        brick: Brick,
        *,
        volume_id: str,
        take: Callable[[Sequence[BrickDirectory]], None],
        only: Sequence[bytes] | None = None,
    ) -> int:
        """Pass on every directory except the root, parents first, in blocks; or `only` these, without their parents'
        gfids. Returns the number of unreadable ones. Raises as `BrickReports.make`.
        """
        made = await self._reports.make(
            Report.DIRECTORIES,
            brick,
            volume_id=volume_id,
            take=lambda found: take([*map(_directory, found)]),
            only=only,
        )
        return made.unreadable


def _directory(found: WalkFinding) -> BrickDirectory:
    if len(found.value) < _FACTS.size:
        raise malformed("a directory is shorter than its facts")
    gfid, above, mode, uid, gid, has_times, changed_ns, modified_ns, access, default = _FACTS.unpack_from(found.value)
    acls = found.value[_FACTS.size :]
    if len(acls) != access + default:
        raise malformed("the ACLs of a directory have another length")
    return BrickDirectory(
        path=found.path,
        gfid=gfid,
        above=b"" if above == _UNKNOWN_GFID else above,
        mode=mode,
        uid=uid,
        gid=gid,
        access=acls[:access],
        default=acls[access:],
        changed_ns=changed_ns if has_times else None,
        modified_ns=modified_ns if has_times else None,
    )


# Marks of earlier drains, and files without a gfid.


async def marks_on_bricks(
    reports: BrickReports, bricks: Sequence[Brick], volume_id: str
) -> tuple[BrickMarks, ...] | None:
    """The marks on each brick, read from all bricks in parallel; None if one cannot be read. Reads every directory of
    the bricks.
    """
    found = await asyncio.gather(*(result_or_none(_marks(reports, brick, volume_id)) for brick in bricks))
    known = tuple(one for one in found if one is not None)
    return known if len(known) == len(bricks) else None


async def _marks(reports: BrickReports, brick: Brick, volume_id: str) -> BrickMarks:
    # A file counts once, under the first name found.
    inodes: set[bytes] = set()
    examples: list[bytes] = []

    def take(found: Collection[WalkFinding]) -> None:
        for one in found:
            if one.value not in inodes and len(examples) < _EXAMPLES:
                examples.append(one.path)
            inodes.add(one.value)

    made = await reports.make(Report.LINK_MARKS, brick, volume_id=volume_id, take=take)
    return BrickMarks(
        brick=brick.name,
        files=len(inodes),
        examples=tuple(examples),
        strange=made.strange_count,
        strange_examples=made.strange,
        unseen=made.unreadable,
    )


async def still_strange_on(
    reports: BrickReports, brick: Brick, volume_id: str, paths: Sequence[bytes]
) -> frozenset[bytes]:
    """The paths that exist on the brick without a gfid; all of them if the brick cannot be read."""
    make = partial(reports.make, Report.STRANGE, brick, volume_id=volume_id, take=lambda _: None)
    made = await result_or_none(make(only=paths))
    return frozenset(paths) if made is None or made.unreadable else frozenset(made.strange)


# Files that a move would open to others, and names of files.


async def files_without_acl(reports: BrickReports, brick: Brick, volume_id: str, take: Take) -> None:
    """Pass on the files that have no ACL in a directory with a default ACL, each with its gfid as value. Raises as
    `BrickReports.make`, and ToolFailed if an entry cannot be read.
    """
    made = await reports.make(Report.WITHOUT_ACL, brick, volume_id=volume_id, take=take)
    _require_all(made, brick)


async def names_of(
    reports: BrickReports, brick: Brick, volume_id: str, gfids: Sequence[bytes]
) -> dict[bytes, bytes | None]:
    """One of the paths of each of these files that the brick has, by gfid; None if no name was found. The brick is walked
    only if it has such a file. Raises as `files_without_acl`.
    """
    names: dict[bytes, bytes | None] = {}

    def take(found: Sequence[WalkFinding]) -> None:
        names.update((one.value, one.path or None) for one in found)

    if gfids:
        _require_all(await reports.make(Report.NAMES, brick, volume_id=volume_id, take=take, gfids=gfids), brick)
    return names


def _require_all(made: Unreported, brick: Brick) -> None:
    if made.unreadable:
        raise ToolFailed(f"{made.unreadable} entries of {brick.name} cannot be read: {made.reason}")
