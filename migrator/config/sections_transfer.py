"""The sections about how streams work and where: `transfer` and `slurm`."""

from migrator.config.keys import Form, Key, Section

TRANSFER_SECTIONS: tuple[Section, ...] = (
    Section(
        name="transfer",
        description="How streams work.",
        keys=(
            Key(
                name="engine",
                form=Form.CHOICE,
                choices=("auto", "rsync", "direct", "fpsync", "parsyncfp2"),
                default='"auto"',
                description="What copies: `rsync` or `direct` (this program's own, for new files) a chunk, `fpsync` or "
                "`parsyncfp2` a whole tree; `auto` takes for each chunk what measures fastest.",
            ),
            Key(
                name="movers",
                form=Form.CHOICE,
                choices=("local", "slurm"),
                default='"local"',
                description="Where streams run that read the mount: on this machine, or on nodes of a Slurm cluster.",
            ),
            Key(
                name="range_size",
                form=Form.SIZE,
                minimum=1048576,
                default='"1GiB"',
                field="range_size_bytes",
                description="A file of more than two such ranges is copied in ranges by several streams at once.",
            ),
            Key(
                name="digest",
                form=Form.CHOICE,
                choices=("none", "blake2b"),
                default='"none"',
                description="A digest that `direct` computes on the way and keeps in the run's directory.",
            ),
            Key(
                name="lease",
                form=Form.DURATION,
                minimum=2,
                default='"30s"',
                field="lease_s",
                description="A host that has not heard of this program for so long ends its streams by itself.",
            ),
            Key(
                name="jobs",
                form=Form.COUNT,
                minimum=1,
                maximum=1024,
                default="4",
                description="Streams at once, on each host, at most (`-j`). How many of them are at work is measured "
                "([governor] `streams`).",
            ),
            Key(
                name="chunk_size",
                form=Form.SIZE,
                minimum=1,
                default='"4GiB"',
                field="chunk_size_bytes",
                description="Bytes of one chunk; a larger file is a chunk of its own.",
            ),
            Key(
                name="chunk_files",
                form=Form.COUNT,
                minimum=1,
                default="5000",
                description="Paths of one chunk.",
            ),
            Key(
                name="bwlimit",
                form=Form.RATE,
                minimum=1,
                sample='"500MiB/s"',
                field="bwlimit_bytes_per_s",
                description="Limit for all streams together; without it there is none.",
            ),
            Key(
                name="tries",
                form=Form.COUNT,
                minimum=1,
                maximum=100,
                default="3",
                description="How often a chunk is tried before it is split or given up.",
            ),
            Key(
                name="stall_timeout",
                form=Form.DURATION,
                minimum=1,
                default='"10min"',
                field="stall_timeout_s",
                description="A stream that moves nothing for so long is ended.",
            ),
            Key(
                name="sample_interval",
                form=Form.DURATION,
                minimum=0.1,
                default='"5s"',
                field="sample_interval_s",
                description="How often throughput is written down.",
            ),
            Key(
                name="reserve",
                form=Form.SIZE,
                minimum=0,
                default='"1GiB"',
                field="reserve_bytes",
                description="Bytes that stay free on the target.",
            ),
            Key(
                name="max_delta_passes",
                form=Form.COUNT,
                minimum=0,
                maximum=1000,
                default="5",
                description="Delta passes that one run makes of a batch at most; 0: the seed pass alone. Fewer are made "
                "where [cutover] max_freeze is reached before, or where the freeze no longer shrinks.",
            ),
            Key(
                name="trash_keep",
                form=Form.SECONDS,
                minimum=0,
                default='"14d"',
                field="trash_keep_s",
                description="How long the target's trash keeps what delta passes took away there.",
            ),
            Key(
                name="max_shrink",
                form=Form.SHARE,
                default='"50%"',
                description="A user tree that lost a larger share of its names or bytes since the pass before is not believed: "
                "nothing is taken away on the target.",
            ),
            Key(
                name="windows",
                form=Form.LIMITED_WINDOWS,
                default="[]",
                description="When chunks may be begun; empty: always. Outside of them `run` waits, and what is at work "
                "goes on to its end. A window may have limits of its own; of several that hold the smallest count "
                "(docs/governor.md).",
            ),
        ),
    ),
    Section(
        name="slurm",
        description="The nodes that move data, where [transfer] movers is `slurm`. Source and target are mounted there.",
        keys=(
            Key(
                name="nodes",
                form=Form.COUNT,
                minimum=1,
                maximum=1024,
                default="1",
                description="Nodes at once: one job each.",
            ),
            Key(
                name="jobs",
                form=Form.COUNT,
                minimum=1,
                maximum=1024,
                sample="8",
                description="Streams at once on each node; without it [transfer] jobs.",
            ),
            Key(
                name="source",
                form=Form.PATH,
                sample='"/mnt/gl"',
                description="Where the source is mounted there; without it as here.",
            ),
            Key(
                name="target",
                form=Form.PATH,
                sample='"/mnt/beegfs"',
                description="Where the target is mounted there; without it as here.",
            ),
            Key(
                name="options",
                form=Form.TEXTS,
                default="[]",
                sample='["--partition=movers", "--time=2-00:00:00"]',
                description="More options for `srun`: partition, account, time limit.",
            ),
            Key(
                name="python",
                form=Form.TEXT,
                default='"python3"',
                description="The Python 3 (3.9 or later) on the nodes.",
            ),
        ),
    ),
)
"""In the order in which they are written and documented."""
