"""`run` again over a tree that was changed in every way: the target becomes equal, and nothing more is sent than has to be."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from migrator.core.errors import Refused
from tests.conftest import MakeXfs
from tests.support.delta_changes import MANY, MANY_BYTES, VANISHED, build, change, let_settle, rewrite, standing, write
from tests.support.run_site import RealSite
from tests.support.xfs import run_tool, unmount

pytestmark = pytest.mark.needs_root

TRASH = ".migrator-trash"


@contextmanager
def seeded(scratch: Path, make_xfs: MakeXfs, fill: Callable[[Path], None]) -> Iterator[RealSite]:
    """A site whose one user has been copied by a seed pass."""
    made = RealSite(scratch / "site", make_xfs(), make_xfs())
    fill(made.source.path / "home" / "ann")
    let_settle()
    made.prepare()
    done = made.run("--deltas", "0")
    assert done.returncode == 0, done.stderr
    yield made
    made.kill_streams()
    for path in (made.source.path / "home" / "ann" / "kept", made.source.path):
        if path.exists() and path.is_mount():
            unmount(path)


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[RealSite]:
    with seeded(scratch, make_xfs, build) as made:
        yield made


def deltas(site: RealSite, *options: str) -> dict[str, Any]:
    """What a run says of its batch."""
    done = site.run("--json", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["batches"][0]
    return found


def verify(site: RealSite) -> None:
    done = site.migrator("verify", "--user-batch", "1", "--json")
    (found,) = json.loads(done.stdout)
    assert found["differences"] == {}, found["examples"]
    assert found["whole"], found["reasons"]
    assert site.differences() == ""


def trashed(site: RealSite) -> set[str]:
    """Paths in the trash, each relative to the place of its pass."""
    found: set[str] = set()
    for place in (site.target.path / TRASH).iterdir():
        for above, directories, names in os.walk(place):
            found.update(str(Path(above, name).relative_to(place)) for name in (*directories, *names))
    return found


@pytest.mark.guarantee("ctime")
def test_every_kind_of_change_arrives_and_nothing_else_is_sent(site: RealSite) -> None:
    source, target = site.source.path / "home" / "ann", site.target.path / "home" / "ann"
    kept, many = standing(target / "kept"), standing(target / "many")
    change(source)
    let_settle()
    batch = deltas(site, "--deltas", "1")
    (made,) = batch["deltas"]
    verify(site)
    assert standing(target / "kept") == kept
    assert standing(target / "new" / "moved along") == many
    assert len(many) == MANY
    assert 0 < made["size_bytes"] < MANY_BYTES * 10
    assert 0 < batch["written_bytes"] < MANY_BYTES * 10
    assert {f"home/ann/{path}" for path in VANISHED} <= trashed(site)
    place = next((site.target.path / TRASH).iterdir())
    assert (place / "home/ann/files/vanished").read_text() == "vanished before"
    for path in (site.target.path / TRASH, place):
        assert (path.stat().st_uid, path.stat().st_mode & 0o7777) == (0, 0o700)


@pytest.mark.guarantee("trash")
def test_only_old_places_of_the_trash_are_removed(site: RealSite) -> None:
    (site.source.path / "home" / "ann" / "files" / "vanished").unlink()
    deltas(site, "--deltas", "1")
    trash = site.target.path / TRASH
    (place,) = trash.iterdir()
    shutil.copytree(place, trash / "20200101T000000Z-batch-0001-delta-0001")
    (trash / "notes of the operator").mkdir()
    done = site.run("--deltas", "1")
    assert done.returncode == 0
    assert "removed 1 place older than 14 d, with " in done.stderr
    left = {path.name for path in trash.iterdir()}
    assert {place.name, "notes of the operator"} <= left
    assert not [name for name in left if name.startswith("2020")]
    assert (place / "home/ann/files/vanished").read_text() == "vanished before"
    # A run of seed passes alone removes nothing.
    (trash / "20200101T000000Z-batch-0001-delta-0001").mkdir()
    assert site.run("--deltas", "0").returncode == 0
    assert (trash / "20200101T000000Z-batch-0001-delta-0001").exists()


def lose_most(site: RealSite) -> str:
    shutil.rmtree(site.source.path / "home" / "ann" / "many")
    return "has lost"


def lose_all_that_is_in_it(site: RealSite) -> str:
    for path in (site.source.path / "home" / "ann").iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    return "is empty now"


def lose_the_tree(site: RealSite) -> str:
    shutil.rmtree(site.source.path / "home" / "ann")
    return "home/ann"


def hide_a_directory(site: RealSite) -> str:
    """Something else is mounted in its place, and empty: what is beneath it is not deleted."""
    run_tool("mount", "-t", "tmpfs", "none", str(site.source.path / "home" / "ann" / "kept"))
    return "not whole"


def hide_the_source(site: RealSite) -> str:
    run_tool("mount", "-t", "tmpfs", "none", str(site.source.path))
    return "the source"


def unmount_the_source(site: RealSite) -> str:
    unmount(site.source.path)
    return "the source"


@pytest.mark.guarantee("delta-deletions")
@pytest.mark.parametrize(
    "lose",
    [lose_most, lose_all_that_is_in_it, lose_the_tree, hide_a_directory, hide_the_source, unmount_the_source],
    ids=lambda lose: lose.__name__,
)
def test_doubtful_deletions_are_refused_and_the_target_stays_as_it_is(
    site: RealSite, lose: Callable[[RealSite], str]
) -> None:
    before, names = standing(site.target.path), sorted(site.target.path.rglob("*"))
    write(site.source.path / "home" / "ann" / "later", "later")
    reason = lose(site)
    for _ in range(2):
        done = site.run("--deltas", "1")
        assert done.returncode == 4, done.stderr
        assert reason in done.stderr
    assert standing(site.target.path) == before
    assert sorted(site.target.path.rglob("*")) == names
    status = json.loads(site.migrator("status", "--json").stdout)
    assert [one["kind"] for one in status["batches"][0]["passes"]] == ["seed"]


def three_files(home: Path) -> None:
    for name in ("damaged", "gone", "kept"):
        write(home / name, name * 100)


@pytest.fixture
def damaged(scratch: Path, make_xfs: MakeXfs) -> Iterator[RealSite]:
    with seeded(scratch, make_xfs, three_files) as made:
        yield made


def verified(damaged: RealSite, code: int) -> dict[str, int]:
    done = damaged.migrator("verify", "--all", "--json")
    assert done.returncode == code, done.stderr
    (found,) = json.loads(done.stdout)
    return dict(found["differences"])


def sent(damaged: RealSite) -> int:
    done = damaged.run("--deltas", "1", "--json")
    assert done.returncode == 0, done.stderr
    (delta,) = json.loads(done.stdout)["batches"][0]["deltas"]
    return int(delta["files"])


def test_paths_that_were_found_to_differ_are_sent_once_more(damaged: RealSite) -> None:
    target = damaged.target.path / "home" / "ann"
    content = (target / "damaged").read_bytes()
    rewrite(target / "damaged", content[:-1] + b"!")
    (target / "gone").unlink()
    (target / "extra").write_bytes(b"of nobody")
    assert sent(damaged) == 0, "no pass looks at what the target holds"
    found = verified(damaged, 3)
    assert (found["content"], found["missing"], found["extra"]) == (1, 1, 1)
    (differences,) = damaged.directory.rglob("differences.parquet")
    whole = differences.read_bytes()
    differences.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
    refused = damaged.run("--deltas", "1")
    assert refused.returncode == Refused.exit_code, refused.stderr
    assert "differences.parquet" in refused.stderr
    assert "verify the batch again" in refused.stderr
    assert not (target / "gone").exists()
    assert verified(damaged, 3) == found, "the remedy"
    assert sent(damaged) == 2
    assert (target / "damaged").read_bytes() == content
    assert verified(damaged, 3).keys() == {"extra"}
    assert sent(damaged) == 0, "sent again once, and not for ever"
