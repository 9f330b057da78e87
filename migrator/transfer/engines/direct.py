"""The compiled program's `copy` as an engine: one process per chunk."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from migrator.core.paths import is_beneath
from migrator.core.states import ChunkKind
from migrator.core.units import KIB
from migrator.fs.model import TargetCapabilities
from migrator.hosts.ports import Command, Completed
from migrator.plan.model import ListedPath
from migrator.transfer.engines.output import Lines, OutputReader
from migrator.transfer.engines.rules_direct import EndedDirect, PathEvent, judge_direct, parse_event
from migrator.transfer.model import Outcome, StreamCounters, StreamView
from migrator.transfer.ports import ChunkWork, StreamReader

# Parsing the standard output of `migrator-native copy` (`copy_events.c` describes the lines).


_PROGRESS = re.compile(rb"P ([0-9]{1,18}) ([0-9]{1,18})")


class DirectProgress:
    """Takes pieces cut anywhere; `counters` never decrease. Memory is bounded by the number of listed paths."""

    def __init__(self, paths: int) -> None:
        self._paths = paths
        self._lines = Lines(self._line)
        self.take = self._lines.add
        self.counters = StreamCounters()
        self._events: dict[int, PathEvent] = {}
        self._garbled = False

    @property
    def events(self) -> Sequence[PathEvent]:
        """Events of paths in order of arrival; the first event of a path counts."""
        return tuple(self._events.values())

    @property
    def garbled(self) -> bool:
        """Whether a line was invalid or truncated."""
        return self._garbled or self._lines.is_cut

    def _line(self, line: bytes) -> None:
        if match := _PROGRESS.fullmatch(line):
            files, size_bytes = int(match[1]), int(match[2])
            self.counters = StreamCounters(
                files=max(files, self.counters.files), size_bytes=max(size_bytes, self.counters.size_bytes)
            )
        elif (event := parse_event(line, os.strerror)) is not None and event.index < self._paths:
            self._events.setdefault(event.index, event)
        else:
            self._garbled = True


_HEAD_BYTES = 64 * KIB
_GROUP_MASK = (1 << 64) - 1

_KINDS: Mapping[ChunkKind, bytes] = {
    ChunkKind.DIRECTORIES: b"directories",
    ChunkKind.FILES: b"files",
    ChunkKind.RANGED_FILES: b"files",
    ChunkKind.RANGES: b"ranges",
    ChunkKind.DIRECTORY_TIMES: b"directory-times",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectEngine:
    """Turns chunks into runs of the native program. `program` is its path on the host that it runs on.

    `privileged`: the streams run as root.
    """

    name: ClassVar[str] = "direct"

    program: bytes
    privileged: bool

    def fits(self, tree: bytes, path: bytes) -> bool:
        """True for every path of a tree: for long paths, the program opens directories component by component."""
        return is_beneath(path, tree)

    def command(self, work: ChunkWork, view: StreamView) -> Command:
        """The argv, and the records on standard input. Pure.

        The command omits the root of the tree, which stays closed on the target. Raises ValueError for chunks of links,
        since no stream copies them, and for paths outside the tree.
        """
        if work.kind is ChunkKind.LINKS:
            raise ValueError("links across trees are made by link(2), not by a stream")
        limit = work.bwlimit_bytes_per_s
        return Command(
            argv=(
                self.program,
                b"copy",
                *(b"--source", view.source_tree, b"--target", view.target_tree, b"--kind", _KINDS[work.kind]),
                *((b"--brick", b"--times") if work.brick else ()),
                *((b"mdata" if work.brick.times_from_mdata else b"file",) if work.brick else ()),
                *((b"--distributed",) if work.brick and work.brick.distributed else ()),
                *((b"--privileged",) if self.privileged else ()),
                *((b"--recopy",) if work.recopy else ()),
                *(() if work.capabilities.syncfs_reaches_disks else (b"--fsync",)),
                *_attributes(work.capabilities),
                *(() if limit is None else (b"--bwlimit", b"%d" % max(limit, 1))),
            ),
            stdin=b"".join(_record(work, listed) for listed in _listed(work)),
            timeout_s=None,
        )

    def reader(self, work: ChunkWork, view: StreamView) -> StreamReader:  # noqa: ARG002 (the port's)
        """A new reader for one attempt."""
        return DirectReader(work)


class DirectReader(OutputReader):
    """Follows one run of the native program."""

    def __init__(self, work: ChunkWork) -> None:
        super().__init__(keep_bytes=_HEAD_BYTES)
        self._paths = [listed.path for listed in _listed(work)]
        self._progress = DirectProgress(len(self._paths))

    def stdout(self, piece: bytes) -> None:
        self._progress.take(piece)

    @property
    def counters(self) -> StreamCounters:
        return self._progress.counters

    def outcome(self, completed: Completed) -> Outcome:
        return judge_direct(
            EndedDirect(
                exit_code=completed.exit_code,
                events=self._progress.events,
                stderr=self._stderr.head,
                paths=self._paths,
                counters=self.counters,
                garbled=self._progress.garbled,
                timed_out=completed.timed_out,
            )
        )


def _listed(work: ChunkWork) -> list[ListedPath]:
    """All paths except the root of the tree."""
    return [listed for listed in work.paths if listed.path != work.tree]


def _record(work: ChunkWork, listed: ListedPath) -> bytes:
    """A list record in the format of `copy_list.c`: the requests for this path, a colon, the name, NUL."""
    by_ranges = work.kind in (ChunkKind.RANGES, ChunkKind.RANGED_FILES)
    if work.kind is ChunkKind.FILES and listed.link_group is None:
        return b":" + work.name(listed.path) + b"\0"
    fields: list[bytes] = []
    if by_ranges:
        if listed.file_size_bytes is None:
            raise ValueError("a file in ranges without its size")
        fields.append(b"s%d" % listed.file_size_bytes)
    if listed.mtime_ns is not None and (
        by_ranges or (work.kind is ChunkKind.DIRECTORY_TIMES and work.brick is not None)
    ):
        fields.append(b"m%d" % listed.mtime_ns)
    if work.kind is ChunkKind.RANGES:
        if listed.mtime_ns is None or listed.range_offset_bytes is None or listed.range_length_bytes is None:
            raise ValueError("a range without its place, or without the time of its file")
        fields.append(b"o%d,n%d" % (listed.range_offset_bytes, listed.range_length_bytes))
    elif listed.link_group is not None and work.capabilities.keeps_hard_links:
        fields.append(b"l%d" % (listed.link_group & _GROUP_MASK))
    if work.kind is ChunkKind.RANGED_FILES:
        fields.append(b"r")
    return b",".join(fields) + b":" + work.name(listed.path) + b"\0"


def _attributes(capabilities: TargetCapabilities) -> Sequence[bytes]:
    flags = (
        (capabilities.keeps_acls, b"--acls"),
        (capabilities.keeps_user_xattrs, b"--user-xattrs"),
        (capabilities.keeps_security_xattrs, b"--security-xattrs"),
        (capabilities.keeps_symlink_times, b"--symlink-times"),
        (capabilities.keeps_symlink_owner, b"--symlink-owner"),
        (capabilities.keeps_hard_links, b"--hard-links"),
        (capabilities.keeps_sparse, b"--sparse"),
        (capabilities.makes_devices, b"--devices"),
        (capabilities.makes_fifos, b"--fifos"),
        (capabilities.makes_sockets, b"--sockets"),
    )
    return (
        *(flag for kept, flag in flags if kept),
        *(b"--granularity-ns", b"%d" % capabilities.time_granularity_ns),
        *(b"--max-xattr-bytes", b"%d" % capabilities.max_xattr_value_bytes),
        *(b"--max-acl-entries", b"%d" % capabilities.max_acl_entries),
    )
