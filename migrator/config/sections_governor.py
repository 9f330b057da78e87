"""The section about how many streams are at work: `governor`."""

from migrator.config.keys import Form, Key, Section

GOVERNOR_SECTIONS: tuple[Section, ...] = (
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
                description="How often both file systems are probed while a verb loads them or bricks are watched.",
            ),
        ),
    ),
)
"""In the order in which they are written and documented."""
