"""`brick add` on a real cluster: a brick that was drained comes back, while users write."""

import dataclasses
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

from migrator.lab.model import LabBrick, VolumeType
from tests.support.cluster.comparing import everything, opened, private_files
from tests.support.cluster.fixtures import MakeLab, with_ssh
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.site import LabSite, lab_site
from tests.support.records import rows_of
from tests.support.waiting import wait_for
from tools.known_writer import Writer

_PLACE = "directories"
_GROUP = 30000
_FIRST_UID = 20001
_USERS = 2
_EACH = 16
_MODE_ACL_BYTES = 28
_INHERITED = 0o2007
"""What the setgid bit and the default ACL of a directory above change."""
_ACLS = ("system.posix_acl_access", "system.posix_acl_default")

# In the tree of the user, whose way there is closed to everybody but root. What a line says was so when it was written.
_WORK = """
import json, os, random, signal, sys, time
uid, group, each = map(int, sys.argv[1:])
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
os.setgroups([group]); os.setgid(uid); os.setuid(uid); os.umask(0o022)
draw, number, parent = random.Random(uid), 0, os.getppid()
def say(*words):
    print(json.dumps(words), flush=True)
while not told and os.getppid() == parent:
    number += 1
    above, gid = (("plain", uid), ("setgid", group), ("acl", uid))[number % 3]
    new, old = f"{above}/new{number}", f"{above}/old{draw.randrange(each)}"
    try:
        mode = draw.choice((0o755, 0o2770, 0o700))
        os.mkdir(new)
        os.chmod(new, mode)
        say("made", new, mode, gid)
        if number % 4 == 0:
            os.rename(new, f"{above}/renamed{number}")
            say("renamed", new, f"{above}/renamed{number}")
        os.listdir(old)
        open(f"{old}/file{number}", "w").close()
        if number % 10 == 0:
            mode = draw.choice((0o711, 0o2750))
            os.chmod(old, mode)
            say("set", old, mode)
        if number % 15 == 0:
            os.rename(old, f"{above}/moved{number}")
            say("renamed", old, f"{above}/moved{number}")
    except OSError:
        # Shut for a while, or renamed before.
        pass
    time.sleep(0.25)
"""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a directory has to have; `acls` None: those that are inherited when it is made, the same on every copy."""

    mode: int
    uid: int
    gid: int
    acls: tuple[bytes, ...] | None = None


@dataclass
class DirectoryUsers:
    """Their trees below a directory of the source."""

    lab: LabHandle
    wanted: dict[str, Wanted] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    _working: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def top(self) -> Path:
        return self.lab.source / _PLACE

    def make(self) -> Self:
        """What is there before bricks are added: directories with the setgid bit, with ACLs, below them, and without."""
        for uid in range(_FIRST_UID, _FIRST_UID + _USERS):
            home = self.top / str(uid)
            home.mkdir(parents=True)
            os.chown(home, uid, uid)
            for name, mode, gid in (("plain", 0o755, uid), ("setgid", 0o2775, _GROUP), ("acl", 0o750, uid)):
                self._make(home / name, mode, uid, gid)
            subprocess.run(["setfacl", "-d", "-m", "u::rwx,g::rwx,o::---,u:20009:rwx", home / "acl"], check=True)
            self._keep(home / "acl")
            for number in range(_EACH):
                self._make(home / "plain" / f"old{number}", 0o755, uid, uid)
                # Below the setgid bit without one, and in another group than the one above.
                self._make(home / "setgid" / f"old{number}", 0o2755 if number % 2 else 0o755, uid, uid)
                self._make(home / "acl" / f"old{number}", 0o775, uid, uid)
                if number % 2:
                    subprocess.run(["setfacl", "-b", home / "acl" / f"old{number}"], check=True)
                    self._keep(home / "acl" / f"old{number}")
        return self

    def _make(self, path: Path, mode: int, uid: int, gid: int) -> None:
        path.mkdir()
        os.chown(path, uid, gid)
        path.chmod(mode)
        self._keep(path)

    def _keep(self, path: Path) -> None:
        facts = path.lstat()
        self.wanted[str(path.relative_to(self.lab.source))] = Wanted(
            mode=stat.S_IMODE(facts.st_mode), uid=facts.st_uid, gid=facts.st_gid, acls=_acls(path)
        )

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """They work for the length of the block; afterwards `wanted` is what they have set."""
        for uid in range(_FIRST_UID, _FIRST_UID + _USERS):
            words = [sys.executable, "-I", "-S", "-c", _WORK, str(uid), str(_GROUP), str(_EACH)]
            with self._journal(uid).open("w") as journal:
                self._working.append(subprocess.Popen(words, cwd=self.top / str(uid), stdout=journal))
        try:
            yield
        finally:
            for process in self._working:
                process.terminate()
                process.wait()
            for uid in range(_FIRST_UID, _FIRST_UID + _USERS):
                self._read(uid)

    def _journal(self, uid: int) -> Path:
        return Path(os.fsdecode(self.lab.state.spec.directory), f"users-{uid}.jsonl")

    def _read(self, uid: int) -> None:
        home = f"{_PLACE}/{uid}/"
        for line in self._journal(uid).read_text().splitlines():
            match json.loads(line):
                case ["made", path, mode, gid]:
                    self.wanted[home + path] = Wanted(mode=mode, uid=uid, gid=gid)
                    self.made.add(home + path)
                case ["set", path, mode]:
                    # A chmod changes the mask of an ACL.
                    self.wanted[home + path] = dataclasses.replace(self.wanted[home + path], mode=mode, acls=None)
                case ["renamed", path, new]:
                    self.wanted[home + new] = self.wanted.pop(home + path)
                    if home + path in self.made:
                        self.made.add(home + new)
                case _:
                    raise AssertionError(line)

    def assert_kept(self, listed: Collection[str]) -> None:
        """Every directory has what its owner has set, on every brick, or is listed. Then they go."""
        wrong = self.wrong()
        assert set(wrong) <= set(listed), {name: wrong[name] for name in wrong if name not in listed}
        shutil.rmtree(self.top)

    def wrong(self) -> dict[str, list[str]]:
        """By path what is not as its owner has set it, on the mount or on any brick."""
        found: dict[str, list[str]] = {}
        roots = {brick.name: self.lab.brick_directory(brick) for brick in self.lab.bricks}
        for name, wanted in self.wanted.items():
            copies = {"the mount": self.lab.source / name, **{brick: root / name for brick, root in roots.items()}}
            acls = _acls(self.lab.source / name) if wanted.acls is None else wanted.acls
            for where, path in copies.items():
                facts = path.lstat()
                has = Wanted(mode=stat.S_IMODE(facts.st_mode), uid=facts.st_uid, gid=facts.st_gid, acls=_acls(path))
                if name in self.made and (has.mode ^ wanted.mode) & ~_INHERITED == 0:
                    # The bits were set or cleared before the first look: nobody can know that (docs/bricks.md).
                    has = dataclasses.replace(has, mode=wanted.mode)
                if has != dataclasses.replace(wanted, acls=acls):
                    found.setdefault(name, []).append(f"{where}: {has} in place of {wanted}")
        return found


def _acls(path: Path) -> tuple[bytes, ...]:
    """The ACLs that there are; a mode's own three entries are none."""
    found = []
    for name in _ACLS:
        try:
            value = os.getxattr(path, name)
        except OSError:
            value = b""
        found.append(b"" if name == _ACLS[0] and len(value) == _MODE_ACL_BYTES else value)
    return tuple(found)


