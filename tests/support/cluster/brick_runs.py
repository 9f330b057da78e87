"""Migrations over a lab's bricks in the hands of a test: the program as users start it, and what its ledger says."""

import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from migrator.core.units import KIB, MIB
from migrator.hosts.proc import carriers
from tests.support.cluster.handle import DEADLINE_S, LabHandle
from tests.support.cluster.site import LabSite, lab_site
from tests.support.delta_changes import let_settle
from tests.support.records import rows_of
from tests.support.waiting import wait_for

WORK = "work"
"""The trees of these tests, beside those of the lab."""

OFFSET_NS = 3 * 86_400 * 10**9
"""How far the clocks of the brick servers seem to have been apart from the clients'."""

_CONTENT = ("ranges", "files", "ranged_files")


def make_work(lab: LabHandle) -> None:
    """Two trees as programs write them: small files, some of 300 KiB, and one that is copied in ranges."""
    for user in ("ann", "ben"):
        tree = lab.source / WORK / user
        for directory in ("", "one", "one/two", "three"):
            (tree / directory).mkdir(parents=True, exist_ok=True)
            for number in range(12):
                (tree / directory / f"small-{number}").write_bytes(os.urandom(100 + 97 * number))
        for number in range(12):
            (tree / "one" / f"big-{number}").write_bytes(os.urandom(300 * KIB))
        (tree / "three" / "ranged").write_bytes(os.urandom(4 * MIB + 17))
        os.link(tree / "one" / "big-1", tree / "three" / "again")
        os.setxattr(tree / "one" / "small-1", "user.note", b"kept")
    bend_times(lab)


def bend_times(lab: LabHandle) -> None:
    """Give everything on the bricks other times than the volume shows, as where clocks are apart."""
    for brick in lab.bricks:
        for directory, _, names in os.walk(lab.brick_directory(brick) / WORK, topdown=False):
            for path in (*(Path(directory, name) for name in names), Path(directory)):
                seen = path.lstat()
                os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns + OFFSET_NS), follow_symlinks=False)


@contextmanager
def work_trees(lab: LabHandle) -> Iterator[LabHandle]:
    """The trees, for the length of the block."""
    try:
        make_work(lab)
        yield lab
    finally:
        # A file that is moved between bricks meanwhile is listed twice, or comes back once.
        wait_for(lambda: _removed(lab.source / WORK), "the trees are gone")


def _removed(directory: Path) -> bool:
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


@contextmanager
def standing_still(found: Callable[[], Collection[int]]) -> Iterator[set[int]]:
    """What is found stands still during the block, with what it started meanwhile; those that had not ended."""
    held: dict[int, int] = {}
    try:
        while new := set(found()) - held.keys():
            for pid in new:
                with suppress(ProcessLookupError):
                    held[pid] = os.pidfd_open(pid)
                    signal.pidfd_send_signal(held[pid], signal.SIGSTOP)
            wait_for(lambda: all(_state(pid) in "TZX" for pid in held), "they stand still, or have ended")
        yield {pid for pid in held if _state(pid) == "T"}
    finally:
        for pidfd in held.values():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
            os.close(pidfd)


