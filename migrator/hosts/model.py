"""The identity of a process, and the state of source and target on a host. Pure. An unreadable value counts as wrong."""

from msgspec import Struct

from migrator.fs.model import MountIdentity

SOURCE_HOSTS = "source.hosts"
TARGET_HOSTS = "target.hosts"
"""The places of hosts in site.toml."""


class ProcessIdentity(Struct, frozen=True, kw_only=True):
    """Identifies one process permanently: pids are reused, but not together with start time and boot."""

    pid: int
    start_ticks: int
    boot_id: str


class HostRoots(Struct, frozen=True, kw_only=True):
    """The sentinel in the target's root, and the volume id of a brick (32 hexadecimal digits), as a host reads them.

    None, with the reason, if they cannot be read.
    """

    sentinel: str | None = None
    target_error: str | None = None
    volume_id: str | None = None
    brick_error: str | None = None


class HostRoom(Struct, frozen=True, kw_only=True):
    """The file system type at a path of a host, and its room by statvfs."""

    filesystem: str
    total_bytes: int
    free_bytes: int
    read_only: bool


def target_problem(
    recorded: MountIdentity | None, roots: HostRoots, path: str, *, where: str = "the target"
) -> str | None:
    """A sentence if the file system mounted on a host is not the one that `init` recorded.

    Only the sentinel identifies a file system across hosts. `where` is `the source` for the source's mount.
    """
    if recorded is None or recorded.sentinel is None:
        return f"{where} has no sentinel, so it cannot be distinguished from another directory on another host"
    if roots.sentinel is None:
        why = roots.target_error or "no reason given"
        return f"{where} is not mounted at {path} there: its sentinel cannot be read ({why})"
    if roots.sentinel != recorded.sentinel:
        return f"another file system than {where} is mounted at {path} there: its sentinel is {roots.sentinel}"
    return None


def brick_problem(volume_id: str | None, roots: HostRoots, brick: str) -> str | None:
    """A sentence if the directory is no brick of this volume; `volume_id` as glusterd writes it, None: unknown."""
    if not volume_id:
        return "the volume's id is unknown"
    if roots.volume_id is None:
        why = roots.brick_error or "no reason given"
        return f"{brick} is no brick there: it carries no volume id ({why})"
    if roots.volume_id != volume_id.replace("-", ""):
        return f"{brick} is a brick of another volume there (id {roots.volume_id})"
    return None
