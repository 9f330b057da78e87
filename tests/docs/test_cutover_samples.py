"""The sample hooks around a cutover (real accounts in an /etc of their own, real Slurm) and around `brick add` do what they say."""

import email
import email.policy
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator.core.paths import percent_escape
from tests.docs.test_hook_samples import HOOKS, REPOSITORY, document, run
from tests.support.slurm import Slurm

TELL = ("post-announce.d/50-tell-user", "pre-freeze.d/50-tell-user", "post-thaw.d/50-tell-user")
LOCK, UNLOCK, UNFREEZE = (f"{stage}.d/10-lock-account" for stage in ("pre-freeze", "post-thaw", "post-freeze"))
HOLD, RELEASE, GIVE_UP = (f"{stage}.d/20-hold-slurm-jobs" for stage in ("pre-freeze", "post-thaw", "post-freeze"))
MOVE = {
    "link": "/home/alice",
    "old_path": "/mnt/gl/home/alice%0A%1B[31m",
    "new_path": "/mnt/beegfs/Gr%C3%BC%C3%9Fe",
    "begins_at": "2030-01-31T19:00:00Z",
    "back": False,
    "freeze_s": 240.0,
    "frozen_s": 250.0,
    "moved": True,
    "reason": "a file is open: Größe\n",
}
"""What hooks around a step about one user are told."""
HOSTILE = ("", "../root", "-x", ".x", "a b", "a\nb", "a/b", "a;b")


def facts_of(hook: str, user: str, state: str = "") -> dict[str, object]:
    stage = hook.split(".d/", maxsplit=1)[0]
    more = {"stage": stage, "event": stage.split("-")[0], "user": user, "state": state or None}
    return document() | more


def variables(hook: str, user: str, site: Path, state: str = "") -> dict[str, str]:
    stage = hook.split(".d/", maxsplit=1)[0]
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C",
        "MIGRATOR_SITE": str(site / "site.toml"),
        "MIGRATOR_STAGE": stage,
        "MIGRATOR_USER": user,
        "MIGRATOR_STATE": state,
    }


@pytest.mark.parametrize("hook", TELL)
def test_a_user_is_told_what_they_have_to_know(hook: str) -> None:
    facts = facts_of(hook, "alice", "" if hook.startswith("pre-") else "done") | MOVE
    done = run(hook, facts)
    assert (done.returncode, done.stderr) == (0, "")
    after = hook.startswith("post-thaw")
    subject = "your files have moved" if after else "your files move to the new file system"
    mail = email.message_from_string(done.stdout, policy=email.policy.default)
    assert (mail["To"], mail["Subject"]) == ("alice@example.org", f"gl-to-beegfs: {subject}")
    text = mail.get_content()
    wanted = ("/mnt/gl/home/alice\\n\\x1b[31m", "/mnt/beegfs/Grüße", "/home/alice", "4 min")
    assert [words for words in wanted if words not in text] == []
    assert ("2030-01-31T19:00:00Z" in text) is not after
    for missing in ("link", "begins_at", "freeze_s", "frozen_s", "reason"):
        assert run(hook, facts | {missing: None}).returncode == 0
    assert "go back" in run(hook, facts | {"back": True}).stdout or after


def test_an_announcement_is_the_notice_with_its_calendar(tmp_path: Path) -> None:
    notice = tmp_path / "caf\u00e9" / "alice.txt"
    notice.parent.mkdir()
    notice.write_text("gl: your files move\nfor alice\n\nWhen\n----\nannounced: Gr\u00fc\u00dfe\n", encoding="utf-8")
    notice.with_suffix(".ics").write_bytes(b"BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n")
    facts = facts_of(TELL[0], "alice", "done") | MOVE | {"notice": percent_escape(os.fsencode(notice))}
    done = run(TELL[0], facts)
    assert (done.returncode, done.stderr) == (0, "")
    mail = email.message_from_string(done.stdout, policy=email.policy.default)
    assert mail["Subject"] == "gl: your files move"
    text, calendar = mail.iter_parts()
    assert text.get_content() == notice.read_text(encoding="utf-8")
    assert (calendar.get_content_type(), calendar.get_filename()) == ("text/calendar", "cutover.ics")
    assert calendar.get_payload(decode=True) == notice.with_suffix(".ics").read_bytes()