def _state(pid: int) -> str:
    """The letter that proc(5) has for it; X for one that is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def _run_words(options: tuple[str, ...]) -> tuple[str, ...]:
    seed_only = () if "--deltas" in options else ("--deltas", "0")
    every = () if "--user-batch" in options else ("--all",)
    return ("run", *every, *seed_only, *options)


def _carriers(token: str) -> set[int]:
    return {identity.pid for identity in carriers([token]).get(token, ())}


@dataclass
class BrickRuns:
    """A site over the bricks of a lab, with a target of its own on the lab's target."""

    lab: LabHandle
    site: LabSite
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    _newest_before: int = 0

    @property
    def ledger(self) -> Path:
        return self.site.directory / "state" / "ledger.db"

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What the ledger says now."""
        return rows_of(self.ledger, query, *values)

    def prepare(self) -> dict[str, Any]:
        """Scan over the bricks, plan; the plan."""
        scanned = self.site.json("scan")
        assert (scanned["via"], scanned["whole"]) == ("bricks", True), (scanned["way_reasons"], scanned["reasons"])
        plan: dict[str, Any] = self.site.json("plan", "--activate")["plan"]
        return plan

    def run(self, *options: str, code: int = 0) -> Any:
        """Without `--deltas` among the options the seed passes alone."""
        return self.site.json(*_run_words(options), code=code)

    def start(self, *options: str) -> "subprocess.Popen[bytes]":
        """A run as above, beside the test."""
        self._newest_before = self.rows("select coalesce(max(id), 0) from attempts")[0][0]
        process = self.site.start(*_run_words(options))
        self.started.append(process)
        return process

    def wait_for(self, process: "subprocess.Popen[bytes]") -> None:
        """Until a run has ended well."""
        process.wait(timeout=800)
        said = self.rows("select kind, message from events order by id")
        assert process.returncode == 0, said

    @contextmanager
    def held_stream_on(self, process: "subprocess.Popen[bytes]", host: str | None = None) -> Iterator[None]:
        """For the length of the block a stream of this run that is at work at the content of files, there or on any brick
        server, stands still: what the test does meanwhile happens before that stream has come to its end.
        """
        end = time.monotonic() + DEADLINE_S
        while True:
            assert time.monotonic() < end, "no stream could be held"
            for _, pid, token in self._at_work(process, host):
                with standing_still(lambda token=token: _carriers(token)) as held:  # type: ignore[misc]
                    if pid in held:
                        yield
                        return
            time.sleep(0.05)

    def _at_work(self, process: "subprocess.Popen[bytes]", host: str | None) -> list[tuple[str, int, str]]:
        """Host, process and token of the streams of this run at content; those that an earlier one has left are none of it."""
        assert process.poll() is None, f"the run has ended already, with {process.returncode}"
        wanted = {host} if host else {host.address for host in self.lab.state.hosts}
        with suppress(sqlite3.OperationalError):
            return [
                (name, pid, token)
                for name, pid, token in self.rows(
                    "select attempts.host, attempts.pid, token from attempts join chunks on chunks.id = chunk_id"
                    " where attempts.state = 'running' and kind in (?, ?, ?) and attempts.id > ? order by attempts.id",
                    *_CONTENT,
                    self._newest_before,
                )
                if name in wanted and pid
            ]
        return []

    def attempts(self, *kinds: str) -> set[tuple[str, str, str]]:
        """Host, engine and state of the attempts at chunks of content (or of these kinds)."""
        wanted = kinds or _CONTENT
        marks = ", ".join("?" * len(wanted))
        return set(
            self.rows(
                "select host, engine, attempts.state from attempts join chunks on chunks.id = chunk_id"
                f" where kind in ({marks})",
                *wanted,
            )
        )

    def hosts_of(self) -> set[str]:
        """Where attempts at content succeeded."""
        return {host for host, _, ended in self.attempts() if ended == "succeeded"}

    def events(self, *kinds: str) -> list[str]:
        """The messages of events of these kinds, oldest first."""
        return [message for kind, message in self.rows("select kind, message from events order by id") if kind in kinds]

    def tokens(self) -> list[str]:
        return [token for (token,) in self.rows("select token from attempts")]

    def left_running(self) -> Sequence[int]:
        """Living processes of any attempt, on any host of the lab (their processes are seen from here)."""
        return [identity.pid for found in carriers(self.tokens()).values() for identity in found]

    def assert_equal(self, *, but_times_of_directories: bool = False) -> None:
        """The verification is the judge; and nothing of Gluster's has come along, and nothing is left over.
        `but_times_of_directories`: Gluster has gone on moving files after the run, which gives their directories other times.
        """
        done = self.site.call("verify", "--all", "--json")
        for verified in json.loads(done.stdout):
            found = pq.read_table(verified["differences_file"]).to_pylist() if verified["differences"] else []
            assert len(found) == sum(verified["differences"].values())
            different = [
                one
                for one in found
                if not (but_times_of_directories and one["kind"] == "mtime" and self._is_directory(one["path"]))
            ]
            assert different == [], (
                verified,
                self.rows(
                    "select chunks.number, kind, brick, list_path, host, engine, attempts.state, stderr_tail from attempts"
                    " join chunks on chunks.id = chunk_id order by attempts.id"
                ),
            )
            assert verified["whole"], verified["reasons"]
        here = Path.cwd()
        for directory, directories, files, fd in os.fwalk(self.site.target):
            for name in (*directories, *files):
                assert not name.startswith((".migrator-copy-", ".migrator-part-")), Path(directory, name)
                # By way of its directory: some paths are longer than the kernel takes.
                os.fchdir(fd)
                attributes = os.listxattr(name, follow_symlinks=False)
                assert not [one for one in attributes if one.startswith("trusted.") and "SGI_ACL" not in one]
        os.chdir(here)
        assert self.left_running() == []

    def _is_directory(self, path: bytes) -> bool:
        return stat.S_ISDIR(os.lstat(os.fsencode(self.lab.source) + b"/" + path).st_mode)

    def close(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()


@contextmanager
def brick_runs(
    lab: LabHandle,
    directory: Path,
    *,
    trees: str = f"{WORK}/*",
    via: str = "auto",
    hosts: bool = True,
    range_size: str = "1MiB",
    chunk_size: str = "1MiB",
    lease: str = "",
) -> Iterator[BrickRuns]:
    """A site after `init`; its target goes away afterwards. With a short `lease`, a slow machine loses hosts."""
    target = lab.target / directory.name
    target.mkdir()
    try:
        with lab_site(lab, directory, target, via=via, hosts=hosts) as site:
            text = site.file.read_text().replace('trees = ["home/*"]', f'trees = ["{trees}"]')
            text = text.replace("[transfer]", f'[transfer]\nrange_size = "{range_size}"')
            text = text.replace("[transfer]", f'[transfer]\nlease = "{lease}"') if lease else text
            site.file.write_text(text.replace('chunk_size = "4MiB"', f'chunk_size = "{chunk_size}"'))
            site.json("init")
            made = BrickRuns(lab, site)
            try:
                yield made
            finally:
                made.close()
                wait_for(lambda: not made.left_running(), "nothing is left running")
    finally:
        shutil.rmtree(target)


@contextmanager
def users_copied(
    lab: LabHandle, directory: Path, *, via: str = "bricks", transfer: str = "", cutover: str = ""
) -> Iterator[tuple[BrickRuns, Path]]:
    """A site whose users have been copied and verified, and the directory of links that lead to their trees. A hook vouches
    for what cannot be seen in a freeze. The texts are more keys of their sections.
    """
    links = directory / "links"
    links.mkdir()
    for tree in (lab.source / "home").iterdir():
        if tree.is_dir():
            (links / tree.name).symlink_to(tree)
    with brick_runs(lab, directory / "site", trees="home/*", via=via, hosts=via == "bricks") as runs:
        text = runs.site.file.read_text().replace("[transfer]\n", f"[transfer]\n{transfer}", 1)
        text += f'[cutover]\nfreeze = "hook"\nsettle = "0s"\nlink = "{links}/{{user}}"\n{cutover}'
        runs.site.file.write_text(text)
        runs.site.hook("pre-freeze.d/10-vouches")
        let_settle()
        for words in (["scan"], ["plan", "--activate"], ["run", "--all"], ["verify", "--all"]):
            runs.site.json(*words)
        yield runs, links
