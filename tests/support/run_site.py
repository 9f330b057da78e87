"""A real small site for tests of `run`: XFS on both sides, the program as its users start it."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from migrator.hosts import proc
from tests.support.records import rows_of
from tests.support.warm_program import run_program
from tests.support.xfs import XfsMount

DEADLINE_S = 600.0
REPOSITORY = Path(__file__).resolve().parents[2]
STAND_IN = REPOSITORY / "tests" / "fixtures" / "parsyncfp2"


@dataclass
class RealSite:
    """One site. `migrator` runs a verb to its end, `start` only starts it."""

    directory: Path
    source: XfsMount
    target: XfsMount
    environment: dict[str, str] = field(default_factory=lambda: {**os.environ, "NO_COLOR": "1"})

    @property
    def file(self) -> Path:
        return self.directory / "site.toml"

    @property
    def ledger(self) -> Path:
        return self.directory / "state" / "ledger.db"

    def write(self, *, transfer: str = "", target: str = "") -> None:
        self.directory.mkdir(exist_ok=True)
        self.file.write_text(
            f"""
[site]
name = "faults"
state_dir = "state"
[source]
kind = "posix"
mount = "{self.source.path}"
[target]
kind = "posix"
mount = "{self.target.path}"
{target}
[users]
trees = ["home/*"]
[transfer]
jobs = 2
chunk_files = 40
chunk_size = "4MiB"
reserve = "1MiB"
{transfer}
"""
        )

    def prepare(self, *, transfer: str = "", target: str = "") -> None:
        """From nothing to a plan of one batch."""
        self.write(transfer=transfer, target=target)
        for verb in ("init", "scan", "plan"):
            done = self.migrator(verb)
            assert done.returncode == 0, done.stderr

    def argv(self, *arguments: str, program: Sequence[str] = ("migrator",)) -> list[str]:
        """`program` are a module that is started in the place of the program's own, and words before all others."""
        return [sys.executable, "-m", *program, "--site", str(self.file), *arguments]

    def migrator(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return run_program(
            ["--site", str(self.file), *arguments],
            within_s=DEADLINE_S,
            environment=self.environment,
            directory=REPOSITORY,
        )

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Without `--deltas` among the arguments the seed pass alone."""
        return self.migrator(*_run_words(arguments))

    @contextmanager
    def started(self, *arguments: str, program: Sequence[str] = ("migrator",)) -> Iterator["subprocess.Popen[str]"]:
        """`run` as above, at work for the length of the block; ended afterwards, with its streams."""
        process = subprocess.Popen(
            self.argv(*_run_words(arguments), program=program),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=REPOSITORY,
            env=self.environment,
            stdin=subprocess.DEVNULL,
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=DEADLINE_S)
            self.kill_streams()

    def with_stand_in(self, programs: Path) -> None:
        """A stand-in for parsyncfp2, and what the real one calls besides, in a new directory of this site's PATH."""
        programs.mkdir()
        shutil.copy(STAND_IN, programs / "parsyncfp2")
        for name in ("scut", "stats", "ip"):
            (programs / name).write_text("#!/bin/sh\n")
        for program in programs.iterdir():
            program.chmod(0o755)
        self.environment["PATH"] = f"{programs}:{self.environment['PATH']}"

    def tokens(self) -> list[str]:
        """Of all attempts that have not ended, by the ledger."""
        if not self.ledger.exists():
            return []
        rows = rows_of(self.ledger, "SELECT token FROM attempts WHERE state IN ('intended', 'running')")
        return [token for (token,) in rows]

    def streams(self) -> list[int]:
        """The pids of all that streams of this site consist of."""
        return [process.pid for found in proc.carriers(self.tokens()).values() for process in found]

    def kill_streams(self) -> None:
        """`kill -9` to each process of each stream of this site, and nothing else."""
        for pid in self.streams():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def attempts(self) -> int:
        return int(rows_of(self.ledger, "SELECT count(*) FROM attempts")[0][0])

    def differences(self) -> str:
        """What rsync says of all trees, content included; nothing where they are equal. Roots are closed on purpose."""
        said: list[str] = []
        for tree in sorted((self.source.path / "home").iterdir()):
            there = self.target.path / "home" / tree.name
            done = subprocess.run(
                ["rsync", "-naHAXi", "--checksum", "--delete", "--numeric-ids", f"{tree}/", f"{there}/"],
                capture_output=True,
                check=True,
                timeout=DEADLINE_S,
            )
            lines = done.stdout.split(b"\n")
            said.extend(repr(line) for line in lines if line and not line.endswith(b" ./"))
        return "\n".join(said)


def _run_words(arguments: tuple[str, ...]) -> tuple[str, ...]:
    seed_only = () if "--deltas" in arguments else ("--deltas", "0")
    return ("run", "--user-batch", "1", *seed_only, *arguments)


def fill_tree(tree: Path, *, files: int, size_bytes: int, uid: int = 60001) -> None:
    """A tree of small files with content of their own, a link group, a symlink, and a hostile name."""
    tree.mkdir(parents=True)
    for number in range(files):
        directory = tree / f"d{number % 7}"
        directory.mkdir(exist_ok=True)
        line = f"{tree.name} {number} ".encode()
        (directory / f"f{number:04d}").write_bytes((line * (1 + size_bytes // len(line)))[:size_bytes])
    os.link(tree / "d0" / "f0000", tree / "d1" / "linked")
    (tree / "symlink").symlink_to("d0/f0000")
    with open(os.fsencode(tree) + b"/new\nline \xff", "wb") as file:
        file.write(b"hostile")
    for above, directories, others in os.walk(tree):
        for name in (*directories, *others, "."):
            os.chown(os.path.join(above, name), uid, uid, follow_symlinks=False)


def unfreeze(mount: XfsMount) -> None:
    """Thaw a frozen file system; one that is not frozen is left alone."""
    subprocess.run(["fsfreeze", "--unfreeze", str(mount.path)], capture_output=True, check=False)