def test_a_sample_sends_by_sendmail_when_its_settings_say_so(tmp_path: Path) -> None:
    """No hook has to be edited: mail.ini beside site.toml has all that differs between sites."""
    sendmail = tmp_path / "bin" / "sendmail"
    sendmail.parent.mkdir()
    sendmail.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\ncat >> {tmp_path}/sent\n')
    sendmail.chmod(0o755)
    (tmp_path / "mail.ini").write_text((REPOSITORY / "docs" / "samples" / "mail.ini").read_text())
    site = {"name": "gl", "id": "x", "file": percent_escape(os.fsencode(tmp_path / "site.toml"))}
    path = f"{sendmail.parent}:{os.environ['PATH']}"
    for hook in TELL:
        done = run(hook, facts_of(hook, "alice", "done") | MOVE | {"site": site}, PATH=path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "called").read_text().splitlines() == ["-t -i"] * 3
    sent = (tmp_path / "sent").read_text()
    assert sent.count("From: storage@example.org\n") == sent.count("To: alice@example.org\n") == 3


@pytest.mark.parametrize("hook", TELL)
def test_without_somebody_to_write_to_it_fails(hook: str) -> None:
    changes: list[dict[str, object]] = [{"version": 2}]
    changes += [{"user": user} for user in HOSTILE]
    for change in changes:
        done = run(hook, facts_of(hook, "alice", "" if hook.startswith("pre-") else "done") | MOVE | change)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr


def test_both_sides_are_told_by_the_same_file() -> None:
    assert len({(HOOKS / hook).read_bytes() for hook in TELL}) == 1
    for pair in ((UNLOCK, UNFREEZE), (RELEASE, GIVE_UP)):
        assert len({(HOOKS / hook).read_bytes() for hook in pair}) == 1


class Accounts:
    """Accounts in a copy of /etc that only the hooks see (a mount namespace of their own)."""

    def __init__(self, directory: Path) -> None:
        self.site = directory
        self.etc = directory / "etc"
        self.etc.mkdir()
        for name in ("passwd", "shadow", "group", "gshadow", "login.defs", "nsswitch.conf"):
            if Path("/etc", name).exists():
                shutil.copy2(f"/etc/{name}", self.etc / name)
        if Path("/etc/pam.d").is_dir():
            shutil.copytree("/etc/pam.d", self.etc / "pam.d")
        with (self.etc / "passwd").open("a") as passwd, (self.etc / "shadow").open("a") as shadow:
            for number, user in enumerate(("alice", "bob")):
                passwd.write(f"{user}:x:{60001 + number}:60001::/nonexistent:/bin/sh\n")
                shadow.write(f"{user}:!:19000:0:99999:7::{'20500' if user == 'bob' else ''}:\n")

    def call(self, hook: str, user: str, state: str = "") -> "subprocess.CompletedProcess[str]":
        shell = f'mount --bind "{self.etc}" /etc && exec "{HOOKS / hook}"'
        return subprocess.run(
            ["unshare", "--mount", "sh", "-c", shell],
            input=json.dumps(facts_of(hook, user, state)),
            env=variables(hook, user, self.site, state),
            capture_output=True,
            text=True,
            check=False,
        )

    def works(self, hook: str, user: str, state: str = "") -> None:
        done = self.call(hook, user, state)
        assert done.returncode == 0, done.stderr

    def expires(self, user: str) -> str:
        (line,) = [line for line in (self.etc / "shadow").read_text().splitlines() if line.startswith(f"{user}:")]
        return line.split(":")[7]


