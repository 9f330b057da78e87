"""`brick add` as a stage: real hooks and a real ledger, with a volume and a target that are told what to say."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.bricks.add import model as add_model
from migrator.bricks.shared import read_bricks
from migrator.core.clock import SystemClock
from migrator.core.errors import Refused, UsageError
from migrator.core.tasks import DaemonThreads
from migrator.core.units import GIB
from migrator.hooks.stage import Hooks
from migrator.hosts.process import LocalProcesses
from migrator.report.status import read_status
from tests.bricks.add.addition_site import Quick, Site, addition_site
from tests.bricks.add.addition_world import EMPTY, NEW
from tests.support.fakes import VirtualClock

SOURCE, TARGET = add_model.AdditionSide
S, E = add_model.AdditionState, add_model.AdditionEnding


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """An addition to the target."""
    with addition_site(tmp_path) as made:
        made.side, made.throttle = TARGET, None
        yield made


def with_room(site: Site, room_of: Callable[[int], add_model.TargetRoom]) -> None:
    """How large the target is, by the number of the look."""
    looks = iter(range(1, 1000))

    async def look() -> add_model.TargetRoom:
        return room_of(next(looks))

    site.ports["target_room"] = look


def with_hook(site: Site, directory: Path, where: str, text: str) -> Path:
    """A real hook that notes its calls."""
    file, calls = directory / "hooks" / where, directory / "calls"
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    words = "$MIGRATOR_STAGE $MIGRATOR_SIDE $MIGRATOR_BRICK $MIGRATOR_STATE"
    file.write_text(f'#!/bin/sh\necho "{words}" >>{calls}\n{text}\n')
    file.chmod(0o755)
    hooks = Hooks(
        processes=LocalProcesses(grace_s=0.5, one_output=True),
        directory=os.fsencode(directory / "hooks"),
        site_file=os.fsencode(directory / "site.toml"),
        source_root=b"/mnt/gl",
        target_root=b"/mnt/beegfs",
        timeout_s=60.0,
    )
    site.ports |= {"hooks": hooks, "clock": SystemClock(), "blocking": DaemonThreads()}
    return calls


def room(total: int, targets: int | None = None) -> add_model.TargetRoom:
    return add_model.TargetRoom(total_bytes=total, storage_targets=targets)


def test_a_dry_run_tells_of_a_brick_that_is_in_the_volume_what_is_left_to_do(site: Site) -> None:
    site.side = SOURCE
    site.volume.add()
    told = site.add(dry_run=True)
    assert told.ending is E.PLANNED
    assert told.words == f"{NEW} is in the volume already: it would resume with the fix-layout, and what follows that"


def test_the_target_is_waited_for_until_it_shows_the_new_capacity(site: Site) -> None:
    with_room(site, lambda look: room(50 * GIB if look < 9 else 90 * GIB))
    assert site.add(dry_run=True).ending is E.PLANNED
    assert site.states == []
    done = site.add()
    assert (done.ending, done.state, done.size_bytes) == (E.DONE, S.SETTLED, 40 * GIB)
    (record,) = site.ledger.additions.all()
    assert record.notes.room_before == room(50 * GIB)
    steps = [one.step for one in site.ledger.additions.steps(record.id)]
    assert steps == [add_model.AdditionStep.PREPARE, add_model.AdditionStep.HAND_OVER, add_model.AdditionStep.FINISH]
    assert site.add().ending is E.DONE
    assert site.states == [S.SETTLED]


def test_a_target_that_never_shows_it_fails_and_the_same_command_goes_on(site: Site) -> None:
    # Bytes alone do not count where the target's own list tells.
    for total in (50, 90):
        with_room(site, lambda _, total=total: room(total * GIB, 3))  # type: ignore[misc]
        stuck = site.add()
        assert (stuck.ending, stuck.state) == (E.STUCK, S.HANDING)
        assert "does not show the new capacity" in stuck.words
        site.clock = VirtualClock()
    with_room(site, lambda _: room(50 * GIB, 4))
    assert site.add().ending is E.DONE
    (record,) = site.ledger.additions.all()
    assert record.notes.room_before == room(50 * GIB, 3)


def test_hooks_are_told_the_side_and_the_last_ones_are_called_once(site: Site, tmp_path: Path) -> None:
    calls = with_hook(site, tmp_path, "pre-add.d/50-set-up", "exit 0")
    with_hook(site, tmp_path, "post-add.d/50-tell", "exit 0")
    with_room(site, lambda _: room(1, 4 if calls.exists() and "pre-add" in calls.read_text() else 3))
    for _ in range(2):
        assert site.add().ending is E.DONE
    assert calls.read_text().splitlines() == [f"pre-add target {NEW} ", f"post-add target {NEW} done"]


def test_a_place_that_is_not_right_is_refused_before_anything_is_written_or_after_the_hooks(
    site: Site, tmp_path: Path
) -> None:
    backups: list[str] = []
    site.side, site.volume.place = SOURCE, replace(EMPTY, mount="/", own=False)
    site.ports["back_up"] = backups.append
    refused = site.add()
    assert refused.ending is E.HALTED
    assert any("not on one of its own" in reason for reason in refused.reasons)
    assert site.states == []
    assert site.ledger.runs.latest() is None
    with_hook(site, tmp_path, "pre-add.d/20-make", "exit 0")
    with pytest.raises(Refused, match="not on one of its own"):
        site.add()
    assert site.states == [S.PREPARING]
    assert backups == ["addition-1"]


def test_status_tells_how_far_an_addition_is_at_any_time(site: Site) -> None:
    ledger = site.ledger
    told: list[add_model.AdditionStanding] = []
    site.side, site.glusterd = SOURCE, Quick(site.volume, ledger, site.clock)
    site.glusterd.during = lambda: told.extend(read_bricks(ledger).additions)
    assert site.add().ending is E.DONE
    assert {one.files for one in told if one.state is S.LAYOUT} == {None}
    assert {(one.files, one.size_bytes) for one in told if one.state is S.BALANCING} == {(9, 40 * GIB)}
    (settled,) = read_bricks(ledger).additions
    assert (settled.state, settled.moved_files, settled.lookups, settled.left_s) == (S.SETTLED, 2, 1, None)
    status = read_status(ledger, now_s=10.0)
    assert status.additions == (settled,)
    assert not any("addition" in one.subject for one in status.blocked)


def test_a_name_that_is_no_brick_is_refused(site: Site) -> None:
    with pytest.raises(UsageError, match="is no brick"):
        site.add(brick="gl2:/srv/b2/")
