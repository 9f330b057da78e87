"""`doctor` looks for the hooks that the site's freeze relies on, through the program as it is called."""

import json
from pathlib import Path

import pytest

from tests.support.cli_site import Site
from tests.support.hook_site import HookSite


@pytest.mark.parametrize("way", ["top", "hook"])
def test_where_hooks_answer_for_a_freeze_there_has_to_be_one(scratch: Path, way: str) -> None:
    hooked = HookSite(Site(scratch, scratch / "source", scratch / "target"))
    hooked.prepare(more=f'[cutover]\nfreeze = "{way}"\n')

    def failures() -> list[str]:
        found = json.loads(hooked.site.call("doctor", "--json").stdout)
        return [one["message"] for one in found if one["check"] == "hooks" and one["status"] == "failure"]

    hooked.hook("post-freeze.d/10-a")
    missing = '[cutover] freeze is "hook", and there is no pre-freeze hook'
    assert [one.partition(":")[0] for one in failures()] == ([missing] if way == "hook" else [])
    hooked.hook("pre-freeze.d/10-a")
    assert failures() == []
