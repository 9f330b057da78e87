"""The conversion schedule as people see it."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from migrator.core.units import DAY_S, TIB
from migrator.plan.model import TransferCost
from migrator.plan.rules_forecast import Growth
from migrator.render.document import Document, Section
from migrator.render.terminal import print_document
from migrator.schedule.model import Schedule
from migrator.schedule.rules import assumptions, make_schedule
from migrator.schedule.rules_drains import SlowerInDrains, assumed_drain_cost
from migrator.schedule.view import schedule_blocks
from tests.schedule.schedules import batch, facts, field_example, subvolume

GOLDEN = Path(__file__).parents[1] / "fixtures" / "schedules"
BEGINS_AT_S = 20_000 * DAY_S
COST = TransferCost(s_per_file=0.0, s_per_byte=1e-9, streams=1, basis="measured here: 1 GB/s")

RATES: Any = {
    "copying": COST,
    "slower": SlowerInDrains(share=0.4, basis="measured here, 40%"),
    "drains": assumed_drain_cost(),
    "growth": Growth(),
    "reaped": {},
}


def field_schedule(target_bytes: int) -> Schedule:
    site = field_example(target_bytes)
    return make_schedule(site, assumptions=assumptions(site, **RATES))


def shown(schedule: Schedule, width: int = 132) -> str:
    stream = io.StringIO()
    section = Section(title="When bricks can be cleared", blocks=tuple(schedule_blocks(schedule, BEGINS_AT_S)))
    print_document(Console(file=stream, width=width), Document(title="t", subtitle="", sections=(section,)))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize(("name", "target_bytes"), [("possible", 85 * TIB), ("impossible", 60 * TIB)])
def test_the_field_example(name: str, target_bytes: int) -> None:
    assert shown(field_schedule(target_bytes)) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [60, 80, 140])
def test_it_fits_the_terminal(width: int) -> None:
    assert all(len(line) <= width for line in shown(field_schedule(60 * TIB), width).splitlines())


def test_another_order_is_a_way() -> None:
    # Batch 1 fits only when brick 1 has joined the target, which batch 2 makes possible.
    volumes = [subvolume(1, free=10), subvolume(2, free=10)]
    batches = [batch(1, [50, 50], days=1), batch(2, [40, 40], days=1)]
    site = facts(volumes, batches, target=90)
    text = shown(make_schedule(site))
    assert "Impossible, with drains in every order" in text
    assert "the batches in another order (bricks free soonest)" in text


def test_that_nothing_is_known_of_growth_is_an_alert() -> None:
    schedule = field_schedule(85 * TIB)
    unknown = "It is not known what users add meanwhile"
    assert unknown in shown(schedule)
    assert unknown not in shown(replace(schedule, growth_basis="[capacity] growth"))
