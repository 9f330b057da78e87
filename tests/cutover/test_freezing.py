"""When a tree counts as frozen."""

from dataclasses import replace
from typing import Any

import pytest

from migrator.core.events import FindingStatus
from migrator.cutover import rules as cutover_rules
from migrator.cutover.model import OpenFile, OpenKind, Writers
from migrator.gluster.model import VolumeState
from migrator.hooks.model import Hook, HookEvent, HookStage, HookStep


def volume(options: tuple[tuple[str, str], ...]) -> VolumeState:
    return VolumeState(
        volume="vol1", volume_id="", type="Distribute", started=True, bricks=(), options=options, tasks=()
    )


FILE = OpenFile(host="gl1", path=b"home/ann/data", kind=OpenKind.FILE, writable=True, brick="gl1:/srv/b1")


@pytest.mark.parametrize("vouched", [False, True])
@pytest.mark.parametrize(
    ("changes", "writes"),
    [
        ({}, True),
        ({"kind": OpenKind.WORKING_DIRECTORY, "writable": False}, True),
        ({"kind": OpenKind.MAP}, True),
        ({"kind": OpenKind.LOOP_DEVICE}, True),
        ({"writable": False}, False),
        ({"kind": OpenKind.DIRECTORY, "writable": False}, False),
        ({"kind": OpenKind.MAP, "writable": False}, False),
        ({"unlinked": True}, False),
        ({"kind": OpenKind.WORKING_DIRECTORY, "writable": False, "unlinked": True}, False),
    ],
)
def test_only_writers_prevent_a_freeze_even_if_a_hook_vouches(
    changes: dict[str, Any], writes: bool, vouched: bool
) -> None:
    reasons = cutover_rules.why_not_frozen(Writers(open_files=(replace(FILE, **changes),)), vouched=vouched)
    assert len(reasons) == writes
    assert all("home/ann/data: " in reason and "through brick gl1:/srv/b1" in reason for reason in reasons)


def test_what_was_not_seen_prevents_a_freeze_unless_a_hook_vouches() -> None:
    writers = Writers(unseen=("gl2 cannot be reached",))
    # Before the freeze open files do not count yet: their users may still close them.
    for reasons, found in (
        (cutover_rules.why_not_frozen, writers),
        (cutover_rules.what_is_unseen, replace(writers, open_files=(FILE,))),
    ):
        (reason,) = reasons(found, vouched=False)
        assert "gl2 cannot be reached" in reason
        assert reasons(found, vouched=True) == ()


def test_a_hook_that_shall_vouch_has_to_exist() -> None:
    def hook(event: HookEvent, step: HookStep) -> Hook:
        return Hook(stage=HookStage(step=step, event=event), name=b"10-hold", path=b"/hooks/10-hold")

    others = [hook(HookEvent.POST, HookStep.FREEZE), hook(HookEvent.PRE, HookStep.THAW)]
    missing = cutover_rules.missing_freeze_hook(others)
    assert missing is not None
    assert "pre-freeze" in missing
    assert cutover_rules.missing_freeze_hook([*others, hook(HookEvent.PRE, HookStep.FREEZE)]) is None


@pytest.mark.parametrize("filesystem", ["nfs4", "beegfs", "fuse.sshfs", "lustre", "something-new"])
def test_a_file_system_with_clients_elsewhere_is_not_seen_whole(filesystem: str) -> None:
    (sentence,) = cutover_rules.clients_unseen(filesystem, mount=b"/mnt/data")
    assert filesystem in sentence
    assert "/mnt/data" in sentence


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ((), False),
        ((("performance.open-behind", "on"),), False),
        ((("performance.open-behind", "off"), ("nfs.disable", "on")), True),
        ((("performance.open-behind", "Disable"),), True),
    ],
)
def test_what_clients_open_late_is_not_seen_and_doctor_says_so(
    options: tuple[tuple[str, str], ...], seen: bool
) -> None:
    unseen = cutover_rules.unopened_unseen(volume(options))
    assert (unseen == ()) is seen
    assert seen or "gluster volume set vol1 performance.open-behind off" in unseen[0]
    (finding,) = cutover_rules.check_open_files(volume(options), vouched=False)
    assert finding.status is (FindingStatus.OK if seen else FindingStatus.WARNING)
    assert cutover_rules.check_open_files(volume(options), vouched=True) == []
