"""site.toml: its sections and keys, with their types, bounds and defaults. The only place that lists them.

The docstring of a section and the one below a key are their documentation: docs/configuration.md and the file that `init`
writes are made from them. The first sentence has to stand alone. Units are part of a field's name (`lease_s`), and not of
the key (`lease`).
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from msgspec import Meta, Struct
from msgspec.structs import fields

from migrator.beegfs.model import StripeSettings
from migrator.core.errors import UsageError
from migrator.core.units import DAY_S, GIB, HOUR_S, KIB, MIB, MINUTE_S, TIB
from migrator.core.windows import Window
from migrator.reap.model import ReapAction, ReapClock, ReapPolicy, ReapRule
from migrator.site import quantities

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_UNITS = re.compile(r"_(s|bytes|bytes_per_s|bytes_per_day)$")


class Form(NamedTuple):
    """How values of one kind are written: `given` is what TOML holds, `parse` makes the value of it and raises UsageError,
    `write` is the way back.
    """

    name: str
    meaning: str
    given: Any
    parse: Callable[[Any], Any] = lambda value: value
    write: Callable[[Any], Any] = lambda value: value


def _text(text: str) -> str:
    if not text or "\0" in text:
        raise UsageError("must not hold a NUL" if text else "must not be empty")
    return text


def _name(text: str) -> str:
    if not _NAME.fullmatch(_text(text)):
        raise UsageError(f'"{text}" is no name: letters, digits, ".", "_" and "-", the first a letter or digit')
    return text


def _path(text: str) -> Path:
    return Path(_text(text))


def _below(text: str) -> str:
    if text.startswith("/"):
        raise UsageError(f'"{text}" begins with "/": it is relative to the mount')
    if text and any(part in ("", ".", "..") for part in _text(text).rstrip("/").split("/")):
        raise UsageError(f'"{text}" holds an empty part, "." or ".."')
    return text.rstrip("/")


def _link(text: str) -> str:
    rest = _text(text).replace("{user}", "").replace("{tree}", "")
    problem = {
        "{user} or {tree} is missing: every user tree has a link of its own": rest == text,
        "is not absolute": not text.startswith("/"),
        'holds an empty component, "." or ".."': any(part in ("", ".", "..") for part in text.split("/")[1:]),
        "knows no fields but {user} and {tree}": "{" in rest or "}" in rest,
        "holds a character that cannot be shown": not rest.isprintable(),
    }
    if said := next((said for said, holds in problem.items() if holds), None):
        raise UsageError(said, hint='as in "/home/{user}"')
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
        raise UsageError("bwlimit of a window: the least is 1 byte per second")
    return replace(quantities.parse_window(given.when), jobs=given.jobs, bwlimit_bytes_per_s=rate)


def _each(parse: Callable[[Any], Any]) -> Callable[[list[Any]], tuple[Any, ...]]:
    return lambda items: tuple(parse(item) for item in items)


_DURATIONS = '`"30s"`, `"10min"`, `"4h"`, `"90d"`, `"2w"`, `"1y"`'
_SIZES = 'bytes: `"10GiB"`, `"10GB"` (decimal), `"10G"` (binary), `4096`'
_RATES = 'bytes per second: `"200MiB"`, `"200MiB/s"`'
_GROWTHS = 'bytes over time: `"500GiB/d"`, `"2TiB/w"`'
_GLOBS = 'a list of globs below the source\'s mount, in `[reap]` below a user tree: `["home/*", "projects/*"]`'
_WINDOWS = 'a list of `"DAYS HH:MM-HH:MM"`, as in `["Mon-Fri 19:00-07:00", "Sat,Sun 00:00-24:00"]`'
_LIMITS = (
    'the same, or tables with limits of their own: `{ when = "Mon-Fri 07:00-19:00", jobs = 2, bwlimit = "50MiB/s" }`, '
    "also written as `[[transfer.windows]]`"
)

CHOICE = Form("one of", "one of the words listed", str)
Text = Annotated[str, Form("text", "text in quotes", str, _text)]
Name = Annotated[str, Form("name", "letters, digits, `.`, `_` and `-`", str, _name)]
Link = Annotated[str, Form("link", "an absolute path with `{user}` or `{tree}` in it", str, _link)]
File = Annotated[Path, Form("path", "a path; a relative one is relative to site.toml", str, _path, str)]
Below = Annotated[str, Form("relative path", "a path below the mount, without `..`", str, _below)]
Size = Annotated[int, Form("size", _SIZES, int | str, quantities.parse_size, quantities.size_in_words)]
Rate = Annotated[int, Form("rate", _RATES, int | str, quantities.parse_rate)]
Growth = Annotated[
    int,
    Form("growth", _GROWTHS, int | str, quantities.parse_growth, lambda value: f"{quantities.size_in_words(value)}/d"),
]
Duration = Annotated[
    float, Form("duration", f'`"20ms"`, {_DURATIONS}', str, quantities.parse_duration, quantities.duration_in_words)
]
Seconds = Annotated[
    int,
    Form(
        "whole duration",
        f"{_DURATIONS}; whole seconds",
        str,
        quantities.parse_whole_seconds,
        quantities.duration_in_words,
    ),
]
Share = Annotated[
    float, Form("share", '`0.05` or `"5%"`', float | str, quantities.parse_share, lambda value: f"{value:.0%}")
]
Flag = Annotated[bool, Form("true or false", "`true` or `false`, without quotes", bool)]
Count = Annotated[int, Form("count", "a whole number", int)]
Number = Annotated[float, Form("number", "a number", float)]
Texts = Annotated[tuple[str, ...], Form("list of texts", "a list of texts", list[str], _each(_text))]
Globs = Annotated[tuple[str, ...], Form("list of globs", _GLOBS, list[str], _each(lambda text: _below(_text(text))))]
Windows = Annotated[tuple[Window, ...], Form("list of windows", _WINDOWS, list[str], _each(quantities.parse_window))]
LimitedWindows = Annotated[
    tuple[Window, ...],
    Form("list of windows with limits", _LIMITS, list[str | _LimitedWindow], _each(_limited_window)),
]
AT_LEAST_1 = Meta(ge=1)
JOBS = Meta(ge=1, le=1024)


def _key_name(field: str) -> str:
    return _UNITS.sub("", field)


class _Section(Struct, frozen=True, kw_only=True, rename=_key_name):
    """A section of site.toml."""


class SiteSection(_Section, frozen=True, kw_only=True):
    """Where the migration keeps its files."""

    name: Name
    """The name of the migration, for reports. Example: `"gl-to-beegfs"`."""
    state_dir: File = Path("state")
    """Ledger, catalogs, manifests and logs, on a local disk. The ledger is SQLite."""
    plans_dir: File = Path("plans")
    """Where plans are written: for root and the group of the directory (docs/scan-and-plan.md)."""
    memory_bytes: Annotated[Size, Meta(ge=512 * MIB)] | None = None
    """Memory of one query over catalogs; beyond it, it spills to `tmp` of the state directory. Without it a quarter of this machine's, and at least 512 MiB. Example: `"8GiB"`."""
    hooks_dir: File = Path("hooks")
    """Where hooks are looked up (docs/hooks.md)."""


