"""`doctor` on real directories and file systems, with the real rsync and a real ledger."""

import asyncio
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace as change

from migrator.bricks.retire.model import RetirementState
from migrator.core.errors import ToolFailed
from migrator.core.events import EventKind, Finding, FindingStatus
from migrator.core.tasks import DaemonThreads
from migrator.doctor.stage import DoctorWorld, examine
from migrator.fs.beneath import read_mounts
from migrator.fs.reading import PosixSource
from migrator.fs.writing import MountedTarget
from migrator.gluster.volume import GlusterSource
from migrator.hosts.process import LocalProcesses
from migrator.ledger.ledger import open_ledger
from migrator.site.config import Site
from migrator.transfer.executors import LocalExecutor
from tests.site.test_init import SENTINEL, init, make_site
from tests.support.native_builds import placing
from tests.support.xfs import XfsMount

Answer = TypeVar("Answer")
OK, FAILURE = FindingStatus.OK, FindingStatus.FAILURE


class Now:
    def now_s(self) -> float:
        return 1_800_000_000.0

    def monotonic_s(self) -> float:
        return 0.0

    async def sleep(self, duration_s: float) -> None:
        raise AssertionError(duration_s)


Change = Callable[[DoctorWorld], DoctorWorld]


def doctor(
    site: Site,
    change: Change = lambda world: world,
    *,
    source_of: Callable[[Site], PosixSource | GlusterSource] | None = None,
) -> dict[str, list[Finding]]:
    """The findings by their check."""
    source = source_of(site) if source_of else PosixSource(os.fsencode(site.source.mount))
    target = MountedTarget(os.fsencode(site.target.root))
    processes = LocalProcesses()
    executor = LocalExecutor(processes, source_root=source.root, target_root=target.root, compiled=placing())
    ledger = open_ledger(site.ledger_file) if site.ledger_file.exists() else None
    try:
        world = DoctorWorld(
            site=site,
            source=source,
            target=target,
            ledger=ledger,
            processes=processes,
            clock=Now(),
            blocking=DaemonThreads(),
            mounts=read_mounts(),
            confinement_problem=executor.problem,
        )
        found: dict[str, list[Finding]] = {}
        for finding in asyncio.run(examine(change(world))):
            assert finding.message
            assert bool(finding.fix) == (finding.status is not OK)
            found.setdefault(finding.check, []).append(finding)
        return found
    finally:
        if ledger is not None:
            ledger.close()
        source.close()
        target.close()


def failures(found: dict[str, list[Finding]]) -> dict[str, str]:
    return {
        check: finding.message for check, findings in found.items() for finding in findings if finding.status is FAILURE
    }


@pytest.mark.needs_root
def test_a_site_that_is_fit(scratch: Path, make_xfs: Callable[[], XfsMount]) -> None:
    site = make_site(scratch, source=make_xfs().path, target=make_xfs().path)
    site = change(site, transfer=change(site.transfer, reserve_bytes=1024))
    init(site)
    found = doctor(site)
    assert failures(found) == {}
    for check in (
        "rsync",
        "user",
        "confinement",
        "source mount",
        "source ACLs",
        "target mount",
        "target keeps",
        "clock",
    ):
        assert [finding.status for finding in found[check]] == [OK], check
    assert sorted(os.listdir(site.target.root)) == [SENTINEL]
    with open_ledger(site.ledger_file) as ledger:
        record = ledger.site.read()
        assert record is not None
        assert record.capabilities is not None
        assert record.capabilities.keeps_acls
        assert record.capabilities_probed_at_s == 1_800_000_000.0
        assert ledger.events.latest(1)[0].kind is EventKind.CAPABILITIES_PROBED
    doctor(site)
    with open_ledger(site.ledger_file) as ledger:
        assert len(ledger.events.latest(10)) == 2
        assert {event.kind for event in ledger.events.latest(10)} == {
            EventKind.SITE_CREATED,
            EventKind.CAPABILITIES_PROBED,
        }


