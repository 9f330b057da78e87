"""A kind of file system: facts, and questions to its own command as argv with a pure parser."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from migrator.fs.model import Capacity


class Malformed(ValueError):
    """The output of a command has another form than this program knows."""


class Property(NamedTuple):
    """Whether something holds; if not, `why`."""

    holds: bool
    why: str = ""


class MountedDirectory(Struct, frozen=True, kw_only=True):
    """A mounted directory: the mount's point and source, and the directory itself, all absolute."""

    point: bytes
    mounted_from: bytes
    root: bytes

    @property
    def inside(self) -> bytes:
        """The directory's path within the file system, if its root is mounted."""
        return b"/" + self.root[len(self.point.rstrip(b"/")) :].strip(b"/")


class FileSystemReport(Struct, frozen=True, kw_only=True):
    """The answer of a file system's own command. `problems`: parts of the file system cannot be read now; `doubts`: that may be so. `notes` are
    worth knowing.
    """

    room: Capacity | None = None
    problems: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


Words = Callable[[MountedDirectory], Sequence[str | bytes]]
Parse = Callable[[Sequence[bytes], MountedDirectory], FileSystemReport]


class Question(Struct, frozen=True, kw_only=True):
    """Commands whose outputs are parsed together. `parse` raises Malformed. If a command fails, the question has no answer;
    if `last_may_fail`, the output of the last one is empty then.
    """

    commands: tuple[Words, ...]
    parse: Parse
    last_may_fail: bool = False


class FileSystemKind(Struct, frozen=True, kw_only=True):
    """One kind. `types` are its types in mountinfo; a FUSE mount without a subtype is recognised by the beginning of its source,
    `fuse_source`. `partial` is how an incomplete view looks, `layouts` what a copy does with stripes and layouts. `statfs_inodes` False:
    statfs makes up the number of free inodes. `groups` are the most groups of a user that a client sends to the servers.
    """

    name: str
    title: str
    types: tuple[str, ...] = ()
    fuse_source: str = ""
    inodes: Property = Property(holds=True)
    ctimes: Property = Property(holds=True)
    links: Property = Property(holds=True)
    atimes: Property = Property(holds=True)
    """Whether reading a file changes its access time, unless the mount or a setting prevents that."""
    partial: str = ""
    layouts: str = ""
    statfs_inodes: bool = True
    groups: int | None = None
    room: Question | None = None
    health: Question | None = None
    layout: Question | None = None
    environment: tuple[str, ...] = ()
    """Variables of this program's environment that its commands need."""

    def matches(self, filesystem: str, mounted_from: str) -> bool:
        """Whether a mount of this type and source is of this kind; a kind without types takes any."""
        by_source = bool(self.fuse_source) and filesystem == "fuse" and mounted_from.startswith(self.fuse_source)
        return filesystem in self.types or by_source or not self.types

    @property
    def trusted_inodes(self) -> bool:
        """Whether an inode number identifies a file, so that moves and hard links are found by it."""
        return self.inodes.holds and self.links.holds


def number(text: str | bytes | None, what: str) -> int:
    """A natural number. Raises Malformed."""
    shown = text.decode("utf-8", "replace") if isinstance(text, bytes) else text or ""
    if not re.fullmatch(r"[0-9]{1,25}", shown, re.ASCII):
        raise Malformed(f"{what} is {shown!r}, which is no number")
    return int(shown)


def member(document: Any, *keys: str | int) -> Any:  # noqa: ANN401 -- any JSON
    """A part of a JSON document. Raises Malformed."""
    for key in keys:
        try:
            document = document[key]
        except (KeyError, IndexError, TypeError):
            raise Malformed(f"the answer has no {'.'.join(map(str, keys))}") from None
    return document


def rows(output: bytes, separator: str, first: str) -> list[Mapping[str, str]]:
    """Lines with this first field by the names in their header line (`first:HEADER:...`, as the `-Y` of IBM Storage
    Scale). Raises Malformed if there is no header, or a line is shorter than it.
    """
    header: Sequence[str] | None = None
    found: list[Mapping[str, str]] = []
    for line in output.decode("utf-8", "replace").split("\n"):
        fields = line.split(separator)
        if not line.startswith(first + separator):
            continue
        if "HEADER" in fields:
            header = fields
        elif header is None or len(fields) < len(header):
            raise Malformed(f"a line of {first} does not fit its header")
        else:
            found.append(dict(zip(header, fields, strict=False)))
    if header is None:
        raise Malformed(f"no header of {first}")
    return found
