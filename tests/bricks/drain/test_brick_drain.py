"""`brick drain` and `brick stop` on a real cluster: leftovers are refused, and the program is killed wherever it takes a drain back.

The whole way out, while users write, is in tests/story/test_whole_cycle.py.
"""

import hashlib
import os
import signal
import subprocess
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from migrator.lab.model import LabBrick
from tests.support.cluster.fixtures import lab_of, with_ssh
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.site import LabSite, lab_site
from tests.support.records import rows_of

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

THROTTLE = "cluster.rebal-throttle"
SETTINGS = '[drain]\nthrottle = "lazy"\npoll = "0.2s"\n'
KILLING = """#!/bin/sh
act=
case " $* " in
*" remove-brick "*" stop ") act=stop ;;
*" fix-layout start ") act=layout ;;
esac
kill_at() {
    if [ -n "$act" ] && [ -e "%(marks)s/$act-$1" ]; then rm "%(marks)s/$act-$1"; kill -9 $PPID; fi
}
[ -n "$act" ] && [ -e "%(marks)s/$act-before" ] && kill_at before && exit 1
"%(gluster)s" "$@"
code=$?
kill_at after
exit $code
"""


@pytest.fixture(scope="module")
def own_lab(lab_parent: Path) -> Iterator[LabHandle]:
    with lab_of(lab_parent / "drains", hosts=3, bricks_per_host=2, users=2, files=240, odd=False) as lab:
        yield with_ssh(lab)


@dataclass
class Drains:
    """A site over the lab, whose gluster command kills the program where a test has left a mark."""

    lab: LabHandle
    site: LabSite
    marks: Path
    started: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    """Programs that a test has begun and not yet seen the end of; for whoever ends them."""

    def brick(self) -> LabBrick:
        """The last one that is still in the volume."""
        return next(brick for brick in reversed(self.lab.bricks) if brick.name in self.names())

    def mark(self, name: str) -> None:
        (self.marks / name).touch()

    def drain(self, brick: LabBrick, *options: str, code: int = 0) -> Any:
        return self.site.json("brick", "drain", brick.name, "--accept-open-files", *options, code=code)

    def dies(self, *words: str) -> None:
        done = self.site.call("brick", *words)
        assert done.returncode == -signal.SIGKILL, (words, done.returncode, done.stdout, done.stderr)
        assert not list(self.marks.iterdir())

    def state(self) -> str:
        rows = rows_of(self.site.directory, "select state from operations where kind = 'drain' order by id")
        return rows[-1][0] if rows else ""

    def option(self) -> str | None:
        info = ET.fromstring(self.lab.gluster("--xml", "volume", "info", self.lab.state.spec.volume))
        options = {one.findtext("name"): one.findtext("value") for one in info.iter("option")}
        return options.get(THROTTLE)

    def tasks(self) -> list[str]:
        said = self.lab.gluster("--xml", "volume", "status", self.lab.state.spec.volume, "tasks")
        return [one.findtext("type") or "" for one in ET.fromstring(said).iter("task")]

    def names(self) -> set[str]:
        """Those of the volume now."""
        info = ET.fromstring(self.lab.gluster("--xml", "volume", "info", self.lab.state.spec.volume))
        return {one.findtext("name") or "" for one in info.iterfind("volInfo/volumes/volume/bricks/brick")}


@pytest.fixture
def drains(own_lab: LabHandle, tmp_path: Path) -> Iterator[Drains]:
    target = Path(os.fsdecode(own_lab.state.target)) / f"drains-{os.getpid()}-{time.monotonic_ns()}"
    target.mkdir()
    with lab_site(own_lab, tmp_path / "site", target, via="auto", hosts=True, more=SETTINGS) as site:
        marks = tmp_path / "marks"
        marks.mkdir()
        site.wrap_gluster(KILLING, marks=marks)
        site.json("init")
        site.json("scan", "--via", "bricks")
        yield Drains(own_lab, site, marks)


