"""site.toml: its sections and keys, with their types, bounds and defaults. The only place that lists them.

The docstring of a section and the one below a key are their documentation: docs/configuration.md and the file that `init`
writes are made from them. The first sentence has to stand alone. Units are part of a field's name (`lease_s`), and not of
the key (`lease`).
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from msgspec import Meta, Struct
from msgspec.structs import fields, replace

from migrator.beegfs.model import LayoutRule, StripeSettings
from migrator.core.clock import local_time
from migrator.core.errors import UsageError
from migrator.core.units import DAY_S, GIB, HOUR_S, KIB, MIB, MINUTE_S, TIB
from migrator.core.windows import OpenTimes, Window
from migrator.fs.model import RewrittenLinks
from migrator.fs.rules_owners import OwnerMap, owner_map
from migrator.site import quantities
from migrator.site.model import ReapAction, ReapClock, ReapPolicy, ReapRule

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
LEAST_CHUNK_BYTES = 64 * KIB
_UNITS = re.compile(r"_(s|bytes|bytes_per_s|bytes_per_day)$")


class Form(NamedTuple):
    """How values of one kind are written: `given` is what TOML holds, `parse` makes the value of it and raises UsageError, `write` is the way back.
    An empty `meaning` needs no explanation.
    """

    name: str
    meaning: str
    given: Any
    parse: Callable[[Any], Any] = lambda value: value
    write: Callable[[Any], Any] = lambda value: value


def _text(text: str) -> str:
    if not text or "\0" in text:
        raise UsageError("must not contain a NUL" if text else "must not be empty")
    return text


def _name(text: str) -> str:
    if not _NAME.fullmatch(_text(text)):
        raise UsageError(
            f'"{text}" is not a name: use letters, digits, ".", "_" and "-", beginning with a letter or digit'
        )
    return text


def _path(text: str) -> Path:
    return Path(_text(text))


def _below(text: str) -> str:
    if text.startswith("/"):
        raise UsageError(f'"{text}" begins with "/": paths are relative to the mount')
    if text and any(part in ("", ".", "..") for part in _text(text).rstrip("/").split("/")):
        raise UsageError(f'"{text}" contains an empty part, "." or ".."')
    return text.rstrip("/")


def _link(text: str) -> str:
    rest = _text(text).replace("{user}", "").replace("{tree}", "")
    problem = {
        "{user} or {tree} is missing: every user tree has a link of its own": rest == text,
        "is not absolute": not text.startswith("/"),
        'contains an empty component, "." or ".."': any(part in ("", ".", "..") for part in text.split("/")[1:]),
        "may contain only the fields {user} and {tree}": "{" in rest or "}" in rest,
        "contains a non-printable character": not rest.isprintable(),
    }
    if problem_text := next((problem_text for problem_text, holds in problem.items() if holds), None):
        raise UsageError(problem_text, hint='as in "/home/{user}"')
    return text


class _LimitedWindow(Struct, forbid_unknown_fields=True):
    when: str
    jobs: Annotated[int, Meta(ge=1, le=1024)] | None = None
    bwlimit: int | str | None = None


def _limited_window(given: str | _LimitedWindow) -> Window:
    if isinstance(given, str):
        return quantities.parse_window(given)
    rate = None if given.bwlimit is None else quantities.parse_rate(given.bwlimit)
    if rate == 0:
        raise UsageError("bwlimit of a window must be at least 1 byte per second")
    return replace(quantities.parse_window(given.when), jobs=given.jobs, bwlimit_bytes_per_s=rate)


class _Layout(Struct, forbid_unknown_fields=True):
    trees: list[str] = []
    larger_than: int | str | None = None
    stripe_count: Annotated[int, Meta(ge=1)] | None = None
    chunk_size: int | str | None = None
    pool: str | None = None


def _layout_rule(given: _Layout) -> LayoutRule:
    larger, chunk = (
        None if one is None else quantities.parse_size(one) for one in (given.larger_than, given.chunk_size)
    )
    if chunk is not None and (chunk < LEAST_CHUNK_BYTES or chunk & (chunk - 1)):
        raise UsageError('chunk_size of a layout must be a power of two of at least 64 KiB, as in "1MiB"')
    if (given.stripe_count, chunk, given.pool) == (None, None, None):
        raise UsageError("a layout requires stripe_count, chunk_size or pool")
    stripe = StripeSettings(targets=given.stripe_count, chunk_bytes=chunk, pool=given.pool and _text(given.pool))
    return LayoutRule(trees=tuple(_below(_text(one)) for one in given.trees), larger_than_bytes=larger, stripe=stripe)


_LAST_ID = 2**32 - 2
_MOST_IDS = 5000
"""The kernel's limit for one argument of a program is 128 KiB."""


