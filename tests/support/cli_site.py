"""A small site on two file systems of its own, and the program at work on it."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.warm_program import run_program

DEADLINE_S = 600.0


@dataclass(frozen=True)
class Site:
    """A small site on two file systems of its own, and the program at work on it."""

    directory: Path
    source: Path
    target: Path

    @property
    def file(self) -> Path:
        return self.directory / "site.toml"

    def write(self, **changes: str) -> None:
        keys = {"source": str(self.source), "target": str(self.target), "trees": '["home/*"]', "more": ""} | changes
        self.file.write_text(
            f'[site]\nname = "bad"\nstate_dir = "state"\n\n'
            f'[source]\nkind = "posix"\nmount = "{keys["source"]}"\n\n'
            f'[target]\nkind = "posix"\nmount = "{keys["target"]}"\n\n'
            f"[users]\ntrees = {keys['trees']}\n\n[batch]\nmax_users = 1\n\n"
            f'[transfer]\nreserve = "1MiB"\n\n{keys["more"]}'
        )

    def call(self, *arguments: str, path: str | None = None) -> "subprocess.CompletedProcess[str]":
        done = run_program(
            ["--site", str(self.file), *arguments],
            within_s=DEADLINE_S,
            environment={name: value for name, value in os.environ.items() if name != "COLUMNS"}
            | ({"PATH": path} if path else {}),
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return done

    def fails(self, code: int, *arguments: str, says: tuple[str, ...], path: str | None = None) -> None:
        """The verb ends with the code, and its message holds all of these."""
        done = self.call(*arguments, path=path)
        assert done.returncode == code, done.stderr or done.stdout
        for words in says:
            assert words in done.stderr, done.stderr
        assert done.stderr.count("migrator:") == 1, done.stderr

    def works(self, *arguments: str) -> None:
        done = self.call(*arguments)
        assert done.returncode == 0, done.stderr or done.stdout
