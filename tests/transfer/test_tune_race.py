"""Two people tune at once: neither undoes what the other one has set."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.core.events import EventKind
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.transfer.governor import Tuning
from migrator.transfer.model import Limits
from tests.support.scan_site import WallClock


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "ledger.db", create=True) as opened:
        yield opened


def tuning(ledger: Any, by: str) -> Tuning:
    return Tuning(
        ledger=ledger,
        clock=WallClock(),
        by=by,
        given=Limits(),
        windows=lambda _: (),
        is_gone=lambda _pid, _at_s: False,
    )


class Between:
    """A ledger in which somebody else sets a limit, once, between the look of the one and his change."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._met = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    @property
    def controls(self) -> Any:
        return self

    def tune(self, *given: Any, **named: Any) -> Any:
        if not self._met:
            self._met = True
            tuning(self._ledger, "bob").tune(Limits(bwlimit_bytes_per_s=1000), reset=False)
        return self._ledger.controls.tune(*given, **named)

    def now(self) -> Any:
        return self._ledger.controls.now()


def test_what_another_one_sets_in_the_same_moment_is_kept(ledger: Ledger) -> None:
    facts = tuning(Between(ledger), "anna").tune(Limits(jobs=2), reset=False)
    assert facts.controls.tuned is not None
    assert facts.controls.tuned.limits == Limits(jobs=2, bwlimit_bytes_per_s=1000)
    said = [event.message for event in ledger.events.latest(9) if event.kind is EventKind.LIMITS_SET]
    assert said[0] == "tuned by anna: 2 streams on each host, 1000 B/s for all streams together"


def test_a_reset_forgets_what_another_one_has_set_in_the_same_moment_too(ledger: Ledger) -> None:
    tuning(ledger, "anna").tune(Limits(jobs=2), reset=False)
    assert tuning(Between(ledger), "anna").tune(Limits(), reset=True).controls.tuned is None