def _ids(given: dict[str, int]) -> tuple[tuple[int, int], ...]:
    for old, new in given.items():
        for one in (old, str(new)):
            if not re.fullmatch(r"[1-9][0-9]{0,9}", one, re.ASCII) or int(one) > _LAST_ID:
                raise UsageError(f'"{one}" is not the number of a user or group other than root')
    if len(given) > _MOST_IDS:
        raise UsageError(f"it has {len(given)} numbers, and may have {_MOST_IDS}")
    before: dict[int, str] = {}
    for old, new in given.items():
        if new in before:
            raise UsageError(f"{before[new]} and {old} would both be {new}, and a rollback could not distinguish them")
        before[new] = old
    return tuple(sorted((int(old), new) for old, new in given.items()))


def _each(parse: Callable[[Any], Any]) -> Callable[[list[Any]], tuple[Any, ...]]:
    return lambda items: tuple(parse(item) for item in items)


_DURATIONS = '`"30s"`, `"10min"`, `"4h"`, `"90d"`, `"2w"`, `"1y"`'
_SIZES = 'bytes: `"10GiB"`, `"10GB"` (decimal), `"10G"` (binary), `4096`'
_RATES = 'bytes per second: `"200MiB"`, `"200MiB/s"`'
_GROWTHS = 'bytes over time: `"500GiB/d"`, `"2TiB/w"`'
_IDS = "old numbers with new ones: `{ 1000 = 2000, 1001 = 2001 }`, also written as a section `[users.uid_map]`"
_GLOBS = 'below the source\'s mount, in `[reap]` below a user tree: `["home/*", "projects/*"]`'
_WINDOWS = '`["Mon-Fri 19:00-07:00", "Sat,Sun 00:00-24:00"]`'
_LIMITS = (
    'list of windows, or of tables with limits: `{ when = "Mon-Fri 07:00-19:00", jobs = 2, bwlimit = "50MiB/s" }`, '
    "also written as `[[transfer.windows]]`"
)

_LAYOUTS = (
    "tables `[[target.layout]]` with `trees`, `larger_than`, `stripe_count`, `chunk_size`, `pool`, as in "
    '`{ trees = ["home/*"], larger_than = "1GiB", stripe_count = 8 }` (docs/beegfs.md)'
)


def _windows(windows: tuple[Window, ...]) -> list[str]:
    """As in site.toml; their limits are not in it."""
    return [window.when for window in windows]


