"""What goes wrong in a freeze, and what people and their sites get in the way of: the user is thawed where he was, and told why."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from migrator.core.units import MIB
from migrator.cutover.model import CutoverStep
from migrator.cutover.tops import MountedTops
from tests.conftest import MakeXfs
from tests.cutover.test_cutover_killed import INTENDED, death_after, death_at
from tests.support.cut_site import OWNERS, CutSite, change, cut_site, top_facts
from tests.support.delta_changes import let_settle, rewrite
from tests.support.waiting import wait_for
from tests.support.xfs import run_tool

pytestmark = pytest.mark.needs_root

STAGES = ("pre-freeze", "post-freeze", "pre-switch", "post-switch", "pre-thaw", "post-thaw")
LATER = "post-pass.d/60-later"
"""A hook of a pass; those of the final one are in the freeze, before the verification."""


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[CutSite]:
    with cut_site(scratch, make_xfs(), make_xfs(size_bytes=64 * MIB), stages=STAGES, users=("ann", "ben")) as made:
        yield made


@contextmanager
def unharmed(site: CutSite) -> Iterator[None]:
    """Whatever happens in the block: the user works on the source with all that he has, as if nothing had been tried."""
    change(site.tree())
    before, top = site.snapshot(), top_facts(site.source())
    yield
    site.assert_works_on("source", before)
    assert top_facts(site.source()) == top
    assert site.states()[-1][0] == "reverted"


def gives_up(site: CutSite, words: str) -> Any:
    """The cutover is given up for this reason, and the ledger has it."""
    found = site.cutover(code=4)
    assert found["ending"] == "given-up", found
    assert words in found["words"]
    assert words in site.states()[-1][1]
    return found


def moved(site: CutSite) -> None:
    """Nothing is in the way any more."""
    expected = site.snapshot()
    site.cutover()
    site.assert_works_on("target", expected)


@pytest.mark.exhaustive
def test_an_interruption_after_the_switch_completes_the_move(site: CutSite) -> None:
    here, expected = site.directory / "here", site.snapshot()
    site.hook("post-switch.d/60-waits", f"touch {here}; exec sleep 300")
    call = site.start("cutover", "--user", "ann")
    wait_for(lambda: here.exists() or call.poll(), "the switch")
    call.signal(signal.SIGINT)
    ended = call.end()
    # The hook that was cut off is not called again by the same call, and keeps the user from nothing.
    assert ended.code == 130, ended.err
    assert site.tree() == site.target()
    assert not site.is_open(site.source())
    site.assert_works_on("target", expected, hooks_ended=False)
    site.hook("post-switch.d/60-waits")
    site.calls()
    assert site.cutover()["ending"] == "moved"
    site.assert_works_on("target", expected)
    # The one that was cut off and the one that was to follow it, and no hook of another step.
    assert site.calls() == ["post-switch done ann"] * 2
    site.cutover()
    assert site.calls() == []


@pytest.mark.exhaustive
def test_a_target_that_fills_up_in_the_final_pass_reverts_the_cutover(site: CutSite) -> None:
    big, filler = site.source() / "big", site.site.target.path / "filler"
    big.write_bytes(os.urandom(8 * MIB))
    os.chown(big, OWNERS["ann"], OWNERS["ann"])
    site.call("run", "--all", "--json")
    # What is written anew needs no more room than it has, when it is reckoned beforehand; but both copies do for a while.
    room = os.statvfs(filler.parent)
    size_bytes = room.f_bavail * room.f_frsize - 4 * MIB
    write, fill = f"head -c {8 * MIB} /dev/urandom > {big}", f"head -c {size_bytes} /dev/zero > {filler}"
    hook = site.hook("pre-freeze.d/60-fills", f"{write} && {fill}")
    top = top_facts(site.source())
    gives_up(site, "the final pass stopped: ")
    site.assert_works_on("source", site.snapshot())
    assert top_facts(site.source()) == top
    # The pass before the freeze finds it first, and nobody is frozen.
    hook.unlink()
    assert site.cutover(code=4)["ending"] == "refused"
    assert len(site.states()) == 1
    filler.unlink()
    # XFS gives back what a file had some time after its last name is gone.
    wait_for(
        lambda: os.statvfs(filler.parent).f_bavail * room.f_frsize > 16 * MIB, "the room of what filled the target"
    )
    moved(site)


@pytest.mark.exhaustive
def test_a_target_replaced_by_an_empty_directory_reverts_the_cutover(site: CutSite, scratch: Path) -> None:
    target, empty = site.site.target.path, scratch / "empty"
    empty.mkdir()
    hook = site.hook("post-freeze.d/60-hides", f"mount --bind {empty} {target}")
    change(site.tree())
    before, top = site.snapshot(), top_facts(site.source())
    try:
        gives_up(site, "")
        assert list(empty.iterdir()) == [], "nothing was written to what is not the target"
        assert site.snapshot() == before
        assert top_facts(site.source()) == top
        assert site.is_open(site.source())
        refused = site.call("cutover", "--user", "ann", code=4)
        assert "journal" in refused.err
    finally:
        hook.unlink()
        subprocess.run(["umount", str(target)], check=True)
    site.assert_works_on("source", before)
    moved(site)


@pytest.mark.guarantee("open-files")
def test_a_difference_found_in_the_freeze_reverts_the_cutover(site: CutSite) -> None:
    """Damaged on the target since it was verified, with size and mtime as they were."""
    let_settle()
    for words in (("run", "--all", "--json"), ("verify", "--all", "--json")):
        site.call(*words)
    file = site.target() / "d3" / "f0003"
    good = file.read_bytes()
    rewrite(file, bytes(len(good)))
    with unharmed(site):
        gives_up(site, "the verification found 1 difference")
    rewrite(file, good)
    moved(site)


@pytest.mark.guarantee("open-files")
def test_a_top_opened_by_hand_in_the_freeze_reverts_the_cutover(site: CutSite) -> None:
    owner = OWNERS["ann"]
    hook = site.hook("pre-switch.d/60-opens", "exit 0")
    site.hook(
        LATER, f'[ "$MIGRATOR_PASS" != final ] || {{ chown {owner} {site.source()}; chmod 2750 {site.source()}; }}'
    )
    found = site.start("cutover", "--user", "ann", "--json").end()
    assert found.code in (1, 4), found.err
    assert site.tree() == site.source()
    assert not site.is_open(site.target())
    assert found.outcome["ending"] in ("given-up", "halted"), found.outcome
    hook.unlink()


@pytest.mark.exhaustive
def test_a_top_that_is_closed_already_is_not_frozen(site: CutSite) -> None:
    """As where the ledger of a cutover was lost, or is older than its freeze."""
    top = site.source()
    os.setxattr(top, "user.kept", b"1")
    for name in ("system.posix_acl_access", "system.posix_acl_default"):
        os.removexattr(top, name)
    top.chmod(0o2500)
    os.chown(top, 0, -1)

    done = site.call("cutover", "--user", "ann", "--json", code=4).outcome

    assert "closed already" in done["words"]
    assert site.states() == []


@pytest.mark.exhaustive
def test_every_failure_of_a_call_names_the_users_who_may_be_frozen(site: CutSite) -> None:
    site.start("cutover", "--user", "ann", before=death_at(CutoverStep.FINAL_PASS, INTENDED)).end()
    (site.directory / "hooks" / "pre-freeze.d" / "50-said").chmod(0o777)

    done = site.call("cutover", "--user", "ann", code=1)

    assert "can be written by other users" in done.err
    assert "ann may be frozen" in done.err


def test_calls_for_users_of_one_batch_exclude_each_other(site: CutSite) -> None:
    here, gate = site.directory / "here", site.directory / "gate"
    os.mkfifo(gate)
    site.start("cutover", "--user", "ann", before=death_at(CutoverStep.FINAL_PASS, INTENDED)).end()
    # The frozen user comes first.
    assert "`migrator cutover --user ann`" in site.call("cutover", "--user", "ben", code=4).out
    site.hook("pre-switch.d/60-waits", f"touch {here}; read _ < {gate}")
    call, opened = site.start("cutover", "--user", "ann", "--json"), os.open(gate, os.O_RDWR)
    wait_for(lambda: here.exists() or call.poll(), "the switch of ann")

    # Both would number and list their final passes alike.
    locked = site.call("cutover", "--user", "ben", code=5)

    assert "the lock of batch 1 of plan plan-0001" in locked.err
    assert "cutover of ann" in locked.err
    os.write(opened, b"\n")
    os.close(opened)
    assert call.end().outcome["ending"] == "moved"


def test_hooks_of_a_user_who_is_frozen_by_another_plan_are_called_by_its_own_cutover(site: CutSite) -> None:
    site.call("scan", "--json")
    site.call("plan", "--json", "--accept-unknown-inodes")
    expected = site.snapshot()
    site.start("cutover", "--user", "ann", before=death_after(MountedTops, "freeze")).end()
    assert site.calls() == ["pre-freeze  ann"]

    refused = site.call("cutover", "--plan", "plan-0002", "--user", "ann", "--json", code=4).outcome

    assert "a cutover of ann has begun already (freezing, plan plan-0001, batch 1)" in refused["words"]
    assert "closed already" not in refused["words"]
    assert site.calls() == []
    site.cutover()
    assert site.calls()[0] == "post-freeze done ann"
    site.assert_works_on("target", expected)


@pytest.mark.exhaustive
def test_an_interruption_while_a_top_is_closed_restores_it(site: CutSite) -> None:
    before, release = top_facts(site.source()), site.directory / "go-on"

    def slow() -> None:
        fchown, top = os.fchown, site.source().stat()

        def waiting(fd: int, uid: int, gid: int) -> None:
            if os.path.samestat(os.fstat(fd), top):
                wait_for(release.exists, "the word to go on")
            fchown(fd, uid, gid)

        os.fchown = waiting

    call = site.start("cutover", "--user", "ann", before=slow)
    wait_for(lambda: top_facts(site.source()) != before, "a top that is being closed")
    call.signal(signal.SIGINT)
    wait_for(lambda: "interrupted" in site.states()[-1][1], "a freeze that failed")
    release.touch()

    assert call.end().code == 130
    assert top_facts(site.source()) == before
    assert site.states()[-1][0] == "reverted"


@pytest.mark.exhaustive
def test_a_file_changed_through_another_name_on_the_target_is_sent_again(site: CutSite) -> None:
    """A hard link between two users: the one who was moved first writes through it."""
    other = site.source("ben") / "shared"
    os.link(site.source() / "d1" / "f0001", other)
    let_settle()
    site.call("scan", "--json")
    site.call("plan", "--activate", "--json", "--accept-unknown-inodes")
    site.call("run", "--all", "--json")
    site.cutover()
    with (site.tree() / "d1" / "f0001").open("a") as file:
        file.write("by ann")
    before = site.snapshot("ben")

    assert "difference" in site.cutover("ben", code=4)["words"]
    site.cutover("ben")

    assert site.tree("ben") == site.target("ben")
    assert site.snapshot("ben") == before
    assert (site.tree() / "d1" / "f0001").read_bytes().endswith(b"by ann")


@pytest.mark.guarantee("switched-mount")
def test_a_path_is_not_switched_to_another_mount_after_a_reboot(site: CutSite, scratch: Path) -> None:
    """The other file system looks just like the target, down to the closed tree: only what `init` recorded tells."""
    site.start("cutover", "--user", "ann", before=death_at(CutoverStep.SWITCH, INTENDED)).end()
    assert [state for state, _ in site.states()] == ["switching"]
    target, other = site.site.target.path, scratch / "other"
    run_tool("cp", "-a", str(target), str(other))
    run_tool("mount", "--bind", str(other), str(target))
    try:
        given_up = site.cutover(code=4)
        assert given_up["ending"] == "given-up", given_up
        assert "the path is not switched" in given_up["words"]
        assert site.tree() == site.source()
        assert site.is_open(site.source())
    finally:
        run_tool("umount", str(target))
