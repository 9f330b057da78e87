"""The processes that can still write below a tree whose top is closed. Pure."""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from migrator.core.events import Finding, ok, warning
from migrator.core.paths import show
from migrator.core.units import first_of, several
from migrator.fs.kinds.table import KINDS
from migrator.fs.model import LOCAL_FILESYSTEMS
from migrator.gluster.model import ClientSeen, VolumeState


class OpenKind(StrEnum):
    """The kind of reference to an entry below a tree: a descriptor of a file or directory, a working directory (or the
    root directory of a process), a memory mapping, a loop device.
    """

    FILE = "file"
    DIRECTORY = "directory"
    WORKING_DIRECTORY = "working-directory"
    MAP = "map"
    LOOP_DEVICE = "loop-device"


class OpenFile(Struct, frozen=True, kw_only=True):
    """An entry below a user tree that a process holds open. `path` is relative to the source root. If `unlinked`,
    `path` is its last known name; the file has no name any more, so writing to it does not change the tree.

    `host` is the brick server, or this machine. `pid` is None and `program` empty if a brick holds it for an unknown
    process of some client. `brick` is `host:/path`, empty for what was found on this machine itself.
    """

    host: str
    path: bytes
    kind: OpenKind
    writable: bool
    unlinked: bool = False
    pid: int | None = None
    program: bytes = b""
    brick: str = ""


class Writers(Struct, frozen=True, kw_only=True):
    """Files that a search found open below some trees, and sentences about what it could not see."""

    open_files: tuple[OpenFile, ...] = ()
    unseen: tuple[str, ...] = ()


_OPEN_BEHIND = "performance.open-behind"
_OFF = frozenset({"off", "no", "false", "0", "disable"})
_ON = frozenset({"on", "yes", "true", "1", "enable"})
_HOSTS_SHOWN = 5
_FREEZING_SHOWN = 5


def writing_problems(writers: Writers, *, vouched: bool) -> tuple[str, ...]:
    """Why processes may still write below the trees, as sentences; empty if none can. Readers do not count.

    `vouched`: the site's freeze hook guarantees what the search could not see. It does not cover writers that the
    search did see.
    """
    writing = tuple(one for one in writers.open_files if can_write(one))
    reasons = []
    if writing:
        shown = first_of([describe_open(one) for one in writing], _FREEZING_SHOWN, mark=";")
        reasons.append(f"processes can still write below the frozen trees: {shown}")
    return (*reasons, *search_gaps(writers, vouched=vouched))


def search_gaps(writers: Writers, *, vouched: bool) -> tuple[str, ...]:
    """Gaps that a search after the freeze would have too, as sentences; may be called before any freeze."""
    if vouched:
        return ()
    return tuple(f"the search for writers is incomplete: {sentence}" for sentence in writers.unseen)


def can_write(found: OpenFile) -> bool:
    """True if an open file allows changes to a tree with a closed top. A process can open and create files from a
    working directory without passing the top. A file without a name belongs to no tree any more.
    """
    return not found.unlinked and (found.writable or found.kind is OpenKind.WORKING_DIRECTORY)


def describe_open(found: OpenFile) -> str:
    """One line about an open file: path, use, process, host or brick."""
    holder = f"process {found.pid}" if found.pid is not None else ""
    holder += f" ({show(found.program)})" if found.program else ""
    place = f"on {found.host}" if not found.brick else f"through brick {found.brick}"
    how = _HOW.get(found.kind, "open for writing" if found.writable else "open for reading")
    state = ", has no name any more" if found.unlinked else ""
    return f"{show(found.path)}: {how}{state}, {' '.join(part for part in (holder, place) if part)}"


_HOW = {OpenKind.WORKING_DIRECTORY: "a working directory", OpenKind.LOOP_DEVICE: "a loop device"}


def has_clients_elsewhere(filesystem: str) -> bool:
    """True if other machines may have the file system mounted, and cache what they saw of it. `filesystem` is the type
    in mountinfo.
    """
    return filesystem not in LOCAL_FILESYSTEMS


_NFS_CACHE_S = 60.0
"""`acregmax` and `acdirmax` (nfs(5)): so long clients, this one too, may show a file or a top as it was before."""


def settle_s(filesystem: str, asked_s: float) -> float:
    """How long to wait until no client passes a closed top by its cache, and a scan sees what others wrote."""
    least_s = _NFS_CACHE_S if filesystem in KINDS["nfs"].types else 0.0
    return max(asked_s, least_s) if has_clients_elsewhere(filesystem) else 0.0


