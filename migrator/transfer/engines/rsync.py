"""rsync as an engine: one process tree per chunk, its list on standard input."""

import re
from collections.abc import Sequence
from typing import ClassVar

from msgspec import Struct

from migrator.core.errors import ToolFailed
from migrator.core.paths import RSYNC_PATH_LIMIT_BYTES, show
from migrator.core.states import ChunkKind
from migrator.core.units import KIB
from migrator.fs.model import XATTR_NAME_LIMIT_BYTES, TargetCapabilities
from migrator.fs.rules import KERNEL_LABELS
from migrator.fs.rules_owners import SAME_OWNERS, OwnerMap, owner_options
from migrator.hosts.ports import Command, Completed, Processes
from migrator.transfer.engines import rules_rsync as rules
from migrator.transfer.model import StreamCounters, StreamOutcome, StreamView
from migrator.transfer.ports import ChunkWork, Lines, StreamReader

# Querying rsync's capabilities.


_ASK_TIMEOUT_S = 30.0


async def ask(processes: Processes, program: bytes) -> rules.RsyncFeatures:
    """Query the program itself. Raises ToolFailed."""
    version = await processes.run(Command(argv=(program, b"--version"), timeout_s=_ASK_TIMEOUT_S))
    usage = await processes.run(Command(argv=(program, b"--help"), timeout_s=_ASK_TIMEOUT_S))
    if version.exit_code != 0:
        raise ToolFailed(f"{show(program)} --version fails: {show(version.stderr)}")
    features = rules.parse_features(version.stdout, usage.stdout)
    if features is None:
        raise ToolFailed(f"{show(program)} is no rsync: it prints no version")
    return features


# Parsing rsync's standard output: `--out-format=%i --info=progress2,stats2 --no-human-readable`.
#
# The output contains no names. Lines end with a newline, progress with a carriage return:
#
#     >f+++++++++
#             6000000  49%  284.54MB/s    0:00:00 (xfr#2, to-chk=4/7)
#     Number of regular files transferred: 2
#     Total transferred file size: 6,000,000 bytes


_ITEM = re.compile(rb"[<>ch.][fdLDS][^ ]{9,}")
_PROGRESS = re.compile(rb" *([0-9]+) +[0-9]+% +[^ ]+ +[0-9:?]+(?: +\(xfr#([0-9]+), (?:to|ir)-chk=[0-9]+/[0-9]+\))?")
_TRANSFERRED_FILES = re.compile(rb"Number of regular files transferred: ([0-9,.]+)")
_TRANSFERRED_BYTES = re.compile(rb"Total transferred file size: ([0-9,.]+) bytes")


class ProgressParser:
    """Takes pieces cut anywhere; `counters` never decrease.

    Files are regular files whose content was sent, and other created or changed paths except directories: every path
    but a directory counts as a file, as everywhere. Bytes count the content that was sent.
    """

    def __init__(self) -> None:
        self._lines = Lines(self._line, ends=b"\r\n")
        self.take = self._lines.add
        self._others = 0
        self._transferred = 0
        self._size_bytes = 0

    @property
    def counters(self) -> StreamCounters:
        """The files and bytes that have arrived so far."""
        return StreamCounters(files=self._transferred + self._others, size_bytes=self._size_bytes)

    def _line(self, line: bytes) -> None:
        if match := _PROGRESS.match(line):
            self._size_bytes = max(self._size_bytes, int(match[1]))
            if match[2]:
                self._transferred = max(self._transferred, int(match[2]))
        elif _ITEM.fullmatch(line):
            if line[:1] not in (b"<", b">") and line[1:2] != b"d":
                self._others += 1
        elif match := _TRANSFERRED_FILES.match(line):
            self._transferred = max(self._transferred, _number(match[1]))
        elif match := _TRANSFERRED_BYTES.match(line):
            self._size_bytes = max(self._size_bytes, _number(match[1]))


