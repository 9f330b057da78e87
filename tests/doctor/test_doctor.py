"""`doctor` on real directories and file systems, with the real rsync and a real ledger."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace as change

from migrator.core.events import EventKind, Finding, FindingStatus
from migrator.core.tasks import DaemonThreads
from migrator.doctor.stage import DoctorWorld, examine
from migrator.fs.model import MountIdentity
from migrator.fs.mountinfo import read_mounts
from migrator.fs.reading import PosixSource
from migrator.fs.writing import MountedTarget
from migrator.hosts.process import LocalProcesses
from migrator.ledger.ledger import open_ledger
from migrator.site.config import Site
from migrator.transfer.engines.rules_rsync import NEEDED_ABILITIES
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


def doctor(site: Site, change: Change = lambda world: world) -> dict[str, list[Finding]]:
    """The findings by their check."""
    source, target = PosixSource(os.fsencode(site.source.mount)), MountedTarget(os.fsencode(site.target.root))
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


def test_before_init_it_says_so_and_writes_nothing(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    found = doctor(site)
    assert {"source mount", "target mount", "target keeps"} <= set(failures(found))
    assert "migrator init" in found["source mount"][0].fix
    assert os.listdir(site.target.root) == []


def test_another_file_system_in_place_of_the_target_is_told_and_not_written_to(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    init(site)
    site.target.root.rename(tmp_path / "away")
    site.target.root.mkdir()
    found = doctor(site)
    assert "no sentinel" in failures(found)["target mount"]
    assert "nothing is tried out on another file system" in failures(found)["target keeps"]
    assert os.listdir(site.target.root) == []


def test_a_missing_mount_is_told(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    init(site)
    site.source.mount.rename(tmp_path / "away")
    assert "cannot be read: No such file or directory" in failures(doctor(site))["source mount"]


@pytest.mark.needs_root
def test_a_target_that_is_mounted_read_only_is_told(scratch: Path, xfs_source: XfsMount) -> None:
    site = make_site(scratch, target=xfs_source.path)
    init(site)
    xfs_source.remount("ro")
    found = failures(doctor(site))
    assert found["target mount"] == "the target is mounted read-only"
    assert "Read-only file system" in found["target keeps"]


def test_a_missing_rsync_is_told(tmp_path: Path) -> None:
    found = doctor(make_site(tmp_path), lambda world: replace(world, find_program=lambda _: None))
    assert failures(found)["rsync"] == "rsync is missing"


def program(directory: Path, text: str) -> str:
    file = directory / "rsync"
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo 'rsync  version 3.0.9  protocol version 30'", "rsync 3.0.9 "),
        ("exit 1", "does not report its version"),
        ("echo hello", "does not report its version"),
    ],
)
def test_an_rsync_that_does_not_serve_is_told(tmp_path: Path, text: str, said: str) -> None:
    rsync = program(tmp_path, text)
    found = doctor(make_site(tmp_path), lambda world: replace(world, find_program=lambda _: rsync, euid=1000))
    assert said in failures(found)["rsync"]


def test_an_rsync_that_cannot_sync_each_file_is_told_where_the_target_needs_that(tmp_path: Path) -> None:
    abilities = f"Capabilities:\n    {', '.join(NEEDED_ABILITIES)}"
    rsync = program(tmp_path, f"echo 'rsync  version 3.2.3  protocol version 31\n{abilities}'")
    site = make_site(tmp_path)
    init(site)

    class LikeBeegfs(MountedTarget):
        def identity(self) -> MountIdentity:
            return replace(super().identity(), filesystem="beegfs")

    def with_rsync(world: DoctorWorld) -> DoctorWorld:
        return replace(world, find_program=lambda _: rsync, euid=1000)

    assert [one.status for one in doctor(site, with_rsync)["rsync"]] == [OK]
    beegfs = LikeBeegfs(os.fsencode(site.target.root))
    found = doctor(site, lambda world: replace(with_rsync(world), target=beegfs))["rsync"]
    assert [one.status for one in found] == [OK, FindingStatus.WARNING]
    assert "rsync 3.2.3 cannot sync each file" in found[1].message


def test_streams_that_cannot_be_confined_are_told(tmp_path: Path) -> None:
    async def problem(_: bytes) -> str | None:
        return "namespace: Operation not permitted"

    def change(world: DoctorWorld) -> DoctorWorld:
        refused: Callable[[bytes], Awaitable[str | None]] = problem
        return replace(world, confinement_problem=refused, euid=0)

    assert "Operation not permitted" in failures(doctor(make_site(tmp_path), change))["confinement"]


def test_a_state_directory_on_the_target_is_told(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    site = change(site, site=change(site.site, state_dir=site.target.root / "state"))
    assert "lies on the target" in failures(doctor(site))["state directory"]


def test_a_missing_users_map_is_told(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    site = change(site, users=change(site.users, map=tmp_path / "users.csv"))
    assert "is missing" in failures(doctor(site))["users map"]
    (tmp_path / "users.csv").write_text("", encoding="utf-8")
    assert "users map" not in failures(doctor(site))


def test_a_target_that_does_not_answer_is_told(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    init(site)

    class Hanging:
        async def __call__(self, work: Callable[[], Answer], *, timeout_s: float) -> Answer:
            raise TimeoutError

    found = failures(doctor(site, lambda world: replace(world, blocking=Hanging())))
    assert "no answer within 30 s" in found["target mount"]
    assert "no answer within 30 s" in found["source mount"]


def test_plain_directories_on_one_file_system_are_warned_of(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    init(site)
    found = doctor(site)
    assert [finding.status for finding in found["source place"]] == [FindingStatus.WARNING]
    assert "is no mount point" in found["source place"][0].message
    assert "is no mount point" in found["target place"][0].message
    assert "on one file system" in found["target place"][1].message


def test_a_glob_that_matches_nothing_is_a_failure(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    assert [finding.message for finding in doctor(site)["user trees"]] == ["1 user tree"]
    site = change(site, users=change(site.users, trees=("home/*", "homes/*")))
    assert "'homes/*' matches no directory" in failures(doctor(site))["user trees"]


def test_user_trees_that_overlap_are_a_failure(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    site = change(site, users=change(site.users, trees=("home/*", "home")))
    assert "overlap" in failures(doctor(site))["user trees"]


def test_a_gluster_source_that_is_not_mounted_is_to_be_mounted(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    site = change(site, source=change(site.source, kind="gluster", volume="vol1"))
    found = doctor(site)
    (health,) = found["source health"]
    assert (health.status, health.message) == (FAILURE, "not known: the source is not mounted")
    assert health.fix == "mount the source first: volume vol1"
    assert "user trees" not in found
