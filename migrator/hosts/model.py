"""The identity of a process, and the roots that a host sees. Pure."""

from dataclasses import dataclass

from migrator.fs.model import MountIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process that is known to be the one that was started: pids are used again, start times are not."""

    pid: int
    start_ticks: int
    boot_id: str


# ---
# What a host that runs streams shows of the two file systems.


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRoots:
    """The sentinel in the target's root there and the volume that a brick belongs to (32 hexadecimal digits); None with
    the reason where it cannot be read.
    """

    sentinel: str | None = None
    target_error: str | None = None
    volume_id: str | None = None
    brick_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRoom:
    """The file system at a path, as a host sees it: its type, and what statvfs says."""

    filesystem: str
    total_bytes: int
    free_bytes: int
    read_only: bool


# ---
# Whether what a host would read and write is what the site means. What cannot be seen counts as wrong. Pure.


def target_problem(
    recorded: MountIdentity | None, roots: HostRoots, path: str, *, where: str = "the target"
) -> str | None:
    """A sentence where what is mounted there is not what `init` recorded: its sentinel is the only proof that holds from
    one host to another. `where` is `the source` for a look at the source's mount.
    """
    if recorded is None or recorded.sentinel is None:
        return f"{where} has no sentinel, so that it cannot be told from another directory on another host"
    if roots.sentinel is None:
        why = roots.target_error or "no reason given"
        return f"{where} is not mounted at {path} there: its sentinel cannot be read ({why})"
    if roots.sentinel != recorded.sentinel:
        return f"another file system than {where} is mounted at {path} there: its sentinel is {roots.sentinel}"
    return None


def brick_problem(volume_id: str | None, roots: HostRoots, brick: str) -> str | None:
    """A sentence where the directory is no brick of this volume; `volume_id` as glusterd writes it, None: not known."""
    if not volume_id:
        return "the volume's id is not known"
    if roots.volume_id is None:
        why = roots.brick_error or "no reason given"
        return f"{brick} is no brick there: it carries no volume id ({why})"
    if roots.volume_id != volume_id.replace("-", ""):
        return f"{brick} is a brick of another volume there (id {roots.volume_id})"
    return None
