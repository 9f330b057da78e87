"""Lustre: room and state of each OST and MDT by `lfs df`, the default layout by `lfs getstripe`. Lustre 2.10 to 2.15."""

import re
from collections.abc import Sequence

from msgspec import Struct

from migrator.core.units import KIB
from migrator.fs.kinds.model import FileSystemKind, FileSystemReport, Malformed, MountedDirectory, Question
from migrator.fs.model import Capacity

_TARGET = re.compile(r"^(\S+-(MDT|OST)[0-9a-f]{4})_UUID\s+(\d+)\s+(\d+)\s+(\d+)\s+\S+\s+.*\[(?:MDT|OST):\d+\]\s*(\S*)$")
_ILL = re.compile(r"^(\S+-(?:MDT|OST)[0-9a-f]{4}|(?:MDT|OST)[0-9a-f]{4})(?:_UUID)?\s*: (.*\S)\s*$")
_FULL_PERCENT = 95
_FLAGS = {
    "D": "degraded",
    "R": "read-only",
    "N": "takes no new objects",
    "S": "out of space",
    "I": "out of inodes",
}


class _Target(Struct, frozen=True, kw_only=True):
    name: str
    is_mdt: bool
    total: int
    free: int
    flags: str


def _targets(output: bytes) -> tuple[list[_Target], list[str]]:
    """The targets that answer, and a sentence for each of the others (`: inactive device`, `: Resource temporarily
    unavailable`). Raises Malformed.
    """
    found, ill = [], []
    for line in output.decode("utf-8", "replace").split("\n"):
        text = line.strip()
        if parsed := _TARGET.match(text):
            name, kind, total, _, free, flags = parsed.groups()
            found.append(_Target(name=name, is_mdt=kind == "MDT", total=int(total), free=int(free), flags=flags))
        elif problem := _ILL.match(text):
            ill.append(f"{problem[1]}: {problem[2]}")
        elif text and not text.startswith(("UUID", "filesystem_summary:", "filesystem summary:")):
            raise Malformed(f"`lfs df` has an unknown line: {text[:80]!r}")
    if not {False, True} <= {one.is_mdt for one in found}:
        raise Malformed("`lfs df` names no OST or no MDT that answers")
    return found, ill


def parse_room(outputs: Sequence[bytes], _place: MountedDirectory) -> FileSystemReport:
    """Bytes: the sum over the OSTs that answer and take new objects. Inodes: the fewest free of any MDT times their number,
    because a directory stays on its MDT; no more than objects of the OSTs.
    """
    (space, _), (inodes, _) = map(_targets, outputs[:2])
    ill = [one for shown in outputs[2:] if shown for one in _targets(shown)[1]]
    osts = [one for one in space if not one.is_mdt and not set("RNS") & set(one.flags)]
    mdts = [one for one in inodes if one.is_mdt]
    objects = sum(one.free for one in inodes if not one.is_mdt)
    room = Capacity(
        total_bytes=sum(one.total for one in space if not one.is_mdt) * KIB,
        free_bytes=sum(one.free for one in osts) * KIB,
        total_inodes=sum(one.total for one in mdts),
        free_inodes=min(min(one.free for one in mdts) * len(mdts), objects),
    )
    full = [
        f"{one.name} is {100 - 100 * one.free // max(one.total, 1)}% full: files striped over it fail first"
        for one in space
        if 100 * one.free < (100 - _FULL_PERCENT) * one.total
    ]
    flagged = [f"{one.name}: {_explain_flags(one.flags)}" for one in space if _FLAGS.keys() & set(one.flags)]
    return FileSystemReport(
        room=room, notes=(*full, *flagged, *(f"{one}: files with objects on it cannot be read" for one in ill))
    )


def _explain_flags(flags: str) -> str:
    return ", ".join(_FLAGS[flag] for flag in flags if flag in _FLAGS)


def parse_health(outputs: Sequence[bytes], _place: MountedDirectory) -> FileSystemReport:
    """A target that is inactive or does not answer. A newer `lfs df` shows those that are deactivated on this client only by
    `-v` (an older one does not know it): retired or lost it cannot tell, so they are notes to the room.
    """
    _, ill = _targets(outputs[0])
    return FileSystemReport(problems=tuple(f"Lustre target {one}" for one in ill))


def parse_layout(outputs: Sequence[bytes], _place: MountedDirectory) -> FileSystemReport:
    """The default layout of a directory. Raises Malformed."""
    printed = " ".join(outputs[0].decode("utf-8", "replace").split())
    if "lcm_" in printed:
        return FileSystemReport(notes=("new files get a composite layout (PFL)",))
    count, size = (re.search(rf"stripe_{word}:\s*(-?\d+)", printed) for word in ("count", "size"))
    if count is None or size is None:
        raise Malformed("`lfs getstripe` names no stripe count or size")
    spread = "all OSTs" if count[1] == "-1" else f"{count[1]} OST(s)"
    return FileSystemReport(notes=(f"new files get stripes of {int(size[1]) // KIB} KiB over {spread}",))


LUSTRE = FileSystemKind(
    name="lustre",
    title="Lustre",
    types=("lustre",),
    partial="a file with objects on an inactive OST shows a wrong size and EIO; names on a lost MDT give EIO",
    layouts="new files get the default layout of their directory (`lfs setstripe` it first); that of each file is not copied",
    room=Question(
        commands=(
            lambda place: ("lfs", "df", place.point),
            lambda place: ("lfs", "df", "-i", place.point),
            lambda place: ("lfs", "df", "-v", place.point),
        ),
        parse=parse_room,
        last_may_fail=True,
    ),
    health=Question(commands=(lambda place: ("lfs", "df", place.point),), parse=parse_health),
    layout=Question(commands=(lambda place: ("lfs", "getstripe", "-d", place.root),), parse=parse_layout),
)
