"""What every engine brings through the mount of a real GlusterFS volume, by seed and delta passes."""

import os
from pathlib import Path

import pytest

from tests.support.cluster.fixtures import MakeLab
from tests.support.cluster.site import lab_site
from tests.support.odd_trees import TIMES_NS, change_odd_tree, make_odd_tree
from tests.support.snapshots import snapshot

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

TREE = "home/odd"
SHOWN_NS = [time_ns for time_ns in TIMES_NS if time_ns > 0]
"""A mount of GlusterFS 10.3 shows a time before 1970 as 0 until its caches are dropped."""


def shown(tree: Path) -> dict[bytes, tuple[object, ...]]:
    """A snapshot without trusted.*, which XFS gives to files by itself."""
    return {name: tuple(map(_without_trusted, facts)) for name, facts in snapshot(os.fsencode(tree)).items()}


def _without_trusted(fact: object) -> object:
    if not isinstance(fact, tuple):
        return fact
    return tuple(one for one in fact if not (isinstance(one, tuple) and str(one[0]).startswith("trusted.")))


@pytest.mark.parametrize("engine", ["auto", "rsync"])
def test_every_engine_brings_what_the_mount_shows(make_lab: MakeLab, scratch: Path, engine: str) -> None:
    lab = make_lab(hosts=1, users=1, files=0, odd=False)
    tree, target = lab.source / TREE, lab.target / engine
    tree.mkdir(parents=True)
    target.mkdir()
    make_odd_tree(tree, SHOWN_NS)
    with lab_site(lab, scratch / "site", target, via="mount", more=f'engine = "{engine}"') as site:
        for verb in (["init"], ["scan"], ["plan", "--activate"]):
            done = site.call(*verb)
            assert done.returncode == 0, done.stderr
        for change in (False, True):
            if change:
                change_odd_tree(tree, SHOWN_NS)
            done = site.call("run", "--all")
            assert done.returncode == 0, done.stdout + done.stderr
            here, there = shown(tree), shown(target / TREE)
            assert {name: facts for name, facts in here.items() if there.get(name) != facts} == {}
            assert there.keys() == here.keys()
        assert site.call("verify", "--all").returncode == 0
