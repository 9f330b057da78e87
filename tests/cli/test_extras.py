"""What is on the target alone: a later plan takes away what an earlier one brought and the source has no more."""

import json
import os
import shutil

import pytest

from migrator.site.rules_guards import SHRINK_FLOOR_NAMES
from tests.support.cli_site import Site
from tests.support.delta_changes import let_settle, write

pytestmark = pytest.mark.needs_root

TRASH = ".migrator-trash"
GONE = SHRINK_FLOOR_NAMES + 1


@pytest.fixture
def copied(site: Site) -> Site:
    """A site whose first user was copied by a plan that then is an earlier one."""
    home = site.source / "home" / "ann"
    for number in range(2 * GONE):
        write(home / "kept" / f"{number}", f"kept {number}")
    for number in range(GONE):
        write(home / "gone" / "deep" / f"{number}", f"gone {number}")
    write(home / "becomes" / "inner", "in a directory")
    let_settle()
    for verb in ("init", "scan", "plan"):
        site.works(verb)
    site.works("run", "--user-batch", "1")
    return site


def remove_some(site: Site) -> None:
    home = site.source / "home" / "ann"
    (home / "kept" / "0").unlink()
    shutil.rmtree(home / "gone")
    shutil.rmtree(home / "becomes")
    write(home / "becomes", "a file now")
    let_settle()


def plan_anew(site: Site) -> None:
    for words in (["scan"], ["plan", "--activate"]):
        site.works(*words)


def differences(site: Site, code: int) -> dict[str, int]:
    done = site.call("verify", "--user-batch", "1", "--json")
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout)[0]["differences"])


def in_trash(site: Site) -> set[str]:
    """The paths of all files in the trash, without the place of their pass."""
    files = [(place, path) for place in (site.target / TRASH).iterdir() for path in place.rglob("*") if path.is_file()]
    return {str(path.relative_to(place)) for place, path in files}


@pytest.mark.guarantee("old-deletions")
def test_paths_copied_by_an_earlier_plan_and_deleted_since_are_removed(copied: Site) -> None:
    remove_some(copied)
    plan_anew(copied)
    copied.call("run", "--user-batch", "1")
    copied.works("run", "--user-batch", "1")
    assert differences(copied, 0) == {}
    assert {"home/ann/kept/0", "home/ann/becomes/inner"} <= in_trash(copied)
    assert len([path for path in in_trash(copied) if path.startswith("home/ann/gone/deep/")]) == GONE
    assert (copied.target / "home/ann/becomes").read_text() == "a file now"


@pytest.mark.guarantee("old-deletions")
def test_paths_kept_by_a_guard_are_removed_after_a_verification_listed_them(copied: Site) -> None:
    remove_some(copied)
    file = copied.file.read_text()
    copied.file.write_text(file.replace("[transfer]\n", '[transfer]\nmax_shrink = "1%"\n'))
    plan_anew(copied)
    done = copied.call("run", "--user-batch", "1")
    assert "left on the target" in done.stderr
    assert "max_shrink" in done.stderr
    assert differences(copied, 3)["extra"] == GONE + 4
    copied.file.write_text(file)
    # Somebody else's, where nobody works: it is not this program's to take away.
    target = copied.target / "home" / "ann"
    (target / "of nobody").write_bytes(b"nobody's")
    (target / "gone" / "deep" / "of nobody").write_bytes(b"nobody's")
    assert differences(copied, 3)["extra"] == GONE + 6
    copied.works("run", "--user-batch", "1")
    assert len([path for path in in_trash(copied) if path.startswith("home/ann/gone/deep/")]) == GONE
    assert not (target / "kept" / "0").exists()
    assert sorted(os.listdir(target / "gone" / "deep")) == ["of nobody"]
    assert differences(copied, 3) == {"extra": 4}, "two files of nobody's, and the directories that hold one"