def _number(text: bytes) -> int:
    return int(text.replace(b",", b"").replace(b".", b""))


_STDERR_LIMIT_BYTES = 32 << 20
_COMMENT_STARTS = (b"#", b";")
"""rsync drops list entries that start with these, even with --from0 (3.2.7 and 3.5.0); a `./` in front avoids that."""


class RsyncEngine(Struct, frozen=True, kw_only=True):
    """Turns chunks into rsync commands. `privileged`: the streams run as root. `atimes`: access times are carried over.
    `owners`: from the numbers of the source to those of the target.
    """

    name: ClassVar[str] = "rsync"
    longest_name_bytes: ClassVar[int] = RSYNC_PATH_LIMIT_BYTES - 1 - len(b"./" + b"." + b".XXXXXX")
    """Its buffers, like the kernel's, hold 4,095 bytes. Names are relative to the tree's root and may have `./` in
    front. They grow by a dot and a random suffix during the transfer; rsync shortens only the last component.
    """

    program: bytes
    features: rules.RsyncFeatures
    privileged: bool
    atimes: bool = False
    owners: OwnerMap = SAME_OWNERS

    def command(self, work: ChunkWork, view: StreamView) -> Command:
        """The argv, and the names relative to the tree, NUL-terminated, on standard input. Pure.

        Raises ValueError for chunks of links, since no stream copies them.
        """
        names = work.paths.names(work.tree)
        return Command(
            argv=(
                self.program,
                *_base(work.capabilities),
                *_of_kind(work.kind, privileged=self.privileged),
                *(word.encode("ascii") for word in capability_options(work.capabilities)),
                *owner_options(self.owners, b"--usermap", b"--groupmap"),
                *((b"--atimes",) if self.atimes else ()),
                # Without root, it could not open files of other users so.
                *((b"--open-noatime",) if self.atimes and self.privileged else ()),
                *((b"--fsync",) if self.features.fsync and not work.capabilities.syncfs_reaches_disks else ()),
                *bandwidth(work.bwlimit_bytes_per_s),
                *((b"--ignore-times",) if work.recopy else ()),
                view.source_tree.rstrip(b"/") + b"/",
                view.target_tree.rstrip(b"/") + b"/",
            ),
            stdin=b"".join(_listed(name) + b"\0" for name in names),
            timeout_s=None,
        )

    def reader(self, work: ChunkWork, view: StreamView) -> StreamReader:
        """A new reader for one attempt."""
        return RsyncReader(work, view)


class RsyncReader(StreamReader):
    """Follows one rsync."""

    def __init__(self, work: ChunkWork, view: StreamView) -> None:
        super().__init__(keep_bytes=_STDERR_LIMIT_BYTES)
        self._work = work
        self._view = view
        self._progress = ProgressParser()

    def stdout(self, piece: bytes) -> None:
        self._progress.take(piece)

    @property
    def counters(self) -> StreamCounters:
        return self._progress.counters

    def outcome(self, completed: Completed) -> StreamOutcome:
        listed = self._work.paths
        names = listed.names(self._work.tree)
        groups = listed.columns.column("link_group").to_pylist()
        return rules.judge_rsync(
            rules.EndedRsync(
                exit_code=completed.exit_code,
                stderr=self._stderr.head,
                stderr_cut=self._stderr.is_cut,
                timed_out=completed.timed_out,
                tree=self._work.tree,
                names=names,
                link_groups={name: group for name, group in zip(names, groups, strict=True) if group is not None},
                view=self._view,
                counters=self.counters,
            )
        )


def _base(capabilities: TargetCapabilities) -> Sequence[bytes]:
    options = (
        b"--archive",
        b"--no-recursive",
        b"--numeric-ids",
        b"--files-from=-",
        b"--from0",
        # Only the chunks of directories set attributes of directories above the listed paths.
        b"--no-implied-dirs",
        b"--whole-file",
        # One process writes all messages, so lines of several processes cannot mix.
        b"--stderr=client",
        b"--no-human-readable",
        b"--info=progress2,stats2",
        b"--out-format=%i",
        b"--outbuf=L",
    )
    optional = (
        (not capabilities.makes_devices, b"--no-devices"),
        (not (capabilities.makes_fifos and capabilities.makes_sockets), b"--no-specials"),
    )
    return (*options, *(option for wanted, option in optional if wanted))


