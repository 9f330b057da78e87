"""A small site with hooks that write down every call, and the program at work on it as its users start it."""

import json
from dataclasses import dataclass
from pathlib import Path

from tests.support.cli_site import Site
from tests.support.records import rows_of

STAGES = ("pre-batch", "pre-pass", "post-pass", "post-batch")
ALL = [f"{stage}.d/{name}" for stage in STAGES for name in ("10-a", "20-b")]
IN_ORDER = [*ALL[:4], *ALL[5:3:-1], *ALL[7:5:-1]]


@dataclass(frozen=True)
class HookSite:
    """A site of two batches with one tree each."""

    site: Site

    @property
    def calls_file(self) -> Path:
        return self.site.directory / "calls"

    def prepare(self, more: str = "") -> None:
        for user in ("alice", "bob"):
            tree = self.site.source / "home" / user
            tree.mkdir(parents=True)
            (tree / "letter").write_text(f"of {user}")
        self.site.target.mkdir()
        self.site.write(more=more)
        for words in (["init"], ["scan"], ["plan", "--accept-unknown-inodes"]):
            self.site.works(*words)

    def hook(self, where: str, text: str = "", *, mode: int = 0o755) -> Path:
        """A hook that writes its name, the batch, the state and a delta pass down, and then does what the text says."""
        file = self.site.directory / "hooks" / where
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        file.write_text(
            '#!/bin/sh\n[ "$MIGRATOR_PASS" != delta ] || of=" delta $MIGRATOR_PASS_NUMBER"\n'
            f'echo "{where} $MIGRATOR_BATCH $MIGRATOR_STATE$of" >> "{self.calls_file}"\n{text or "exit 0"}\n'
        )
        file.chmod(mode)
        return file

    def all_hooks(self) -> None:
        for where in ALL:
            self.hook(where)

    def calls(self) -> list[str]:
        """What was called since the last question, as `pre-batch.d/10-a 1`."""
        if not self.calls_file.exists():
            return []
        lines = [line.rstrip() for line in self.calls_file.read_text().splitlines()]
        self.calls_file.unlink()
        return lines

    def run(self, *words: str, deltas: int = 0) -> tuple[int, str]:
        """The exit code of a run with so many delta passes at most, and all that it said."""
        done = self.site.call("run", *(words or ("--user-batch", "1")), "--deltas", str(deltas))
        return done.returncode, done.stdout + done.stderr

    def summary(self, *words: str) -> dict[str, object]:
        """What a run over batch 1 says of it with `--json`."""
        done = self.site.call("run", "--user-batch", "1", "--deltas", "0", "--json", *words)
        found = json.loads(done.stdout)["batches"][0]
        assert isinstance(found, dict)
        return found

    def copied(self) -> list[str]:
        return sorted(path.parent.name for path in self.site.target.glob("home/*/letter"))

    def rows(self, query: str) -> list[tuple[object, ...]]:
        return rows_of(self.site.directory, query)

    def events(self) -> list[str]:
        """Warnings and errors of runs, as `status` shows them, oldest first."""
        found = json.loads(self.site.call("status", "--json").stdout)["events"]
        return [f"{event['kind']}: {event['message']}" for event in reversed(found) if event["kind"] != "plan-written"]
