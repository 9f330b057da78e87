"""`doctor` looks at the links of the users of the active plan, through the program as it is called."""

import json
from pathlib import Path

import pytest

from tests.support.cli_site import Site

pytestmark = pytest.mark.needs_root


@pytest.fixture
def site(scratch: Path) -> Site:
    made = Site(scratch, scratch / "source", scratch / "target")
    for user in ("alice", "bob", "carol"):
        (made.source / "home" / user).mkdir(parents=True)
        (made.source / "home" / user / "letter").touch()
    made.target.mkdir()
    (scratch / "links").mkdir()
    return made


def links(site: Site) -> list[tuple[str, str]]:
    """The findings about links: status and message."""
    found = json.loads(site.call("doctor", "--json").stdout)
    told = [finding for finding in found if finding["check"] == "links"]
    assert all(bool(finding["fix"]) == (finding["status"] != "ok") for finding in told)
    return [(finding["status"], finding["message"]) for finding in told]


def set_up(site: Site, more: str) -> None:
    site.write(more=more)
    for words in (["init"], ["scan"], ["plan", "--accept-unknown-inodes"]):
        site.works(*words)


def test_every_link_of_the_plan_is_looked_at(site: Site) -> None:
    homes = site.directory / "links"
    site.write(more=f'[cutover]\nlink = "{homes}/{{user}}"\n')
    site.works("init")
    assert links(site) == [("ok", f"{homes}/{{user}}: checked once there is a plan")]
    site.works("scan")
    site.works("plan", "--accept-unknown-inodes")
    (homes / "alice").symlink_to(site.source / "home" / "alice")
    (homes / "bob").symlink_to(site.source / "home" / "alice")
    assert links(site) == [
        (
            "failure",
            f"{homes}/bob points to {site.source}/home/alice, which leads to {site.source}/home/alice, "
            f"and not to {site.source}/home/bob or {site.target}/home/bob",
        ),
        ("failure", f"{homes}/carol is missing"),
    ]
    (homes / "bob").unlink()
    (homes / "bob").mkdir()
    (homes / "carol").symlink_to("../source/home/carol")
    ((status, message),) = links(site)
    assert (status, "bob is a directory, not a symlink" in message) == ("failure", True)
    (homes / "bob").rmdir()
    (homes / "bob").symlink_to(site.source / "home" / "bob")
    assert links(site) == [("ok", "3 links of the active plan can be switched")]
    homes.chmod(0o777)
    assert links(site) == [("failure", f"{homes} can be written by other users (mode 0777)")]


@pytest.mark.exhaustive
def test_links_inside_the_source_are_told(site: Site) -> None:
    set_up(site, f'[cutover]\nlink = "{site.source}/home/{{user}}"\n')
    found = links(site)
    assert len(found) == 3
    assert all("lies inside the source" in message for _, message in found)


@pytest.mark.exhaustive
def test_switch_by_hook_requires_a_hook(site: Site) -> None:
    set_up(site, '[cutover]\nswitch = "hook"\n')
    ((status, message),) = links(site)
    assert (status, "no pre-switch hook" in message) == ("failure", True)
    hook = site.directory / "hooks" / "pre-switch.d" / "10-automount"
    hook.parent.mkdir(parents=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    assert links(site) == [("ok", "hooks of pre-switch make the switch")]
