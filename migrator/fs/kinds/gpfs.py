"""IBM Storage Scale (GPFS): room by `mmdf` and `mmlsfileset`, states of disks by `mmlsdisk`, all with `-Y`."""

from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from migrator.core.paths import is_beneath
from migrator.core.units import KIB
from migrator.fs.kinds.model import (
    FileSystemKind,
    FileSystemReport,
    Malformed,
    MountedDirectory,
    Question,
    number,
    rows,
)
from migrator.fs.model import Capacity


def _device(place: MountedDirectory) -> bytes:
    return place.mounted_from.rpartition(b"/")[2]


def parse_room(outputs: Sequence[bytes], place: MountedDirectory) -> FileSystemReport:
    """Bytes of the data disks, before replication; inodes that can still be allocated, in the inode space of the fileset of
    the directory. Raises Malformed.
    """
    data, inodes = (rows(outputs[0], ":", f"mmdf:{kind}") for kind in ("data", "inode"))
    if len(data) != 1 or len(inodes) != 1:
        raise Malformed("`mmdf` names not one sum of data and inodes")
    total, free = (number(data[0].get(key), key) * KIB for key in ("totalData", "freeBlocks"))
    most, used = (number(inodes[0].get(key), key) for key in ("maxInodes", "usedInodes"))
    notes: tuple[str, ...] = ()
    filesets = rows(outputs[1], ":", "mmlsfileset")
    linked = [
        (unquote_to_bytes(one["path"]), one) for one in filesets if one.get("status") == "Linked" and "path" in one
    ]
    over = [(path, one) for path, one in linked if place.root == path or is_beneath(place.root, path)]
    if not over:
        raise Malformed("`mmlsfileset` names no fileset of the directory")
    _, fileset = max(over, key=lambda found: len(found[0]))
    space = [one for one in filesets if one.get("inodeSpace") == fileset.get("inodeSpace")]
    owner = next((one for one in space if one.get("isInodeSpaceOwner") == "1"), fileset)
    own_most, allocated, unused = (number(owner.get(key), key) for key in ("maxInodes", "allocInodes", "freeInodes"))
    if own_most:  # 0: as many as the file system has
        most, used = own_most, allocated - unused
        notes = (f"inodes are those of the fileset {fileset['filesetName']}",)
    return FileSystemReport(
        room=Capacity(total_bytes=total, free_bytes=free, total_inodes=most, free_inodes=max(most - used, 0)),
        notes=(*notes, "free bytes are before replication (`mmlsfs DEVICE -r`)"),
    )


def parse_health(outputs: Sequence[bytes], _place: MountedDirectory) -> FileSystemReport:
    """Disks that are not up: with a second replica nothing is missing. Raises Malformed."""
    disks = rows(outputs[0], ":", "mmlsdisk")
    if not disks or any("availability" not in one or "nsdName" not in one for one in disks):
        raise Malformed("`mmlsdisk` names no disk, or no availability")
    return FileSystemReport(
        doubts=tuple(
            f"GPFS disk {one['nsdName']} is {one['availability']}" for one in disks if one["availability"] != "up"
        )
    )


GPFS = FileSystemKind(
    name="gpfs",
    title="IBM Storage Scale (GPFS)",
    types=("gpfs",),
    partial="content on a disk that is down gives EIO; an unlinked fileset or a migrated one (AFM) shows fewer names",
    layouts="placement follows the policy rules of the target; replication of single files is not copied",
    room=Question(
        commands=(
            lambda place: ("mmdf", _device(place), "-Y"),
            lambda place: ("mmlsfileset", _device(place), "-Y"),
        ),
        parse=parse_room,
    ),
    health=Question(commands=(lambda place: ("mmlsdisk", _device(place), "-Y"),), parse=parse_health),
)
