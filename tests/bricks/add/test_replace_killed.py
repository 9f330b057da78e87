"""A brick gets a new disk in its place: killed before every call, rebooted, taken back, by hooks and by hand."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from migrator.bricks.add import model as add_model
from migrator.bricks.add.view import addition_document
from migrator.bricks.model import CallEnding
from migrator.bricks.status import read_bricks
from migrator.core.errors import Refused
from migrator.gluster.model import NewPlace, VolumeState, VolumeTask
from migrator.hooks.model import HookStep
from migrator.render.text import to_markdown
from migrator.report.status import read_status
from tests.bricks.add import addition_site
from tests.bricks.add.replica_volume import FILES, OWN, SECOND, VOLUME_ID, ReplicaVolume
from tests.support.kills import Death, DoingHooks, Killed, copied, deaths, killed_everywhere, new_ledger

S, E = add_model.AdditionState, CallEnding


class Glusterd(addition_site.Glusterd):
    """The `AdditionCommands` port over the simulated volume. Users write meanwhile, and what waits is healed look by look."""

    volume: Any

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        self.volume.heals()
        return self.volume.state(), ()

    async def take_offline(self, brick: str) -> None:
        assert brick == OWN
        self.volume.take_offline()
        self.volume.users_write()

    async def put_in(self, brick: str, *, marked: bool) -> None:
        assert brick == OWN
        self.volume.put_in(marked=marked)

    async def start_bricks(self) -> None:
        self.volume.serve()


@dataclass
class Site(addition_site.Site):
    """What an exchange works with; `hooked`: hooks make the new file system, otherwise people do."""

    volume: ReplicaVolume = field(default_factory=ReplicaVolume)
    throttle: str | None = None
    hooked: bool = True

    def __post_init__(self) -> None:
        self.hooks = DoingHooks({HookStep.ADD: self.volume.exchange} if self.hooked else {})
        self.glusterd = Glusterd(self.volume, self.ledger, self.clock)  # type: ignore[arg-type]
        self.ports = {"blamed": self.blamed}

    async def places(self, _: Sequence[str]) -> Mapping[str, NewPlace]:
        return {OWN: self.volume.place()}

    async def blamed(self, state: VolumeState, name: str) -> Mapping[str, int] | None:
        assert (state.volume_id, name) == (VOLUME_ID, OWN)
        return self.volume.blamed

    def add(self, death: Death | None = None, *, take_back: bool = False, **asked: Any) -> add_model.AdditionSummary:
        usual = {"bricks": (OWN,), "instead_of": OWN, "wish": add_model.Wish(take_back=take_back)}
        return super().add(death, **{**usual, "poll_s": 1.0, "stall_s": 60.0, **asked})

    def has_left(self) -> tuple[object, ...]:
        """What is simulated, as it lies there."""
        return (self.volume, self.hooks)

    def comes_to_its_end(self) -> None:
        """By the same command."""
        done = self.add()
        assert (done.ending, self.state) == (E.DONE, S.SETTLED), done
        self.is_whole("new-1")
        assert self.volume.put_ins == 1
        assert self.hooks.told() == (["post-add"] if self.hooked else [])
        assert not self.ledger.hooks.unfinished((HookStep.ADD,))

    def is_whole(self, disk: str) -> None:
        volume = self.volume
        assert volume.disk is not None
        assert (volume.up, volume.disk.identity, volume.disk.files, volume.disk.missed) == (True, disk, FILES, 0)
        assert self.locks.held == []


@contextmanager
def a_site(memory: Path, *, hooked: bool = True) -> Iterator[Site]:
    with copied(new_ledger(memory / "prepared.db"), memory / "ledger.db") as ledger:
        yield Site(ledger, hooked=hooked)


def kept_as(ledger: Path, to: Path) -> None:
    """A ledger that is open, as it is now."""
    to.unlink(missing_ok=True)
    with closing(sqlite3.connect(ledger)) as now, closing(sqlite3.connect(to)) as kept:
        now.backup(kept)


def every_remains(memory: Path, died_in: set[add_model.AdditionState | None]) -> Iterator[tuple[Site, bool]]:
    """A site for all that a killed exchange can leave, to be taken back (True) or not, after a reboot or not."""
    prepared = new_ledger(memory / "prepared.db")
    for site, _ in killed_everywhere(prepared, Site, Site.add, died_in):
        kept_as(memory / "ledger.db", memory / "left.db")
        for reboots, goes_back in product((False, True), repeat=2):
            with copied(memory / "left.db", memory / "again.db") as ledger:
                again = Site(ledger, volume=deepcopy(site.volume))
                again.hooks.calls, again.hooks.tokens_given = list(site.hooks.calls), site.hooks.tokens_given
                if reboots:
                    again.volume.reboots()
                yield again, goes_back


@pytest.mark.exhaustive
def test_killed_before_any_call_the_disk_is_exchanged_once_or_the_old_one_serves_again(
    memory: Path,
) -> None:
    died_in: set[add_model.AdditionState | None] = set()
    taken_back = set()
    for site, goes_back in every_remains(memory, died_in):
        if goes_back:
            had, was = deepcopy(site.volume.disk), site.state
            assert had is not None
            back = site.add(take_back=True)
            if was in add_model.REVERSIBLE_STATES and had.identity == "old":
                taken_back.add(was)
                assert (back.ending, back.state, site.volume.put_ins) == (E.DONE, S.TAKEN_BACK, 0)
                site.is_whole("old")
                assert site.add(take_back=True).ending is E.DONE
            else:
                assert (back.ending, site.state) == (E.HALTED, was), back
                assert site.volume.disk is not None
                assert site.volume.disk.identity == had.identity
        site.comes_to_its_end()
    states = {S.PLANNED, S.RESETTING, S.OFFLINE, S.PREPARING, S.PREPARED, S.ADDING, S.ADDED, S.HEALING, S.HEALED}
    assert died_in >= states
    assert taken_back == {S.RESETTING, S.OFFLINE, S.PREPARING}


def test_a_take_back_resumes_after_a_kill_anywhere(memory: Path) -> None:
    with a_site(memory, hooked=False) as site:
        with pytest.raises(Refused):
            site.add()
        kept_as(memory / "ledger.db", memory / "away.db")
        volume = site.volume
    for death in deaths():
        with copied(memory / "away.db", memory / "ledger.db") as ledger:
            site = Site(ledger, hooked=False, volume=deepcopy(volume))
            with suppress(Killed):
                site.add(death, take_back=True)
            done = site.add(take_back=True)
            assert (done.ending, done.state) == (E.DONE, S.TAKEN_BACK)
            site.is_whole("old")


def test_the_disk_is_exchanged_by_hand_between_two_calls(memory: Path) -> None:
    with a_site(memory, hooked=False) as site:
        would = site.add(dry_run=True)
        assert would.words.startswith("it would begin with: reset")
        assert "its own place" in to_markdown(addition_document(would))
        assert site.volume.up
        for _ in range(2):
            with pytest.raises(Refused) as refused:
                site.add()
            assert "--take-back" in refused.value.hint
            assert (site.state, site.volume.up) == (S.PREPARING, False)
        (blocker,) = [one for one in read_status(site.ledger, now_s=1e6).blocked if OWN in one.subject]
        assert "the brick is offline" in blocker.on
        assert f"--instead-of {OWN}" in blocker.hint
        site.volume.exchange()
        site.comes_to_its_end()
        (standing,) = read_bricks(site.ledger).additions
        assert standing.state is S.SETTLED
        assert not [one for one in read_status(site.ledger, now_s=1e6).blocked if OWN in one.subject]


def test_a_brick_that_is_dead_already_goes_the_same_way(memory: Path) -> None:
    with a_site(memory) as site:
        site.volume.up, site.volume.disk = False, None
        site.comes_to_its_end()


def test_a_brick_put_in_by_hand_counts_as_added(memory: Path) -> None:
    with a_site(memory, hooked=False) as site:
        with pytest.raises(Refused):
            site.add()
        site.volume.exchange()
        site.volume.put_in(marked=False)
        site.comes_to_its_end()


def test_a_commit_that_came_no_further_than_its_marks_is_made_by_force(memory: Path) -> None:
    with a_site(memory) as site:
        site.volume.breaks = True
        stuck = site.add()
        assert (stuck.ending, stuck.state) == (E.STUCK, S.ADDING)
        site.volume.breaks = False
        # What was put in, or may have been, is not exchanged for what was there before.
        assert site.add(take_back=True).ending is E.HALTED
        site.comes_to_its_end()


def test_no_other_file_system_than_the_one_that_was_put_in_counts_as_healed(memory: Path) -> None:
    with a_site(memory) as site:
        site.volume.healing = False
        assert site.add().ending is E.STUCK
        site.volume.healing = True
        site.volume.take_offline()
        site.volume.put_old_disk_back()
        site.volume.serve()
        halted = site.add()
        assert (halted.ending, halted.state) == (E.HALTED, S.HEALING)
        site.volume.take_offline()
        (site.volume.disk,) = (disk for disk in site.volume.drawer if disk.identity == "new-1")
        site.volume.serve()
        site.comes_to_its_end()


def test_unchanged_pending_heals_are_nudged_every_minute_and_then_fail(memory: Path) -> None:
    with a_site(memory) as site:
        site.volume.healing = False
        stuck = site.add(stall_s=600.0)
        assert stuck.ending is E.STUCK
        assert site.glusterd.heals_asked == 9
        # A crawl finds more on its way: that is no standing still, and nobody is asked for anything.
        site.volume.healing, site.volume.crawls = True, 200
        site.comes_to_its_end()
        assert site.glusterd.heals_asked == 9


def test_while_another_copy_lacks_something_nothing_is_taken_offline_and_nothing_is_put_in(memory: Path) -> None:
    with a_site(memory, hooked=False) as site:
        site.volume.blamed = {SECOND: 2, OWN: 5}
        refused = site.add()
        assert refused.ending is E.HALTED
        (reason,) = refused.reasons
        assert f"2 entries or more have pending heals on {SECOND}" in reason
        assert site.volume.up
        assert site.ledger.additions.all() == []
        site.volume.blamed = {OWN: 5}
        with pytest.raises(Refused):
            site.add()
        site.volume.exchange()
        site.volume.others_up = False
        assert site.add().ending is E.HALTED
        assert site.volume.put_ins == 0
        site.volume.others_up = True
        site.comes_to_its_end()


def test_given_again_when_it_is_over_nothing_is_done_unless_it_is_asked_for(memory: Path) -> None:
    with a_site(memory) as site:
        site.comes_to_its_end()
        site.volume.take_offline()
        done = site.add()
        assert (done.ending, site.volume.made) == (E.DONE, 1)
        assert "--once-more" in done.words
        assert site.add(take_back=True).ending is E.HALTED
        again = site.add(once_more=True)
        assert (again.ending, again.state) == (E.DONE, S.SETTLED)
        site.is_whole("new-2")
        assert [record.attempt for record in site.ledger.additions.all()] == [1, 2]
