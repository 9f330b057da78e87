"""Users who make, rename and chmod directories all the while, each under his own uid; and what their directories have to have."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from tests.support.cluster.handle import LabHandle

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
                    self.wanted[home + path] = replace(self.wanted[home + path], mode=mode, acls=None)
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
                    # Taken before it was seen for the first time: docs/bricks.md says that nobody can know.
                    has = replace(has, mode=wanted.mode)
                if has != replace(wanted, acls=acls):
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
