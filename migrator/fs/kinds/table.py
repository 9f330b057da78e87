"""All kinds, and which one a mount is."""

from collections.abc import Sequence

from migrator.fs.kinds.ceph import CEPHFS
from migrator.fs.kinds.eos import EOS
from migrator.fs.kinds.gpfs import GPFS
from migrator.fs.kinds.hdfs import HDFS
from migrator.fs.kinds.lustre import LUSTRE
from migrator.fs.kinds.model import FileSystemKind, Property
from migrator.fs.kinds.moosefs import MOOSEFS
from migrator.fs.model import Mount, mount_of

GLUSTER = FileSystemKind(
    name="gluster",
    title="GlusterFS",
    types=("fuse.glusterfs",),
    partial="a mount that has lost a brick silently shows fewer files",
    groups=93,
)
"""Groups: "at most ~93" (docs.gluster.org, Handling of users that belong to many groups): 95 words of an RPC header (xdr-common.h),
less the 2 that FUSE's lock owner takes.
"""
BEEGFS = FileSystemKind(
    name="beegfs",
    title="BeeGFS",
    types=("beegfs",),
    atimes=Property(holds=False, why="reading a file of BeeGFS does not change its access time"),
    partial="a file on a storage target that is offline is listed, and gives EIO or hangs",
    layouts="new files get the stripe settings of their directory, or of [target] stripe_count and chunk_size",
)
NFS = FileSystemKind(
    name="nfs",
    title="NFS",
    types=("nfs", "nfs4"),
    partial="a server that exports an unmounted directory shows an empty one; with root_squash root reads less; attributes "
    "are up to a minute old (`acregmax`), so a freeze waits that long",
    groups=16,
)
"""Groups: `gids<16>` of AUTH_SYS (RFC 5531, appendix A); Kerberos sends none."""
POSIX = FileSystemKind(
    name="posix",
    title="a file system that is not known",
    partial="its inode numbers, ctimes and hard links are trusted, and it is not asked whether it shows all files",
)
KINDS = {
    kind.name: kind
    for kind in (
        GLUSTER,
        BEEGFS,
        LUSTRE,
        CEPHFS,
        GPFS,
        MOOSEFS,
        FileSystemKind(
            name="orangefs",
            title="OrangeFS",
            types=("pvfs2", "fuse.pvfs2fuse"),
            inodes=Property(holds=False, why="inode numbers are hashes of longer handles: two files can share one"),
            links=Property(holds=False, why="OrangeFS has no hard links"),
            partial="a file with data on a server that is down is listed, and gives EIO; names of a lost server give EIO",
            layouts="new files get the distribution of their directory; that of each file is not copied",
        ),
        HDFS,
        EOS,
        NFS,
        FileSystemKind(name="ocfs2", title="OCFS2", types=("ocfs2",)),
        FileSystemKind(name="gfs2", title="GFS2", types=("gfs2",)),
        FileSystemKind(name="xfs", title="XFS", types=("xfs",)),
        FileSystemKind(name="ext4", title="ext4", types=("ext4",)),
        POSIX,
    )
}
"""By name, as in site.toml. `posix`, which takes any mount, comes last."""

PLAIN = frozenset({"posix", "xfs", "ext4"})
"""Kinds that the directory below an unmounted mount point can have too: their type proves nothing."""


def kind_at(mounts: Sequence[Mount], path: bytes) -> str:
    """The kind of an absolute path without symlinks, by the type and source of its mount. `posix` for an unknown one, and for
    a directory on a plain one: what belongs there may be unmounted.
    """
    mount = mount_of(mounts, path)
    if mount is None:
        return POSIX.name
    source = mount.source.decode("utf-8", "surrogateescape")
    name = next(kind.name for kind in KINDS.values() if kind.matches(mount.filesystem, source))
    return POSIX.name if name in PLAIN and mount.point != path else name