def test_another_file_system_in_place_of_the_target_is_told_and_not_written_to(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    init(site)
    site.target.root.rename(tmp_path / "away")
    site.target.root.mkdir()
    found = doctor(site)
    assert "no sentinel" in failures(found)["target mount"]
    assert "nothing is tried out on another file system" in failures(found)["target keeps"]
    assert os.listdir(site.target.root) == []


@pytest.mark.needs_root
def test_a_target_that_is_mounted_read_only_is_told(scratch: Path, xfs_source: XfsMount) -> None:
    site = make_site(scratch, target=xfs_source.path)
    init(site)
    xfs_source.remount("ro")
    found = failures(doctor(site))
    assert found["target mount"] == "the target is mounted read-only"
    assert "Read-only file system" in found["target keeps"]


def test_an_engine_that_is_missing_is_told(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    init(site)

    def missing(name: str) -> None:
        raise ToolFailed(f"{name} is not installed")

    assert "engine" not in failures(doctor(site))
    driven = change(site, transfer=change(site.transfer, engine="fpsync"))
    assert (
        "fpsync is not installed"
        in failures(doctor(driven, lambda world: replace(world, find_driver=missing)))["engine"]
    )


def program(directory: Path, text: str) -> str:
    file = directory / "rsync"
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)
    return str(file)


def with_rsync(text: str) -> Callable[[DoctorWorld, Path], DoctorWorld]:
    return lambda world, directory: replace(world, find_program=lambda _: program(directory, text), euid=1000)


async def unconfined(_: bytes) -> str | None:
    return "namespace: Operation not permitted"


class Hanging:
    async def __call__(self, work: Callable[[], Answer], *, timeout_s: float) -> Answer:
        raise TimeoutError


@pytest.mark.parametrize(
    ("changed", "check", "said"),
    [
        (lambda world, _: replace(world, find_program=lambda _: None), "rsync", "rsync is missing"),
        (with_rsync("echo 'rsync  version 3.0.9  protocol version 30'"), "rsync", "rsync 3.0.9 "),
        (with_rsync("exit 1"), "rsync", "does not report its version"),
        (
            lambda world, _: replace(world, confinement_problem=unconfined, euid=0),
            "confinement",
            "Operation not permitted",
        ),
        (lambda world, _: replace(world, blocking=Hanging()), "target mount", "no answer within 30 s"),
        (lambda world, _: replace(world, blocking=Hanging()), "source mount", "no answer within 30 s"),
    ],
)
def test_what_is_wrong_on_this_machine(
    tmp_path: Path, changed: Callable[[DoctorWorld, Path], DoctorWorld], check: str, said: str
) -> None:
    site = make_site(tmp_path)
    init(site)
    assert said in failures(doctor(site, lambda world: changed(world, tmp_path)))[check]


def test_what_is_wrong_with_the_places_of_a_site(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    init(site)
    wrong = change(
        site,
        site=change(site.site, state_dir=site.target.root / "state"),
        users=change(site.users, map=tmp_path / "users.csv", trees=("home/*", "homes/*")),
    )
    found = failures(doctor(wrong))
    assert "lies on the target" in found["state directory"]
    assert "is missing" in found["users map"]
    assert "'homes/*' matches no directory" in found["user trees"]
    (tmp_path / "users.csv").write_text("", encoding="utf-8")
    found = failures(doctor(change(wrong, users=change(wrong.users, trees=("home/*", "home")))))
    assert "users map" not in found
    assert "overlap" in found["user trees"]
    assert [finding.message for finding in doctor(site)["user trees"]] == ["1 user tree"]
    site.source.mount.rename(tmp_path / "away")
    assert "cannot be read: No such file or directory" in failures(doctor(site))["source mount"]


def test_a_gluster_source_that_is_not_mounted_is_to_be_mounted(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    site = change(site, source=change(site.source, kind="gluster", volume="vol1"))
    found = doctor(site)
    (health,) = found["source health"]
    assert (health.status, health.message) == (FAILURE, "not known: the source is not mounted")
    assert health.fix == "mount the source first: volume vol1"
    assert "user trees" not in found


def test_a_finished_migration_is_a_success(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    init(site)
    with open_ledger(site.ledger_file) as ledger:
        retired = ledger.retirements.begin(volume="vol1", volume_id="v", catalog="c", files=1, size_bytes=1, at_s=1.0)
        for state in (RetirementState.STOPPING, RetirementState.RETIRED):
            ledger.retirements.enter(retired.id, state, at_s=2.0)
    shutil.rmtree(site.source.mount)
    Path(os.fsdecode(site.source.mount)).mkdir()
    found = doctor(site)
    assert "source mount" not in found
    assert "vol1 is retired" in found["source"][0].message
