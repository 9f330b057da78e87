"""`announce` as its users start it: real hooks, a real ledger."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.notices.test_calendar import read
from tests.support.cli_site import Site
from tests.support.hook_site import HookSite
from tests.support.operations import FROZEN, cut_over

BEGINS = "2999-01-31 19:00"
BOTH = ("--all", "--begins", BEGINS)


@dataclass(frozen=True)
class Announcing:
    """Two users in a batch each, and hooks that keep what they are told of every user."""

    hooked: HookSite

    @property
    def directory(self) -> Path:
        return self.hooked.site.directory

    def announce(self, *words: str) -> tuple[int, list[tuple[str, str]], dict[str, Any]]:
        """The exit code, what became of each user, and the whole document."""
        done = self.hooked.site.call("announce", *words, "--json")
        document = json.loads(done.stdout)
        told = [(one["tree"]["user"], one["outcome"]) for one in document.get("announcements", ())]
        return done.returncode, told, document

    def hook(self, where: str, text: str = "exit 0") -> Path:
        return self.hooked.hook(where, text)

    def told(self, user: str) -> dict[str, Any]:
        told = json.loads((self.directory / f"told-{user}").read_text())
        assert isinstance(told, dict)
        return told


@pytest.fixture
def site(scratch: Path) -> Announcing:
    hooked = HookSite(Site(scratch, scratch / "source", scratch / "target"))
    hooked.prepare()
    made = Announcing(hooked)
    made.hook("post-announce.d/50-mail", f'cat > "{scratch}/told-$MIGRATOR_USER"')
    return made


def test_each_time_is_announced_once_to_every_user(site: Announcing) -> None:
    assert site.announce(*BOTH, "--dry-run")[:2] == (0, [("alice", "would-notify"), ("bob", "would-notify")])
    assert site.hooked.rows("SELECT count(*) FROM hook_steps") == [(0,)]
    assert not (site.directory / "state" / "notices").exists()
    code, told, document = site.announce(*BOTH)
    assert (code, told) == (0, [("alice", "notified"), ("bob", "notified")])
    assert document["begins_at_s"] == datetime(2999, 1, 31, 19, tzinfo=UTC).timestamp()
    alice, bob = site.told("alice"), site.told("bob")
    assert (alice["user"], alice["trees"]) == ("alice", [{"path": "home/alice", "user": "alice"}])
    assert (alice["begins_at"], alice["batch"], bob["batch"]) == ("2999-01-31T19:00:00Z", 1, 2)
    assert (bob["old_path"], bob["new_path"]) == tuple(
        str(side / "home" / "bob") for side in (site.hooked.site.source, site.hooked.site.target)
    )
    notice = Path(bob["notice"])
    assert notice.parent == site.directory / "state" / "notices"
    assert "2999-01-31 19:00" in notice.read_text()
    assert notice.with_suffix(".html").exists()
    assert [one["SEQUENCE"] for one in read(notice.with_suffix(".ics").read_bytes())] == ["0"]
    assert bob["files"] > 0
    assert bob["size_bytes"] > 0
    assert site.hooked.rows("SELECT subject, message FROM events WHERE kind = 'user-notified' ORDER BY id") == [
        (f"{user}: announce", f"{user} was notified that the move of home/{user} begins at 2999-01-31 19:00 UTC")
        for user in ("alice", "bob")
    ]
    # The same time is told once, in whatever zone it is given; another one is told, and the same one where it is asked for.
    same = ("--user", "bob", "--begins", "2999-01-31T20:00+01:00")
    assert site.announce(*same)[1] == [("bob", "before")]
    assert site.announce(*same, "--again")[1] == [("bob", "notified")]
    assert site.announce("--user-batch", "2", "--begins", "2999-02-01")[1] == [("bob", "notified")]
    assert site.told("bob")["begins_at"] == "2999-02-01T00:00:00Z"
    (moved,) = read(notice.with_suffix(".ics").read_bytes())
    assert (moved["SEQUENCE"], moved["DTSTART"]) == ("1", "29990201T000000Z")
    assert site.hooked.rows("SELECT tree, begins_at_s FROM announcements WHERE tree = CAST('home/bob' AS BLOB)") == [
        (b"home/bob", datetime(2999, month, day, hour, tzinfo=UTC).timestamp())
        for month, day, hour in ((1, 31, 19), (1, 31, 19), (2, 1, 0))
    ]
    assert site.hooked.copied() == []


@pytest.mark.exhaustive
def test_hooks_that_skip_refuse_or_fail(site: Announcing) -> None:
    guard = site.hook("pre-announce.d/10-guard", '[ "$MIGRATOR_USER" != alice ] || { echo holidays; exit 62; }')
    fails = site.hook("post-announce.d/60-list", '[ "$MIGRATOR_USER" != bob ] || exit 1')
    code, told, document = site.announce(*BOTH)
    assert (code, told) == (1, [("alice", "skipped"), ("bob", "failed")])
    assert "holidays" in document["announcements"][0]["reason"]
    assert not (site.directory / "told-alice").exists()
    site.hook("pre-announce.d/10-guard", "exit 1")
    assert site.announce(*BOTH)[0] == 4
    guard.unlink()
    fails.unlink()
    assert site.announce(*BOTH)[:2] == (0, [("alice", "notified"), ("bob", "notified")])


def test_an_announcement_that_cannot_reach_all_users_is_refused(site: Announcing) -> None:
    refused = site.hooked.site
    refused.fails(2, "announce", "--all", "--begins", "2001-01-01", says=("2001-01-01",))
    assert refused.call("announce", "--all", "--begins", "soon").returncode == 2
    file = site.directory / "site.toml"
    before = file.read_text()
    other_day = f"{datetime(2999, 2, 3, tzinfo=UTC):%a} 00:00-24:00"
    file.write_text(f'{before}\n[cutover]\nwindows = ["{other_day}"]\n')
    refused.fails(2, "announce", *BOTH, says=("2999-02-03",))
    file.write_text(before)
    (site.directory / "hooks" / "post-announce.d" / "50-mail").rename(site.directory / "50-mail")
    refused.fails(4, "announce", *BOTH, "--dry-run", says=())
    assert site.hooked.calls() == []


@pytest.mark.exhaustive
def test_users_whose_cutover_has_begun_get_no_announcement(site: Announcing) -> None:
    cut_over(site.directory / "state" / "ledger.db", "alice", FROZEN)
    code, told, document = site.announce(*BOTH)
    assert (code, told) == (0, [("alice", "not-due"), ("bob", "notified")])
    assert "frozen" in document["announcements"][0]["reason"]
