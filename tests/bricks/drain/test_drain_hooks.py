"""The site's hooks around the steps of a drain, over a simulated volume: what they may stop, what they are told, what is told once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.app.ledger import MigrationLedger
from migrator.bricks.model import CallEnding
from migrator.core.errors import Refused, ToolFailed
from migrator.gluster.model import PlaceSeen
from migrator.hooks.model import HookCall, HookResult, HookStep
from tests.bricks.drain.drain_site import WORD, HookedSite, S
from tests.bricks.drain.drained_volume import LEAVING
from tests.support.kills import Killed, WaitingHooks, new_ledger

TOLD_OF_THE_WAY_OUT = [
    ("pre-drain", ""),
    ("pre-audit", ""),
    ("post-audit", "done"),
    ("pre-commit", ""),
    ("post-commit", "done"),
    ("post-drain", "done"),
]


@pytest.fixture
def site(memory: Path) -> Iterator[HookedSite]:
    with MigrationLedger.open(new_ledger(memory / "ledger.db")) as ledger:
        yield HookedSite(ledger)


def test_every_step_has_its_hooks_in_order(site: HookedSite) -> None:
    assert site.drain(confirm=WORD).ending is CallEnding.DONE
    handed = [("pre-wipe", ""), ("post-wipe", "done"), ("pre-hand-over", ""), ("post-hand-over", "done")]
    assert site.hooks.called() == [*TOLD_OF_THE_WAY_OUT, *handed]
    assert site.owes_nothing()


@pytest.mark.guarantee("wipe")
@pytest.mark.parametrize("unmounts", [False, True])
def test_a_disk_is_checked_right_before_each_hook_that_may_wipe_it(site: HookedSite, unmounts: bool) -> None:
    """`unmounts`: the hook that was called before has unmounted the file system, and the path is on the one above."""

    def meanwhile() -> None:
        site.on_disk = ("/srv/backup-of-somebody",)
        if unmounts:
            site.mount, site.disk = "/", "serial-of-the-root"

    site.hooks = WaitingHooks(site.hooks.deeds, meanwhile={HookStep.WIPE: meanwhile})
    if unmounts:
        assert site.drain(confirm=WORD).ending is CallEnding.DONE
        return
    with pytest.raises(Refused, match="backup-of-somebody"):
        site.drain(confirm=WORD)
    assert (site.state, site.volume.place) == (S.WIPING, PlaceSeen.BRICK)
    assert ("pre-wipe", "") not in site.hooks.called()
    site.on_disk = ()
    site.hooks.meanwhile = {}
    assert site.drain(confirm=WORD).ending is CallEnding.DONE
    assert site.owes_nothing()


@pytest.mark.guarantee("wipe")
def test_a_disk_is_checked_until_a_hook_has_begun_to_give_it_away(site: HookedSite) -> None:
    """Hooks that give a disk away write to it; then only their own refusals stop them."""
    site.hooks.exit_codes = {"pre-hand-over": 1}
    with pytest.raises(Refused, match="pre-hand-over"):
        site.drain(confirm=WORD)
    site.hooks.called()
    site.on_disk = ("/srv/backup-of-somebody",)
    with pytest.raises(Refused, match="backup-of-somebody"):
        site.drain(confirm=WORD)
    assert site.hooks.called() == []
    site.on_disk = ()

    def begins() -> None:
        site.on_disk = ("/srv/b/beegfs_storage",)

    site.hooks = WaitingHooks(site.hooks.deeds, meanwhile={HookStep.HAND_OVER: begins})
    site.hooks.tokens_given = 100
    assert site.drain(confirm=WORD).ending is CallEnding.DONE
    assert site.state is S.HANDED_OVER


@pytest.mark.parametrize("refused", [False, True])
def test_directories_keep_their_times_over_the_commit_and_are_counted(site: HookedSite, refused: bool) -> None:
    """`refused`: by Gluster at first, when the times are kept already."""

    def refuse() -> None:
        site.glusterd.before_commit = None
        raise ToolFailed("another transaction is in progress")

    if refused:
        site.glusterd.before_commit = refuse
        assert site.drain().ending is CallEnding.STUCK
    standing = site.drain().standing
    assert standing is not None
    assert (standing.state, site.volume.times_kept) == ("committed", True)
    assert (standing.times_kept, standing.times_lost) == (3, 0)


@pytest.mark.guarantee("moved-acl")
def test_shields_stay_on_until_the_commit_and_are_off_before_a_wipe_also_if_a_killed_call_left_them(
    site: HookedSite,
) -> None:
    shielded = []
    for commit in (False, True):
        site.drain(commit=commit)
        shielded.append(site.volume.shielded)
    assert shielded == [True, False]
    site.volume.shielded = True
    site.stop()  # the command that `status` names
    assert (site.state, site.volume.shielded) == (S.COMMITTED, False)
    site.volume.shielded = True
    # The hook that wipes looks whether they are off.
    assert site.drain(confirm=WORD).ending is CallEnding.DONE


@pytest.mark.parametrize("code", [1, 62])
def test_a_refusing_pre_audit_hook_ends_the_call_and_the_command_resumes(site: HookedSite, code: int) -> None:
    site.hooks.exit_codes = {"pre-audit": code}
    for _ in range(2):
        with pytest.raises(Refused, match=r"pre-audit.d/50-do"):
            site.drain()
        # What goes on in Gluster is as it was, and passes may work.
        assert (site.state, site.volume.task is not None, site.locks.held) == (S.AUDITING, True, [])
    assert site.hooks.called() == [("pre-drain", ""), ("pre-audit", ""), ("pre-audit", "")]
    site.hooks.exit_codes = {}
    assert site.drain().ending is CallEnding.DONE
    assert site.hooks.called() == TOLD_OF_THE_WAY_OUT[1:]


def test_hooks_get_the_findings_of_an_audit(site: HookedSite) -> None:
    site.volume.unmovable, site.volume.silent_failures = {5}, True
    assert (site.drain().ending, site.state) == (CallEnding.HALTED, S.FAILED)
    told = [("pre-drain", ""), ("pre-audit", ""), ("post-audit", "refused"), ("post-fail", "failed")]
    assert site.hooks.called() == told
    left = "1 file left on the bricks (left)"
    assert site.hooks.reasons == [("post-audit", "", left), ("post-fail", "drain", left)]


@pytest.mark.parametrize("code", [1, 62])
def test_a_refusing_pre_stop_hook_leaves_gluster_running(site: HookedSite, code: int) -> None:
    site.drain(commit=False)
    site.hooks.called()
    site.hooks.exit_codes = {"pre-stop": code}
    with pytest.raises(Refused, match=r"pre-stop.d/50-do"):
        site.stop()
    assert (site.state, site.volume.task is not None) == (S.AUDITED, True)
    site.hooks.exit_codes = {}
    assert site.stop().ending is CallEnding.TAKEN_BACK
    assert site.hooks.called() == [
        ("pre-stop", ""),
        ("pre-stop", ""),
        ("post-stop", "done"),
        ("post-drain", "stopped"),
    ]
    # There is nothing to take back any more, and nobody to be asked.
    assert site.stop().ending is CallEnding.TAKEN_BACK
    assert site.hooks.called() == []


def test_a_drain_resumed_after_a_stop_request_calls_the_owed_stop_hooks(
    site: HookedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.drain(commit=False)
    site.hooks.called()
    answers = site.hooks.call

    async def dies(call: HookCall) -> HookResult:
        await answers(call)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(site.hooks, "call", dies)
        with pytest.raises(Killed):
            site.stop()
    assert site.state is S.AUDITED
    assert site.drain().ending is CallEnding.DONE
    assert site.hooks.called() == [("pre-stop", ""), ("post-stop", "failed"), *TOLD_OF_THE_WAY_OUT[1:]]
    assert site.owes_nothing()


def test_a_failure_is_reported_once_by_repeated_commands(site: HookedSite) -> None:
    site.volume.raced, site.volume.fills = 1, True
    tasks = set()
    for _ in range(3):
        assert (site.drain().ending, site.state) == (CallEnding.HALTED, S.FAILED)
        tasks.add(site.volume.task and site.volume.task.id)
    assert len(tasks) == 1, "nothing is begun that would fail again"
    assert site.hooks.called() == [("pre-drain", ""), ("post-fail", "failed")]
    ((stage, failed, reason),) = site.hooks.reasons
    assert (stage, failed) == ("post-fail", "drain")
    assert "beyond cluster.min-free-disk" in reason
    # There is room, and it fails by something else: that is another failure.
    site.volume.room, site.volume.fills = True, False
    site.volume.unmovable, site.volume.silent_failures = {5}, True
    site.volume.bricks[LEAVING].add(5)
    assert site.drain().ending is CallEnding.HALTED
    assert site.hooks.called()[-1] == ("post-fail", "failed")
    assert [stage for stage, _, _ in site.hooks.reasons].count("post-fail") == 2


def test_a_missing_host_is_reported_once_for_each_watch_it_ended(site: HookedSite) -> None:
    def goes() -> None:
        site.glusterd.meanwhile = []
        site.volume.peer_up = False

    site.glusterd.meanwhile = [goes]
    for _ in range(2):
        assert (site.drain().ending, site.came_to(S.STARTED, S.DRAINING)) == (CallEnding.HALTED, True)
    assert site.hooks.called() == [("pre-drain", ""), ("post-fail", "failed")]
    assert "gl3" in site.hooks.reasons[0][2]
    site.volume.peer_up = True
    assert site.drain().ending is CallEnding.DONE
    assert "post-fail" not in dict(site.hooks.called())


def test_a_stop_refused_by_gluster_is_reported(site: HookedSite) -> None:
    def goes() -> None:
        raise Killed

    site.glusterd.meanwhile = [goes]
    with pytest.raises(Killed):
        site.drain()
    site.volume.silent = True
    taken = site.stop()
    assert (taken.ending, site.state) == (CallEnding.STUCK, S.STOPPING)
    assert "systemctl restart glusterd" in taken.hint
    assert site.hooks.called() == [("pre-drain", ""), ("pre-stop", ""), ("post-fail", "failed")]
    ((_, failed, reason),) = site.hooks.reasons
    assert failed == "stop"
    assert "Brick ops failed" in reason
    site.volume.silent = False
    assert site.stop().ending is CallEnding.TAKEN_BACK
    assert site.hooks.called() == [("post-stop", "done"), ("post-drain", "stopped")]
