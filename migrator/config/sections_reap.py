"""The sections of site.toml about old and tiny files."""

from migrator.config.keys import Form, Key, Section

REAP_SECTIONS: tuple[Section, ...] = (
    Section(
        name="reap",
        description="Old and tiny files that need not move as they are (docs/reap.md). Without `older_than` and "
        "`smaller_than` none is; both together hold for files that are old and tiny.",
        keys=(
            Key(
                name="action",
                form=Form.CHOICE,
                choices=("list", "archive", "skip"),
                default='"list"',
                description="What becomes of them: `list` reports them and moves them as all others, `archive` packs them "
                "into archives on the target, `skip` does not move them.",
            ),
            Key(
                name="older_than",
                form=Form.SECONDS,
                minimum=0,
                sample='"2y"',
                field="older_than_s",
                description="Only files that were not changed (or not read, see `by`) for longer.",
            ),
            Key(
                name="smaller_than",
                form=Form.SIZE,
                minimum=1,
                sample='"4KiB"',
                field="smaller_than_bytes",
                description="Only files that are smaller.",
            ),
            Key(
                name="by",
                form=Form.CHOICE,
                choices=("mtime", "atime"),
                default='"mtime"',
                description="What says how old a file is: when it was changed, or when it was read. `atime` is refused where "
                "the source does not keep it, as Gluster does not by default.",
            ),
            Key(
                name="exclude",
                form=Form.GLOBS,
                default="[]",
                description="Globs of what is never reaped, below the user trees: names anywhere, or paths from the top of "
                "a tree, with all that lies below.",
            ),
            Key(
                name="hidden",
                form=Form.FLAG,
                default="false",
                description="Whether files are reaped whose name, or a directory's above them, begins with a dot.",
            ),
            Key(
                name="executables",
                form=Form.FLAG,
                default="false",
                description="Whether files are reaped that somebody may execute.",
            ),
            Key(
                name="linked",
                form=Form.FLAG,
                default="false",
                description="Whether files with several names are reaped, where all of their names are.",
            ),
            Key(
                name="keep_file",
                form=Form.TEXT,
                default='".migrator-keep"',
                description="How users opt out: nothing is reaped below a directory that holds a file of this name.",
            ),
            Key(
                name="tiny_below",
                form=Form.SIZE,
                minimum=0,
                default='"4KiB"',
                field="tiny_below_bytes",
                description="What `plan` counts as tiny in its tables; it decides nothing.",
            ),
            Key(
                name="archive_size",
                form=Form.SIZE,
                minimum=1,
                default='"1GiB"',
                field="archive_bytes",
                description="How much content an archive has at most; a file that is larger has one of its own.",
            ),
            Key(
                name="archive_files",
                form=Form.COUNT,
                minimum=1,
                maximum=1_000_000,
                default="100000",
                description="How many files an archive has at most.",
            ),
        ),
    ),
    Section(
        name="reap.users",
        per_name=True,
        description="Other rules for one user, or for one user tree by its path; what is not set here is as in [reap].",
        keys=(
            Key(
                name="action",
                form=Form.CHOICE,
                choices=("list", "archive", "skip"),
                sample='"list"',
                description="As in [reap].",
            ),
            Key(
                name="older_than",
                form=Form.SECONDS,
                minimum=0,
                sample='"3y"',
                field="older_than_s",
                description='As in [reap]; `"0s"` takes its condition away.',
            ),
            Key(
                name="smaller_than",
                form=Form.SIZE,
                minimum=1,
                sample='"1MiB"',
                field="smaller_than_bytes",
                description="As in [reap].",
            ),
            Key(name="by", form=Form.CHOICE, choices=("mtime", "atime"), sample='"mtime"', description="As in [reap]."),
            Key(
                name="exclude",
                form=Form.GLOBS,
                sample='["thesis"]',
                description="As in [reap], in place of its globs.",
            ),
            Key(name="hidden", form=Form.FLAG, sample="true", description="As in [reap]."),
            Key(name="executables", form=Form.FLAG, sample="true", description="As in [reap]."),
            Key(name="linked", form=Form.FLAG, sample="true", description="As in [reap]."),
        ),
    ),
)