class HostSection(_Section, frozen=True, kw_only=True):
    """A brick server that reads its own bricks. One section each, named as in the brick list."""

    name: str
    ssh: Text | None = None
    """How ssh reaches the host. Without it the section is for this machine itself. Example: `"root@gl1"`."""
    target: File | None = None
    """Where the target is mounted there. Without it this host scans its bricks and copies nothing. Example: `"/mnt/beegfs"`."""
    options: Texts = ()
    """More options for ssh. Example: `["-o", "ConnectTimeout=10"]`."""
    jobs: Annotated[Count, JOBS] | None = None
    """Streams at once on this host, instead of [transfer] `jobs`. Example: `8`."""
    python: Text = "python3"
    """The Python (3.9 or later) of this host. Nothing else needs to be installed there."""


class SourceSection(_Section, frozen=True, kw_only=True):
    """The file system that is migrated."""

    kind: Literal["gluster", "posix"]
    """`gluster` also queries the volume for its bricks; `posix` is any mounted tree. Example: `"gluster"`."""
    mount: File
    """Where it is mounted. A Gluster mount needs the option `acl` if users have ACLs. Example: `"/mnt/gl"`."""
    volume: Name | None = None
    """The Gluster volume; required if `kind` is `gluster`. Example: `"vol1"`."""
    via: Literal["auto", "bricks", "mount"] = "auto"
    """How it is read. The bricks are much faster, the mount is always right; `auto` decides for every scan and reports why."""
    gluster: Text = "gluster"
    """The command that queries the volume. If this machine is no peer, a script of your own."""
    hosts: tuple[HostSection, ...] = ()


