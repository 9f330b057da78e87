"""Which rsync it is, and what it can do, by what it says of itself. Pure."""

import re
from dataclasses import dataclass

from migrator.decide.syncing import syncfs_reaches_disks

MINIMUM_VERSION = (3, 2, 3)
"""Nanosecond comparison, filters for attributes, `--stderr`, xxh128, and roles in messages are all there."""

FSYNC_VERSION = (3, 2, 4)
"""From which on it can sync each file (`--fsync`)."""

NEEDED_ABILITIES = ("hardlinks", "symlinks", "symtimes", "ACLs", "xattrs", "64-bit files")

_VERSION = re.compile(rb"rsync +version v?([0-9]+)\.([0-9]+)(?:\.([0-9]+))?")
_ABILITIES = re.compile(rb"^Capabilities:\n((?:[ \t]+.*\n?)+)", re.MULTILINE)
_OPTION = re.compile(rb"^ *(--[a-z0-9-]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RsyncFeatures:
    """`lacks` names abilities that this build was made without; `confine_root`: knows `--confine-root` (3.5), `fsync`: `--fsync`
    (3.2.4).
    """

    version: tuple[int, int, int]
    confine_root: bool = False
    fsync: bool = False
    lacks: tuple[str, ...] = ()

    @property
    def version_text(self) -> str:
        """As rsync writes it."""
        return dotted(self.version)

    def problem(self) -> str | None:
        """Why it cannot be used; None where it can."""
        if self.version < MINIMUM_VERSION:
            return f"rsync {self.version_text} is too old: {dotted(MINIMUM_VERSION)} is needed"
        if self.lacks:
            return f"rsync {self.version_text} was built without {', '.join(self.lacks)}"
        return None

    def syncing_problem(self, target_filesystem: str) -> str | None:
        """Why it does not put on the disks what it copies to a target of this type; None where it does, or where a `syncfs` at the
        end does.
        """
        if self.version >= FSYNC_VERSION or syncfs_reaches_disks(target_filesystem):
            return None
        return (
            f"rsync {self.version_text} cannot sync each file, as the target needs ({dotted(FSYNC_VERSION)} can): what it copied in "
            "the last half minute may be lost in a power cut of a storage server, and fpsync and parsyncfp2 fail"
        )


def parse_features(version_output: bytes, help_output: bytes = b"") -> RsyncFeatures | None:
    """From `rsync --version` and `rsync --help`; None where the former is something else's output."""
    match = _VERSION.search(version_output)
    if match is None:
        return None
    listed = _ABILITIES.search(version_output)
    abilities = {b" ".join(words.split()) for words in listed[1].split(b",")} if listed else set()
    options = _OPTION.findall(help_output)
    return RsyncFeatures(
        version=(int(match[1]), int(match[2]), int(match[3] or 0)),
        confine_root=b"--confine-root" in options,
        fsync=b"--fsync" in options,
        lacks=tuple(ability for ability in NEEDED_ABILITIES if ability.encode("ascii") not in abilities),
    )


def dotted(version: tuple[int, int, int]) -> str:
    """A version as people write it: `3.2.3`."""
    return ".".join(str(number) for number in version)
