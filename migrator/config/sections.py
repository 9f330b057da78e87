"""Every section and key of site.toml: one table for the reader of the file, for the commented file that `init` writes,
and for docs/configuration.md.
"""

from migrator.config.keys import Form, Key, Section
from migrator.config.sections_bricks import BRICK_SECTIONS
from migrator.config.sections_reap import REAP_SECTIONS
from migrator.config.sections_transfer import TRANSFER_SECTIONS

SECTIONS: tuple[Section, ...] = (
    Section(
        name="site",
        required=True,
        description="Where the migration keeps its things.",
        keys=(
            Key(
                name="name",
                form=Form.NAME,
                required=True,
                sample='"gl-to-beegfs"',
                description="The name of the migration, for reports.",
            ),
            Key(
                name="state_dir",
                form=Form.PATH,
                default='"state"',
                description="Ledger, catalogs, manifests and logs. On a local disk: the ledger is SQLite.",
            ),
            Key(name="plans_dir", form=Form.PATH, default='"plans"', description="Where plans are written."),
            Key(
                name="hooks_dir",
                form=Form.PATH,
                default='"hooks"',
                description="Where hooks are looked for: docs/hooks.md.",
            ),
        ),
    ),
    Section(
        name="hooks",
        description="Executables of yours that are called before and after batches and passes (docs/hooks.md).",
        keys=(
            Key(
                name="timeout",
                form=Form.DURATION,
                minimum=1,
                default='"10min"',
                field="timeout_s",
                description="A hook that takes longer is ended, with everything that it started.",
            ),
        ),
    ),
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
    Section(
        name="users",
        required=True,
        description="Which directories move as one unit.",
        keys=(
            Key(
                name="trees",
                form=Form.GLOBS,
                required=True,
                sample='["home/*"]',
                description="Globs below the source's mount: each directory that matches is a user tree.",
            ),
            Key(
                name="map",
                form=Form.PATH,
                sample='"users.csv"',
                description="CSV that gives the user of a tree where its name does not.",
            ),
            Key(
                name="exclude",
                form=Form.GLOBS,
                default="[]",
                description="Globs of trees that do not move.",
            ),
        ),
    ),
    Section(
        name="batch",
        description="Limits of one batch; a tree that is larger than them stands alone.",
        keys=(
            Key(
                name="max_bytes",
                form=Form.SIZE,
                minimum=1,
                default='"20TiB"',
                description="Bytes of one batch.",
            ),
            Key(
                name="max_files",
                form=Form.COUNT,
                minimum=1,
                default="20000000",
                description="Paths of one batch.",
            ),
            Key(name="max_users", form=Form.COUNT, minimum=1, default="10", description="Trees of one batch."),
        ),
    ),
    *TRANSFER_SECTIONS,
    *REAP_SECTIONS,
    Section(
        name="verify",
        description="How both sides are compared.",
        keys=(
            Key(
                name="digest",
                form=Form.CHOICE,
                choices=("xxh3_128", "blake2b", "sha256"),
                default='"xxh3_128"',
                description="The digest of contents; the first is the fastest, the others withstand forgery.",
            ),
            Key(
                name="sample",
                form=Form.SHARE,
                default="1.0",
                description="The share of the files whose content is read; all other facts are always compared.",
            ),
            Key(
                name="workers",
                form=Form.COUNT,
                minimum=1,
                maximum=1024,
                default="4",
                description="Comparisons at once.",
            ),
        ),
    ),
    Section(
        name="cutover",
        description="How a user is switched over.",
        keys=(
            Key(
                name="switch",
                form=Form.CHOICE,
                choices=("symlink", "hook"),
                default='"symlink"',
                description="What makes the switch: `symlink` exchanges the symlink that `link` names, `hook` leaves it to "
                "your `pre-switch` hooks (docs/cutover.md).",
            ),
            Key(
                name="link",
                form=Form.TEXT,
                sample='"/home/{user}"',
                description="The path that is switched, absolute and with `{user}` in it: a symlink outside source and "
                "target, in a directory that only root can write to.",
            ),
            Key(
                name="freeze",
                form=Form.CHOICE,
                choices=("top", "hook"),
                default='"top"',
                description="Who answers for it that nobody writes any more: `top`, this program, which closes the top of the "
                "tree, and stops where it cannot see everything that is open; or `hook`, besides, the pre-freeze hook, whose "
                "success answers for what cannot be seen.",
            ),
            Key(
                name="settle",
                form=Form.DURATION,
                minimum=0,
                default='"2s"',
                field="settle_s",
                description="How long the freeze waits after closing the top, before it looks who still writes: longer than the "
                "`entry-timeout` of any client's mount (1 s by default), by which a client goes on past a closed directory. Not "
                "where the file system has no clients elsewhere.",
            ),
            Key(
                name="wait_for_backup",
                form=Form.FLAG,
                default="false",
                description="Whether a backup of the target has to be recorded before a user is moved: `migrator backup` tells "
                "of it (docs/cutover.md).",
            ),
            Key(
                name="retain",
                form=Form.SECONDS,
                minimum=0,
                default='"30d"',
                field="retain_s",
                description="How long the source of a user is kept after he was let in on the target; `purge` frees it then.",
            ),
            Key(
                name="purge_rate",
                form=Form.COUNT,
                minimum=1,
                default="1000",
                description="How many names per second `purge` removes on the source, at most.",
            ),
            Key(
                name="max_freeze",
                form=Form.SECONDS,
                minimum=1,
                default='"10min"',
                field="max_freeze_s",
                description="Delta passes go on until freezing the users is predicted to take no longer: the final pass "
                "and its verification.",
            ),
            Key(
                name="compare",
                form=Form.FLAG,
                default="true",
                description="Whether `ls -lR`, `du -s` and reading some files are timed in the user's tree, on the source right before "
                "his freeze and on the target after it (docs/cutover.md).",
            ),
            Key(
                name="compare_limit",
                form=Form.SECONDS,
                minimum=1,
                default='"60s"',
                field="compare_limit_s",
                description="How long that may take on either side. The freeze is not longer for it; the next user is later.",
            ),
        ),
    ),
    *BRICK_SECTIONS,
    Section(
        name="capacity",
        description="The room on both sides over the weeks, for the conversion schedule of `plan` (docs/schedule.md).",
        keys=(
            Key(
                name="max_fill",
                form=Form.SHARE,
                default="0.9",
                description="How full the target and the bricks may become in the schedule.",
            ),
            Key(
                name="growth",
                form=Form.GROWTH,
                minimum=0,
                default='"0B/d"',
                field="growth_bytes_per_day",
                description="What all users together add meanwhile, on whichever side they work.",
            ),
        ),
    ),
    Section(
        name="governor",
        description="How many streams are at work, and what users must not notice (docs/governor.md).",
        keys=(
            Key(
                name="streams",
                form=Form.CHOICE,
                choices=("measured", "fixed"),
                default='"measured"',
                description="`measured`: as many as measured throughput rises with, at most [transfer] `jobs` on each host; "
                "`fixed`: all of them, as far as `max_latency` and `max_load` permit.",
            ),
            Key(
                name="settle",
                form=Form.DURATION,
                minimum=1,
                default='"60s"',
                field="settle_s",
                description="How long throughput is measured with a number of streams before another one is tried.",
            ),
            Key(
                name="max_latency",
                form=Form.DURATION,
                minimum=0.001,
                sample='"50ms"',
                field="max_latency_s",
                description="The latency of small operations on either file system, by probes. Beyond that streams are "
                "taken away, and on the source drains and rebalances with a `throttle` give way (docs/probes.md).",
            ),
            Key(
                name="max_load",
                form=Form.NUMBER,
                minimum=0,
                sample="32",
                description="The load average (of one minute) of a host; beyond that streams are taken away there.",
            ),
            Key(
                name="probe_interval",
                form=Form.DURATION,
                minimum=1,
                default='"60s"',
                field="probe_interval_s",
                description="How often both file systems are probed while `run` is at work or bricks are watched.",
            ),
        ),
    ),
)
"""In the order in which they are written and documented."""