CHOICE = Form("one of", "", str)
Text = Annotated[str, Form("text", "", str, _text)]
Name = Annotated[str, Form("name", "letters, digits, `.`, `_` and `-`", str, _name)]
Link = Annotated[str, Form("link", "an absolute path with `{user}` or `{tree}` in it", str, _link)]
File = Annotated[Path, Form("path", "absolute, or relative to site.toml", str, _path, str)]
Below = Annotated[str, Form("relative path", "below the mount, without `..`", str, _below)]
Size = Annotated[int, Form("size", _SIZES, int | str, quantities.parse_size, quantities.write_size)]
Rate = Annotated[
    int, Form("rate", _RATES, int | str, quantities.parse_rate, lambda value: f"{quantities.write_size(value)}/s")
]
Growth = Annotated[
    int,
    Form("growth", _GROWTHS, int | str, quantities.parse_growth, lambda value: f"{quantities.write_size(value)}/d"),
]
Duration = Annotated[
    float, Form("duration", f'`"20ms"`, {_DURATIONS}', str, quantities.parse_duration, quantities.write_duration)
]
Seconds = Annotated[
    int,
    Form(
        "whole duration",
        "a duration in whole seconds",
        str,
        quantities.parse_whole_seconds,
        quantities.write_duration,
    ),
]
Share = Annotated[
    float, Form("share", '`0.05` or `"5%"`', float | str, quantities.parse_share, lambda value: f"{value * 100:.12g}%")
]
Flag = Annotated[bool, Form("true or false", "", bool)]
Count = Annotated[int, Form("count", "", int)]
Number = Annotated[float, Form("number", "", float)]
Texts = Annotated[tuple[str, ...], Form("list of texts", "", list[str], _each(_text))]
Globs = Annotated[tuple[str, ...], Form("list of globs", _GLOBS, list[str], _each(lambda text: _below(_text(text))))]
Windows = Annotated[
    tuple[Window, ...], Form("list of windows", _WINDOWS, list[str], _each(quantities.parse_window), _windows)
]
LimitedWindows = Annotated[
    tuple[Window, ...],
    Form("list of windows with limits", _LIMITS, list[str | _LimitedWindow], _each(_limited_window), _windows),
]
Layouts = Annotated[tuple[LayoutRule, ...], Form("list of layouts", _LAYOUTS, list[_Layout], _each(_layout_rule))]
Ids = Annotated[
    tuple[tuple[int, int], ...],
    Form("table of numbers", _IDS, dict[str, int], _ids, lambda pairs: {str(old): new for old, new in pairs}),
]
AT_LEAST_1 = Meta(ge=1)
JOBS = Meta(ge=1, le=1024)


def _key_name(field: str) -> str:
    return _UNITS.sub("", field)


class _Section(Struct, frozen=True, kw_only=True, rename=_key_name):
    """A section of site.toml."""


class SiteSection(_Section, frozen=True, kw_only=True):
    """The files of the migration."""

    name: Name
    """The name of the migration, for reports. Example: `"gl-to-beegfs"`."""
    state_dir: File = Path("state")
    """Ledger, catalogs, manifests and logs, on a local disk."""
    plans_dir: File = Path("plans")
    """Plans, for root and the group of the directory (docs/scan-and-plan.md)."""
    memory_bytes: Annotated[Size, Meta(ge=512 * MIB)] | None = None
    """Memory of one query over catalogs; beyond it, the query spills to disk. By default a quarter of this
    machine's, and at least 512 MiB. Example: `"8GiB"`."""
    hooks_dir: File = Path("hooks")
    """Your hooks (docs/hooks.md)."""


class HostSection(_Section, frozen=True, kw_only=True):
    """A brick server that reads its own bricks. One section each, named as in the brick list."""

    name: str
    ssh: Text | None = None
    """How ssh reaches the host. Without it the section is for this machine. Example: `"root@gl1"`."""
    target: File | None = None
    """Mount point of the target there. Without it a host of [target.hosts] writes what this one reads; without such a host it
    only scans. Example: `"/mnt/beegfs"`."""
    options: Texts = ()
    """More options for ssh. Example: `["-o", "ConnectTimeout=10"]`."""
    jobs: Annotated[Count, JOBS] | None = None
    """Streams on this host, instead of [transfer] `jobs`. Example: `8`."""
    python: Text = "python3"
    """Python (3.9 or later) of this host."""


class WriterSection(_Section, frozen=True, kw_only=True):
    """A host that writes to the target what brick servers without the target read. The content passes through this machine."""

    name: str
    target: File | None = None
    """Mount point of the target there, if it is another than [target] `mount`. Example: `"/mnt/beegfs"`."""
    ssh: Text | None = None
    """As in [source.hosts]. Example: `"root@bg1"`."""
    options: Texts = ()
    """As in [source.hosts]. Example: `["-o", "ConnectTimeout=10"]`."""
    python: Text = "python3"
    """As in [source.hosts]."""


FileSystemKind = Literal[
    "auto", "gluster", "beegfs", "lustre", "cephfs", "gpfs", "moosefs", "orangefs", "hdfs", "eos", "nfs", "ocfs2", "gfs2",
    "xfs", "ext4", "posix",
]  # fmt: skip