class TargetSection(_Section, frozen=True, kw_only=True):
    """The file system that is filled."""

    kind: Literal["beegfs", "posix"]
    """`beegfs`, or `posix`: any mounted file system. Example: `"beegfs"`."""
    mount: File
    """Where it is mounted. Example: `"/mnt/beegfs"`."""
    path: Below = ""
    """A directory below the mount. Trees keep their relative paths there."""
    inodes_free: Annotated[Count, Meta(ge=0)] | None = None
    """Free inodes, if neither the file system nor BeeGFS's command reports them. Example: `100000000`."""
    clients: Text | None = None
    """How ssh reaches the other clients of a BeeGFS target, which BeeGFS lists; `%h` is the name of the host. With it a rollback
    finds processes there that still write (docs/cutover.md). Example: `"root@%h"`."""
    beegfs: Text | None = None
    """BeeGFS's command, if it is not found by itself: a path, or a script of yours that calls it (docs/beegfs.md). A name
    that begins with `beegfs-ctl` is called as version 7. Example: `"/usr/local/sbin/beegfs-of-this-target"`."""
    stripe_count: Annotated[Count, AT_LEAST_1] | None = None
    """BeeGFS: the number of storage targets over which new files of user trees are striped. Without it they inherit the
    setting of the parent directory. Example: `4`."""
    chunk_size_bytes: Annotated[Size, Meta(ge=64 * KIB)] | None = None
    """BeeGFS: the size of a stripe's chunks, a power of two. Without it inherited. Example: `"1MiB"`."""

    @property
    def stripe(self) -> StripeSettings | None:
        """What new user trees get; None: what they inherit."""
        if self.stripe_count is None and self.chunk_size_bytes is None:
            return None
        return StripeSettings(targets=self.stripe_count, chunk_bytes=self.chunk_size_bytes)

    @property
    def root(self) -> Path:
        """Where the trees go."""
        return self.mount / self.path if self.path else self.mount


