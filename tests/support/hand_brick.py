"""Bricks made by hand: any tree with Gluster's attributes put on it, and what a walk of it has to say, found otherwise."""

import os
import stat
import struct
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from migrator.core.entry import EntryType, acl_entry_count, xattr_digest, xattr_kinds
from migrator.core.units import NS_PER_S
from migrator.fs.reading import read_xattrs
from tests.support.snapshots import walk

GFID = "trusted.gfid"
MDATA = "trusted.glusterfs.mdata"
LINKTO = "trusted.glusterfs.dht.linkto"
BRICK = "host:/brick"
DEVICE = 77

Times = tuple[int, int, int]
"""Of change, modification and access."""


def mdata(ctime_ns: int, mtime_ns: int, atime_ns: int) -> bytes:
    """The value of Gluster's attribute with the times."""
    pairs = [part for time_ns in (ctime_ns, mtime_ns, atime_ns) for part in divmod(time_ns, NS_PER_S)]
    return struct.pack(">BQ6q", 1, 0, *pairs)


@dataclass
class HandBrick:
    """A brick's root. `adopt` makes everything that lies in it known to Gluster; then more can be put in."""

    root: Path
    seed: int = 1
    gfids: dict[int, bytes] = field(default_factory=dict)
    times: dict[int, Times] = field(default_factory=dict)

    def make_root(self) -> None:
        self.root.mkdir(exist_ok=True)
        os.setxattr(self.root, GFID, bytes(15) + b"\1")
        os.setxattr(self.root, "trusted.glusterfs.volume-id", uuid.UUID(int=self.seed).bytes)
        for name in ("indices/xattrop", "indices/dirty", "unlink", "landfill"):
            (self.root / ".glusterfs" / name).mkdir(parents=True, exist_ok=True)
        (self.root / ".glusterfs" / "health_check").write_text("now")

    def file(self, name: str, content: bytes = b"data", *, mode: int = 0o644, linkto: bool = False) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if linkto:
            os.setxattr(path, LINKTO, b"vol1-client-5\0")
        path.chmod(mode)
        return path

    def adopt(self) -> None:
        """A gfid, times (most of them; some before 1970) and a name in the store for all that has none yet."""
        random = Random(self.seed)
        for _, fd, name, facts in entries(self.root):
            if facts.st_ino in self.gfids:
                continue
            gfid = random.randbytes(16)
            self.gfids[facts.st_ino] = gfid
            place = f"/proc/self/fd/{fd}/{os.fsdecode(name)}"
            os.setxattr(place, GFID, gfid, follow_symlinks=False)
            if random.random() < 0.8:
                times = tuple(random.randrange(-2 * 10**18, 4 * 10**18) for _ in range(3))
                self.times[facts.st_ino] = (times[0], times[1], times[2])
                os.setxattr(place, MDATA, mdata(*times), follow_symlinks=False)
            if stat.S_ISDIR(facts.st_mode):
                os.setxattr(place, "trusted.glusterfs.dht", bytes(16))
                continue
            os.setxattr(place, f"trusted.gfid2path.{random.randbytes(8).hex()}", bytes(40), follow_symlinks=False)
            text = str(uuid.UUID(bytes=gfid))
            store = self.root / ".glusterfs" / text[:2] / text[2:4]
            store.mkdir(parents=True, exist_ok=True)
            os.link(name, store / text, src_dir_fd=fd, follow_symlinks=False)

    def rows(self, trees: tuple[bytes, ...] = (), *, from_mdata: bool = True) -> dict[bytes, dict[str, Any]]:
        """What the walk has to find, from stat and listxattr, for bricks without link-to files and the like."""
        rows: dict[bytes, dict[str, Any]] = {}
        for path, fd, name, facts in entries(self.root):
            xattrs = read_xattrs(fd, name)
            gfid = self.gfids[facts.st_ino]
            kind = EntryType.of_mode(facts.st_mode)
            directory = kind is EntryType.DIRECTORY
            nlink = facts.st_nlink if directory else facts.st_nlink - 1
            own = (facts.st_ctime_ns, facts.st_mtime_ns, facts.st_atime_ns)
            ctime_ns, mtime_ns, atime_ns = self.times.get(facts.st_ino, own) if from_mdata else own
            ino = int.from_bytes(gfid[8:], "big")
            rows[path] = {
                "path": path,
                "tree": next(
                    (one for one in trees if path.startswith(one + b"/") or (directory and path == one)), None
                ),
                "brick": BRICK,
                "type": kind.value,
                "size": 4096 if directory else facts.st_size,
                "blocks": 8 if directory else min(facts.st_blocks, -(-facts.st_size // 512)),
                "uid": facts.st_uid,
                "gid": facts.st_gid,
                "mode": facts.st_mode & 0o7777,
                "mtime_ns": mtime_ns,
                "atime_ns": atime_ns,
                "ctime_ns": ctime_ns,
                "dev": DEVICE,
                "rdev": facts.st_rdev,
                "ino": ino,
                "gfid": gfid,
                "nlink": nlink,
                "link_group": ino if nlink > 1 and not directory else None,
                "symlink_target": os.readlink(name, dir_fd=fd) if kind is EntryType.SYMLINK else None,
                "xattr_digest": xattr_digest(xattrs),
                "xattr_largest_bytes": max(map(len, xattrs.values()), default=0),
                "xattr_kinds": int(xattr_kinds(xattrs)),
                "acl_entries": acl_entry_count(xattrs),
            }
        return rows


def entries(root: Path) -> Iterator[tuple[bytes, int, bytes, os.stat_result]]:
    """Every path beneath a root but Gluster's own and this program's."""
    own = (b".glusterfs", b".migrator-sentinel", b".migrator-purge", b".migrator-probe", b".migrator-bench")
    return walk(os.fsencode(root), but=lambda name: name in own or name.startswith(b".glusterfs-anon"))