class SourceSection(_Section, frozen=True, kw_only=True):
    """The file system that is migrated."""

    kind: FileSystemKind = "auto"
    """The kind of file system (docs/filesystems.md); `auto`: by the mount's type, `posix`: any file system, without its own command.
    `init` writes what it finds. `gluster` also queries the volume for its bricks."""
    mount: File
    """Mount point. A Gluster mount needs the option `acl` if users have ACLs. Example: `"/mnt/gl"`."""
    volume: Name | None = None
    """The Gluster volume; required if `kind` is `gluster`. Example: `"vol1"`."""
    via: Literal["auto", "bricks", "mount"] = "auto"
    """How it is read. Bricks are much faster, the mount is always right; `auto` decides for every scan and reports why."""
    gluster: Text = "gluster"
    """Command that queries the volume; a script of yours if this machine is no peer."""
    hosts: tuple[HostSection, ...] = ()


class TargetSection(_Section, frozen=True, kw_only=True):
    """The file system that is filled."""

    kind: FileSystemKind = "auto"
    """As in [source]."""
    mount: File
    """Mount point. Example: `"/mnt/beegfs"`."""
    path: Below = ""
    """Directory below the mount, in which trees keep their relative paths."""
    inodes_free: Annotated[Count, Meta(ge=0)] | None = None
    """Free inodes, if neither the file system nor BeeGFS's command reports them. Example: `100000000`."""
    clients: Text | None = None
    """How ssh reaches the other clients of a BeeGFS target; `%h` is the host name. With it a rollback finds processes
    there that still write (docs/cutover.md). Example: `"root@%h"`."""
    beegfs: Text | None = None
    """BeeGFS's command if it is not found by itself, or a script that calls it (docs/beegfs.md). Example: `"/usr/local/sbin/beegfs-of-this-target"`."""
    stripe_count: Annotated[Count, AT_LEAST_1] | None = None
    """BeeGFS: number of storage targets over which new files of user trees are striped. By default inherited from the
    parent directory. Example: `4`."""
    chunk_size_bytes: Annotated[Size, Meta(ge=LEAST_CHUNK_BYTES)] | None = None
    """BeeGFS: size of a stripe's chunks, a power of two. By default inherited. Example: `"1MiB"`."""

    layout: Layouts = ()
    """BeeGFS: stripes and storage pools of new user trees, or of their directories of large files. The first rule that
    fits a directory counts, then `stripe_count` and `chunk_size`."""

    hosts: tuple[WriterSection, ...] = ()

    @property
    def layout_rules(self) -> tuple[LayoutRule, ...]:
        """The rules for new user trees, the first that fits counts; none: they inherit."""
        if self.stripe_count is None and self.chunk_size_bytes is None:
            return self.layout
        every = LayoutRule(stripe=StripeSettings(targets=self.stripe_count, chunk_bytes=self.chunk_size_bytes))
        return (*self.layout, every)

    @property
    def root(self) -> Path:
        """Where the trees go."""
        return self.mount / self.path if self.path else self.mount


class UsersSection(_Section, frozen=True, kw_only=True):
    """Which directories move as one unit."""

    trees: Annotated[Globs, Meta(min_length=1)]
    """Each directory that matches is a user tree. Example: `["home/*"]`."""
    map: File | None = None
    """CSV file with the user of each tree that is not named after its user. Its first line is `tree,user`; a tree is relative to
    the source's mount, as in `projects/p17,alice`. Other columns are ignored. Example: `"users.csv"`."""
    exclude: Globs = ()
    """Trees that do not move. Example: `["home/lost+found"]`."""
    uid_map: Ids = ()
    """Users whose number on the target is another (docs/transfer.md). Example: `{ 1000 = 2000 }`."""
    gid_map: Ids = ()
    """The same for groups. Example: `{ 100 = 500 }`."""

    @property
    def owners(self) -> OwnerMap:
        """From the numbers of the source to those of the target."""
        return owner_map(self.uid_map, self.gid_map)