class UsersSection(_Section, frozen=True, kw_only=True):
    """Which directories move as one unit."""

    trees: Annotated[Globs, Meta(min_length=1)]
    """Globs below the source's mount: each directory that matches is a user tree. Example: `["home/*"]`."""
    map: File | None = None
    """A CSV file with the user of each tree that is not named after its user. Example: `"users.csv"`."""
    exclude: Globs = ()
    """Globs of trees that do not move. Example: `["home/lost+found"]`."""


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
    """The most streams at once on each host (`-j`). The governor measures how many of them help ([governor] `streams`)."""
    bwlimit_bytes_per_s: Annotated[Rate, AT_LEAST_1] | None = None
    """Limit for all streams together; none by default. Example: `"500MiB/s"`."""
    windows: LimitedWindows = ()
    """When chunks start; always by default. Outside of the windows `run` waits, and running chunks finish. A window
    may have limits of its own; of several open windows the smallest limit counts (docs/transfer.md). Example:
    `["Mon-Fri 19:00-07:00", "Sat,Sun 00:00-24:00"]`."""
    reserve_bytes: Size = GIB
    """Bytes that stay free on the target."""
    max_shrink: Share = 0.5
    """The share of its names or bytes that a user tree may lose between two passes. A tree that lost more is not trusted:
    nothing is deleted on the target."""
    trash_keep_s: Annotated[Seconds, Meta(ge=0)] = 14 * DAY_S
    """How long the target's trash keeps what delta passes deleted there."""
    max_delta_passes: Annotated[Count, Meta(ge=0, le=1000)] = 5
    """The most delta passes that one run makes of a batch; 0: the seed pass alone. Fewer are made once [cutover]
    `max_freeze` is reached, or once the freeze no longer shrinks."""
    engine: Literal["auto", "rsync", "direct", "fpsync", "parsyncfp2"] = "auto"
    """What copies: `rsync` or `direct` (this program's own, for new files) a chunk, `fpsync` or `parsyncfp2` a whole tree.
    `auto` picks for each chunk what measures fastest."""
    movers: Literal["local", "slurm"] = "local"
    """Where streams that read the mount run: on this machine, or on nodes of a Slurm cluster."""
    stall_timeout_s: Annotated[Duration, AT_LEAST_1] = 10.0 * MINUTE_S
    """A stream that moves nothing for this long is ended."""
    chunk_size_bytes: Annotated[Size, AT_LEAST_1] = 4 * GIB
    """Bytes of one chunk. A larger file is a chunk of its own."""
    chunk_files: Annotated[Count, AT_LEAST_1] = 5000
    """Paths of one chunk."""
    range_size_bytes: Annotated[Size, Meta(ge=MIB)] = GIB
    """A file larger than two such ranges is copied in ranges, by several streams at once."""
    lease_s: Annotated[Duration, Meta(ge=2)] = 30.0
    """A host that has lost contact with this program for this long ends its streams by itself."""
    sample_interval_s: Annotated[Duration, Meta(ge=0.1)] = 5.0
    """How often throughput is recorded."""


class SlurmSection(_Section, frozen=True, kw_only=True):
    """The nodes that move data if [transfer] `movers` is `slurm`. Source and target are mounted there."""

    nodes: Annotated[Count, JOBS] = 1
    """Nodes at once, one job each."""
    jobs: Annotated[Count, JOBS] | None = None
    """Streams at once on each node, instead of [transfer] `jobs`. Example: `8`."""
    options: Texts = ()
    """More options for `srun`: partition, account, time limit. Example: `["--partition=movers", "--time=2-00:00:00"]`."""
    source: File | None = None
    """Where the source is mounted on the nodes, if not as here. Example: `"/mnt/gl"`."""
    target: File | None = None
    """Where the target is mounted on the nodes, if not as here. Example: `"/mnt/beegfs"`."""
    python: Text = "python3"
    """The Python (3.9 or later) of the nodes."""


