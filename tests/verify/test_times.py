"""Times that the target, or this program, cannot hold: each file is named before the move, and holds up no user."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakeXfs
from tests.support.delta_changes import let_settle, write
from tests.support.run_site import RealSite

pytestmark = pytest.mark.needs_root

IN_2040, IN_2445 = 2_209_000_000, 15_000_000_000


@pytest.fixture(params=[pytest.param(False, marks=pytest.mark.exhaustive), True], ids=["until 2486", "until 2038"])
def site(scratch: Path, make_xfs: MakeXfs, request: pytest.FixtureRequest) -> Iterator[RealSite]:
    made = RealSite(scratch / "site", make_xfs(), make_xfs(until_2038=request.param))
    for name, time_s in (("late", IN_2445), ("soon", IN_2040), ("usual", 1_500_000_000)):
        path = made.source.path / "home" / "ann" / name
        write(path, name)
        os.utime(path, (time_s, time_s))
    let_settle()
    yield made
    made.kill_streams()


def answer(site: RealSite, *words: str) -> Any:
    done = site.migrator(*words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_file_with_such_a_time_is_named_and_moved(site: RealSite, request: pytest.FixtureRequest) -> None:
    until_2038 = "2038" in request.node.name
    site.write()
    answer(site, "init")
    site.migrator("doctor")
    scan = answer(site, "scan")
    assert (scan["whole"], scan["set_apart"]) == (True, [])
    expected = ["home/ann/late", *(["home/ann/soon"] if until_2038 else [])]
    (named,) = [one for one in answer(site, "plan")["plan"]["surprises"] if one["kind"] == "loss-time-range"]
    assert (named["tree"], named["count"], named["examples"]) == ("home/ann", len(expected), expected)
    answer(site, "run", "--all")
    # Renamed on the target as well, not sent again.
    (site.source.path / "home" / "ann" / "late").rename(site.source.path / "home" / "ann" / "later")
    let_settle()
    batch = answer(site, "run", "--all")["batches"][0]
    assert batch["deltas"][0]["files"] == 0
    for _ in range(2):
        (found,) = answer(site, "verify", "--all")
        assert (found["differences"], found["expected"]) == ({}, {"loss-time-range": len(expected)})
    # The remedy.
    for name in ("later", "soon"):
        os.utime(site.source.path / "home" / "ann" / name)
    let_settle()
    answer(site, "run", "--all")
    (found,) = answer(site, "verify", "--all")
    assert (found["differences"], found["expected"]) == ({}, {})
    assert site.differences() == ""
