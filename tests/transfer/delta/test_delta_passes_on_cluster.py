"""Delta passes over a real volume that users go on changing, by way of the bricks and of the mount."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import xxhash

from migrator.core.paths import percent_unescape
from migrator.core.units import MIB
from tests.support.cluster.brick_runs import BrickRuns, brick_runs
from tests.support.cluster.fixtures import lab_of, with_ssh
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.sides import assert_equal
from tests.support.delta_changes import build, let_settle, standing

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]

WAYS = ["bricks", "mount"]
ANN = Path("home", "ann")


@pytest.fixture(scope="module")
def changing(lab_parent: Path) -> Iterator[LabHandle]:
    """A lab whose users may be let loose."""
    with lab_of(lab_parent / "changing", hosts=2, users=3, files=250, data_bytes=8 * MIB) as made:
        yield made


@contextmanager
def seeded(lab: LabHandle, scratch: Path, via: str) -> Iterator[BrickRuns]:
    """A site whose users have been copied once."""
    if via == "bricks":
        with_ssh(lab)
    with brick_runs(lab, scratch / "site", trees="home/*", via=via, hosts=via == "bricks") as runs:
        assert runs.site.call("scan").returncode == 0
        assert runs.site.call("plan", "--activate").returncode == 0
        assert runs.site.call("run", "--all", "--deltas", "0").returncode == 0
        yield runs


def assert_proven(lab: LabHandle, runs: BrickRuns) -> None:
    runs.assert_equal()
    trees = [os.fsdecode(percent_unescape(tree["tree"]["path"])) for tree in runs.site.json("status")["trees"]]
    assert trees
    assert_equal(lab.source, runs.site.target, trees)


@pytest.mark.guarantee("delta-deletions")
@pytest.mark.parametrize("via", WAYS)
def test_a_brick_that_is_down_deletes_nothing(changing: LabHandle, scratch: Path, via: str) -> None:
    tree = changing.source / ANN
    try:
        build(tree)
        let_settle()
        with seeded(changing, scratch, via) as runs:
            before = standing(runs.site.target / "home")
            (tree / "files" / "vanished").unlink()
            with changing.brick_down(changing.bricks[1]):
                refused = runs.site.call("run", "--all", "--deltas", "1")
                assert refused.returncode == 4, refused.stderr
                assert changing.bricks[1].name in refused.stderr
                assert standing(runs.site.target / "home") == before
            runs.run("--deltas", "1")
            assert not (runs.site.target / ANN / "files" / "vanished").exists()
            assert_proven(changing, runs)
    finally:
        shutil.rmtree(tree)


def old_names(name: str) -> list[str]:
    """What temporary files of this name were called before they depended on the site, and how rsync calls them."""
    digest = xxhash.xxh3_128_hexdigest(os.fsencode(name))
    return [*(f".migrator-{kind}-{digest}" for kind in ("copy", "part", "marks")), f".{name}.ABCdef"]


@pytest.mark.guarantee("own-names")
@pytest.mark.parametrize("via", WAYS)
def test_files_with_names_of_temporary_files_stay_on_the_target(changing: LabHandle, scratch: Path, via: str) -> None:
    """Another brick has the file of such a name than the one that the stream reads."""
    tree = changing.source / ANN
    names = [f"file {number}" for number in range(40)]
    try:
        tree.mkdir(parents=True)
        for name in (one for plain in names for one in (plain, *old_names(plain))):
            (tree / name).write_text(f"{name} of ann")
        let_settle()
        with seeded(changing, scratch, via) as runs:
            assert_equal(changing.source, runs.site.target, [str(ANN)])
            for name in names:
                (tree / name).write_text(f"{name} of ann, written again")
            let_settle()
            runs.run("--deltas", "1")
            assert_equal(changing.source, runs.site.target, [str(ANN)])
    finally:
        shutil.rmtree(tree)
