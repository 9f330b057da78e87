"""A site of which users are cut over and rolled back by the program's own verbs, on two file systems of its own."""

import json
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.delta_changes import rewrite
from tests.support.records import rows_of
from tests.support.run_site import DEADLINE_S, RealSite, fill_tree
from tests.support.snapshots import snapshot
from tests.support.warm_program import start_program
from tests.support.xfs import XfsMount, run_tool

OWNERS = {"ann": 60_001, "ben": 60_002, "cay": 60_003}
STAGES = tuple(f"{event}-{step}" for step in ("freeze", "pass", "switch", "thaw") for event in ("pre", "post"))
_ACLS = (b"system.posix_acl_access", b"system.posix_acl_default")

Snapshot = dict[bytes, tuple[object, ...]]


def top_facts(top: Path) -> tuple[object, ...]:
    """What a freeze changes of a directory, and a thaw puts back: owner, group, mode and both ACLs, byte for byte."""
    facts, there = top.stat(), os.listxattr(os.fsencode(top))
    acls = [os.getxattr(top, name) if os.fsdecode(name) in there else None for name in _ACLS]
    return (facts.st_uid, facts.st_gid, stat.S_IMODE(facts.st_mode), *acls)


@dataclass(frozen=True)
class Ended:
    """A call of the program that has ended: negative codes are signals."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def outcome(self) -> Any:
        """Of a cutover or a rollback of one user, with --json."""
        (found,) = self.json["outcomes"]
        return found


@dataclass
class Call:
    """A call of the program that is at work, in a fork of this process: what is loaded need not be loaded again."""

    pid: int
    said: Path
    status: int | None = None

    def poll(self) -> bool:
        """Whether it has ended."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def signal(self, number: int = signal.SIGKILL) -> None:
        if not self.poll():
            os.kill(self.pid, number)

    def end(self) -> Ended:
        """Wait for its end."""
        deadline = time.monotonic() + DEADLINE_S
        while not self.poll():
            assert time.monotonic() < deadline, self.said.with_suffix(".err").read_text()
            time.sleep(0.005)
        out, err = self.said.with_suffix(".out"), self.said.with_suffix(".err")
        assert self.status is not None
        assert "Traceback" not in err.read_text(), err.read_text()
        assert "internal error of migrator" not in err.read_text(), err.read_text()
        return Ended(self.status, out.read_text(), err.read_text())