@dataclass
class Users:
    """Somebody who writes, renames and hard-links through the mount until the end of the block. `contents` is what he knows
    to have written. What he writes in `pause_s` has to be less than Gluster moves meanwhile.
    """

    directory: Path
    pause_s: float = 0.01
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
        while not self._stop.is_set():
            number += 1
            content = os.urandom(200 + number % 700)
            one = self.directory / f"{number}"
            try:
                one.write_bytes(content)
                if number % 3 == 0:
                    one = one.rename(self.directory / f"{number}-renamed")
                self.contents[one.name] = content
                if number % 5 == 0:
                    os.link(one, self.directory / f"{number}-again")
                    self.contents[f"{number}-again"] = content
            except OSError as error:
                self.errors.append(error)
            time.sleep(self.pause_s)


def digests(root: Path) -> dict[str, str]:
    """Every regular file by its digest, read again and not from this machine's memory."""
    found: dict[str, str] = {}
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as stream:
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                found[str(path.relative_to(root))] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def noting(site: LabSite, stage: str) -> None:
    """A hook that writes its call down, for `calls`."""
    site.hook(
        f"{stage}.d/10-note", f"echo \"$MIGRATOR_STAGE $MIGRATOR_BRICK $MIGRATOR_STATE\" >> '{site.directory}/calls'"
    )


def calls(site: LabSite) -> list[str]:
    """What the hooks have written down."""
    return (site.directory / "calls").read_text().splitlines()


def left_behind(brick: Path) -> Path:
    """A file of data, which is returned, and a link-to file."""
    link = brick / "home" / "elsewhere"
    link.touch()
    os.setxattr(link, "trusted.glusterfs.dht.linkto", b"vol1-client-0\0")
    link.chmod(0o1000)
    stray = brick / "home" / "left behind"
    stray.write_bytes(b"data")
    for path in (link, stray):
        # Gluster knows both: without it nobody could tell what they are.
        os.setxattr(path, "trusted.gfid", os.urandom(16))
    return stray


@pytest.mark.guarantee("drain-commit")
def test_leftovers_are_refused_and_the_drain_is_taken_back(drains: Drains) -> None:
    lab, brick = drains.lab, drains.brick()
    for stage in ("pre-audit", "post-audit", "pre-stop", "post-stop", "post-drain", "post-fail"):
        noting(drains.site, stage)
    reason = drains.site.directory / "reason"
    drains.site.hook("post-fail.d/20-why", f'echo "$MIGRATOR_FAILED: $MIGRATOR_REASON" >> "{reason}"; exit 1')
    before = digests(lab.source)
    assert drains.drain(brick, "--no-commit")["ending"] == "waits"
    assert drains.state() == "audited"
    stray = left_behind(lab.brick_directory(brick))
    try:
        refused = drains.drain(brick, code=4)
    finally:
        stray.unlink()
    assert refused["left_behind"] == ["home/left behind"]
    assert Path(refused["left_file"]).read_text() == f"{brick.name}\tfile\thome/left behind\n"
    assert drains.state() == "failed"
    assert brick.name in drains.names()
    (blocker,) = [one for one in drains.site.json("status")["blocked"] if brick.name in one["subject"]]
    assert "1 file left" in blocker["on"]
    drains.mark("stop-before")
    drains.dies("stop", brick.name)
    drains.mark("layout-after")
    drains.dies("stop", brick.name)
    assert drains.site.json("brick", "stop", brick.name)["ending"] == "taken-back"
    assert drains.state() == "stopped"
    assert calls(drains.site) == [
        *(f"pre-audit {brick.name} ", f"post-audit {brick.name} done"),
        *(f"pre-audit {brick.name} ", f"post-audit {brick.name} refused"),
        f"post-fail {brick.name} failed",
        *(f"pre-stop {brick.name} ", f"post-stop {brick.name} done"),
        f"post-drain {brick.name} stopped",
    ]
    assert reason.read_text() == "drain: 1 file left on the bricks (home/left behind)\n"
    assert drains.option() is None
    assert "Remove brick" not in drains.tasks()
    assert brick.name in drains.names()
    assert digests(lab.source) == before