class BatchSection(_Section, frozen=True, kw_only=True, rename=None):
    """Limits of one batch. A tree that exceeds them is a batch of its own."""

    max_bytes: Annotated[Size, AT_LEAST_1] = 20 * TIB
    """Bytes of one batch."""
    max_files: Annotated[Count, AT_LEAST_1] = 20_000_000
    """Paths of one batch."""
    max_users: Annotated[Count, AT_LEAST_1] = 10
    """Trees of one batch."""


class TransferSection(_Section, frozen=True, kw_only=True):
    """How streams copy."""

    jobs: Annotated[Count, JOBS] = 4
    """Maximum streams per host (`-j`). The governor measures how many of them help."""
    bwlimit_bytes_per_s: Annotated[Rate, AT_LEAST_1] | None = None
    """Limit for all streams together. Example: `"500MiB/s"`."""
    windows: LimitedWindows = ()
    """When chunks start; always by default. Outside of the windows `run` waits; running chunks finish. A window may have
    limits (docs/transfer.md). Example:
    `["Mon-Fri 19:00-07:00", "Sat,Sun 00:00-24:00"]`."""
    reserve_bytes: Size = GIB
    """Bytes that stay free on the target."""
    max_shrink: Share = 0.5
    """Share of its names or bytes that a user tree may lose between two passes. A tree with a greater loss is set apart, unless
    it lost at most 100 names and 1 GiB."""
    trash_keep_s: Annotated[Seconds, Meta(ge=0)] = 14 * DAY_S
    """How long the target's trash is kept."""
    max_delta_passes: Annotated[Count, Meta(ge=0, le=1000)] = 5
    """Maximum delta passes of a batch in one run; 0: the seed pass alone. Fewer are made once [cutover] `max_freeze` is
    reached, or once the freeze no longer shrinks."""
    engine: Literal["auto", "rsync", "direct", "fpsync", "parsyncfp2"] = "auto"
    """The engine that copies (docs/transfer.md)."""
    rewrite_links: Flag = False
    """Let absolute symlinks into the source's mount lead to the target's (docs/transfer.md)."""
    atimes: Flag = False
    """Carry the access times of files over (docs/transfer.md)."""
    movers: Literal["local", "slurm"] = "local"
    """Location of the streams that read the mount: this machine, or Slurm nodes."""
    stall_timeout_s: Annotated[Duration, AT_LEAST_1] = 10.0 * MINUTE_S
    """A stream that moves nothing for this long is ended."""
    chunk_size_bytes: Annotated[Size, AT_LEAST_1] = 4 * GIB
    """Bytes of one chunk. A larger file is a chunk of its own."""
    chunk_files: Annotated[Count, AT_LEAST_1] = 5000
    """Paths of one chunk."""
    range_size_bytes: Annotated[Size, Meta(ge=MIB)] = GIB
    """A file larger than two such ranges is copied in ranges, by several streams at once."""
    lease_s: Annotated[Duration, Meta(ge=2)] = 30.0
    """A host without contact to this program for this long ends its streams."""
    sample_interval_s: Annotated[Duration, Meta(ge=0.1)] = 5.0
    """How often throughput is recorded."""


class SlurmSection(_Section, frozen=True, kw_only=True):
    """Nodes that move data if [transfer] `movers` is `slurm`. Source and target are mounted there."""

    nodes: Annotated[Count, JOBS] = 1
    """Nodes, with one job each."""
    jobs: Annotated[Count, JOBS] | None = None
    """Streams per node, instead of [transfer] `jobs`. Example: `8`."""
    options: Texts = ()
    """More options for `srun`: partition, account, time limit. Example: `["--partition=movers", "--time=2-00:00:00"]`."""
    source: File | None = None
    """Mount point of the source on the nodes, if not as here. Example: `"/mnt/gl"`."""
    target: File | None = None
    """Mount point of the target on the nodes, if not as here. Example: `"/mnt/beegfs"`."""
    python: Text = "python3"
    """Python (3.9 or later) of the nodes."""


class ReapUserSection(_Section, frozen=True, kw_only=True):
    """Rules for one user, or for one user tree by its path; the others are those of [reap]."""

    name: str
    action: Literal["list", "archive", "skip"] | None = None
    """As in [reap]. Example: `"list"`."""
    older_than_s: Annotated[Seconds, Meta(ge=0)] | None = None
    """As in [reap]; `"0s"` removes the condition. Example: `"3y"`."""
    smaller_than_bytes: Annotated[Size, AT_LEAST_1] | None = None
    """As in [reap]. Example: `"1MiB"`."""
    exclude: Globs | None = None
    """Instead of the globs of [reap]. Example: `["thesis"]`."""