@pytest.fixture
def accounts(scratch: Path) -> Accounts:
    if missing := [name for name in ("chage", "getent", "unshare") if shutil.which(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    return Accounts(scratch)


@pytest.mark.needs_root
@pytest.mark.parametrize(("user", "before"), [("alice", ""), ("bob", "20500")])
def test_an_account_is_locked_and_gets_back_what_it_had(accounts: Accounts, user: str, before: str) -> None:
    for hook, state in ((UNLOCK, "done"), (UNFREEZE, "refused")):
        for _ in range(2):  # killed in the middle, hooks are called again
            accounts.works(LOCK, user)
            assert accounts.expires(user) == "1"
        accounts.works(UNFREEZE, user, "done")
        assert accounts.expires(user) == "1"
        for _ in range(2):
            accounts.works(hook, user, state)
            assert accounts.expires(user) == before
    assert list((accounts.site / "locked").iterdir()) == []


@pytest.mark.needs_root
def test_unknown_accounts_are_not_locked(accounts: Accounts) -> None:
    before = (accounts.etc / "shadow").read_bytes()
    for user in (*HOSTILE, "nobody-here"):
        done = accounts.call(LOCK, user)
        assert (done.returncode, bool(done.stderr)) == (1, True)
    assert (accounts.etc / "shadow").read_bytes() == before
    assert not (accounts.site / "locked").exists()


def call_with_slurm(slurm: Slurm, hook: str, site: Path, state: str = "") -> "subprocess.CompletedProcess[str]":
    environment = variables(hook, "root", site, state) | {"SLURM_CONF": str(slurm.config)}
    return run(hook, facts_of(hook, "root", state), **environment)


def submit(slurm: Slurm, *options: str) -> str:
    return slurm.do("sbatch", "--parsable", "--output=/dev/null", *options, "--wrap=exec sleep 600").strip()


def waiting(slurm: Slurm) -> dict[str, str]:
    """Why each job that waits does so."""
    lines = slurm.do("squeue", "--noheader", "--states=PENDING", "--format=%i|%r").splitlines()
    return dict(line.split("|") for line in lines)


@pytest.mark.exhaustive
@pytest.mark.needs_root
def test_waiting_jobs_are_held_and_released(slurm: Slurm, scratch: Path) -> None:
    slurm.calm()
    later = submit(slurm, "--begin=now+1hour")
    own = submit(slurm, "--hold")
    for _ in range(2):
        done = call_with_slurm(slurm, HOLD, scratch)
        assert (done.returncode, done.stderr) == (0, "")
        assert all(reason.startswith("JobHeld") for reason in waiting(slurm).values())
    assert call_with_slurm(slurm, GIVE_UP, scratch, "done").returncode == 0
    assert waiting(slurm)[later].startswith("JobHeld")
    for _ in range(2):
        done = call_with_slurm(slurm, RELEASE, scratch, "done")
        assert done.returncode == 0, done.stderr
    assert not waiting(slurm)[later].startswith("JobHeld")
    assert waiting(slurm)[own].startswith("JobHeld")
    assert list((scratch / "held").iterdir()) == []
    # A freeze that was refused by a hook after this one, and a job that was taken away meanwhile.
    assert call_with_slurm(slurm, HOLD, scratch).returncode == 0
    slurm.do("scancel", later)
    assert call_with_slurm(slurm, GIVE_UP, scratch, "refused").returncode == 0
    assert list((scratch / "held").iterdir()) == []


def test_no_other_user_is_meant_than_one_with_a_plain_name(scratch: Path) -> None:
    for hook in (LOCK, UNLOCK, UNFREEZE, HOLD, RELEASE, GIVE_UP):
        for user in HOSTILE:
            done = run(hook, {}, **variables(hook, user, scratch))
            assert (done.returncode, "not the name of an account" in done.stderr) == (1, True)
    assert os.listdir(scratch) == []


MAKE = "pre-add.d/20-make-file-system"
BEEGFS = {7: "pre-attach.d/50-beegfs7-storage-target", 8: "pre-attach.d/55-beegfs8-storage-target"}

STUBS = {
    "ssh": '[ "$1 $2" = "-o BatchMode=yes" ] && echo "ssh $3" >>"$CALLS" && exec sh -c "$4"',
    "mount": 'echo "mount $*" >>"$CALLS"',
    "mountpoint": '[ -e "$MOUNTED" ]',
    "findmnt": '[ "$2" != --source ] && [ -e "$MOUNTED" ] && cat "$MOUNTED"',
    "systemctl": 'echo "systemctl $*" >>"$CALLS"',
}


@dataclass
class Place:
    """A site's directory, and what the hooks reach from there."""

    directory: Path

    def __post_init__(self) -> None:
        self.mounted, self.device, self.point = (self.directory / name for name in ("mounted", "device", "b2"))

    def calls(self) -> list[str]:
        file = self.directory / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def run(self, hook: str, brick: str, side: str) -> subprocess.CompletedProcess[str]:
        facts = document() | {"stage": hook.partition(".")[0], "event": "pre", "brick": brick, "side": side}
        told = {"MIGRATOR_SITE": str(self.directory / "site.toml"), "MIGRATOR_BRICK": brick, "MIGRATOR_SIDE": side}
        reached = {name: str(self.directory / name.lower()) for name in ("CALLS", "MOUNTED", "FSTAB")}
        path = f"{self.directory}/bin:{os.environ['PATH']}:/usr/sbin:/sbin"
        return run(hook, facts, PATH=path, **told, **reached)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "bin").mkdir()
    for name, text in STUBS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "fstab").touch()
    made = Place(tmp_path)
    with made.device.open("wb") as file:
        file.truncate(400 << 20)
    conf = f"gl3:/srv/b2/data {made.device} {made.point} su=64k sw=8 agcount=5\n"
    (tmp_path / "bricks.conf").write_text(f"gl3:/srv/b2/data2 /dev/other /srv/other\n{conf}")
    return made


