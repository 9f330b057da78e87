"""Every section and key of site.toml: one table for the reader of the file, for the commented file that `init` writes,
and for docs/configuration.md.
"""

from migrator.config.keys import Form, Key, Section
from migrator.config.sections_bricks import BRICK_SECTIONS
from migrator.config.sections_cutover import CUTOVER_SECTIONS
from migrator.config.sections_governor import GOVERNOR_SECTIONS
from migrator.config.sections_reap import REAP_SECTIONS
from migrator.config.sections_sides import SIDE_SECTIONS
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
    *SIDE_SECTIONS,
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
    *CUTOVER_SECTIONS,
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
                description="What all users together add meanwhile, on whichever side they work; what was measured over a week and more counts before it.",
            ),
        ),
    ),
    *GOVERNOR_SECTIONS,
)
"""In the order in which they are written and documented."""