class ReapUserSection(_Section, frozen=True, kw_only=True):
    """Other rules for one user, or for one user tree by its path. What is not set here is as in [reap]."""

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
    """Old and tiny files that need not move as they are (docs/reap.md). Without `older_than` and `smaller_than` there are
    none; with both set, only files that are old and tiny.
    """

    action: Literal["list", "archive", "skip"] = "list"
    """What happens to them. `list` reports them and moves them as all others, `archive` packs them into archives on the
    target, `skip` does not move them."""
    older_than_s: Annotated[Seconds, Meta(ge=0)] | None = None
    """Only files that were not modified (or not read, see `by`) for longer. Example: `"2y"`."""
    smaller_than_bytes: Annotated[Size, AT_LEAST_1] | None = None
    """Only files that are smaller. Example: `"4KiB"`."""
    by: Literal["mtime", "atime"] = "mtime"
    """Which time counts as a file's age. `atime` is refused if the source does not keep it; Gluster by default does not."""
    exclude: Globs = ()
    """Globs of files that are never reaped: names anywhere, or paths from the top of a user tree. A directory that matches
    excludes everything below it. Example: `["*.pem", "Mail"]`."""
    hidden: Flag = False
    """Whether files below a name that begins with a dot are reaped too."""
    executables: Flag = False
    """Whether files that anybody may execute are reaped too."""
    archive_size_bytes: Annotated[Size, AT_LEAST_1] = GIB
    """The most content of one archive. A larger file has an archive of its own."""
    archive_files: Annotated[Count, Meta(ge=1, le=1_000_000)] = 100_000
    """The most files of one archive."""
    users: tuple[ReapUserSection, ...] = ()

    @property
    def policy(self) -> ReapPolicy:
        """The rule of the site, and those of single users, completed from it."""
        rule = ReapRule(
            action=ReapAction(self.action),
            older_than_s=self.older_than_s,
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
                older_than_s=self.older_than_s if user.older_than_s is None else user.older_than_s,
                smaller_than_bytes=user.smaller_than_bytes or self.smaller_than_bytes,
                exclude=self.exclude if user.exclude is None else user.exclude,
            )
            for user in self.users
        }
        return ReapPolicy(rule=rule, by_name=by_name)


class VerifySection(_Section, frozen=True, kw_only=True):
    """How both sides are compared."""

    digest: Literal["xxh3_128", "blake2b", "sha256"] = "xxh3_128"
    """The digest of contents. The first is the fastest; the others resist forgery."""
    sample: Share = 1.0
    """The share of the files whose content is read. Everything else is always compared."""
    workers: Annotated[Count, JOBS] = 4
    """Comparisons at once."""


class CutoverSection(_Section, frozen=True, kw_only=True):
    """How a user is switched over."""

    switch: Literal["symlink", "hook"] = "symlink"
    """`symlink` exchanges the symlink that `link` names, `hook` leaves the switch to your `pre-switch` hooks (docs/cutover.md)."""
    link: Link | None = None
    """The symlink that is switched. It names the user (`{user}`) or, where users have several trees, the tree's path below the
    mount (`{tree}`). It lies outside source and target, in a directory that only root can write to. Example:
    `"/home/{user}"`."""
    max_freeze_s: Annotated[Seconds, AT_LEAST_1] = 10 * MINUTE_S
    """Delta passes continue until the freeze is predicted to be no longer. It covers the final pass and its verification."""
    retain_s: Annotated[Seconds, Meta(ge=0)] = 30 * DAY_S
    """How long a user's source is kept after their cutover. `purge` frees it then."""
    purge_rate: Annotated[Count, AT_LEAST_1] = 1000
    """The most names per second that `purge` removes on the source."""
    freeze: Literal["top", "hook"] = "top"
    """How it is ensured that the user no longer writes. `top`: this program closes the top directory of the tree, and stops
    if it cannot see every open file. `hook`: in addition, a successful pre-freeze hook vouches for what it cannot see."""
    require_rollback: Flag = True
    """Whether a user moves only if they could be moved back: if everything that may write to the target can be seen, or a
    freeze hook vouches for it (docs/cutover.md)."""
    settle_s: Annotated[Duration, Meta(ge=0)] = 2.0
    """How long the freeze waits between closing the top directory and looking for writers. It has to be longer than the
    `entry-timeout` of any client's mount (1 s by default). It does not apply to file systems without remote clients."""
    wait_for_backup: Flag = False
    """Whether a user moves only after a backup of the target was recorded by `migrator backup` (docs/cutover.md)."""
    compare: Flag = True
    """Whether `ls -lR`, `du -s` and reading some files are timed in the user's tree, on the source right before the freeze and
    on the target after it (docs/cutover.md)."""
    compare_limit_s: Annotated[Seconds, AT_LEAST_1] = MINUTE_S
    """The longest that this comparison may take on either side. It delays the next user, and does not prolong the freeze."""