@pytest.mark.skipif(shutil.which("mkfs.xfs", path="/usr/sbin:/sbin:/usr/bin") is None, reason="needs mkfs.xfs")
def test_a_file_system_with_the_options_of_the_field(place: Place) -> None:
    done = place.run(MAKE, "gl3:/srv/b2/data", "source")
    assert done.returncode == 0, done.stderr
    assert place.calls() == ["ssh root@gl3", f"mount -t xfs -o noatime,inode64 {place.device} {place.point}"]
    assert (place.directory / "fstab").read_text() == f"{place.device} {place.point} xfs noatime,inode64 0 0\n"
    info = subprocess.run(
        ["xfs_db", "-r", "-c", "sb 0", "-c", "p agcount inodesize unit width", str(place.device)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
    ).stdout
    assert info.split("\n")[:4] == ["agcount = 5", "inodesize = 512", "unit = 16", "width = 128"]

    # It is mounted now: called again, it leaves it as it is, as long as nothing lies there.
    place.mounted.write_text(str(place.device))
    again = place.run(MAKE, "gl3:/srv/b2/data", "source")
    assert (again.returncode, again.stdout) == (0, f"{place.point} is mounted, and empty\n")
    (place.point / "home").mkdir()
    refused = place.run(MAKE, "gl3:/srv/b2/data", "source")
    assert refused.returncode == 1
    assert "is in use" in refused.stderr


@pytest.mark.skipif(shutil.which("mkfs.xfs", path="/usr/sbin:/sbin:/usr/bin") is None, reason="needs mkfs.xfs")
def test_disks_with_a_signature_are_overwritten_only_by_name(place: Place) -> None:
    assert place.run(MAKE, "gl3:/srv/b2/data", "source").returncode == 0
    content = place.device.read_bytes()
    refused = place.run(MAKE, "gl3:/srv/b2/data", "source")
    assert refused.returncode == 1
    assert "overwrite.conf does not name it" in refused.stderr
    (place.directory / "overwrite.conf").write_text(f"gl4 {place.device}\n")
    assert place.run(MAKE, "gl3:/srv/b2/data", "source").returncode == 1
    assert place.device.read_bytes() == content
    (place.directory / "overwrite.conf").write_text(f"gl3 {place.device}\n")
    assert place.run(MAKE, "gl3:/srv/b2/data", "target").returncode == 0
    assert place.device.read_bytes() != content
    assert "largeio" in place.calls()[-1]


@pytest.fixture
def beegfs(place: Place) -> Place:
    """The programs and files of BeeGFS lie at fixed places: the ssh that goes nowhere finds them here."""
    for name, does in {
        "storage": 'mkdir -p "$2" && touch "$2/targetNumID"',
        "meta": f'echo "storeMetaDirectory = $2" >{place.directory}/beegfs-meta.conf',
    }.items():
        setup = place.directory / f"beegfs-setup-{name}"
        setup.write_text(f'#!/bin/sh\necho "setup $*" >>"$CALLS"\n{does}\n')
        setup.chmod(0o755)
    text = STUBS["ssh"].replace(
        'sh -c "$4"',
        f'sh -c "$(echo "$4" | sed "s|/opt/beegfs/sbin|{place.directory}|;s|/etc/beegfs|{place.directory}|")"',
    )
    (place.directory / "bin" / "ssh").write_text(f"#!/bin/sh\n{text}\n")
    (place.directory / "conn.auth").write_text("secret")
    place.point.mkdir()
    return place


def test_a_metadata_target_is_set_up_once_and_is_no_storage_target(beegfs: Place) -> None:
    hook, place, brick = "pre-attach.d/60-beegfs-metadata-target", beegfs, f"gl3:{beegfs.point}/data"
    conf = place.directory / "beegfs-meta.conf"
    conf.write_text("storeMetaDirectory =\n")
    assert place.run(hook, brick, "target").returncode == 0  # no such file: there are only storage targets
    (place.directory / "beegfs-metadata.conf").write_text(f"{brick} {place.point} 3 mgmt01\ngl3:/srv/bad /srv/bad 3\n")
    for storage_hook in BEEGFS.values():
        assert place.run(storage_hook, brick, "target").returncode == 0
    for other, side in ((brick, "source"), ("gl3:/srv/b9", "target")):
        assert place.run(hook, other, side).returncode == 0
    assert place.calls() == []
    assert "does not tell" in place.run(hook, "gl3:/srv/bad", "target").stderr
    assert "no file system is mounted" in place.run(hook, brick, "target").stderr
    place.mounted.write_text("x")
    assert place.run(hook, brick, "target").stdout == f"{brick} is the metadata target of node 3\n"
    assert "set up already" in place.run(hook, brick, "target").stdout
    setup, *restarts = [call for call in place.calls() if not call.startswith("ssh")]
    assert setup == f"setup -p {place.point}/beegfs_meta -s 3 -m mgmt01"
    assert restarts == ["systemctl restart beegfs-meta"] * 2
    conf.write_text("storeMetaDirectory = /srv/other\n")
    refused = place.run(hook, brick, "target")
    assert (refused.returncode, "a second one needs a service of its own" in refused.stderr) == (1, True)
    (place.directory / "conn.auth").unlink()
    assert "conn.auth is missing" in place.run(hook, brick, "target").stderr


@pytest.mark.parametrize("version", [7, 8])
def test_a_storage_target_is_set_up_once(beegfs: Place, version: int) -> None:
    place = beegfs
    brick = f"gl3:{place.point}/data"
    (place.directory / "beegfs-targets.conf").write_text(f"{brick} {place.point} 3 302 mgmt01\n")
    hook = BEEGFS[version]

    assert place.run(hook, brick, "source").returncode == 0
    assert place.calls() == []
    unmounted = place.run(hook, brick, "target")
    assert unmounted.returncode == 1
    assert "no file system is mounted" in unmounted.stderr
    place.mounted.write_text("x")
    done = place.run(hook, brick, "target")
    assert done.returncode == 0, done.stderr
    assert f"{brick} is storage target 302 of node 3" in done.stdout
    again = place.run(hook, brick, "target")
    assert again.returncode == 0
    assert "set up already" in again.stdout
    kept = [call for call in place.calls() if not call.startswith("ssh")]
    setup_call = f"setup -p {place.point}/beegfs_storage -s 3 -i 302 -m mgmt01"
    assert kept == [setup_call, "systemctl restart beegfs-storage", "systemctl restart beegfs-storage"]
    unknown = place.run(hook, "gl3:/srv/b9", "target")
    assert unknown.returncode == 1
    assert "does not tell" in unknown.stderr
    if version == 8:
        (place.directory / "conn.auth").unlink()
        assert "conn.auth is missing" in place.run(hook, brick, "target").stderr
