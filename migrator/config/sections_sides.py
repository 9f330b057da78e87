"""The sections about both sides of a migration: `source`, `source.hosts`, `target`."""

from migrator.config.keys import Form, Key, Section

SIDE_SECTIONS: tuple[Section, ...] = (
    Section(
        name="source",
        required=True,
        description="The file system that is left.",
        keys=(
            Key(
                name="kind",
                form=Form.CHOICE,
                required=True,
                choices=("gluster", "posix"),
                sample='"gluster"',
                description="`posix` is any mounted tree; `gluster` also asks the volume whether all its bricks are up.",
            ),
            Key(
                name="mount",
                form=Form.PATH,
                required=True,
                sample='"/mnt/gl"',
                description="Where it is mounted. A Gluster mount needs the option `acl` where users have ACLs.",
            ),
            Key(
                name="volume",
                form=Form.NAME,
                sample='"vol1"',
                description="The Gluster volume; needed where `kind` is `gluster`.",
            ),
            Key(
                name="via",
                form=Form.CHOICE,
                choices=("auto", "bricks", "mount"),
                default='"auto"',
                description="How it is read: the bricks are faster by far, the mount is always right; `auto` decides for "
                "every scan and says why.",
            ),
            Key(
                name="gluster",
                form=Form.TEXT,
                default='"gluster"',
                description="The command that asks the volume; a script of your own where this machine is no peer.",
            ),
        ),
    ),
    Section(
        name="source.hosts",
        per_name=True,
        description="A brick server that reads its own bricks; one section each, named as in the brick list.",
        keys=(
            Key(
                name="ssh",
                form=Form.TEXT,
                sample='"root@gl1"',
                description="How ssh reaches it; without it the section is for this machine itself.",
            ),
            Key(
                name="target",
                form=Form.PATH,
                sample='"/mnt/beegfs"',
                description="Where the target is mounted there; without it this host walks its bricks and copies nothing.",
            ),
            Key(
                name="options",
                form=Form.TEXTS,
                default="[]",
                description="More options for ssh.",
            ),
            Key(
                name="jobs",
                form=Form.COUNT,
                minimum=1,
                maximum=1024,
                sample="8",
                description="Streams at once on this host; without it [transfer] jobs.",
            ),
            Key(
                name="python",
                form=Form.TEXT,
                default='"python3"',
                description="The Python 3 (3.9 or later) there; nothing else needs to be installed.",
            ),
        ),
    ),
    Section(
        name="target",
        required=True,
        description="The file system that is filled.",
        keys=(
            Key(
                name="kind",
                form=Form.CHOICE,
                required=True,
                choices=("beegfs", "posix"),
                sample='"beegfs"',
                description="`posix` is any mounted file system.",
            ),
            Key(
                name="mount",
                form=Form.PATH,
                required=True,
                sample='"/mnt/beegfs"',
                description="Where it is mounted.",
            ),
            Key(
                name="path",
                form=Form.BELOW,
                default='""',
                description="A directory below the mount; trees keep their relative paths there.",
            ),
            Key(
                name="inodes_free",
                form=Form.COUNT,
                minimum=0,
                sample="100000000",
                description="Free inodes, where nobody else tells: neither the file system nor BeeGFS's command.",
            ),
            Key(
                name="beegfs",
                form=Form.TEXT,
                sample='"/usr/local/sbin/beegfs-of-this-target"',
                description="BeeGFS's command, where it is not found by itself: its path, or a script of yours that calls it "
                "(docs/beegfs.md). A name that begins with `beegfs-ctl` is asked as version 7.",
            ),
            Key(
                name="stripe_count",
                form=Form.COUNT,
                minimum=1,
                sample="4",
                description="BeeGFS: over how many storage targets new files of user trees are spread; without it as in the "
                "directory above.",
            ),
            Key(
                name="chunk_size",
                field="chunk_size_bytes",
                form=Form.SIZE,
                minimum=65536,
                sample='"1MiB"',
                description="BeeGFS: in pieces of how much, a power of two; without it as in the directory above.",
            ),
        ),
    ),
)
"""In the order in which they are written and documented."""