@dataclass
class CutSite:
    """Users whose links lead to their trees; a freeze hook vouches for what cannot be seen on this machine."""

    site: RealSite
    started: int = 0

    @property
    def directory(self) -> Path:
        return self.site.directory

    def link(self, user: str = "ann") -> Path:
        return self.directory.parent / "links" / user

    def source(self, user: str = "ann") -> Path:
        return self.site.source.path / "home" / user

    def target(self, user: str = "ann") -> Path:
        return self.site.target.path / "home" / user

    def tree(self, user: str = "ann") -> Path:
        """Where the user's link leads."""
        return self.link(user).resolve(strict=True)

    def write(
        self,
        *,
        link: str | None = None,
        freeze: str = "hook",
        cutover: str = "",
        more: str = "",
        compare: bool = False,
        transfer: str = "",
    ) -> None:
        """site.toml; `cutover` and `transfer` are more keys of those sections, `more` is any text."""
        place = str(self.link("{user}")) if link is None else link
        keys = f'freeze = "{freeze}"\nlink = "{place}"\ncompare = {str(compare).lower()}'
        self.site.write(transfer=f"{transfer}\n[cutover]\n{keys}\n{cutover}\n{more}")

    def hook(self, where: str, text: str = "exit 0") -> Path:
        """A hook that writes its stage, its state and its user down, and then does what the text says."""
        file = self.directory / "hooks" / where
        file.parent.mkdir(parents=True, exist_ok=True)
        line = 'echo "$MIGRATOR_STAGE $MIGRATOR_STATE $MIGRATOR_USER"'
        file.write_text(f'#!/bin/sh\n{line} >> "{self.directory}/calls"\n{text}\n')
        file.chmod(0o755)
        return file

    def keep_told(self, *stages: str) -> None:
        """A hook of each stage that keeps the document it gets, for `told`."""
        for stage in stages:
            self.hook(f"{stage}.d/90-told", f'cat > "{self.directory}/told-{stage}"')

    def told(self, stage: str) -> dict[str, Any]:
        found = json.loads((self.directory / f"told-{stage}").read_text())
        assert isinstance(found, dict)
        return found

    def calls(self) -> list[str]:
        """What was called since the last question."""
        file = self.directory / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [line.rstrip() for line in lines]

    def start(self, *words: str, before: Callable[[], None] = lambda: None) -> Call:
        """Begin a call; `before` is done first, in the process of the call."""
        self.started += 1
        said = self.directory / f"call-{self.started}"
        argv, out, err = ["--site", str(self.site.file), *words], said.with_suffix(".out"), said.with_suffix(".err")
        return Call(start_program(argv, out=out, err=err, before=before), said)

    def call(self, *words: str, code: int | None = 0) -> Ended:
        """`code` None: any."""
        done = self.start(*words).end()
        assert code in (None, done.code), f"{words}: {done.code}\n{done.out}\n{done.err}"
        return done

    def cutover(self, user: str = "ann", *, code: int = 0) -> Any:
        """What becomes of the user."""
        return self.call("cutover", "--user", user, "--json", code=code).outcome

    def rollback(self, user: str = "ann", *, code: int = 0) -> Any:
        return self.call("rollback", "--user", user, "--json", code=code).outcome

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return rows_of(self.site.ledger, query)

    def states(self) -> list[tuple[str, str]]:
        """State and last failure of every attempt."""
        return self.rows("SELECT state, failure FROM operations ORDER BY id")

    def snapshot(self, user: str = "ann") -> Snapshot:
        """What the user has, by way of his link."""
        return snapshot(os.fsencode(self.tree(user)))

    def is_open(self, top: Path) -> bool:
        """Whether the user whose tree it is can write to it."""
        return top.stat().st_uid == OWNERS[top.name]

    def assert_works_on(self, side: str, expected: Snapshot, *, hooks_ended: bool = True) -> None:
        """The user is on this side with all that he had, and the other side is closed to him; no hook is owed, where
        they could all be called."""
        here, there = self.source(), self.target()
        if side == "target":
            here, there = there, here
        assert self.tree() == here
        assert (self.is_open(here), self.is_open(there)) == (True, False)
        assert self.snapshot() == expected
        assert not (hooks_ended and self.rows("SELECT id FROM hook_steps WHERE closed_at_s IS NULL"))


@contextmanager
def cut_site(
    directory: Path,
    source: XfsMount,
    target: XfsMount,
    *,
    users: tuple[str, ...] = ("ann",),
    stages: tuple[str, ...] = STAGES,
    fill: Callable[[Path], None] | None = None,
    prepared: bool = True,
    transfer: str = "",
) -> Iterator[CutSite]:
    """A site whose users were copied and verified (if `prepared`); ann's top has ACLs, each stage a hook."""
    made = CutSite(RealSite(directory / "site", source, target))
    made.directory.mkdir()
    (directory / "links").mkdir()
    for user in users:
        tree = made.source(user)
        if fill is None:
            fill_tree(tree, files=12, size_bytes=3000, uid=OWNERS[user])
        else:
            fill(tree)
        tree.chmod(0o2750)
        made.link(user).symlink_to(tree)
    run_tool("setfacl", "-m", "u:60009:rwx", str(made.source("ann")))
    run_tool("setfacl", "-d", "-m", "u:60009:r-x", str(made.source("ann")))
    made.write(transfer=transfer)
    for stage in stages:
        made.hook(f"{stage}.d/50-said")
    made.call("init")
    made.call("scan", "--json")
    made.call("plan", "--json", "--accept-unknown-inodes")
    if prepared:
        made.call("run", "--all", "--json")
        made.call("verify", "--all", "--json")
    made.calls()
    try:
        yield made
    finally:
        made.site.kill_streams()


_TURNS = count(1)


def change(tree: Path) -> None:
    """A user's day: new, changed with size and mtime put back, renamed, removed, another mode. May be called again."""
    owner, turn = OWNERS[tree.name], next(_TURNS)
    new = tree / f"new-{turn}"
    new.mkdir()
    (new / "letter").write_text(f"turn {turn}")
    for path in (new, new / "letter"):
        os.chown(path, owner, owner)
    files = sorted(path for path in tree.glob("d?/*") if path.is_file() and path.lstat().st_nlink == 1)
    rewrite(files[0], os.urandom(files[0].stat().st_size))
    files[-1].rename(files[-1].with_name(f"renamed-{turn}"))
    files[1].chmod(0o600 + turn % 8)
    for old in tree.glob("new-*"):
        if old != new:
            (old / "letter").unlink(missing_ok=True)
            old.rename(tree / f"empty-{turn}")
