"""`doctor` on real directories and file systems, with the real rsync and a real ledger; of hosts (this machine stands for them) and hooks."""

import asyncio
import errno
import json
import os
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as change

from migrator.__main__ import UMASK
from migrator.app.ledger import MigrationLedger
from migrator.bricks.retire.model import RetirementState
from migrator.core.entry import Entry, UserTree
from migrator.core.errors import ToolFailed
from migrator.core.events import EventKind, Finding, FindingStatus
from migrator.core.tasks import DaemonThreads
from migrator.cutover.rules_states import FROZEN_CHECK
from migrator.doctor.call import DoctorPorts
from migrator.doctor.doctor import examine
from migrator.doctor.hosts import examine_hosts, examine_slurm
from migrator.fs.beneath import read_mounts
from migrator.fs.model import SENTINEL_NAME, MountIdentity
from migrator.fs.reading import PosixSource
from migrator.fs.writing import MountedTarget
from migrator.gluster.model import VolumeState
from migrator.gluster.volume import GlusterSource
from migrator.hooks.calls import Hooks
from migrator.hosts.ports import Host
from migrator.hosts.process import LocalProcesses
from migrator.hosts.site import probe_room
from migrator.ledger.locks import of_tree
from migrator.ledger.model import Holder
from migrator.native.program import NativeProgram, native_program
from migrator.render.document import Paragraph
from migrator.report.view_status import finding_document
from migrator.site.config import HostSection, Site, SlurmSection
from migrator.transfer.executors import LocalExecutor
from tests.site.test_init import SENTINEL, init, make_site
from tests.support import cli_site
from tests.support.beegfs_like import beegfs_like, missing_for_fuse
from tests.support.fakes import VirtualClock
from tests.support.hook_site import HookSite
from tests.support.making import made
from tests.support.native_builds import placing
from tests.support.one_host import OneHost
from tests.support.operations import FREEZE, do, plan_cutover
from tests.support.plans import small_plan
from tests.support.volumes import volume
from tests.support.xfs import XfsMount

Answer = TypeVar("Answer")
OK, WARNING, FAILURE = FindingStatus.OK, FindingStatus.WARNING, FindingStatus.FAILURE


def present() -> VirtualClock:
    """No clock is set to a time before this program was written."""
    made = VirtualClock()
    made.set_by_s = 100_000_000.0
    return made