pytestmark = [pytest.mark.cluster, pytest.mark.needs_root]

KILLED_WHEN_IT_IS_ADDED = """#!/bin/sh
"%(gluster)s" "$@"
code=$?
case "$*" in
*" add-brick "*) mkdir "%(directory)s/killed" 2>/dev/null && kill -KILL $PPID ;;
esac
exit $code
"""
"""The program is killed, once, when Gluster has taken the brick in, before it hears of it."""
MORE = '[drain]\npoll = "300ms"\nthrottle = "normal"\n'


def removed_by_hand(lab: LabHandle, *bricks: LabBrick) -> None:
    def remove(*words: str) -> bytes:
        return lab.gluster("volume", "remove-brick", lab.state.spec.volume, *(brick.name for brick in bricks), *words)

    def ended_on_all_hosts() -> bool:
        status = remove("status")
        return b"completed" in status and b"in progress" not in status

    remove("start")
    wait_for(ended_on_all_hosts, "the drain is completed on all hosts")
    remove("commit")


def emptying_hook(site: LabSite, lab: LabHandle) -> None:
    """What a new file system would be: nothing lies any more where the bricks are to be."""
    lines = [
        f'case ",$MIGRATOR_BRICK," in *,{one.name},*) rm -rf {lab.brick_directory(one)} ;; esac' for one in lab.bricks
    ]
    site.hook("pre-add.d/10-empty", "\n".join(["set -e", 'test "$MIGRATOR_SIDE" = source', *lines]))