class ReapSection(_Section, frozen=True, kw_only=True):
    """Old and tiny files (docs/reap.md). Without `older_than` and `smaller_than` there are none; with both, only files that
    are old and tiny.
    """

    action: Literal["list", "archive", "skip"] = "list"
    """`list` reports them and moves them as all others, `archive` packs them into archives on the target, `skip` leaves them."""
    older_than_s: Annotated[Seconds, Meta(ge=0)] | None = None
    """Files not modified (or not read, see `by`) for longer. Example: `"2y"`."""
    smaller_than_bytes: Annotated[Size, AT_LEAST_1] | None = None
    """Files that are smaller. Example: `"4KiB"`."""
    by: Literal["mtime", "atime"] = "mtime"
    """Time that counts as age. `atime` is refused if the source does not keep it; Gluster by default does not."""
    exclude: Globs = ()
    """Never reaped: names anywhere, or paths from the top of a user tree, with everything below them. Example: `["*.pem", "Mail"]`."""
    hidden: Flag = False
    """Also reap names that begin with a dot, and everything below them."""
    executables: Flag = False
    """Also reap executable files."""
    archive_size_bytes: Annotated[Size, AT_LEAST_1] = GIB
    """Content of one archive. A larger file has an archive of its own."""
    archive_files: Annotated[Count, Meta(ge=1, le=1_000_000)] = 100_000
    """Files of one archive."""
    users: tuple[ReapUserSection, ...] = ()

    @property
    def policy(self) -> ReapPolicy:
        """The rule of the site, and those of single users, completed from it."""
        rule = ReapRule(
            action=ReapAction(self.action),
            older_than_s=self.older_than_s or None,
            smaller_than_bytes=self.smaller_than_bytes,
            by=ReapClock(self.by),
            exclude=self.exclude,
            hidden=self.hidden,
            executables=self.executables,
        )
        by_name = {
            user.name: replace(
                rule,
                action=ReapAction(user.action or self.action),
                older_than_s=(self.older_than_s if user.older_than_s is None else user.older_than_s) or None,
                smaller_than_bytes=user.smaller_than_bytes or self.smaller_than_bytes,
                exclude=self.exclude if user.exclude is None else user.exclude,
            )
            for user in self.users
        }
        return ReapPolicy(rule=rule, by_name=by_name)


class VerifySection(_Section, frozen=True, kw_only=True):
    """How both sides are compared."""

    digest: Literal["xxh3_128", "blake2b", "sha256"] = "xxh3_128"
    """Digest of contents. Hosts compute the first; the others resist forgery, and this machine reads for them alone."""
    sample: Share = 1.0
    """Share of files whose content is read. All else is always compared."""
    workers: Annotated[Count, JOBS] = 4
    """Comparisons at once on this machine. On other hosts, `jobs` of [transfer] or of the host applies."""


