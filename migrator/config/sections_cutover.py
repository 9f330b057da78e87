"""The sections about proving and switching a user over: `verify`, `cutover`."""

from migrator.config.keys import Form, Key, Section

CUTOVER_SECTIONS: tuple[Section, ...] = (
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
)
"""In the order in which they are written and documented."""
