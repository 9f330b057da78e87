"""The compiled program's `copy` as an engine: one process per chunk."""

import errno
import os
import re
from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from typing import ClassVar

from msgspec import Struct

from migrator.catalog.model import ListedPath
from migrator.core.paths import show
from migrator.core.states import ChunkKind
from migrator.core.units import KIB
from migrator.fs.model import TargetCapabilities
from migrator.fs.rules_owners import SAME_OWNERS, OwnerMap, owner_options
from migrator.hosts.ports import Command, Completed
from migrator.transfer import model
from migrator.transfer.engines import rules_rsync as rules
from migrator.transfer.ports import ChunkWork, Lines, StreamReader
from migrator.transfer.rules import stop_reason

# The outcome of one run of `migrator-native copy`, from its exit code and its events for paths.
#
# Its lines contain no names: an event has the position of its path in the list, so no name can imitate a message.
# `copy_events.c` describes them, `copy.h` has the exit codes.


_LIST_DONE = 0
_UNUSABLE = (1, 2, 64, 126, 127)
_OF_TARGETS = (model.StopReason.TARGET_FULL, model.StopReason.TARGET_QUOTA, model.StopReason.TARGET_READ_ONLY)
_SHOWN_STDERR_BYTES = 300

_EVENT = re.compile(rb"F ([0-9]{1,18}) (vanished|moved|changed|bad) (source|target) ([0-9]{1,9}) ([a-z -]+)")


class PathEvent(Struct, frozen=True, kw_only=True):
    """One path with an anomaly. `index` is its position in the list; `errno` is 0 if no call failed, `error` the
    system's text for it.
    """

    index: int
    kind: model.FileProblemKind
    on_target: bool
    errno: int
    error: str
    operation: str


class EndedDirect(rules.Ended, frozen=True, kw_only=True):
    """The end of a stream. `paths` are the listed ones in order, relative to the source root. `stderr` has only the
    beginning. `garbled`: a line of output was no valid event.
    """

    events: Sequence[PathEvent]
    paths: Sequence[ListedPath]
    garbled: bool = False


def parse_event(line: bytes) -> PathEvent | None:
    """Parse a line about one path; None for every other line."""
    match = _EVENT.fullmatch(line)
    if match is None:
        return None
    return PathEvent(
        index=int(match[1]),
        kind=model.FileProblemKind(match[2].decode("ascii")),
        on_target=match[3] == b"target",
        errno=int(match[4]),
        error=os.strerror(int(match[4])),
        operation=match[5].decode("ascii"),
    )


def judge_direct(ended: EndedDirect) -> model.StreamOutcome:
    """The verdict, and the files that did not arrive, or not as listed.

    STOP for errors that no chunk is to blame for; DONE if the list was processed to its end; RETRY if something remains
    unexplained; INTERRUPTED if a signal from outside ended the process.
    """
    if ended.exit_code == rules.JAIL_FAILED and (jail := rules.jail_message(ended.stderr)) is not None:
        return rules.judge_jail(jail, (one.path for one in ended.paths), ended.counters)
    if (stopped := _stop(ended)) is not None:
        return stopped
    description = _describe(ended)
    if (cut := ended.cut_short(description, by_signal=rules.ENDED_BY_SIGNAL, unusable=_UNUSABLE)) is not None:
        return cut
    if ended.exit_code != _LIST_DONE or ended.garbled:
        return ended.outcome(model.AttemptVerdict.RETRY, description)
    suspects = tuple(_problem(ended.paths[event.index].path, event) for event in ended.events)
    return ended.outcome(model.AttemptVerdict.DONE, suspects=suspects)


def _stop(ended: EndedDirect) -> model.StreamOutcome | None:
    """The first error that concerns more than single files."""
    for event in ended.events:
        if (reason := _stop_reason(event)) is not None:
            return ended.outcome(
                model.AttemptVerdict.STOP, f"{show(ended.paths[event.index].path)}: {_reason(event)}", reason
            )
    return None


