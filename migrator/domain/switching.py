"""The path by which a user reaches his tree, and its switch: a symlink that is exchanged for another one."""

from dataclasses import dataclass
from enum import StrEnum

from migrator.domain.entry import EntryType
from migrator.domain.hooks import FileLook
from migrator.domain.mounts import Mount


class SwitchOutcome(StrEnum):
    """What a switch did: `already` where the path led to the new place before."""

    SWITCHED = "switched"
    ALREADY = "already"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLook:
    """One look at a user's link. All paths are absolute.

    `path` is the link as site.toml names it. `way` holds every directory and symlink on the way to it, from the root on;
    it ends where somebody could be led astray. `directory` is where the link lies, without symlinks, and `mount` what is
    mounted there; None where the way ended before. `type` is None where nothing has the link's name. Of a symlink, `text` is
    what it says and `leads_to` the real path of what it leads to; None where that is nothing, or cannot be told (`unread`).
    """

    path: bytes
    way: tuple[FileLook, ...] = ()
    directory: bytes | None = None
    mount: Mount | None = None
    type: EntryType | None = None
    text: bytes | None = None
    leads_to: bytes | None = None
    unread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPlace:
    """What a site says of links: `link` of site.toml, and the two roots that trees lie below, absolute.

    `volume` is the Gluster volume that is left; None where the source is none.
    """

    link: str
    source_root: bytes
    target_root: bytes
    volume: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProblem:
    """Why a link cannot be switched, and how to mend it."""

    message: str
    fix: str
