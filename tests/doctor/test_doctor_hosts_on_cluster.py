"""`doctor` on a real cluster with real sshd: hosts that are fit, and everything that can be wrong with one."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from migrator.lab.model import LabHost
from migrator.lab.up import host_sections, section_lines
from tests.support.cluster.covers import brick_covered
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.site import LabSite, lab_site

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

_AHEAD = """#!/usr/bin/python3 -IS
import sys, time
real = time.time_ns
time.time_ns = lambda: real() + {ahead_s} * 10**9
code, sys.argv = sys.argv[4], ["-c", *sys.argv[5:]]
exec(compile(code, "ahead", "exec"))
"""
"""An interpreter that lives in the future: started as `ahead -I -S -c CODE ...`."""


@dataclass(frozen=True)
class Examined:
    """A site over the session's lab, and what `doctor` says of its hosts."""

    lab: LabHandle
    site: LabSite

    def findings(self, *, code: int) -> list[dict[str, Any]]:
        document = self.site.json("doctor", code=code)
        found = document["findings"] if isinstance(document, dict) else document
        return [finding for finding in found if finding["check"].startswith(("host", "bricks"))]

    def wrong(self, *, code: int) -> dict[str, str]:
        """What is not well, by its check."""
        return {
            finding["check"]: finding["message"] for finding in self.findings(code=code) if finding["status"] != "ok"
        }


@pytest.fixture
def examined(lab: LabHandle, tmp_path: Path) -> Iterator[Examined]:
    if not lab.state.ssh_config:
        pytest.skip("the lab has no sshd: " + "; ".join(lab.state.notes))
    target = lab.target / "doctor"
    target.mkdir(exist_ok=True)
    try:
        with lab_site(lab, tmp_path / "site", target, via="auto", hosts=True) as site:
            site.json("init")
            yield Examined(lab, site)
    finally:
        for entry in target.iterdir():
            entry.unlink()
        target.rmdir()


def test_hosts_that_are_fit(examined: Examined) -> None:
    findings = examined.findings(code=0)
    assert {finding["check"]: finding["status"] for finding in findings} == {
        "bricks": "ok",
        **{f"host {host.address}": "ok" for host in examined.lab.state.hosts},
    }
    assert "6 bricks on 3 hosts" in findings[-1]["message"]
    assert all("2 bricks of the volume" in finding["message"] for finding in findings[:-1])


def test_the_target_is_not_mounted_on_one_host(examined: Examined) -> None:
    host = examined.lab.state.hosts[1]
    with examined.lab.target_unmounted(host):
        wrong = examined.wrong(code=1)
    assert set(wrong) == {f"host {host.address}"}
    assert "the target is not mounted at" in wrong[f"host {host.address}"]


def test_another_target_is_mounted_on_one_host(examined: Examined) -> None:
    host = examined.lab.state.hosts[0]
    sentinel = b"%s/.migrator-sentinel" % os.fsencode(examined.site.target)
    with examined.lab.target_unmounted(host):
        examined.lab.on_host(host, "mount", "-t", "tmpfs", "tmpfs", examined.lab.state.target)
        try:
            examined.lab.on_host(host, "mkdir", os.fsencode(examined.site.target))
            examined.lab.on_host(host, "sh", "-c", f"echo another > {os.fsdecode(sentinel)}")
            wrong = examined.wrong(code=1)
        finally:
            examined.lab.unmount_on(host, examined.lab.state.target)
    assert set(wrong) == {f"host {host.address}"}
    assert "another file system than the target" in wrong[f"host {host.address}"]


def test_a_host_refuses_the_key(examined: Examined) -> None:
    host = examined.lab.state.hosts[2]
    with examined.lab.key_refused(host):
        wrong = examined.wrong(code=1)
    assert "it refuses the key" in wrong.pop(f"host {host.address}")
    assert set(wrong) == {"bricks"}
    assert host.address in wrong["bricks"]


def test_a_host_shows_another_key(examined: Examined) -> None:
    host = examined.lab.state.hosts[0]
    with examined.lab.host_key_changed(host):
        wrong = examined.wrong(code=1)
    assert "its host key has changed" in wrong[f"host {host.address}"]


def test_a_brick_is_not_mounted_there(examined: Examined) -> None:
    """Its process goes on."""
    host = examined.lab.state.hosts[1]
    brick = next(one for one in examined.lab.bricks if (one.host, one.number) == (host.number, 1))
    with brick_covered(examined.lab, brick):
        wrong = examined.wrong(code=1)
    assert f"{host.address}:/srv/b1/data is no brick there" in wrong[f"host {host.address}"]


def test_the_clock_of_a_host_is_ahead(examined: Examined, tmp_path: Path) -> None:
    host = examined.lab.state.hosts[0]
    python = ahead(tmp_path, host, 90)
    text = examined.site.file.read_text()
    section = f'[source.hosts."{host.address}"]\n'
    examined.site.file.write_text(text.replace(section, f'{section}python = "{python}"\n'))
    wrong = examined.wrong(code=0)
    assert set(wrong) == {f"host {host.address}"}
    assert "its clock is 90.0 s ahead of this machine's" in wrong[f"host {host.address}"]


def ahead(directory: Path, host: LabHost, ahead_s: int) -> Path:
    """An interpreter for a host whose clock is ahead. The host sees this machine's files."""
    script = directory / f"ahead-{host.number}"
    script.write_text(_AHEAD.format(ahead_s=ahead_s))
    script.chmod(0o755)
    return script


def test_a_host_without_a_section_is_told_of(examined: Examined) -> None:
    missing = examined.lab.state.hosts[2]
    sections = host_sections(examined.lab.state, os.fsencode(examined.site.target))
    text = examined.site.file.read_text().partition("\n[source.hosts")[0]
    kept = {name: keys for name, keys in sections.items() if missing.address not in name}
    examined.site.file.write_text("\n".join([text, *section_lines(kept)]))
    assert f"no section for {missing.address}" in examined.wrong(code=0)["bricks"]
    examined.site.file.write_text(text.replace('via = "auto"', 'via = "bricks"'))
    assert "how it is reached" in examined.wrong(code=1)["bricks"]
