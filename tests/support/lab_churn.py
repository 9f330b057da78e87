"""Users at work in a lab, and what differs afterwards."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from migrator.lab.churn import ChurnSummary, lab_churn, read_journal
from migrator.lab.model import LabState
from tests.support.cluster.handle import WallClock
from tests.support.lab_facts import walk


def churn(state: LabState, journal: Path, operations: int) -> ChurnSummary:
    """Work on all trees until `operations` are done."""

    async def work() -> ChurnSummary:
        return await lab_churn(
            state.source,
            state.trees,
            journal=os.fsencode(journal),
            rate_per_s=1e6,
            seed=1,
            clock=WallClock(),
            stop=asyncio.Event(),
            operations=operations,
        )

    return asyncio.run(work())


def comparable(state: LabState) -> dict[bytes, object]:
    """Everything on the source that a copy must keep."""
    return {path: fact.comparable for path, fact in walk(state.source).items()}


def covered_differences(before: Mapping[bytes, object], after: Mapping[bytes, object], journal: Path) -> set[bytes]:
    """The paths that differ; the journal covers all of them."""
    touched = read_journal(os.fsencode(journal))
    different = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert {path for path in different if not touched.covers(path)} == set()
    return different