def clients_unseen(filesystem: str, *, mount: bytes) -> tuple[str, ...]:
    """The gaps of a search on this machine in a source that is not a Gluster volume; empty if only this machine can
    mount it. `filesystem` is the type in mountinfo.
    """
    if not has_clients_elsewhere(filesystem):
        return ()
    way = "; [target] clients lists them for the search" if filesystem == "beegfs" else ""
    return (
        f"{show(mount)} is a file system of type {filesystem}: files that other machines have open there are unknown{way}",
    )


def unopened_unseen(state: VolumeState) -> tuple[str, ...]:
    """Why files that clients have open may be open on no brick. While performance.open-behind is on (the default), a
    client opens a file on the bricks only at the first read or write (GlusterFS 10.3). After it is set to off, even
    files opened before show within a second.
    """
    value = dict(state.options).get(_OPEN_BEHIND, "on")
    if value.lower() in _OFF:
        return ()
    return (
        f"{_OPEN_BEHIND} is on: a file that a client has open and has not written to yet is open on no brick; "
        f"run `gluster volume set {state.volume} {_OPEN_BEHIND} off`",
    )


_EXPORTS = (
    ("nfs.disable", _OFF, "Gluster's NFS server"),
    ("ganesha.enable", _ON, "NFS-Ganesha"),
    ("nfs-ganesha", _ON, "NFS-Ganesha"),
    ("user.smb", _ON, "Samba"),
    ("user.cifs", _ON, "Samba"),
)
"""Options of a volume (GlusterFS 10.3), the values that mean that it is exported, and by what."""


def exports_unseen(state: VolumeState) -> tuple[str, ...]:
    """The servers that export the volume to clients of their own. Those reach a file by its handle, past a closed top, and
    their open files cannot be listed.
    """
    options = dict(state.options)
    return tuple(
        f"{server} exports the volume ({name} is {options[name]}): its clients reach files by handle, past the closed top"
        for name, values, server in _EXPORTS
        if options.get(name, "").lower() in values
    )


def others_unseen(clients: Sequence[ClientSeen] | None, unseen: Sequence[str]) -> tuple[str, ...]:
    """The undetected writes that other clients of the volume may make. `clients` None: they are unknown; `unseen` is why."""
    found = [f"the clients of the bricks are unknown: {sentence}" for sentence in unseen]
    if clients is None and not unseen:
        found.append("the clients of the bricks are unknown: see `gluster volume status VOLUME clients`")
    if clients:
        found.append(
            f"other clients have the volume mounted: {hosts_of(clients)}: a process there may have its working directory in "
            "the tree, and make files there past the closed top"
        )
    return tuple(found)


def names_kept(machines: Sequence[str]) -> tuple[str, ...]:
    """The accesses past a closed top that users of these machines have, because the site's mount there keeps names.

    Gluster's FUSE client does not check permissions; bricks do, when a name is looked up. While root looks up the names
    below a closed top through the same mount, others open files by them.
    """
    if not machines:
        return ()
    return (
        f"the source's mount on {first_of(machines)} keeps names: while root walks through it, users of that machine open "
        "files below a closed top (mount it there with the option entry-timeout=0)",
    )


def hosts_of(clients: Sequence[ClientSeen]) -> str:
    """The hosts of clients, with their numbers of connections."""
    hosts = Counter(client.address.rpartition(":")[0] for client in clients)
    shown = ", ".join(
        f"{host} ({several(count, 'connection')})" for host, count in sorted(hosts.items())[:_HOSTS_SHOWN]
    )
    return shown + (f", and {len(hosts) - _HOSTS_SHOWN} hosts more" if len(hosts) > _HOSTS_SHOWN else "")


def check_open_files(state: VolumeState, *, vouched: bool) -> list[Finding]:
    """For `doctor`, on sites that move users: whether all files that clients have open show on the bricks."""
    if vouched:
        return []
    exported = [
        warning(
            "exports", sentence, 'users are not frozen: let a pre-freeze hook vouch for it ([cutover] freeze = "hook")'
        )
        for sentence in exports_unseen(state)
    ]
    if not unopened_unseen(state):
        return [ok("open files", "files that clients open are open on the bricks at once"), *exported]
    fix = f"before users are moved: gluster volume set {state.volume} {_OPEN_BEHIND} off"
    return [
        warning(
            "open files", f"{_OPEN_BEHIND} is on: files that are open and were not written to are open on no brick", fix
        ),
        *exported,
    ]
