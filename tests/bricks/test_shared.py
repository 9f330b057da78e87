"""What the verbs of bricks share: the throttle over simulated days, and what is left of what a scan found past Gluster."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.bricks.shared import THROTTLE_OPTION, StrangeLook, Throttle, ThrottleRules, strange_now
from migrator.catalog.model import StrangeFiles
from migrator.core.probe import Probe, ProbeSide, ProbeTimes
from migrator.core.units import DAY_S, MINUTE_S
from migrator.core.windows import Window
from migrator.gluster.model import Brick, VolumeState, VolumeTask
from migrator.ledger.ledger import Ledger
from tests.support.making import made
from tests.support.operations import plan_drain
from tests.support.volumes import volume

LIMIT_S = 0.05
BEGIN_S = 1000.0 * DAY_S


def probe(latency_s: float, at_s: float, side: ProbeSide = ProbeSide.SOURCE) -> Probe:
    times = made(ProbeTimes, create_s=latency_s)
    return Probe(side=side, at_s=at_s, times=times)


@dataclass
class Volume:
    """Options, with all that they were set to."""

    options: dict[str, str] = field(default_factory=dict)
    history: list[str | None] = field(default_factory=list)
    known: bool = True
    told_before: Callable[[], None] = lambda: None

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        state = volume(volume_id="v" if self.known else "", options=tuple(self.options.items()))
        return state, ()

    async def set_option(self, name: str, value: str | None) -> None:
        assert name == THROTTLE_OPTION
        self.told_before()
        self.history.append(value)
        self.options.pop(name, None)
        if value is not None:
            self.options[name] = value


@dataclass
class Moving:
    """Something that moves files, with what the ledger has of it."""

    ledger: Ledger
    throttle: str | None = "aggressive"
    windows: tuple[Window, ...] = ()
    limit_s: float | None = LIMIT_S
    volume: Volume = field(default_factory=Volume)
    now_s: float = BEGIN_S
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.record = plan_drain(self.ledger, ("gl1:/b",))
        self.volume.told_before = self._check_noted
        self.begin()

    def _check_noted(self) -> None:
        noted = self.ledger.drains.read(self.record.id).notes.options
        assert noted, "an option was changed that nothing is written down of"

    def begin(self) -> None:
        """A process that knows nothing but the ledger."""
        call: Any = SimpleNamespace(
            world=SimpleNamespace(
                ledger=self.ledger,
                volume=self.volume,
                throttle=ThrottleRules(
                    throttle=self.throttle,
                    windows=self.windows,
                    local_time=lambda at_s: (int(at_s // DAY_S) % 7, int(at_s % DAY_S // MINUTE_S)),
                    max_latency_s=self.limit_s,
                ),
            ),
            now_s=lambda: self.now_s,
            say=lambda _kind, _severity, _subject, message: self.said.append(message),
        )
        self.throttling = Throttle(call=call, records=self.ledger.drains)

    def minute(self, latency_s: float | None, side: ProbeSide = ProbeSide.SOURCE) -> str | None:
        """A minute later, with a probe."""
        self.now_s += MINUTE_S
        if latency_s is not None:
            self.ledger.probes.add(probe(latency_s, self.now_s, side))
        return self.follow()

    def follow(self) -> str | None:
        asyncio.run(self.throttling.follow(self.record))
        return self.volume.options.get(THROTTLE_OPTION)

    def restore(self) -> str:
        return asyncio.run(self.throttling.restore(self.record))


def test_it_goes_down_step_by_step_and_up_again_and_is_put_back(ledger: Ledger) -> None:
    moving = Moving(ledger)
    shown = [moving.minute(latency_s) for latency_s in [0.01] * 2 + [0.2] * 6 + [0.01] * 10]
    assert shown == ["aggressive"] * 4 + ["normal"] * 3 + ["lazy"] * 5 + ["normal"] * 5 + ["aggressive"]
    assert moving.said[0] == f"{THROTTLE_OPTION} is aggressive now"
    assert moving.said[1].startswith(f"{THROTTLE_OPTION} is normal now: small operations on the source take longer")
    assert len(moving.said) == 5
    assert moving.restore() == f"put back: {THROTTLE_OPTION}"
    assert moving.volume.options == {}
    assert moving.volume.history == ["aggressive", "normal", "lazy", "normal", "aggressive", None]


@pytest.mark.parametrize("silent", [{"limit_s": None}, {"throttle": None}])
def test_without_a_limit_or_a_throttle_nothing_gives_way(ledger: Ledger, silent: dict[str, None]) -> None:
    moving = Moving(ledger, **silent)  # type: ignore[arg-type]
    assert {moving.minute(9.0) for _ in range(20)} == {moving.throttle}
    assert len(moving.volume.history) == (moving.throttle is not None)


def test_the_target_and_missing_probes_change_nothing(ledger: Ledger) -> None:
    moving = Moving(ledger)
    assert {moving.minute(9.0, ProbeSide.TARGET) for _ in range(20)} == {"aggressive"}
    for _ in range(3):
        moving.minute(9.0)
    assert {moving.minute(None) for _ in range(200)} == {"normal"}


ONE, OTHER = (Brick(name=f"gl{number}:/b", host=f"gl{number}", path=b"/b", online=True) for number in (1, 2))
FOUND = StrangeFiles(brick=ONE.name, files=2, paths=(b"a", b"b"))


def now(look: StrangeLook | None, bricks: Sequence[Brick] = (ONE, OTHER), *, scanned: bool = True) -> Any:
    record = SimpleNamespace(strange=(FOUND,)) if scanned else None
    scans: Any = SimpleNamespace(of_bricks=lambda: record)
    return asyncio.run(strange_now(scans, look, bricks, "v"))


def test_only_bricks_of_which_a_scan_told_something_are_looked_at() -> None:
    asked: list[tuple[str, str, tuple[bytes, ...]]] = []

    async def look(brick: Brick, volume_id: str, paths: Sequence[bytes]) -> frozenset[bytes]:
        asked.append((brick.name, volume_id, tuple(paths)))
        return frozenset({b"b"})

    assert now(look) == (StrangeFiles(brick=ONE.name, files=1, paths=(b"b",)),)
    assert asked == [(ONE.name, "v", FOUND.paths)]
    assert now(look, (OTHER,)) == ()


def test_without_a_look_the_scan_counts_and_without_a_scan_nothing_is_known() -> None:
    assert now(None) == (FOUND,)
    assert now(None, scanned=False) is None
