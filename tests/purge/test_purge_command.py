"""The verb `purge` as operators give it: looked at, confirmed, killed, gone on with, reported."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from migrator.core.entry import UserTree
from migrator.cutover.model import CutoverState
from migrator.ledger.ledger import open_ledger
from tests.purge.purge_world import freeze, retain, thaw
from tests.support.run_site import RealSite, fill_tree
from tests.support.waiting import wait_for
from tests.support.xfs import XfsMount

pytestmark = pytest.mark.needs_root

CUTOVER = '[cutover]\nswitch = "hook"\nfreeze = "hook"\nretain = "1s"\npurge_rate = {rate}\n'


@pytest.fixture
def site(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> RealSite:
    """alice's source may be freed, bob has not been moved."""
    made = RealSite(scratch / "site", xfs_source, xfs_target)
    for name in ("alice", "bob"):
        fill_tree(xfs_source.path / "home" / name, files=60, size_bytes=300)
    made.prepare(transfer=CUTOVER.format(rate=40))
    freeze(xfs_source.path / "home/alice")
    for words in (("run", "--all", "--deltas", "0"), ("verify", "--all")):
        done = made.migrator(*words)
        assert done.returncode == 0, done.stderr
    with open_ledger(made.ledger) as ledger:
        plan = ledger.plans.active()
        assert plan is not None
        (proof,) = ledger.verifications.of_plan(plan.name)
        alice = UserTree(path=b"home/alice", user="alice")
        retain(ledger, plan.name, alice, proof.id, let_in_s=time.time() - 2)
    thaw(xfs_target.path / "home/alice", 60001)
    return made


def asked(site: RealSite, *words: str, code: int = 0) -> Any:
    done = site.migrator("purge", *words, "--json")
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


def left(site: RealSite) -> int:
    return sum(len(files) for _, _, files in os.walk(site.source.path / ".migrator-purge"))


def test_it_is_looked_at_confirmed_killed_and_gone_on_with(site: RealSite) -> None:
    source, bob = site.source.path / "home/alice", site.source.path / "home/bob"
    shown = asked(site, "--user-batch", "1", "--dry-run")
    assert {one["tree"]["user"]: one["outcome"] for one in shown["trees"]} == {"alice": "would-purge", "bob": "later"}
    (sum_,) = [one["sum"] for one in shown["trees"] if one["sum"]]
    assert site.migrator("purge", "--user-batch", "1").returncode == 4
    assert site.migrator("purge", "--user", "bob", "--dry-run").returncode == 4
    assert site.migrator("purge", "--user", "nobody", "--dry-run").returncode == 2
    assert source.is_dir()
    words = ("purge", "--user-batch", "1", "--confirm", shown["checksum"][:12])
    site.write(transfer=CUTOVER.format(rate=2))  # it is not through before it is killed, however late that is
    process = subprocess.Popen(
        site.argv(*words), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: 0 < left(site) < 60, "some of it is removed")
    finally:
        process.kill()
        process.wait()
    assert not source.exists()
    assert left(site)
    status = json.loads(site.migrator("status", "--json").stdout)
    assert any("purge" in one["subject"] for one in status["blocked"])
    site.write(transfer=CUTOVER.format(rate=1000))
    done = site.migrator(*words)
    assert done.returncode == 0, done.stderr
    assert "freed" in done.stdout
    assert not (site.source.path / ".migrator-purge").exists()
    assert len(list(bob.rglob("f*"))) == 60
    assert len(list((site.target.path / "home/alice").rglob("f*"))) == 60
    with open_ledger(site.ledger, read_only=True) as ledger:
        record = ledger.cutovers.latest(b"home/alice")
        assert record is not None
        assert (record.state, record.notes.purge is not None) == (CutoverState.PURGED, True)
    for verb in ("status", "report"):
        assert "were freed there" in " ".join(site.migrator(verb, "--details").stdout.split())
    (facts,) = json.loads(site.migrator("status", "--json").stdout)["cutovers"]
    assert facts["purge"] == sum_
    assert list((site.directory / "state/backups").iterdir())


@pytest.mark.exhaustive
def test_hooks_are_called_around_it_and_may_stop_it(site: RealSite) -> None:
    hooks, told = site.directory / "hooks", site.directory / "told"
    for stage, code in (("pre", 1), ("post", 0)):
        hook = hooks / f"{stage}-purge.d/10-note"
        hook.parent.mkdir(parents=True)
        hook.write_text(f'#!/bin/sh\necho "{stage} $MIGRATOR_USER $MIGRATOR_STATE" >> "{told}"\nexit {code}\n')
        hook.chmod(0o755)
    checksum = asked(site, "--user", "alice", "--dry-run")["checksum"]
    assert not told.exists()
    asked(site, "--user", "alice", "--confirm", checksum, code=4)
    assert (site.source.path / "home/alice").is_dir()
    (hooks / "pre-purge.d/10-note").write_text(f'#!/bin/sh\necho "again $MIGRATOR_USER" >> "{told}"\n')
    asked(site, "--user", "alice", "--confirm", checksum)
    assert told.read_text() == "pre alice \nagain alice\npost alice done\n"