def _stop_reason(event: PathEvent) -> model.StopReason | None:
    if event.kind is not model.FileProblemKind.BAD:
        return None
    if event.errno == errno.ESTALE:
        # This concerns a source file: Gluster has just moved it to another brick, or it was replaced. The check before
        # the next try detects a stale mount.
        return model.StopReason.DISCONNECTED if event.on_target else None
    reason = stop_reason(event.errno)
    if reason is model.StopReason.IO_ERROR and not event.on_target:
        return None
    if reason in _OF_TARGETS:
        # A file system also reports ENOSPC for an attribute that is too big for it. The source is never written to.
        return reason if event.on_target and "xattr" not in event.operation else None
    return reason


def _problem(path: bytes, event: PathEvent) -> model.FileProblem:
    kind = event.kind
    if kind is model.FileProblemKind.BAD and not event.on_target and event.errno in rules.GONE:
        kind = model.FileProblemKind.VANISHED
    return model.FileProblem(path=path, kind=kind, errno=event.errno or None, reason=_reason(event))


def _reason(event: PathEvent) -> str:
    """The error of a file, without its name: the caller names the file."""
    match event.kind:
        case model.FileProblemKind.VANISHED:
            return "gone from the source"
        case model.FileProblemKind.MOVED:
            return "not (or not for long) on this brick"
        case model.FileProblemKind.CHANGED:
            return "changed while it was copied"
        case model.FileProblemKind.BAD:
            return f"{event.operation} failed on the {'target' if event.on_target else 'source'}: {event.error}"


def _describe(ended: EndedDirect) -> str:
    stderr_text = show(ended.stderr.strip()[-_SHOWN_STDERR_BYTES:])
    garbled = "; it printed a line that is not an event" if ended.garbled else ""
    return f"migrator-native copy ended with {ended.exit_code}{garbled}" + (f"; {stderr_text}" if stderr_text else "")


# Parsing the standard output of `migrator-native copy` (`copy_events.c` describes the lines).


_DIGESTS = re.compile(rb"(?m)^(?:D .*\n)+")
"""Digests of files, for a verification: the lines stay in the attempt's directory."""
_PROGRESS = re.compile(rb"P ([0-9]{1,18}) ([0-9]{1,18})")
_HEAD_BYTES = 64 * KIB

_IN_FLIGHT = 16
"""Paths that a stream copies at the same time: each call on a network file system waits for a server, a sync for disks."""
_KINDS: Mapping[ChunkKind, bytes] = {
    ChunkKind.DIRECTORIES: b"directories",
    ChunkKind.FILES: b"files",
    ChunkKind.RANGED_FILES: b"files",
    ChunkKind.RANGES: b"ranges",
    ChunkKind.DIRECTORY_TIMES: b"directory-times",
}


class DirectEngine(Struct, frozen=True, kw_only=True):
    """Turns chunks into runs of the native program. `program` is its path on the host that it runs on.

    `privileged`: the streams run as root. `name_seed`: that of the site. `atimes`: access times are carried over.
    `owners`: from the numbers of the source to those of the target.
    """

    name: ClassVar[str] = "direct"
    longest_name_bytes: ClassVar[int] = 2**30
    """Any: for long paths, the program opens directories component by component."""

    program: bytes
    privileged: bool
    name_seed: int
    atimes: bool = False
    owners: OwnerMap = SAME_OWNERS

    def command(self, work: ChunkWork, view: model.StreamView) -> Command:
        """The argv, and the records on standard input. Pure.

        Raises ValueError for chunks of links, since no stream copies them.
        """
        if work.kind is ChunkKind.LINKS:
            raise ValueError("links across trees are made by link(2), not by a stream")
        limit = work.bwlimit_bytes_per_s
        return Command(
            argv=(
                self.program,
                b"copy",
                *(b"--source", view.source_tree, b"--target", view.target_tree, b"--kind", _KINDS[work.kind]),
                *(b"--name-seed", b"%d" % self.name_seed),
                *((b"--brick", b"--times") if work.brick else ()),
                *((b"mdata" if work.brick.times_from_mdata else b"file",) if work.brick else ()),
                *((b"--distributed",) if work.brick and work.brick.distributed else ()),
                *((b"--privileged",) if self.privileged else ()),
                *((b"--recopy",) if work.recopy else ()),
                *((b"--digest",) if work.digest else ()),
                *((b"--own-names",) if work.own_names else ()),
                *((b"--atimes",) if self.atimes else ()),
                *(() if work.capabilities.syncfs_reaches_disks else (b"--fsync",)),
                *_attributes(work.capabilities),
                *owner_options(self.owners, b"--uids", b"--gids"),
                b"--in-flight",
                b"%d" % _IN_FLIGHT,
                *(() if limit is None else (b"--bwlimit", b"%d" % max(limit, 1))),
            ),
            stdin=_records(work),
            timeout_s=None,
        )

    def reader(self, work: ChunkWork, view: model.StreamView) -> StreamReader:  # noqa: ARG002 (the port's)
        """A new reader for one attempt."""
        return DirectReader(work)


