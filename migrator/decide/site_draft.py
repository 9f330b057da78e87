"""What a new site.toml says, from what is mounted on this machine and what the user named."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.domain.errors import UsageError
from migrator.domain.mounts import Mount, mount_of
from migrator.domain.paths import show

_GLUSTER = ("fuse.glusterfs",)
_BEEGFS = ("beegfs",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedSite:
    """Source and target by kind and place. `target_path` is what lies below the target's mount."""

    name: str
    source_kind: str
    source_mount: bytes
    volume: str | None
    target_kind: str
    target_mount: bytes
    target_path: bytes


def propose_site(mounts: Sequence[Mount], *, source: bytes | None = None, target: bytes | None = None) -> ProposedSite:
    """Source and target as named (absolute, without symlinks), or else the only Gluster and BeeGFS mounts.

    Raises UsageError where one is not named and nothing, or more than one thing, offers itself.
    """
    source_mount = source or _only(mounts, _GLUSTER, "source", "GlusterFS")
    target_place = target or _only(mounts, _BEEGFS, "target", "BeeGFS")
    source_shown, target_shown = mount_of(mounts, source_mount), mount_of(mounts, target_place)
    volume = _volume(source_shown.source) if source_shown and source_shown.filesystem in _GLUSTER else None
    target_mount, target_path = target_place, b""
    is_beegfs = target_shown is not None and target_shown.filesystem in _BEEGFS
    if is_beegfs and target_shown is not None:
        target_mount = target_shown.point
        target_path = target_place[len(target_mount.rstrip(b"/")) :].strip(b"/")
    target_kind = "beegfs" if is_beegfs else "posix"
    return ProposedSite(
        name=_name(volume or show(source_mount.rpartition(b"/")[2]), target_kind),
        source_kind="gluster" if volume else "posix",
        source_mount=source_mount,
        volume=volume,
        target_kind=target_kind,
        target_mount=target_mount,
        target_path=target_path,
    )


def _only(mounts: Sequence[Mount], kinds: tuple[str, ...], side: str, name: str) -> bytes:
    found = [mount for mount in mounts if mount.filesystem in kinds]
    if len(found) == 1:
        return found[0].point
    option = f"--{side}-mount DIR"
    if not found:
        raise UsageError(
            f"no {name} file system is mounted here that could be the {side}",
            cause="it is not mounted on this machine, or it is of another kind",
            hint=f"mount it, or name the {side}: {option}",
        )
    listed = ", ".join(f"{show(mount.point)} ({show(mount.source)})" for mount in found)
    raise UsageError(f"more than one {name} file system could be the {side}: {listed}", hint=f"name one: {option}")


def _volume(source: bytes) -> str | None:
    """`gl1:/vol1/below` is volume `vol1`."""
    name = source.rpartition(b":")[2].strip(b"/").partition(b"/")[0]
    return name.decode("ascii", "replace") or None


def _name(source: str, target_kind: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{source}-to-{target_kind}").lstrip("._-")
    return plain or f"to-{target_kind}"
