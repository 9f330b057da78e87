"""`verify --user` and `--carry`, as they are given on the command line."""

import json
import time
from typing import Any

import pytest

from migrator.core.units import NS_PER_S
from migrator.verify.model import CTIME_MARGIN_NS
from tests.support.cli_site import Site

pytestmark = pytest.mark.needs_root


def verified(site: Site, *arguments: str) -> list[dict[str, Any]]:
    done = site.call("verify", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_trees_of_a_user_are_verified_and_what_was_read_is_not_read_again(planned: Site) -> None:
    planned.works("run", "--user-batch", "1", "--deltas", "0")
    user = json.loads(planned.call("status", "--json").stdout)["batches"][0]["users"][0]
    time.sleep(CTIME_MARGIN_NS / NS_PER_S + 0.5)
    (whole,) = verified(planned, "--user-batch", "1")
    (again,) = verified(planned, "--user", user, "--carry")
    assert again["digested_files"] == 0
    assert again["carried_files"] == whole["digested_files"] > 0
    assert (again["proven_bytes"], again["percent_content"]) == (whole["digested_bytes"], 100.0)
    # The only tree of its batch is all of it.
    assert (again["batch"], again["trees"]) == (1, [])
    text = planned.call("verify", "--user", user, "--carry").stdout
    assert "content read before, and nothing changed since" in text
    assert json.loads(planned.call("status", "--json").stdout)["batches"][0]["state"] == "verified"


def test_mistakes_are_told(planned: Site) -> None:
    planned.fails(2, "verify", "--user", "nobody-at-all", says=("no tree of nobody-at-all", "migrator status"))
    planned.fails(2, "verify", "--carry", says=("which batches?",))