@contextmanager
def site_of(lab: LabHandle, directory: Path) -> Iterator[LabSite]:
    with_ssh(lab)
    target = lab.target / "brick-add"
    target.mkdir()
    with lab_site(lab, directory, target, hosts=True, more=MORE) as site:
        site.json("init")
        yield site


def used_since_they_were_recorded(site: LabSite) -> set[str]:
    """Directories of which the program has said that what their owners set last may be lost (docs/bricks.md)."""
    told = rows_of(site.directory, "select message from events where message like '%in those seconds, that is lost%'")
    return {message.partition(":")[0] for (message,) in told}


def on_disk(lab: LabHandle, brick: LabBrick) -> int:
    """Data files on a brick: no link-to files."""
    root, count = lab.brick_directory(brick), 0
    for above, below, names in os.walk(root):
        if Path(above) == root:
            below.remove(".glusterfs")
        modes = [Path(above, name).lstat().st_mode for name in names]
        count += sum(stat.S_ISREG(mode) and stat.S_IMODE(mode) != stat.S_ISVTX for mode in modes)
    return count


@pytest.mark.guarantee("brick-add")
@pytest.mark.guarantee("moved-acl")
def test_a_drained_brick_comes_back_while_users_write_and_the_program_is_killed(
    make_lab: MakeLab, tmp_path: Path
) -> None:
    lab = make_lab(hosts=2, bricks_per_host=1, users=2, files=120, odd=False)
    volume, brick = lab.state.spec.volume, lab.bricks[-1]
    with site_of(lab, tmp_path / "site") as site:
        removed_by_hand(lab, brick)
        private = private_files(lab.source)
        before = everything(lab.source)
        directory = lab.brick_directory(brick)
        add = ("brick", "add", brick.name, "--to", "source")

        # What a drain leaves: directories and link-to files. Taking marks off would not do.
        (old,) = site.json(*add, code=4)["reasons"]
        assert "is not empty" in old
        assert "setfattr" not in old
        for entry in directory.iterdir():
            if entry.name != ".glusterfs":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        (stale,) = site.json(*add, code=4)["reasons"]
        assert "was a brick, and carries its marks" in stale
        assert os.getxattr(directory, "trusted.glusterfs.volume-id")
        # The command that it tells does what it says.
        command = stale.split("`")[1]
        assert lab.on_host(lab.host_of(brick), "sh", "-c", command).returncode == 0
        assert site.json(*add, "--dry-run")["ending"] == "planned"
        assert (
            site.json(*add[:2], f"{lab.state.hosts[0].address}:/srv/b1/data", *add[3:], "--dry-run")["state"]
            == "planned"
        )

        emptying_hook(site, lab)
        users = DirectoryUsers(lab).make()
        with Writer(lab.source / "writing", pause_s=0.02) as writing, users.at_work():
            site.wrap_gluster(KILLED_WHEN_IT_IS_ADDED, directory=site.directory)
            assert site.call(*add).returncode == -signal.SIGKILL
            assert brick.name.encode() in lab.gluster("volume", "info", volume)
            (blocker,) = [one for one in site.json("status")["blocked"] if brick.name in one["subject"]]
            assert "no command is resuming it" in blocker["on"]
            assert "migrator " + " ".join(add) in blocker["hint"]
            done = site.json(*add)
        assert (done["ending"], done["state"], done["failures"], done["exit_code"]) == ("done", "settled", 0, 0)
        # The throttle was set for it, also by the one that was killed, and put back.
        said = rows_of(site.directory, "select subject from events where kind = 'throttle-set'")
        assert (f"addition of {brick.name}",) in said
        assert b"cluster.rebal-throttle" not in lab.gluster("volume", "info", volume)
        assert site.json(*add)["ending"] == "done"
        (told,) = site.json("brick", "status")["additions"]
        assert [told] == site.json("status")["additions"]
        assert (told["state"], told["moved_files"], told["failures"]) == ("settled", done["moved_files"], 0)
        assert told["lookups"] >= told["moved_files"]
        assert told["looked_at_s"]

        # Given again when it is over, it keeps those that are still shut.
        assert told["directories"] == [one for one in done["directories"] if one["mode"] == 0]
        users.assert_kept({one["path"] for one in done["directories"]} | used_since_they_were_recorded(site))
        assert everything(lab.source) == before
        names = {str(path.relative_to(writing.directory)) for path in writing.directory.glob("*/*")}
        assert names == writing.contents.keys()
        assert (bool(writing.contents), writing.lost(), writing.errors) == (True, [], [])
        assert opened(private) == {}
        assert list((site.directory / "state" / "shields").iterdir()) == []
        # New files land there, and old ones have moved there.
        assert on_disk(lab, brick)
        assert {one["name"]: one["state"] for one in site.json("brick", "list")["bricks"]}[brick.name] == "up"


