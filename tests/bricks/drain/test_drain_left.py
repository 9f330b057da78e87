"""What Gluster leaves on drained bricks, over a simulated volume: the audit, and what a recovery brings back."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from migrator.bricks.drain.model import DrainEnding
from migrator.bricks.drain.steps import DrainMachine
from migrator.bricks.recover.model import RecoverySummary
from migrator.core.errors import Refused
from migrator.gluster.model import BrickHeal, VolumeState, VolumeTask
from tests.bricks.drain.drain_site import S, Site
from tests.bricks.drain.drain_world import LEAVING


def test_what_the_audit_finds_stops_the_commit_whatever_gluster_says(site: Site) -> None:
    site.volume.unmovable, site.volume.silent_failures = {5}, True
    done = site.drain()
    assert (done.ending, site.state, done.left_behind) == (DrainEnding.HALTED, S.FAILED, (b"left",))
    assert site.backups == []


@pytest.mark.parametrize("written", [False, True])
def test_an_original_that_was_written_to_after_its_proof_stops_the_commit(
    site: Site, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.volume.unmovable, site.volume.silent_failures = {5}, True

    class Proof:
        """What is left is in the volume with the same content, until the backup is made."""

        async def proven(self) -> Mapping[str, frozenset[bytes]]:
            return {LEAVING: frozenset() if written and site.backups else frozenset({b"left"})}

    monkeypatch.setattr(DrainMachine, "_recovery", lambda *_: Proof())
    committed: list[bool] = []

    def commits() -> None:
        committed.append(True)
        # For the simulated volume: it knows of no second copy.
        site.volume.bricks[LEAVING].clear()

    site.glusterd.before_commit = commits
    if written:
        with pytest.raises(Refused, match="left on the bricks"):
            site.drain()
        assert LEAVING in site.volume.inside
    else:
        site.drain()
    assert committed == ([] if written else [True])


def test_nothing_is_brought_back_while_a_copy_is_old_or_a_brick_is_not_seen(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.volume.unmovable, site.volume.silent_failures = {5}, True
    asked: list[str] = []
    healthy = site.glusterd.state_and_tasks

    async def unhealed() -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        state, tasks = await healthy()
        return replace(state, heals=(BrickHeal(brick=LEAVING, status="Connected", entries=3),)), tasks

    class Recovering:
        async def proven(self) -> Mapping[str, frozenset[bytes]]:
            # From now on: nothing spoke against the beginning.
            monkeypatch.setattr(site.glusterd, "state_and_tasks", unhealed)
            return {}

        async def bring_back(self) -> RecoverySummary:
            asked.append("bring back")
            return RecoverySummary(recovered=0, names=0, problems=())

    monkeypatch.setattr(DrainMachine, "_recovery", lambda *_: Recovering())
    done = site.drain(recover=True)
    assert "wait to be healed" in done.words
    assert (asked, LEAVING in site.volume.inside) == ([], True)


def test_what_a_recovery_left_alone_is_for_people_and_not_for_gluster_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.volume.unmovable = {5}

    class Recovering:
        async def proven(self) -> Mapping[str, frozenset[bytes]]:
            return {}

        async def bring_back(self) -> RecoverySummary:
            return RecoverySummary(recovered=0, names=0, problems=("home/a: it waits to be healed",))

    monkeypatch.setattr(DrainMachine, "_recovery", lambda *_: Recovering())
    done = site.drain(recover=True)
    assert (done.ending, site.state) == (DrainEnding.HALTED, S.FAILED)
    begun = [one for one in site.ledger.events.latest(100) if one.message.startswith("start: task")]
    # Once at first, and once more after the recovery, as Gluster's counters stay with the task.
    assert len(begun) == 2
