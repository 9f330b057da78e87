"""What `doctor` says of hosts: this machine stands for them, looked at with real programs; others cannot be reached."""

import asyncio
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as change

from migrator.core.errors import ToolFailed
from migrator.core.events import Finding, FindingStatus
from migrator.doctor.stage import examine_hosts, examine_slurm
from migrator.fs.model import SENTINEL_NAME, MountIdentity
from migrator.gluster.model import VolumeState
from migrator.hosts.local import LocalHost
from migrator.hosts.ports import Host, HostLost
from migrator.hosts.process import LocalProcesses
from migrator.hosts.site import look_at_room
from migrator.native.program import NativeProgram, native_program
from migrator.site.config import HostSection, Site, SlurmSection
from tests.site.test_init import make_site
from tests.support.volumes import volume

OK, WARNING, FAILURE = FindingStatus.OK, FindingStatus.WARNING, FindingStatus.FAILURE
CRASHES = b"#!/bin/sh\necho 'Illegal instruction' >&2\nexit 132\n"


class SomeHosts:
    """Hosts of which some are this machine and the others cannot be reached."""

    def __init__(self, reachable: Sequence[str]) -> None:
        self._reachable = {name: LocalHost(name=name) for name in reachable}
        self.closed = False

    async def reach(self, name: str) -> Host:
        if name not in self._reachable:
            raise HostLost(f"{name} cannot be reached over ssh: it refuses the key", cause="no key", hint="add the key")
        return self._reachable[name]

    async def close(self) -> None:
        self.closed = True
        for host in self._reachable.values():
            await host.close()


class Volume:
    """A volume that says of itself what it was told."""

    async def state_for_bricks(self, state: VolumeState | None = None) -> VolumeState:
        assert state is not None
        if not state.started:
            raise ToolFailed("glusterd does not answer")
        return replace(state, peers_down=(), heals=())


def recorded(sentinel: str, filesystem: str) -> MountIdentity:
    return MountIdentity(
        filesystem=filesystem, mounted_from="/dev/sdb", device=1, fsid=1, root_ino=128, sentinel=sentinel
    )


def examine(
    site: Site,
    hosts: SomeHosts,
    sections: Mapping[str, HostSection],
    *,
    target: MountIdentity | None = None,
    state: VolumeState | None = None,
    program: Path | None = None,
) -> list[Finding]:
    async def place_native(host: Host) -> bytes:
        return await (NativeProgram(os.fsencode(program), platform.machine()) if program else native_program()).place(
            host
        )

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
    findings = examine(site, SomeHosts(["gl1"]), sections, state=volume(f"gl1:{tmp_path}", f"gl2:{tmp_path}"))
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
    shown = asyncio.run(look_at_room(LocalProcesses(), python=b"python3", path=os.fsencode(site.target.root)))
    findings = examine(site, SomeHosts(["gl1"]), sections, target=recorded("site one", shown.filesystem))
    assert [status for status, _ in of(findings, "host gl1")] == [OK]
    other = examine(site, SomeHosts(["gl1"]), sections, target=recorded("site two", shown.filesystem))
    ((status, message),) = of(other, "host gl1")
    assert (status, "another file system" in message) == (FAILURE, True)
    nowhere = {"gl1": HostSection(name="gl1", target=site.target.root / "nothing")}
    missing = examine(site, SomeHosts(["gl1"]), nowhere, target=recorded("site one", shown.filesystem))
    ((status, message),) = of(missing, "host gl1")
    assert (status, "No such file or directory" in message) == (FAILURE, True)
    nfs = examine(site, SomeHosts(["gl1"]), sections, target=recorded("site one", "nfs4"))
    assert [status for status, _ in of(nfs, "host gl1")] == [WARNING]


@pytest.mark.needs_root
@pytest.mark.parametrize(
    ("content", "words"),
    [(CRASHES, "it ended with code 132 Illegal instruction"), (b"no program", "could not be started")],
)
def test_a_compiled_program_that_does_not_run_there(site: Site, tmp_path: Path, content: bytes, words: str) -> None:
    program = tmp_path / "program"
    program.write_bytes(content)
    findings = examine(site, SomeHosts(["gl1"]), {"gl1": HostSection(name="gl1")}, program=program)
    ((status, message),) = of(findings, "host gl1")
    assert status is FAILURE
    assert words in message
    assert "nothing is read or copied there" in message


def test_a_volume_that_does_not_answer(site: Site, tmp_path: Path) -> None:
    state = volume(f"gl1:{tmp_path}", started=False)
    findings = examine(site, SomeHosts(["gl1"]), {"gl1": HostSection(name="gl1")}, state=state)
    assert of(findings, "bricks") == [(FAILURE, "the volume's state is not known: glusterd does not answer")]


def slurm(directory: Path, *, ping: str, sinfo: str, options: tuple[str, ...] = ()) -> Finding:
    """What is said with a `scontrol` and a `sinfo` of these shell commands."""
    for name, body in (("scontrol", ping), ("sinfo", sinfo)):
        (directory / name).write_text(f"#!/bin/sh\n{body}\n")
        (directory / name).chmod(0o755)
    section = SlurmSection(nodes=2, options=options)
    (finding,) = asyncio.run(examine_slurm(LocalProcesses(), lambda name: f"{directory}/{name}", section))
    return finding


UP = "echo 'Slurmctld(primary) at head is UP'"


def test_only_the_partition_that_is_asked_for_counts(tmp_path: Path) -> None:
    only = 'case "$*" in *--partition=movers*) echo "n1|idle";; *) exit 3;; esac'
    for options in (("-p", "movers"), ("-pmovers",), ("--partition=movers",), ("--partition", "movers")):
        finding = slurm(tmp_path, ping=UP, sinfo=only, options=("--time=1:00", *options))
        assert finding.status is WARNING
        assert "1 of 1 nodes" in finding.message


def test_slurm_is_not_installed() -> None:
    (finding,) = asyncio.run(examine_slurm(LocalProcesses(), lambda _name: None, SlurmSection()))
    assert "srun" in finding.message