class CutoverSection(_Section, frozen=True, kw_only=True):
    """How a user is switched over."""

    switch: Literal["symlink", "hook"] = "symlink"
    """`symlink` exchanges `link`, `hook` leaves the switch to your `pre-switch` hooks (docs/cutover.md)."""
    link: Link | None = None
    """Symlink that is switched: by user (`{user}`) or, if users have several trees, by the tree's path below the mount
    (`{tree}`). It lies outside source and target, in a directory that only root can write to. Example:
    `"/home/{user}"`."""
    windows: Windows = ()
    """When freezes of `cutover` begin, in local time; always by default. One that has begun ends, resumes and rolls back at any
    time. Example: `["Tue-Thu 07:00-09:00"]`."""
    max_freeze_s: Annotated[Seconds, AT_LEAST_1] = 10 * MINUTE_S
    """Delta passes continue until the predicted freeze (final pass and its verification) is no longer. A freeze that reaches
    it before the switch is given up, and the user is thawed."""
    retain_s: Annotated[Seconds, Meta(ge=0)] = 30 * DAY_S
    """How long a user's source is kept after their cutover, before `purge` frees it."""
    purge_rate: Annotated[Count, AT_LEAST_1] = 1000
    """Maximum names per second that `purge` removes on the source."""
    reread: Literal["unchanged", "never"] = "unchanged"
    """`unchanged`: `purge` reads the content of files on the target again that have not changed there since the cutover, as
    `verify` does. `never`: it relies on the verification of the cutover, however old that is (docs/cutover.md)."""
    freeze: Literal["top", "hook"] = "top"
    """How writing is ruled out. `top`: the top directory of the tree is closed, and all open files must be visible. `hook`: a
    pre-freeze hook vouches for what is not visible."""
    require_rollback: Flag = True
    """Move users only if they can be moved back: all writers on the target are visible, or a freeze hook vouches
    (docs/cutover.md)."""
    require_acl_inheritance: Flag = True
    """Move users with default ACLs only if new files on the target inherit them. Otherwise users whom these ACLs
    keep out may read new files (docs/beegfs.md)."""
    settle_s: Annotated[Duration, Meta(ge=0)] = 2.0
    """Wait between closing the top directory and searching for writers: longer than the `entry-timeout` of any client's mount
    (1 s by default). At least 60 s on NFS, whose clients keep attributes so long; none without remote clients."""
    wait_for_backup: Flag = False
    """Move users only after `migrator backup` has recorded a backup of the target (docs/cutover.md)."""
    require_archive: Annotated[Count, Meta(ge=0, le=9)] = 0
    """How many archives of yours, made by `pre-purge` hooks, have to hold a user's tree before `purge` frees it
    (docs/cutover.md)."""
    compare: Flag = True
    """Time the user's tree on the source before the freeze and on the target after it (docs/cutover.md)."""
    compare_limit_s: Annotated[Seconds, AT_LEAST_1] = MINUTE_S
    """Maximum duration of this comparison per side. It delays the next user, not the thaw."""

    @property
    def times(self) -> OpenTimes:
        """When freezes may begin."""
        return OpenTimes(windows=self.windows, local_time=local_time)


class DrainSection(_Section, frozen=True, kw_only=True):
    """How bricks are drained (docs/bricks.md)."""

    throttle: Literal["lazy", "normal", "aggressive"] | None = None
    """`cluster.rebal-throttle` of the volume while bricks are drained or filled, restored afterwards. By default it is left
    alone. Example: `"normal"`."""
    windows: Windows = ()
    """When `throttle` holds, in local time; always by default. At other times it is `lazy`. Example:
    `["Mon-Fri 19:00-07:00", "Sat,Sun 00:00-24:00"]`."""
    stall_s: Annotated[Duration, AT_LEAST_1] = 6.0 * HOUR_S
    """A drain whose counters have not changed for this long is stalled. It must be longer than the largest file takes."""
    poll_s: Annotated[Duration, Meta(ge=0.1)] = 30.0
    """How often Gluster's counters are polled and recorded."""


class CapacitySection(_Section, frozen=True, kw_only=True):
    """Space on both sides, by which `plan` makes its schedule (docs/scan-and-plan.md)."""

    max_fill: Share = 0.9
    """How full target and bricks may become in the schedule."""
    growth_bytes_per_day: Growth = 0
    """Growth of all users together. Growth measured over a week or more replaces it."""


class GovernorSection(_Section, frozen=True, kw_only=True):
    """How many streams run (docs/transfer.md)."""

    max_latency_s: Annotated[Duration, Meta(ge=0.001)] | None = None
    """Latency of small operations above which streams, and drains and rebalances with a `throttle`, are reduced. Example: `"50ms"`."""
    max_load: Annotated[Number, Meta(ge=0)] | None = None
    """Load average (1 minute) of a host above which its streams are reduced. Example: `32`."""
    streams: Literal["measured", "fixed"] = "measured"
    """`measured`: as many of [transfer] `jobs` as raise throughput. `fixed`: all, as far as `max_latency` and `max_load` permit."""
    probe_interval_s: Annotated[Duration, AT_LEAST_1] = 60.0
    """How often both file systems are probed while a verb loads them."""