@pytest.mark.exhaustive
def test_a_set_with_an_arbiter_is_added_again_and_its_bricks_are_replaced_and_exchanged(
    make_lab: MakeLab, tmp_path: Path
) -> None:
    lab = make_lab(hosts=3, bricks_per_host=2, volume_type=VolumeType.DISTRIBUTED_ARBITER, users=1, files=40, odd=False)
    stays, leaves = lab.bricks[:3], lab.bricks[3:]
    names = [brick.name for brick in leaves]
    with site_of(lab, tmp_path / "site") as site:
        site.json("scan", "--via", "bricks")
        unknown = site.call("brick", "list", "--user", "nobody-at-all")
        assert (unknown.returncode, "has no user" in unknown.stderr) == (2, True)
        before = everything(lab.source)
        removed_by_hand(lab, *leaves)
        emptying_hook(site, lab)
        (alone,) = site.json("brick", "add", names[1], "--to", "source", "--dry-run", code=4)["reasons"]
        assert "whole replica sets of 3" in alone
        done = site.json("brick", "add", names[1], "--to", "source", "--instead-of", stays[1].name)
        assert (done["ending"], done["state"]) == ("done", "settled")
        assert on_disk(lab, leaves[1]) == on_disk(lab, stays[0])

        again = (names[0], stays[1].name, names[2])
        done = site.json("brick", "add", *again, "--to", "source")
        assert (done["ending"], done["state"], done["failures"]) == ("done", "settled", 0)
        states = {one["name"]: (one["state"], one["arbiter"]) for one in site.json("brick", "list")["bricks"]}
        assert states == {one.name: ("up", one.host == 3) for one in lab.bricks}
        assert everything(lab.source) == before
        # Its data bricks hold the same.
        assert on_disk(lab, leaves[0]) == on_disk(lab, stays[1])
        exchange_in_its_place(lab, site, stays[0], leaves[1])


def exchange_in_its_place(lab: LabHandle, site: LabSite, brick: LabBrick, copy: LabBrick) -> None:
    """A data brick is taken offline and back, and gets a new disk in its place, while users write and the program is killed;
    `copy` is the other one of its set.
    """
    (site.directory / "hooks" / "pre-add.d" / "10-empty").unlink()
    add = ("brick", "add", brick.name, "--to", "source", "--instead-of", brick.name)
    host, point = lab.host_of(brick), os.path.dirname(lab.brick_path(brick))
    new_disk: tuple[tuple[str | bytes, ...], ...] = (
        ("mkfs.xfs", "-q", "-f", brick.image),
        ("mount", "-o", "loop", brick.image, point),
    )
    before = everything(lab.source)
    assert site.json(*add, "--dry-run")["words"] == "it would begin with: reset"
    with Writer(lab.source / "exchanging", pause_s=0.1) as users:
        assert "still holds the brick" in site.call(*add).stderr
        assert lab.brick_pids()[brick.name] == -1
        (blocker,) = [one for one in site.json("status")["blocked"] if brick.name in one["subject"]]
        assert "the brick is offline" in blocker["on"]
        assert site.json(*add, "--take-back")["state"] == "taken-back"
        assert lab.brick_pids()[brick.name] > 0
        assert site.call(*add).returncode == 4
        # Gluster asks the brick's process to end, and does not wait for that.
        lab.unmount_on(host, point)
        for argv in new_disk:
            done = lab.on_host(host, *argv)
            assert done.returncode == 0, done.stderr
        running = site.start(*add)
        wait_for(lambda: lab.brick_pids().get(brick.name, -1) > 0, "the brick is up on its new disk")
        running.send_signal(signal.SIGKILL)
        running.wait()
        done = site.json(*add)
    assert (done["ending"], done["state"]) == ("done", "settled")
    # A new client, which reads either copy: both have to be right.
    assert contents(lab, brick) == contents(lab, copy)
    lab.drop_client_cache()
    after = everything(lab.source)
    assert {name: after[name] for name in before} == before
    assert (bool(users.contents), users.lost(), users.errors) == (True, [], [])


def contents(lab: LabHandle, brick: LabBrick) -> dict[str, bytes]:
    """Every file on a data brick."""
    root = lab.brick_directory(brick)
    files = [path for path in root.rglob("*") if path.relative_to(root).parts[0] != ".glusterfs"]
    return {
        str(path.relative_to(root)): path.read_bytes() for path in files if path.is_file() and not path.is_symlink()
    }
