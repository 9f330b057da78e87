"""Windows of time in which something may be done, by weekday and time of day on this machine."""

from dataclasses import dataclass
from itertools import groupby

from migrator.domain.units import HOUR_S, MINUTE_S

DAY_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MINUTES = HOUR_S // MINUTE_S
_FEWEST_IN_A_RANGE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """On `days` (0 is Monday) from `start_minute` of the day on; an end that is not after the start lies on the next day.

    `jobs` is how many streams may be at work on each host meanwhile, `bwlimit_bytes_per_s` how much all streams together may
    move; None: what holds otherwise.
    """

    days: tuple[int, ...]
    start_minute: int
    end_minute: int
    jobs: int | None = None
    bwlimit_bytes_per_s: int | None = None

    @property
    def when(self) -> str:
        """As it is written in site.toml: `Mon-Fri 19:00-07:00`; without days it holds on every day."""
        minutes = (self.start_minute, self.end_minute)
        times = "-".join(f"{minute // _MINUTES:02}:{minute % _MINUTES:02}" for minute in minutes)
        return times if len(self.days) == len(DAY_NAMES) else f"{self._day_words} {times}"

    @property
    def _day_words(self) -> str:
        found = []
        # Days that follow each other are as far from their places in the list.
        for _, together in groupby(enumerate(self.days), lambda placed: placed[1] - placed[0]):
            names = [DAY_NAMES[day] for _, day in together]
            found += [f"{names[0]}-{names[-1]}"] if len(names) >= _FEWEST_IN_A_RANGE else names
        return ",".join(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowStanding:
    """A window at a time: whether it holds, and when that changes (None: never), `changes` on this machine's clock."""

    when: str
    jobs: int | None
    bwlimit_bytes_per_s: int | None
    holds: bool
    changes_at_s: float | None
    changes: str
