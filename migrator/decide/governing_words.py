"""What waits because people or windows keep it from beginning. Pure."""

from collections.abc import Iterator

from migrator.domain.governing import Gate, GoverningFacts
from migrator.domain.report import Blocker


def governing_blockers(governing: GoverningFacts) -> Iterator[Blocker]:
    """A pause, and the time outside of windows while a run waits for the next one."""
    hold, record = governing.controls.hold, governing.governor
    if hold is not None:
        why = f": {hold.reason}" if hold.reason else ""
        yield Blocker(subject="runs and cutovers", on=f"paused by {hold.by}{why}", hint="migrator resume")
    elif governing.at_work and record is not None and record.gate is Gate.OUTSIDE_WINDOWS:
        yield Blocker(
            subject="run",
            on="it is outside the windows of [transfer]",
            hint="none needed: it goes on with the next one",
        )
