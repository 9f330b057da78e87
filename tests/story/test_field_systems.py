"""The whole job to a file system of the field, and from there back to a plain one, on the real thing."""

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeXfs
from tests.support.cli_site import Site
from tests.support.field_systems import Mounted, cephfs, missing, moosefs
from tests.support.waiting import wait_for
from tools.tree_contents import everything

pytestmark = [pytest.mark.cluster, pytest.mark.exhaustive]

MOOSEFS = ("mfsmaster", "mfschunkserver", "mfsmount", "mfscli")
CEPHFS = ("ceph-mon", "ceph-mgr", "ceph-osd", "ceph-mds", "ceph-fuse", "ceph")


def grow(home: Path) -> None:
    """Two users with names, links, holes and owners. Times are whole seconds, as all file systems keep them."""
    for number, user in enumerate(("anna", "bert")):
        top = home / user
        (top / "deep" / "er").mkdir(parents=True)
        for index in range(40):
            (top / "deep" / f"f{index}").write_bytes(bytes([index]) * (index * 997))
        Path(os.fsdecode(os.fsencode(top) + b"/\xff name")).write_text("bytes")
        (top / "linked").hardlink_to(top / "deep" / "f7")
        (top / "points").symlink_to("deep/f7")
        with (top / "holes").open("wb") as file:
            file.truncate(5_000_000)
        for path in (top, *top.rglob("*")):
            os.chown(path, 1000 + number, 2000, follow_symlinks=False)
            os.utime(path, (1_600_000_000 + number, 1_500_000_000 + number), follow_symlinks=False)


def site_of(directory: Path, source: Path, target: Path) -> Site:
    """A site whose kinds are what is mounted, and whose hook vouches for a freeze."""
    directory.mkdir()
    hook, links = directory / "hooks" / "pre-freeze.d" / "10-vouches", directory / "home"
    hook.parent.mkdir(parents=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    links.mkdir()
    for top in (source / "home").iterdir():
        (links / top.name).symlink_to(top)
    site = Site(directory=directory, source=source, target=target)
    site.file.write_text(
        f'[site]\nname = "field"\nstate_dir = "state"\n[source]\nmount = "{source}"\n'
        f'[target]\nmount = "{target.parent}"\npath = "{target.name}"\n[users]\ntrees = ["home/*"]\n'
        f'[transfer]\nreserve = "1MiB"\n[cutover]\nlink = "{links}/{{user}}"\nretain = "0s"\nsettle = "0s"\nfreeze = "hook"\n'
        "require_rollback = false\n"
    )
    return site


def answer(site: Site, *arguments: str, code: int = 0) -> Any:
    done = site.call(*arguments, "--json")
    assert done.returncode == code, done.stderr or done.stdout
    return json.loads(done.stdout)


def move(site: Site, kinds: dict[str, str], first: int) -> None:
    """Everything from `init` to the purge of the source, with users who work in between."""
    site.works("init")
    findings = json.loads(site.call("doctor", "--json").stdout)
    told = {one["check"]: one["message"] for one in findings if one["check"].endswith(" kind")}
    assert {check: message.split(":")[0] for check, message in told.items()} == kinds
    assert not [one for one in findings if one["status"] == "failure" and "rsync" not in one["check"]]
    assert answer(site, "scan")["whole"]
    site.works("plan")
    site.works("run", "--all", "--deltas", "0")
    top = site.source / "home" / "anna"
    renamed, removed, changed = (top / "deep" / f"f{first + number}" for number in range(3))
    renamed.rename(top / renamed.name)
    removed.unlink()
    changed.write_text("changed")
    os.utime(changed, (1_600_000_000, 1_600_000_000))
    before = everything(site.source / "home")
    site.works("run", "--all", "--deltas", "1")
    (verified,) = answer(site, "verify", "--all")
    assert verified["whole"], verified
    assert verified["differences"] == {}
    ended = answer(site, "cutover", "--all")["outcomes"]
    assert {one["ending"] for one in ended} == {"moved"}, ended
    assert everything(site.target / "home") == before
    word = answer(site, "purge", "--all", "--dry-run")["checksum"]
    site.works("purge", "--all", "--confirm", word[:12])
    assert everything(site.source / "home") == {}


@pytest.mark.parametrize(
    ("system", "title", "programs"),
    [(moosefs, "MooseFS", MOOSEFS), (cephfs, "CephFS", CEPHFS)],
    ids=["moosefs", "cephfs"],
)
def test_the_whole_job_there_and_back(
    scratch: Path,
    make_xfs: MakeXfs,
    system: Callable[[Path], AbstractContextManager[Mounted]],
    title: str,
    programs: tuple[str, ...],
) -> None:
    if reason := missing(*programs):
        pytest.skip(reason)
    plain = make_xfs().path
    with system(scratch / "system") as there:
        (plain / "home").mkdir()
        grow(plain / "home")
        moved = site_of(scratch / "to", plain, there.mount / "new")
        move(moved, {"target kind": title}, 10)
        (there.mount / "new" / ".migrator-sentinel").unlink()
        back = site_of(scratch / "from", there.mount / "new", make_xfs().path / "back")
        back.works("init")
        there.lose()
        wait_for(lambda: there.said in back.call("doctor", "--json").stdout, "a doubt")
        in_doubt = answer(back, "scan", code=3)
        assert not in_doubt["whole"]
        assert there.said in " ".join(in_doubt["reasons"])
        there.restore()
        wait_for(lambda: there.said not in back.call("doctor", "--json").stdout, "its end")
        move(back, {"source kind": title}, 20)
