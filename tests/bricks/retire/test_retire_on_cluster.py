"""A real volume with an arbiter is retired: refused with data that is nowhere else, then stopped and killed."""

import os
from pathlib import Path
from typing import Any

import pytest

from migrator.core.paths import percent_escape
from migrator.core.units import MIB
from migrator.lab.model import VolumeType
from tests.support.cluster.brick_runs import users_copied
from tests.support.cluster.clients import another_client
from tests.support.cluster.fixtures import MakeLab
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.opening import open_behind
from tests.support.cluster.site import LabSite
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

KILLED_AT_THE_STOP = """#!/bin/sh
case "$*" in
*" volume stop "*) "%(gluster)s" "$@" >/dev/null; kill -KILL $PPID ;;
*) exec "%(gluster)s" "$@" ;;
esac
"""
"""The program is killed when Gluster has stopped the volume, before it hears of it."""
STRAY = b"caf\xe9\nof nobody"


def status_of(lab: LabHandle) -> str:
    info = os.fsdecode(lab.gluster("volume", "info", lab.state.spec.volume))
    return next(line for line in info.splitlines() if line.startswith("Status:"))


def retire(site: LabSite, *, code: int = 0) -> Any:
    return site.json("brick", "retire", "--confirm", "vol1", code=code)


def trees_of(lab: LabHandle) -> list[Path]:
    return sorted(tree for tree in (lab.source / "home").iterdir() if tree.is_dir())


def files_in(tree: Path) -> int:
    return sum(path.is_symlink() or not path.is_dir() for path in tree.rglob("*"))


@pytest.mark.guarantee("retire")
def test_a_volume_is_retired_when_everything_in_it_is_proven_and_not_before(make_lab: MakeLab, scratch: Path) -> None:
    lab = make_lab(
        hosts=3,
        bricks_per_host=2,
        volume_type=VolumeType.DISTRIBUTED_ARBITER,
        users=2,
        files=60,
        data_bytes=MIB,
        odd=False,
    )
    if not lab.state.ssh_config:
        pytest.skip("needs sshd: who is connected to the bricks is asked on their hosts")
    open_behind(lab, "off")
    with users_copied(lab, scratch, cutover='retain = "0s"\n') as (runs, _):
        site = runs.site
        first, second = trees_of(lab)
        site.json("cutover", "--user", first.name)
        refused = retire(site, code=4)["cover"]["uncovered"]
        assert refused["not-moved"]["paths"] == files_in(second)
        site.json("cutover", "--user", second.name)
        checksum = site.json("purge", "--user", first.name, "--dry-run")["checksum"]
        site.json("purge", "--user", first.name, "--confirm", checksum)

        for path in [path for path in lab.source.rglob("*") if path.is_file() and not path.is_relative_to(second)]:
            if path.name != ".migrator-sentinel":
                path.unlink()
        stray = lab.source / os.fsdecode(STRAY)
        stray.write_bytes(b"nowhere else")
        cover = retire(site, code=4)["cover"]
        assert cover["uncovered"] == {"outside": {"paths": 1, "size_bytes": 12}}
        assert Path(cover["list_file"]).read_text() == f"outside\t12\t{percent_escape(STRAY)}\n"
        assert cover["proven"]["paths"] == files_in(second)
        stray.unlink()

        with another_client(lab, scratch / "elsewhere"):
            (reason,) = retire(site, code=4)["reasons"]
            assert "clients beside this site's own" in reason
        assert status_of(lab) == "Status: Started"

        site.wrap_gluster(KILLED_AT_THE_STOP)
        assert site.call("brick", "retire", "--confirm", "vol1").returncode == -9
        assert status_of(lab) == "Status: Stopped"
        assert site.json("status")["retirement"]["state"] == "stopping"
        assert retire(site)["ending"] == "done-before"
        assert site.json("status")["retirement"]["state"] == "retired"
        assert (lab.brick_directory(lab.bricks[0]) / "home" / second.name).is_dir(), "nothing is deleted"
        # So that the sentinel can be taken away.
        lab.gluster("volume", "start", "vol1")
        wait_for(lambda: os.access(lab.source / "home", os.R_OK), "the mount is back")
