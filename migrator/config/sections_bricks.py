"""The sections about the bricks of the source: `drain`."""

from migrator.config.keys import Form, Key, Section

BRICK_SECTIONS: tuple[Section, ...] = (
    Section(
        name="drain",
        description="How bricks are drained (docs/bricks.md).",
        keys=(
            Key(
                name="throttle",
                form=Form.CHOICE,
                choices=("lazy", "normal", "aggressive"),
                sample='"normal"',
                description="`cluster.rebal-throttle` of the volume while bricks are drained, or files are moved onto new "
                "ones; it is put back afterwards. Without it the option is left alone.",
            ),
            Key(
                name="windows",
                form=Form.WINDOWS,
                default="[]",
                description="When `throttle` holds, in this machine's time; at other times it is `lazy`. Without windows "
                "it always holds.",
            ),
            Key(
                name="poll",
                form=Form.DURATION,
                minimum=0.1,
                default='"30s"',
                field="poll_s",
                description="How often Gluster's counters are asked for and kept.",
            ),
            Key(
                name="stall",
                form=Form.DURATION,
                minimum=1,
                default='"6h"',
                field="stall_s",
                description="A drain whose counters have not changed for so long stands still: longer than the largest "
                "file takes, which counts only at its end.",
            ),
        ),
    ),
)
"""In the order in which they are written and documented."""