Change = Callable[[DoctorPorts], DoctorPorts]


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
    opened = MigrationLedger.open(site.ledger_file) if site.ledger_file.exists() else nullcontext()
    with closing(source), closing(target), opened as ledger:
        world = DoctorPorts(
            site=site,
            source=source,
            target=target,
            ledger=ledger,
            processes=processes,
            clock=present(),
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


def failures(found: dict[str, list[Finding]]) -> dict[str, str]:
    return {check: one.message for check, findings in found.items() for one in findings if one.status is FAILURE}


def test_doctor_begins_with_frozen_users(scratch: Path) -> None:
    site = make_site(scratch)
    init(site)
    users = [UserTree(path=f"home/{user}".encode(), user=user) for user in ("alice", "bob")]
    with MigrationLedger.open(site.ledger_file) as ledger:
        ledger.plans.record(small_plan("week1"), path="plans/week1.json", checksum="c")
        for tree in users:
            do(ledger.cutovers, plan_cutover(ledger, name="week1", tree=tree), FREEZE)
    at_work = Holder(8, "cutover of alice", 1.0, (of_tree(users[0].path),))

    found = doctor(site, lambda world: change(world, holders=lambda: (at_work,)))

    assert next(iter(found)) == FROZEN_CHECK
    assert [one.status for one in found[FROZEN_CHECK]] == [FAILURE, WARNING]
    assert found[FROZEN_CHECK][0].fix.startswith("migrator cutover --user bob")
    others = [finding for findings in found.values() for finding in findings]
    shown = finding_document([*reversed(others)]).sections[0].blocks
    first = [block.text for block in shown if isinstance(block, Paragraph) and not block.text.startswith("To do")]
    assert [FROZEN_CHECK in text for text in first[:2]] == [True, True]


@pytest.mark.needs_root
def test_a_site_that_is_fit(scratch: Path, make_xfs: Callable[[], XfsMount]) -> None:
    site = make_site(scratch, source=make_xfs().path, target=make_xfs().path)
    site = change(site, transfer=change(site.transfer, reserve_bytes=1024))
    init(site)
    found = doctor(site)
    assert failures(found) == {}
    mounts = ("source mount", "source ACLs", "target mount", "target keeps")
    for check in ("rsync", "user", "confinement", *mounts, "clock"):
        assert [finding.status for finding in found[check]] == [OK], check
    assert found["target writing"][0].status is OK

    class Refusing(MountedTarget):
        def make_parents(self, tree: bytes, like: Sequence[Entry]) -> None:
            super().make_parents(tree, like)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    with closing(Refusing(os.fsencode(site.target.root))) as target:
        refused = failures(doctor(site, lambda world: replace(world, target=target)))
    assert refused == {"target writing": "creating a private directory, as of a user tree: Invalid argument"}
    assert sorted(os.listdir(site.target.root)) == [SENTINEL]
    with MigrationLedger.open(site.ledger_file) as ledger:
        record = ledger.site.read()
        assert record is not None
        assert record.capabilities is not None
        assert record.capabilities.keeps_acls
        assert record.capabilities_probed_at_s == present().now_s()
        assert ledger.events.latest(1)[0].kind is EventKind.CAPABILITIES_PROBED
    doctor(site)
    with MigrationLedger.open(site.ledger_file) as ledger:
        kinds = [event.kind for event in ledger.events.latest(10)]
        assert kinds == [EventKind.CAPABILITIES_PROBED, EventKind.SITE_CREATED]


@pytest.mark.needs_root
def test_a_target_like_beegfs_is_fit(scratch: Path, make_xfs: Callable[[], XfsMount]) -> None:
    if reason := missing_for_fuse():
        pytest.skip(f"needs FUSE: {reason}")
    before = os.umask(UMASK)
    try:
        for passes_acls_on in (True, False):
            place = scratch / f"{passes_acls_on}"
            place.mkdir()
            with beegfs_like(place, passes_acls_on=passes_acls_on) as mounted:
                site = make_site(place, source=make_xfs().path, target=mounted)
                init(site)
                found = doctor(site)
                assert [one.status for one in found["target writing"]] == [OK]
                assert any("storeClientACLs" in one.fix for one in found["target keeps"]) != passes_acls_on
    finally:
        os.umask(before)


def test_another_file_system_in_place_of_the_target_is_told_and_not_written_to(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    init(site)
    site.target.root.rename(tmp_path / "away")
    site.target.root.mkdir()
    found = doctor(site)
    assert "no sentinel" in failures(found)["target mount"]
    assert "the probe does not run on an unrecorded file system" in failures(found)["target keeps"]
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
    found = failures(doctor(driven, lambda world: replace(world, find_driver=missing)))
    assert "fpsync is not installed" in found["engine"]


def test_only_engines_that_use_rsync_need_one(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    init(site)
    assert "rsync" not in failures(doctor(site, lambda world: replace(world, find_program=lambda _: None)))
    for engine in ("rsync", "fpsync", "parsyncfp2"):
        other = change(site, transfer=change(site.transfer, engine=engine))
        assert "rsync" in failures(doctor(other, lambda world: replace(world, find_program=lambda _: None)))


def program(directory: Path, text: str) -> str:
    file = directory / "rsync"
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)
    return str(file)


def by_rsync(world: DoctorPorts) -> DoctorPorts:
    """The same site, whose engine is rsync."""
    return replace(world, site=change(world.site, transfer=change(world.site.transfer, engine="rsync")))


def with_rsync(text: str) -> Callable[[DoctorPorts, Path], DoctorPorts]:
    return lambda world, directory: replace(by_rsync(world), find_program=lambda _: program(directory, text), euid=1000)


async def unconfined() -> str | None:
    return "namespace: Operation not permitted"


class Hanging:
    async def __call__(self, work: Callable[[], Answer], *, timeout_s: float) -> Answer:
        raise TimeoutError


@pytest.mark.parametrize(
    ("changed", "check", "said"),
    [
        (lambda world, _: replace(by_rsync(world), find_program=lambda _: None), "rsync", "rsync is missing"),
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
def test_findings_of_this_machine(
    tmp_path: Path, changed: Callable[[DoctorPorts, Path], DoctorPorts], check: str, said: str
) -> None:
    site = make_site(tmp_path)
    init(site)
    assert said in failures(doctor(site, lambda world: changed(world, tmp_path)))[check]


def test_findings_of_site_directories(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    init(site)
    wrong = change(
        site,
        site=change(site.site, state_dir=site.target.root / "state"),
        users=change(site.users, map=tmp_path / "users.csv", trees=("home/*", "homes/*")),
    )
    found = failures(doctor(wrong))
    assert str(site.target.root) in found["state directory"]
    assert "is missing" in found["users map"]
    assert "'homes/*' matches no directory" in found["user trees"]
    (tmp_path / "users.csv").write_text("tree,user\n", encoding="utf-8")
    found = failures(doctor(change(wrong, users=change(wrong.users, trees=("home/*", "home")))))
    assert "users map" not in found
    assert "overlap" in found["user trees"]
    assert [finding.message for finding in doctor(site)["user trees"]] == ["1 user tree"]
    site.source.mount.rename(tmp_path / "away")
    assert "cannot be read: No such file or directory" in failures(doctor(site))["source mount"]


def test_rows_of_the_user_map_without_effect(tmp_path: Path) -> None:
    site, csv = make_site(tmp_path), tmp_path / "users.csv"
    init(site)
    mapped = change(site, users=change(site.users, map=csv))
    (tree,) = (site.source.mount / "home").iterdir()
    for rows, warnings in (
        (f"home/{tree.name},root", 0),
        (f"home/{tree.name},nobody-has-this-name", 1),
        ("home/no-such-tree,root", 1),
    ):
        csv.write_text(f"tree,user\n{rows}\n", encoding="utf-8")
        found = [one.status for one in doctor(mapped)["users map"]]
        assert found.count(WARNING) == warnings, rows
    csv.write_text("home/a,root\n", encoding="utf-8")
    assert "users map" in failures(doctor(mapped))


@pytest.mark.parametrize(("switch", "link", "status"), [("symlink", None, WARNING), ("hook", None, FAILURE)])
def test_a_switch_that_nothing_makes_is_found(
    tmp_path: Path, switch: str, link: str | None, status: FindingStatus
) -> None:
    site = make_site(tmp_path)
    site = change(site, cutover=change(site.cutover, switch=switch, link=link))
    (tmp_path / "hooks").mkdir()
    hooks = Hooks(
        processes=LocalProcesses(),
        directory=os.fsencode(tmp_path / "hooks"),
        site_file=b"/site.toml",
        source_root=b"/source",
        target_root=b"/target",
        timeout_s=9.0,
    )
    found = doctor(site, lambda world: replace(world, hooks=hooks))["links"]
    assert [one.status for one in found] == [status]
    # It does not ask for what is set.
    assert f'switch = "{switch}"' not in found[0].fix


def test_a_gluster_source_that_is_not_mounted_is_to_be_mounted(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    site = change(site, source=change(site.source, kind="gluster", volume="vol1"))
    found = doctor(site)
    (health,) = found["source health"]
    assert (health.status, health.message) == (FAILURE, "unknown: the source is not mounted")
    assert health.fix == "mount the source first: volume vol1"
    assert "user trees" not in found


def test_a_finished_migration_is_a_success(tmp_path: Path) -> None:
    site = make_site(tmp_path)
    init(site)
    with MigrationLedger.open(site.ledger_file) as ledger:
        retired = ledger.retirements.begin(volume="vol1", volume_id="v", catalog="c", files=1, size_bytes=1, at_s=1.0)
        for state in (RetirementState.STOPPING, RetirementState.RETIRED):
            ledger.retirements.enter(retired.id, state, at_s=2.0)
    shutil.rmtree(site.source.mount)
    Path(os.fsdecode(site.source.mount)).mkdir()
    found = doctor(site)
    assert "source mount" not in found
    assert "vol1 is retired" in found["source"][0].message


CRASHES = b"#!/bin/sh\necho 'Illegal instruction' >&2\nexit 132\n"


class Volume:
    """A volume that says of itself what it was told."""

    async def state_for_bricks(self, state: VolumeState | None = None) -> VolumeState:
        assert state is not None
        if not state.started:
            raise ToolFailed("glusterd does not answer")
        return replace(state, peers_down=(), heals=())


def recorded(sentinel: str, filesystem: str) -> MountIdentity:
    return made(MountIdentity, filesystem=filesystem, sentinel=sentinel)


def looked_at(
    site: Site,
    hosts: OneHost,
    sections: Mapping[str, HostSection],
    *,
    target: MountIdentity | None = None,
    state: VolumeState | None = None,
    program: Path | None = None,
) -> list[Finding]:
    async def place_native(host: Host) -> bytes:
        native = NativeProgram(os.fsencode(program), platform.machine()) if program else native_program()
        return await native.place(host)

    site = change(site, source=change(site.source, hosts=tuple(sections.values())))
    volume: Any = Volume()
    findings = asyncio.run(examine_hosts(site, hosts, volume, place_native, target=target, state=state))
    assert hosts.closed
    assert all(bool(finding.fix) == (finding.status is not OK) for finding in findings)
    return findings


def of(findings: list[Finding], check: str) -> list[tuple[FindingStatus, str]]:
    return [(finding.status, finding.message) for finding in findings if finding.check == check]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = make_site(tmp_path)
    (site.target.root / os.fsdecode(SENTINEL_NAME)).write_text("site one\n")
    return change(site, transfer=change(site.transfer, reserve_bytes=0))


def test_one_host_is_lost_and_the_other_is_looked_at(site: Site, tmp_path: Path) -> None:
    sections = {name: HostSection(name=name) for name in ("gl1", "gl2")}
    findings = looked_at(site, OneHost("gl1"), sections, state=volume(f"gl1:{tmp_path}", f"gl2:{tmp_path}"))
    ((status, message),) = of(findings, "host gl2")
    assert status is FAILURE
    assert "refuses the key (no key)" in message
    messages = [message for _, message in of(findings, "host gl1")]
    assert any(f"gl1:{tmp_path} is no brick there" in message for message in messages)
    ((status, message),) = of(findings, "bricks")
    assert "gl2" in message


@pytest.mark.needs_root
def test_the_target_there_is_known_by_its_sentinel(site: Site) -> None:
    sections = {"gl1": HostSection(name="gl1", target=site.target.root)}
    shown = asyncio.run(probe_room(LocalProcesses(), python=b"python3", path=os.fsencode(site.target.root)))
    findings = looked_at(site, OneHost("gl1"), sections, target=recorded("site one", shown.filesystem))
    assert [status for status, _ in of(findings, "host gl1")] == [OK]
    other = looked_at(site, OneHost("gl1"), sections, target=recorded("site two", shown.filesystem))
    ((status, message),) = of(other, "host gl1")
    assert (status, "another file system" in message) == (FAILURE, True)
    nowhere = {"gl1": HostSection(name="gl1", target=site.target.root / "nothing")}
    missing = looked_at(site, OneHost("gl1"), nowhere, target=recorded("site one", shown.filesystem))
    ((status, message),) = of(missing, "host gl1")
    assert (status, "No such file or directory" in message) == (FAILURE, True)
    nfs = looked_at(site, OneHost("gl1"), sections, target=recorded("site one", "nfs4"))
    assert [status for status, _ in of(nfs, "host gl1")] == [WARNING]


@pytest.mark.needs_root
@pytest.mark.parametrize(
    ("content", "words"),
    [(CRASHES, "it ended with code 132: Illegal instruction"), (b"no program", "could not be started")],
)
def test_a_compiled_program_that_does_not_run_there(site: Site, tmp_path: Path, content: bytes, words: str) -> None:
    program = tmp_path / "program"
    program.write_bytes(content)
    findings = looked_at(site, OneHost("gl1"), {"gl1": HostSection(name="gl1")}, program=program)
    ((status, message),) = of(findings, "host gl1")
    assert status is FAILURE
    assert words in message
    assert "does not run there" in message


@pytest.mark.needs_root
def test_a_host_where_the_compiled_program_runs_and_confines_nothing(site: Site, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\n[ "$1" = --version ]\n')
    sections = {"gl1": HostSection(name="gl1", target=site.target.root)}
    shown = asyncio.run(probe_room(LocalProcesses(), python=b"python3", path=os.fsencode(site.target.root)))
    target = recorded("site one", shown.filesystem)
    ((status, message),) = of(looked_at(site, OneHost("gl1"), sections, target=target, program=program), "host gl1")
    assert (status, "nothing is copied there" in message) == (FAILURE, True)
    only_scans = looked_at(site, OneHost("gl1"), {"gl1": HostSection(name="gl1")}, program=program)
    assert [status for status, _ in of(only_scans, "host gl1")] == [OK]


def test_a_volume_that_does_not_answer(site: Site, tmp_path: Path) -> None:
    state = volume(f"gl1:{tmp_path}", started=False)
    findings = looked_at(site, OneHost("gl1"), {"gl1": HostSection(name="gl1")}, state=state)
    assert of(findings, "bricks") == [(FAILURE, "the volume's state is unknown: glusterd does not answer")]


def test_slurm_is_not_installed() -> None:
    (finding,) = asyncio.run(examine_slurm(LocalProcesses(), lambda _name: None, SlurmSection()))
    assert "srun" in finding.message


@pytest.mark.parametrize("way", ["top", "hook"])
def test_freeze_by_hook_requires_a_hook(scratch: Path, way: str) -> None:
    hooked = HookSite(cli_site.Site(scratch, scratch / "source", scratch / "target"))
    hooked.prepare(more=f'[cutover]\nfreeze = "{way}"\n')

    def failures() -> list[str]:
        found = json.loads(hooked.site.call("doctor", "--json").stdout)
        return [one["message"] for one in found if one["check"] == "hooks" and one["status"] == "failure"]

    hooked.hook("post-freeze.d/10-a")
    missing = '[cutover] freeze is "hook", and there is no pre-freeze hook'
    assert [one.partition(":")[0] for one in failures()] == ([missing] if way == "hook" else [])
    hooked.hook("pre-freeze.d/10-a")
    assert failures() == []
