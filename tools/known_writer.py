"""A user of a mounted volume whose every byte is known, for telling afterwards what was lost."""

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self


@dataclass
class Writer:
    """A user whose every byte is known: writes, renames and links through the mount until the end of the block.

    What they write between pauses must be less than Gluster moves meanwhile on this machine.
    """

    directory: Path
    pause_s: float = 0.2
    contents: dict[str, bytes] = field(default_factory=dict)
    errors: list[OSError] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self.directory.mkdir()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        number = 0
        while not self._stop.wait(self.pause_s):
            number += 1
            try:
                self._write(number, os.urandom(300 + 97 * (number % 100)))
            except OSError as error:
                self.errors.append(error)

    def _write(self, number: int, content: bytes) -> None:
        directory = self.directory / f"{number % 20}"
        directory.mkdir(exist_ok=True)
        one = directory / f"{number}"
        one.write_bytes(content)
        if number % 3 == 0:
            one = one.rename(directory / f"{number}-renamed")
        self.contents[str(one.relative_to(self.directory))] = content
        if number % 5 == 0:
            (directory / f"{number}-again").hardlink_to(one)
            self.contents[f"{directory.name}/{number}-again"] = content

    def paths(self, directory: bytes) -> frozenset[bytes]:
        """What it has written, below the root of the volume."""
        return frozenset(directory + b"/" + os.fsencode(name) for name in self.contents)

    def lost(self) -> list[str]:
        """Names whose content is not what was written."""
        return [name for name, content in self.contents.items() if _content(self.directory / name) != content]


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