class HooksSection(_Section, frozen=True, kw_only=True):
    """Executables of yours, called before and after steps (docs/hooks.md)."""

    timeout_s: Annotated[Duration, AT_LEAST_1] = 10.0 * MINUTE_S
    """A hook that takes longer is ended with all its processes."""


class Site(Struct, frozen=True, kw_only=True):
    """One migration, as site.toml describes it."""

    file: Path
    site: SiteSection
    source: SourceSection
    target: TargetSection
    users: UsersSection
    batch: BatchSection = BatchSection()
    transfer: TransferSection = TransferSection()
    governor: GovernorSection = GovernorSection()
    slurm: SlurmSection = SlurmSection()
    reap: ReapSection = ReapSection()
    verify: VerifySection = VerifySection()
    cutover: CutoverSection = CutoverSection()
    drain: DrainSection = DrainSection()
    capacity: CapacitySection = CapacitySection()
    hooks: HooksSection = HooksSection()

    @property
    def rewritten_links(self) -> RewrittenLinks | None:
        """How absolute symlinks into the source change on the target; None: not at all."""
        if not self.transfer.rewrite_links:
            return None
        return RewrittenLinks(source=os.fsencode(self.source.mount), target=os.fsencode(self.target.root))

    @property
    def ledger_file(self) -> Path:
        """The SQLite database."""
        return self.site.state_dir / "ledger.db"

    @property
    def catalogs_dir(self) -> Path:
        """One directory per scan."""
        return self.site.state_dir / "catalogs"

    @property
    def runs_dir(self) -> Path:
        """One directory per invocation, with logs, argv and output."""
        return self.site.state_dir / "runs"

    @property
    def manifests_dir(self) -> Path:
        """One directory per verification."""
        return self.site.state_dir / "manifests"

    @property
    def digests_dir(self) -> Path:
        """One file per attempt whose stream digested what it copied."""
        return self.site.state_dir / "digests"

    @property
    def shields_dir(self) -> Path:
        """Lists of the files that `brick drain` and `brick add` shield; empty if none is shielded."""
        return self.site.state_dir / "shields"


class Key(NamedTuple):
    """A key of site.toml. `field` is its name in the section's class, `type` what msgspec checks its parsed value by."""

    name: str
    field: str
    form: Form
    type: Any
    required: bool
    default: Any

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that may be given; empty for every other form."""
        return get_args(self.type) if self.form is CHOICE else ()

    @property
    def default_in_toml(self) -> str:
        """Empty if there is none."""
        return "" if self.required or self.default is None else json.dumps(self.form.write(self.default))


class SectionReference(NamedTuple):
    """A section of site.toml. With a `parent` there is one for each name, as `[source.hosts."gl1"]`."""

    name: str
    parent: str
    kind: type[_Section]
    required: bool
    keys: tuple[Key, ...]

    @property
    def path(self) -> tuple[str, ...]:
        """The dotted name in parts."""
        return (self.parent, self.name) if self.parent else (self.name,)

    @property
    def header(self) -> str:
        """As it is written in site.toml."""
        return f'[{self.parent}.{self.name}."NAME"]' if self.parent else f"[{self.name}]"


def _sections(holder: type[Struct], parent: str = "") -> Iterator[SectionReference]:
    for info in fields(holder):
        kind = next(iter(get_args(info.type)), None) if parent else info.type
        if isinstance(kind, type) and issubclass(kind, _Section):
            yield SectionReference(info.name, parent, kind, info.required and not parent, tuple(_keys(kind)))
            if not parent:
                yield from _sections(kind, info.name)


def _keys(kind: type[_Section]) -> Iterator[Key]:
    for info in fields(kind):
        type_ = get_args(info.type)[0] if NoneType in get_args(info.type) else info.type
        form = next((one for one in get_args(type_) if isinstance(one, Form)), CHOICE)
        if form is not CHOICE or get_origin(type_) is Literal:
            yield Key(info.encode_name, info.name, form, type_, info.required, info.default)


SECTIONS: tuple[SectionReference, ...] = tuple(_sections(Site))
"""In the order in which they are written and documented."""
