"""Cutovers that people and their sites get in the way of: what is thawed, and who is told."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.cutover.model import CutoverStep
from tests.conftest import MakeXfs
from tests.cutover.test_cutover_killed import INTENDED, death_at
from tests.support.cut_site import CutSite, cut_site, top_facts
from tests.support.delta_changes import let_settle
from tests.support.run_site import wait_for
from tests.support.xfs import run_tool

pytestmark = pytest.mark.needs_root


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[CutSite]:
    with cut_site(scratch, make_xfs(), make_xfs(), users=("ann", "ben"), stages=("pre-freeze",)) as made:
        yield made


@pytest.mark.exhaustive
@pytest.mark.parametrize("verb", ["cutover", "rollback"])
def test_a_user_is_thawed_where_he_was_when_the_hook_that_switches_refuses(site: CutSite, verb: str) -> None:
    site.site.file.write_text(site.site.file.read_text().replace("link =", 'switch = "hook"\n# link ='))
    switch = site.hook("pre-switch.d/50-switch")
    if verb == "rollback":
        site.cutover()
    here, there = (site.source(), site.target()) if verb == "cutover" else (site.target(), site.source())
    top = top_facts(here)
    switch.write_text("#!/bin/sh\nexit 1\n")

    done = site.call(verb, "--user", "ann", "--json", code=4).outcome

    assert "refused" in done["words"]
    assert (top_facts(here), site.is_open(there)) == (top, False)
    assert site.states()[0][0] == {"cutover": "reverted", "rollback": "retained"}[verb]


@pytest.mark.exhaustive
def test_nobody_is_said_to_work_on_the_source_whose_top_was_closed_before(site: CutSite) -> None:
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
def test_whatever_keeps_a_call_from_its_work_the_user_who_may_be_frozen_is_named(site: CutSite) -> None:
    site.start("cutover", "--user", "ann", before=death_at(CutoverStep.FINAL_PASS, INTENDED)).end()
    (site.directory / "hooks" / "pre-freeze.d" / "50-said").chmod(0o777)

    done = site.call("cutover", "--user", "ann", code=1)

    assert "can be written by others" in done.err
    assert "ann may be frozen" in done.err


@pytest.mark.exhaustive
def test_an_interruption_in_the_middle_of_closing_a_top_ends_with_the_top_as_it_was(site: CutSite) -> None:
    before, release = top_facts(site.source()), site.directory / "go-on"

    def slow() -> None:
        fchown = os.fchown

        def waiting(fd: int, uid: int, gid: int) -> None:
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
def test_what_the_other_name_of_a_file_was_used_for_on_the_target_is_sent_again(site: CutSite) -> None:
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


@pytest.mark.exhaustive
def test_a_user_whose_link_is_named_anew_is_left_alone(site: CutSite) -> None:
    """The link that was switched is another one: what the new one says tells nothing of it."""
    site.cutover()
    others = site.directory / "others"
    others.mkdir(mode=0o755)
    (others / "ann").symlink_to(site.source())
    site.write(link=f"{others}/{{user}}")

    outcome = site.rollback(code=1)

    assert outcome["ending"] == "halted"
    assert [state for state, _ in site.states()] == ["retained"]
    assert site.tree() == site.target()
    assert (site.is_open(site.target()), site.is_open(site.source())) == (True, False)


@pytest.mark.guarantee("switched-mount")
def test_a_path_is_not_switched_to_what_is_mounted_in_the_targets_place_after_a_reboot(
    site: CutSite, scratch: Path
) -> None:
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
