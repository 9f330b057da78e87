"""What a verification finds to differ comes with the next delta pass, also where size and times say nothing of it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.core.errors import Refused
from tests.conftest import MakeXfs
from tests.support.delta_changes import let_settle, write
from tests.support.run_site import RealSite

pytestmark = pytest.mark.needs_root


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[RealSite]:
    """A site whose one user has been copied by a seed pass."""
    made = RealSite(scratch / "site", make_xfs(), make_xfs())
    home = made.source.path / "home" / "ann"
    home.mkdir(parents=True)
    for name in ("damaged", "gone", "kept"):
        write(home / name, name * 100)
    let_settle()
    made.prepare()
    assert made.run("--deltas", "0").returncode == 0
    yield made
    made.kill_streams()


def verified(site: RealSite, code: int) -> dict[str, int]:
    done = site.migrator("verify", "--all", "--json")
    assert done.returncode == code, done.stderr
    (found,) = json.loads(done.stdout)
    return dict(found["differences"])


def sent(site: RealSite) -> int:
    done = site.run("--deltas", "1", "--json")
    assert done.returncode == 0, done.stderr
    (delta,) = json.loads(done.stdout)["batches"][0]["deltas"]
    return int(delta["files"])


def test_what_was_found_to_differ_is_sent_once_more(site: RealSite) -> None:
    target = site.target.path / "home" / "ann"
    facts = (target / "damaged").stat()
    content = (target / "damaged").read_bytes()
    (target / "damaged").write_bytes(content[:-1] + b"!")
    os.utime(target / "damaged", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    (target / "gone").unlink()
    (target / "extra").write_bytes(b"of nobody")
    assert sent(site) == 0, "no pass looks at what the target holds"
    found = verified(site, 3)
    assert (found["content"], found["missing"], found["extra"]) == (1, 1, 1)
    (differences,) = site.directory.rglob("differences.parquet")
    whole = differences.read_bytes()
    differences.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
    refused = site.run("--deltas", "1")
    assert refused.returncode == Refused.exit_code, refused.stderr
    assert "differences.parquet" in refused.stderr
    assert "verify the batch again" in refused.stderr
    assert not (target / "gone").exists()
    assert verified(site, 3) == found, "the remedy"
    assert sent(site) == 2
    assert (target / "damaged").read_bytes() == content
    assert verified(site, 3).keys() == {"extra"}
    assert sent(site) == 0, "sent again once, and not for ever"
