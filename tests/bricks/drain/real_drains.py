"""Drains on a real cluster in the hands of a test."""

import hashlib
import os
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from migrator.lab.model import LabBrick
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.site import LabSite
from tests.support.records import rows_of

THROTTLE = "cluster.rebal-throttle"
SETTINGS = '[drain]\nthrottle = "lazy"\npoll = "0.2s"\n'


@dataclass
class Drains:
    """A site over the lab, whose gluster command does something where a test has left a mark."""

    lab: LabHandle
    site: LabSite
    marks: Path
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    """Programs that a test has started and that have not ended yet; the fixture ends them."""

    def mark(self, name: str) -> None:
        (self.marks / name).touch()

    def drain(self, brick: LabBrick, *options: str, code: int = 0) -> Any:
        return self.site.json("brick", "drain", brick.name, "--accept-open-files", *options, code=code)

    def state(self) -> str:
        rows = rows_of(self.site.directory, "select state from operations where kind = 'drain' order by id")
        return rows[-1][0] if rows else ""

    def option(self) -> str | None:
        info = ET.fromstring(self.lab.gluster("--xml", "volume", "info", self.lab.state.spec.volume))
        options = {one.findtext("name"): one.findtext("value") for one in info.iter("option")}
        return options.get(THROTTLE)

    def names(self) -> set[str]:
        """Those of the volume now."""
        info = ET.fromstring(self.lab.gluster("--xml", "volume", "info", self.lab.state.spec.volume))
        return {one.findtext("name") or "" for one in info.iterfind("volInfo/volumes/volume/bricks/brick")}


def digests(root: Path) -> dict[str, str]:
    """Every regular file by its digest, read again and not from this machine's memory."""
    found: dict[str, str] = {}
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as stream:
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                found[str(path.relative_to(root))] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found
