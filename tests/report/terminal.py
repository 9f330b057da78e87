"""A terminal of any size with one program in it: tmux, with a server of its own."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.run_site import REPOSITORY, wait_for

_ENDED = "ended with "
_SHELL = f"""
trap : INT
before=$(stty -g)
"$@"
code=$?
[ "$(stty -g)" = "$before" ] && kept=kept || kept=changed
echo "{_ENDED}$code settings $kept"
exec cat
"""


@dataclass(frozen=True)
class Terminal:
    """A running program, and the terminal that it sees; the terminal stays when the program has ended."""

    socket: Path
    environment: dict[str, str]

    def tmux(self, *arguments: str) -> str:
        argv = ["tmux", "-u", "-S", str(self.socket), "-f", "/dev/null", *arguments]
        done = subprocess.run(argv, capture_output=True, check=True, cwd=REPOSITORY, env=self.environment)
        return done.stdout.decode("utf-8", "replace")

    def screen(self) -> list[str]:
        """The lines of the terminal, without blanks at their ends."""
        return self.tmux("capture-pane", "-p").splitlines()

    def joined(self) -> list[str]:
        """The same with wrapped lines made one again."""
        return [line.rstrip() for line in self.tmux("capture-pane", "-p", "-J").splitlines()]

    def resize(self, width: int, height: int) -> None:
        self.tmux("resize-window", "-x", str(width), "-y", str(height))

    def press(self, key: str) -> None:
        self.tmux("send-keys", key)

    def shows(self, *words: str) -> list[str]:
        """Wait for a screen with all of these words; that screen."""
        seen: list[str] = []

        def has_all() -> bool:
            seen[:] = self.screen()
            return all(word in "\n".join(seen) for word in words)

        try:
            wait_for(has_all, f"a screen with {words}")
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *seen])) from error
        return seen

    def exit_code(self) -> int:
        """Wait for the program's end, after which the terminal's settings are as before."""
        lines = self.shows(_ENDED)
        said = next(line for line in lines if line.startswith(_ENDED)).removeprefix(_ENDED).split()
        assert said[1:] == ["settings", "kept"], said
        return int(said[0])

    def modes(self) -> str:
        """What the program has left of the terminal's modes: another screen, a hidden cursor, no wrapping."""
        return self.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag} #{wrap_flag}").strip()


def missing_for_terminals() -> str | None:
    """Why there can be no terminal here; None where there can."""
    return None if shutil.which("tmux") else "tmux is not installed"


@contextmanager
def terminal(directory: Path, argv: Sequence[str], *, width: int, height: int) -> Iterator[Terminal]:
    """A program in a terminal of its own for the length of the block."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
    for name in ("NO_COLOR", "TMUX", "COLUMNS", "LINES"):  # a test runner may say how wide its own output is
        environment.pop(name, None)
    made = Terminal(directory / "tmux", environment)
    size = ("-x", str(width), "-y", str(height))
    made.tmux("new-session", "-d", *size, "cat")
    try:
        made.tmux("respawn-pane", "-k", "-c", str(REPOSITORY), "sh", "-c", _SHELL, "sh", *argv)
        yield made
    finally:
        made.tmux("kill-server")