class DirectReader(StreamReader):
    """Follows one run of the native program. `counters` never decrease. Memory is bounded by the number of listed
    paths; the first event of a path counts.
    """

    def __init__(self, work: ChunkWork) -> None:
        super().__init__(keep_bytes=_HEAD_BYTES)
        self._paths = work.paths
        self._lines = Lines(self._line, but=_DIGESTS)
        self._counters = model.StreamCounters()
        self._events: dict[int, PathEvent] = {}
        self._garbled = False

    def stdout(self, piece: bytes) -> None:
        self._lines.add(piece)

    @property
    def counters(self) -> model.StreamCounters:
        return self._counters

    def outcome(self, completed: Completed) -> model.StreamOutcome:
        return judge_direct(
            EndedDirect(
                exit_code=completed.exit_code,
                events=tuple(self._events.values()),
                stderr=self._stderr.head,
                paths=self._paths,
                counters=self._counters,
                garbled=self._garbled or self._lines.is_cut,
                timed_out=completed.timed_out,
            )
        )

    def _line(self, line: bytes) -> None:
        if match := _PROGRESS.fullmatch(line):
            files, size_bytes = max(int(match[1]), self._counters.files), max(int(match[2]), self._counters.size_bytes)
            self._counters = model.StreamCounters(files=files, size_bytes=size_bytes)
        elif (event := parse_event(line)) is not None and event.index < len(self._paths):
            self._events.setdefault(event.index, event)
        else:
            self._garbled = True


def _records(work: ChunkWork) -> bytes:
    """The list in the format of `copy_list.c`."""
    listed, ranges = work.paths, work.kind is ChunkKind.RANGES
    in_ranges = ranges or work.kind is ChunkKind.RANGED_FILES
    needed = (*(("file_size",) if in_ranges else ()), *(("mtime_ns", "range_offset", "range_length") if ranges else ()))
    if lacking := [column for column in needed if listed.columns.column(column).null_count]:
        raise ValueError(f"a file in ranges without its {lacking[0]}")
    fields = (
        (in_ranges, b",s", "file_size"),
        (in_ranges or work.brick is not None, b",m", "mtime_ns"),
        (ranges, b",o", "range_offset"),
        (ranges, b",n", "range_length"),
        (work.capabilities.keeps_hard_links and not ranges, b",l", "link_group"),
    )
    given = [listed.numbers(column, letter) for wanted, letter, column in fields if wanted]
    last = b",r:" if work.kind is ChunkKind.RANGED_FILES else b":"
    records = zip(*given, repeat(last), listed.names(work.tree), repeat(b"\0"), strict=False)
    # No comma before the first field of a record: NUL is in no name.
    return b"".join((b"\0", *chain.from_iterable(records))).replace(b"\0,", b"\0")[1:]


def _attributes(capabilities: TargetCapabilities) -> Sequence[bytes]:
    flags = (
        (capabilities.keeps_acls, b"--acls"),
        (capabilities.keeps_acls and capabilities.keeps_default_acls, b"--default-acls"),
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
    links = capabilities.rewritten_links
    return (
        *(flag for kept, flag in flags if kept),
        *(() if links is None else (b"--links-from", links.source, b"--links-to", links.target)),
        *(b"--granularity-ns", b"%d" % capabilities.time_granularity_ns),
        *(b"--max-xattr-bytes", b"%d" % capabilities.max_xattr_value_bytes),
        *(b"--max-xattr-name-bytes", b"%d" % capabilities.max_xattr_name_bytes),
        *(b"--max-acl-entries", b"%d" % capabilities.max_acl_entries),
    )