class DrainSection(_Section, frozen=True, kw_only=True):
    """How bricks are drained (docs/bricks.md)."""

    throttle: Literal["lazy", "normal", "aggressive"] | None = None
    """`cluster.rebal-throttle` of the volume while bricks are drained or new ones are filled. It is restored
    afterwards; without this key it is left alone. Example: `"normal"`."""
    windows: Windows = ()
    """When `throttle` holds, in this machine's time; always by default. At other times it is `lazy`. Example:
    `["Mon-Fri 19:00-07:00", "Sat,Sun 00:00-24:00"]`."""
    stall_s: Annotated[Duration, AT_LEAST_1] = 6.0 * HOUR_S
    """A drain whose counters have not changed for this long is stalled. It has to be longer than the largest file takes,
    which counts only when it is complete."""
    poll_s: Annotated[Duration, Meta(ge=0.1)] = 30.0
    """How often Gluster's counters are polled and recorded."""


class CapacitySection(_Section, frozen=True, kw_only=True):
    """The space on both sides over the weeks, by which `plan` makes its schedule (docs/scan-and-plan.md)."""

    max_fill: Share = 0.9
    """How full the target and the bricks may become in the schedule."""
    growth_bytes_per_day: Growth = 0
    """What all users together add meanwhile. The growth that was measured over a week or more replaces it."""


class GovernorSection(_Section, frozen=True, kw_only=True):
    """How many streams run, and the load that users must not feel (docs/transfer.md)."""

    max_latency_s: Annotated[Duration, Meta(ge=0.001)] | None = None
    """The highest latency of small operations on either file system. Beyond it streams are reduced, and drains and rebalances
    with a `throttle` yield on the source (docs/transfer.md). Example: `"50ms"`."""
    max_load: Annotated[Number, Meta(ge=0)] | None = None
    """The highest load average (of one minute) of a host. Beyond it streams are reduced there. Example: `32`."""
    streams: Literal["measured", "fixed"] = "measured"
    """`measured`: as many streams as throughput rises with, at most [transfer] `jobs` on each host. `fixed`: all of them, as
    far as `max_latency` and `max_load` permit."""
    probe_interval_s: Annotated[Duration, AT_LEAST_1] = 60.0
    """How often both file systems are probed while a verb loads them or bricks are watched."""


class HooksSection(_Section, frozen=True, kw_only=True):
    """Executables of yours that are called before and after batches and passes (docs/hooks.md)."""

    timeout_s: Annotated[Duration, AT_LEAST_1] = 10.0 * MINUTE_S
    """A hook that takes longer is ended, with every process that it started."""


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


class Section(NamedTuple):
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


def _sections(holder: type[Struct], parent: str = "") -> Iterator[Section]:
    for info in fields(holder):
        kind = next(iter(get_args(info.type)), None) if parent else info.type
        if isinstance(kind, type) and issubclass(kind, _Section):
            yield Section(info.name, parent, kind, info.required and not parent, tuple(_keys(kind)))
            if not parent:
                yield from _sections(kind, info.name)


def _keys(kind: type[_Section]) -> Iterator[Key]:
    for info in fields(kind):
        type_ = get_args(info.type)[0] if NoneType in get_args(info.type) else info.type
        form = next((one for one in get_args(type_) if isinstance(one, Form)), CHOICE)
        if form is not CHOICE or get_origin(type_) is Literal:
            yield Key(info.encode_name, info.name, form, type_, info.required, info.default)


SECTIONS: tuple[Section, ...] = tuple(_sections(Site))
"""In the order in which they are written and documented."""
