"""A site of one test on a lab that others use too: its own target, state and plans; the program as a subprocess."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrator.fs.model import SENTINEL_NAME
from migrator.lab.up import host_sections, section_lines
from tests.support.cluster.handle import LabHandle
from tests.support.json_documents import require_valid, verb_of

_SITE = """
[site]
name = "test"
state_dir = {state}

[source]
kind = "gluster"
volume = {volume}
mount = {source}
via = {via}
gluster = {gluster}

[target]
kind = "posix"
mount = {target}

[users]
trees = ["home/*"]

[batch]
max_users = 3

[transfer]
jobs = 3
chunk_size = "4MiB"
chunk_files = 20
reserve = "16MiB"
sample_interval = "1s"
"""


@dataclass(frozen=True)
class LabSite:
    """A site: where its files lie, and the program at work on it."""

    directory: Path
    source: Path
    target: Path

    @property
    def file(self) -> Path:
        return self.directory / "site.toml"

    def argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "migrator", *self._words(*arguments)]

    def _words(self, *arguments: str) -> list[str]:
        return ["--site", str(self.file), *arguments]

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        return _started(self.argv(*arguments))

    def start_patient(self, limit: str, duration_s: float, *arguments: str) -> "subprocess.Popen[bytes]":
        """As `start`, with another value for one of the program's own limits (`package.module.NAME`), which no key of site.toml
        is for. The program ends at once where there is no such limit.
        """
        module, _, name = limit.rpartition(".")
        lines = (
            f"import {module} as limits",
            f"assert isinstance(limits.{name}, float)",
            f"limits.{name} = {duration_s}",
            "from migrator.__main__ import program",
            "program()",
        )
        return _started([sys.executable, "-c", "\n".join(lines), *self._words(*arguments)])

    def call(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.argv(*arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )

    def hook(self, where: str, text: str = "exit 0") -> Path:
        """A hook that does what the text says."""
        file = self.directory / "hooks" / where
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
        return file

    def wrap_gluster(self, script: str, **words: object) -> None:
        """A script in the place of Gluster's command, which it finds as `%(gluster)s`; `words` are filled in as well."""
        lines = self.file.read_text().splitlines()
        (real,) = {json.loads(line.partition("=")[2]) for line in lines if line.startswith("gluster = ")}
        wrapper = self.directory / "gluster"
        wrapper.write_text(script % {"gluster": real, **words})
        wrapper.chmod(0o755)
        self.file.write_text(self.file.read_text().replace(f'"{real}"', f'"{wrapper}"'))

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The verb's document; the verb must end with the code."""
        done = self.call(*arguments, "--json")
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        document = json.loads(done.stdout)
        require_valid(verb_of(list(arguments)), document)
        return document


def _started(argv: list[str]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def lab_site(
    lab: LabHandle, directory: Path, target: Path, *, via: str = "mount", hosts: bool = False, more: str = ""
) -> Iterator[LabSite]:
    """A new site over the lab's volume; its sentinel is taken away afterwards, so that the next test can have its own.

    `hosts` True: every host of the lab has a section; `target` must lie on the lab's target then. `more` is further text.
    """
    directory.mkdir()
    site = LabSite(directory=directory, source=lab.source, target=target)
    values = {
        "state": directory / "state",
        "volume": lab.state.spec.volume,
        "source": lab.source,
        "via": via,
        "gluster": os.fsdecode(lab.state.gluster),
        "target": target,
    }
    sections = host_sections(lab.state, os.fsencode(target)) if hosts else {}
    text = _SITE.format(**{name: json.dumps(str(value)) for name, value in values.items()})
    site.file.write_text("\n".join([text, *section_lines(sections), more]))
    try:
        yield site
    finally:
        try:
            (lab.source / os.fsdecode(SENTINEL_NAME)).unlink(missing_ok=True)
        except OSError as error:
            # A retired volume is stopped: its client is disconnected at some time.
            if error.errno != errno.ENOTCONN:
                raise