def _of_kind(kind: ChunkKind, *, privileged: bool) -> Sequence[bytes]:
    match kind:
        case ChunkKind.DIRECTORIES:
            # Without root, rsync cannot fill a directory that its owner may not write to; the times step sets the mode.
            return (b"--omit-dir-times",) if privileged else (b"--omit-dir-times", b"--chmod=Du+rwx")
        case ChunkKind.FILES | ChunkKind.RANGED_FILES:
            return (b"--omit-dir-times",)
        case ChunkKind.DIRECTORY_TIMES:
            return ()
        case ChunkKind.RANGES:
            raise ValueError("rsync copies no ranges of files")
        case ChunkKind.TREE:
            raise ValueError("whole trees are copied by drivers")
        case ChunkKind.LINKS:
            raise ValueError("links across trees are made by link(2), not by a stream")


def carries_acls_by_value(capabilities: TargetCapabilities) -> bool:
    """Whether ACLs are carried as attributes, in which rsync maps no owners: it cannot carry access ACLs alone."""
    return capabilities.keeps_acls and not capabilities.keeps_default_acls


def capability_options(capabilities: TargetCapabilities, *, blank: str = " ") -> list[str]:
    """The options for what the target keeps, in short letters: drivers refuse some long names. `blank` separates a
    filter's rule from its pattern.

    Any filter for attributes disables rsync's own, so the filters have to exclude everything else by name: `system.*`
    would carry ACLs a second way (the only way to carry access ACLs alone), `trusted.*` Gluster's internals. `**` also
    matches slashes in an attribute's name; without a slash in front, a pattern would also match after every slash.
    Only a second `-X` carries `user.rsync.%stat` and the like, which backups by `rsync --fake-super` consist of.
    Excluded attributes are neither sent nor removed on the target. A name with slashes that is too long is tried, and the
    file is then copied by `direct`.
    """
    access_alone = carries_acls_by_value(capabilities)
    rules = [*(["+x /system.posix_acl_access"] if access_alone else []), "-x /trusted.**", "-x /system.**"]
    if capabilities.max_xattr_name_bytes < XATTR_NAME_LIMIT_BYTES:
        rules.append(f"-x /{'?' * (capabilities.max_xattr_name_bytes + 1)}**")
    if capabilities.keeps_user_xattrs:
        rules.append("+x /user.**")
    if capabilities.keeps_security_xattrs:
        rules += [*(f"-x /{label.decode('ascii')}" for label in sorted(KERNEL_LABELS)), "+x /security.**"]
    filters = [f"--filter={rule.replace(' ', blank)}" for rule in (*rules, "-x **")]
    optional = (
        (capabilities.keeps_hard_links, ["-H"]),
        (capabilities.keeps_sparse, ["-S"]),
        (capabilities.time_granularity_ns == 1, ["--modify-window=-1"]),
        (not capabilities.keeps_symlink_times, ["-J"]),
        (capabilities.keeps_acls and not access_alone, ["-A"]),
        (access_alone or capabilities.keeps_user_xattrs or capabilities.keeps_security_xattrs, ["-XX", *filters]),
    )
    return [word for wanted, words in optional if wanted for word in words]


def bandwidth(limit_bytes_per_s: int | None) -> Sequence[bytes]:
    """Rsync's option, in KiB per second."""
    return () if limit_bytes_per_s is None else (b"--bwlimit=%d" % max(limit_bytes_per_s // KIB, 1),)


def _listed(name: bytes) -> bytes:
    return b"./" + name if name.startswith(_COMMENT_STARTS) else name
