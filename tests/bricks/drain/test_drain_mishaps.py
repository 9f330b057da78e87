"""Drains on a real cluster without room, with a dead brick, a rebooted host: nothing is lost, and they resume."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from migrator.core.units import MIB
from migrator.lab.model import LabBrick
from tests.bricks.drain.real_drains import SETTINGS, Drains, digests
from tests.support.cluster.comparing import wait_until_is_there
from tests.support.cluster.fixtures import lab_of, with_ssh
from tests.support.cluster.handle import DEADLINE_S, LabHandle
from tests.support.cluster.site import lab_site
from tests.support.records import rows_of
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

WAITING = """#!/bin/sh
case " $* " in
*" remove-brick "*" start ")
    if [ -e "%(marks)s/before" ]; then sh "%(marks)s/before"; rm "%(marks)s/before"; fi
    "%(gluster)s" "$@"
    code=$?
    if [ -e "%(marks)s/hold" ]; then
        touch "%(marks)s/started"
        while [ -e "%(marks)s/hold" ]; do sleep 0.05; done
    fi
    exit $code ;;
esac
exec "%(gluster)s" "$@"
"""


@pytest.fixture(scope="module")
def drains(lab_parent: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drains]:
    """A cluster of six bricks, which these tests drain: every test has a brick of its own."""
    small = {"brick_size_bytes": 320 * MIB, "target_size_bytes": 320 * MIB, "data_bytes": 40 * MIB, "odd": False}
    with lab_of(lab_parent / "mishaps", hosts=2, bricks_per_host=3, users=2, files=320, **small) as lab:
        with_ssh(lab)
        place = tmp_path_factory.mktemp("mishaps")
        with lab_site(lab, place / "site", lab.target, via="auto", hosts=True, more=SETTINGS) as site:
            marks = place / "marks"
            marks.mkdir()
            site.wrap_gluster(WAITING, marks=marks)
            site.json("init")
            yield Drains(lab, site, marks)


@pytest.fixture(autouse=True)
def _scanned(drains: Drains) -> Iterator[None]:
    """The drains before moved files between bricks. Nothing that a test held or began is left to the next one."""
    drains.site.json("scan", "--via", "bricks")
    yield
    for mark in drains.marks.iterdir():
        mark.unlink()
    for running in drains.started:
        running.kill()
        running.wait()
    drains.started.clear()
    for pid in drains.lab.brick_pids().values():
        if pid > 0:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def before(drains: Drains) -> Mapping[str, str]:
    """Everything by its digest, before anything was drained."""
    return digests(drains.lab.source)


def brick_of(drains: Drains, host: int, number: int) -> LabBrick:
    return next(one for one in drains.lab.bricks if (one.host, one.number) == (host, number))


def start(drains: Drains, brick: LabBrick) -> "subprocess.Popen[bytes]":
    running = drains.site.start("brick", "drain", brick.name, "--accept-open-files")
    drains.started.append(running)
    return running


def start_held(drains: Drains, brick: LabBrick) -> "subprocess.Popen[bytes]":
    """A drain that Gluster has just begun, and whose program waits until the mark `hold` goes."""
    drains.mark("hold")
    running = start(drains, brick)
    wait_for(lambda: (drains.marks / "started").exists() or running.poll() is not None, "Gluster has begun")
    if running.poll() is not None:
        shown = drains.site.json("brick", "drain", brick.name, "--dry-run")
        raise AssertionError(f"it was not begun: {running.returncode}, {shown}")
    (drains.marks / "started").unlink()
    return running


def to_its_end(drains: Drains, brick: LabBrick, before: Mapping[str, str]) -> str:
    """The same command goes on to the end; the state it comes to. A file that was being moved when a host or a brick died, Gluster
    may pass over without a word, or be about to end it: the audit finds it, and nothing is committed. Where Gluster has it on two bricks by now (1 of 18
    runs), or has left content in a link-to file, that is left to people, with commands: whatever they do, nothing is lost, and the drain can be taken back.
    """
    found = {}
    for _ in range(3):
        words = ("brick", "drain", brick.name, "--accept-open-files", "--json")
        found = json.loads(drains.site.call(*words).stdout)
        if found["ending"] == "done":
            return "committed"
        assert brick.name in drains.names()
    assert found["left_behind"], json.dumps(found)
    assert Path(found["commands_file"]).exists(), json.dumps(found)
    wait_until_is_there(lambda: digests(drains.lab.source), before)
    drains.site.json("brick", "stop", brick.name)
    return "stopped"


def fill(lab: LabHandle, brick: LabBrick) -> str:
    """A command that leaves next to no room beside a brick, on its own file system."""
    file_system = lab.brick_directory(brick).parent
    room = os.statvfs(file_system)
    return f"fallocate -l {room.f_bavail * room.f_frsize - MIB} {file_system}/filled\n"


def test_a_drain_without_room_names_the_brick_and_can_be_stopped(drains: Drains, before: Mapping[str, str]) -> None:
    lab, brick = drains.lab, brick_of(drains, 2, 2)
    staying = [one for one in lab.bricks if one.name in drains.names() - {brick.name}]
    # After the guards, and before Gluster begins.
    (drains.marks / "before").write_text("".join(fill(lab, one) for one in staying))
    failed = drains.drain(brick, code=4)
    assert drains.state() == "failed", failed
    assert "could not be moved (failures)" in failed["standing"]["failure"]
    assert "beyond cluster.min-free-disk" in failed["standing"]["failure"]
    assert "brick stop" in failed["hint"]
    assert brick.name in drains.names()
    (blocker,) = [one for one in drains.site.json("status")["blocked"] if brick.name in one["subject"]]
    assert "beyond cluster.min-free-disk" in blocker["on"]
    # Given again it does not begin what must fail again.
    assert any("min-free-disk" in reason for reason in drains.drain(brick, code=4)["reasons"])
    assert drains.site.json("brick", "stop", brick.name)["ending"] == "taken-back"
    assert digests(lab.source) == before
    for one in staying:
        (lab.brick_directory(one).parent / "filled").unlink()
    assert drains.drain(brick)["ending"] == "done"
    assert brick.name not in drains.names()
    wait_until_is_there(lambda: digests(lab.source), before)


def test_a_drain_whose_brick_dies_fails_and_resumes_when_the_brick_is_up(
    drains: Drains, before: Mapping[str, str]
) -> None:
    lab, brick = drains.lab, brick_of(drains, 1, 2)
    running = start_held(drains, brick)
    os.kill(lab.brick_pids()[brick.name], signal.SIGKILL)
    # Its file system has gone as well.
    point = os.path.dirname(os.fsdecode(lab.brick_path(brick)))
    assert lab.on_host(lab.host_of(brick), "umount", "-l", point).returncode == 0
    (drains.marks / "hold").unlink()
    assert running.wait(3 * DEADLINE_S) == 4
    assert brick.name in drains.names()
    refused = drains.drain(brick, code=4)
    assert any(f"brick {brick.name} is down" in reason for reason in refused["reasons"])
    assert brick.name in drains.names()
    done = lab.on_host(lab.host_of(brick), "mount", "-t", "xfs", "-o", "loop", brick.image, point)
    assert done.returncode == 0, done.stderr

    def is_up() -> bool:
        lab.gluster("volume", "start", lab.state.spec.volume, "force")
        return lab.brick_pids().get(brick.name, -1) > 0

    wait_for(is_up, "the brick is up again")
    wait_until_is_there(lambda: digests(lab.source), before)
    state = to_its_end(drains, brick, before)
    assert drains.state() == state
    assert (brick.name in drains.names()) == (state == "stopped")
    wait_until_is_there(lambda: digests(lab.source), before)


def test_a_drain_completes_after_a_reboot_of_its_host(drains: Drains, before: Mapping[str, str]) -> None:
    lab, brick = drains.lab, brick_of(drains, 2, 1)
    running = start_held(drains, brick)
    lab.crash_host(lab.host_of(brick))
    (drains.marks / "hold").unlink()
    # It is looked at while the host is away: nothing is concluded from that.
    wait_for(lambda: drains.state() in ("started", "draining"), "it is watched")
    lab.boot_host(lab.host_of(brick))
    ended(drains, brick, before, running)


def ended(drains: Drains, brick: LabBrick, before: Mapping[str, str], running: "subprocess.Popen[bytes]") -> None:
    """The drain has come to its end by itself, or is brought there, and nothing is lost."""
    state = "committed"
    if running.wait(3 * DEADLINE_S) != 0:
        assert "on the bricks" in said(drains), said(drains)
        state = to_its_end(drains, brick, before)
    assert drains.state() == state
    assert (brick.name in drains.names()) == (state == "stopped")
    wait_until_is_there(lambda: digests(drains.lab.source), before)


def said(drains: Drains) -> str:
    """The newest events of the ledger, a line each."""
    rows = rows_of(drains.site.directory, "select message from events order by id desc limit 20")
    return "\n".join(row[0] for row in rows)


@pytest.mark.guarantee("old-ledger")
def test_an_older_ledger_drains_nothing(drains: Drains, tmp_path: Path) -> None:
    """It does not know what has been drained since, nor whose files are where."""
    brick, ledger = brick_of(drains, 1, 3), drains.site.directory / "state" / "ledger.db"
    older, right = tmp_path / "older.db", tmp_path / "right.db"
    copy_ledger(ledger, older)
    drains.site.json("scan", "--via", "bricks")
    copy_ledger(ledger, right)
    put_ledger(older, ledger)
    try:
        refused = drains.site.call("brick", "drain", brick.name, "--accept-open-files")
        assert refused.returncode == 4, refused
        assert "is not the newest ledger of this site" in " ".join(refused.stderr.split())
        assert brick.name in drains.names()
    finally:
        put_ledger(right, ledger)
    drains.site.json("scan", "--via", "bricks")


def copy_ledger(ledger: Path, to: Path) -> None:
    with closing(sqlite3.connect(ledger)) as source, closing(sqlite3.connect(to)) as copy:
        source.backup(copy)


def put_ledger(kept: Path, ledger: Path) -> None:
    for suffix in ("-wal", "-shm"):
        ledger.with_name(ledger.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(kept, ledger)
