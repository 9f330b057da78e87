"""The locks: complete, with hashes, and the program's own without tools; the list of components that is made of it."""

import datetime as dt
import json
import re
import shutil
import sysconfig
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.audit import findings
from tools.components import list_components
from tools.locks import LOCKS, PROGRAM, locked

ROOT = Path(__file__).parents[2]
MADE = dt.datetime(2027, 1, 2, tzinfo=dt.UTC)


def needed_by(name: str) -> set[str]:
    """What a package needs, directly or not, by the metadata of the installed ones."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for line in distribution(waiting.pop()).requires or ():
            need = Requirement(line)
            other = canonicalize_name(need.name)
            if other not in found and (need.marker is None or need.marker.evaluate({"extra": ""})):
                found.add(other)
                waiting.append(other)
    return found


def test_the_lock_of_the_program_names_all_that_it_needs_and_nothing_else() -> None:
    assert set(locked(ROOT / PROGRAM)) == needed_by("migrator")


@pytest.mark.parametrize("name", LOCKS)
def test_everything_has_a_version_and_hashes(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    lock = locked(ROOT / name)
    assert len(lock) == len(re.findall(r"^[^#\s]", text, re.MULTILINE))
    assert [package for package, (version, hashes) in lock.items() if not version or not hashes] == []
    assert "://" not in text


def test_no_package_is_in_two_locks_and_all_needs_are_in_one() -> None:
    locks = [set(locked(ROOT / name)) for name in LOCKS]
    everything = set.union(*locks)
    assert sum(map(len, locks)) == len(everything)
    assert set.union(*map(needed_by, everything)) <= {*everything, "pip"}


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """The metadata of the program and of what it needs, as a site-packages."""
    for name in {"migrator"} | needed_by("migrator"):
        installed = next(iter(distributions(name=name, path=[sysconfig.get_path("purelib")])))
        folder = f"{installed.name.replace('-', '_')}-{installed.version}.dist-info"
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "METADATA").write_text(installed.read_text("METADATA") or "", encoding="utf-8")
    return tmp_path


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="needs dpkg")
def test_components_have_versions_licences_hashes_and_needs(libraries: Path) -> None:
    lock = locked(ROOT / PROGRAM)
    document = json.loads(list_components(libraries, lock, ("libc6-dev", "libxxhash-dev"), MADE))
    assert (document["bomFormat"], document["metadata"]["component"]["name"]) == ("CycloneDX", "migrator")
    listed = {each["name"]: each for each in document["components"] if each["purl"].startswith("pkg:pypi/")}
    assert set(listed) == set(lock)
    for name, (version, hashes) in lock.items():
        assert listed[name]["version"] == version
        assert {each["content"] for each in listed[name]["hashes"]} == hashes
        assert listed[name]["licenses"]
    needs = {each["ref"]: each.get("dependsOn", []) for each in document["dependencies"]}
    assert listed["mako"]["bom-ref"] in needs[listed["alembic"]["bom-ref"]]


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="needs dpkg")
def test_a_library_that_the_lock_does_not_name_is_refused(libraries: Path) -> None:
    lock = locked(ROOT / PROGRAM)
    del lock["mako"]
    with pytest.raises(ValueError, match="mako"):
        list_components(libraries, lock, ("libc6-dev", "libxxhash-dev"), MADE)


def test_the_audit_names_vulnerable_and_unknown_packages() -> None:
    found = {"id": "PYSEC-1", "fix_versions": ["2.1"], "aliases": [], "description": ""}
    packages = [
        {"name": "sound", "version": "1", "vulns": []},
        {"name": "broken", "version": "2.0", "vulns": [found]},
        {"name": "strange", "skip_reason": "not found"},
    ]
    vulnerable, unknown = findings(json.dumps({"dependencies": packages, "fixes": []}))
    assert unknown == ["strange"]
    (line,) = vulnerable
    assert {"broken", "PYSEC-1", "2.1"} <= set(re.split(r"[\s:,]+", line))
