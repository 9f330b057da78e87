"""`run` with real hooks: when they are called, what their end does, and which are refused."""

import json
import sys
from pathlib import Path

import pytest

from tests.support.cli_site import Site
from tests.support.hook_site import IN_ORDER, HookSite


@pytest.fixture
def hooked(scratch: Path) -> HookSite:
    made = HookSite(Site(scratch, scratch / "source", scratch / "target"))
    made.prepare()
    return made


def test_hooks_are_called_in_order_around_each_batch_and_pass(hooked: HookSite) -> None:
    hooked.all_hooks()
    assert hooked.run("--all")[0] == 0
    states = ["", "", "", "", " done", " done", " done", " done"]
    expected = [f"{where} {batch}{state}" for batch in (1, 2) for where, state in zip(IN_ORDER, states, strict=True)]
    assert hooked.calls() == expected
    assert hooked.copied() == ["alice", "bob"]
    assert hooked.rows("SELECT DISTINCT exit_code, outcome FROM hook_calls") == [(0, "go-on")]
    assert hooked.rows("SELECT count(*) FROM hook_steps WHERE closed_at_s IS NULL OR state != 'done'") == [(0,)]
    # Nothing is left to do: nothing is called.
    assert hooked.run("--all")[0] == 0
    assert hooked.calls() == []


def test_a_pre_hook_that_refuses_ends_the_run_with_its_name_and_its_words(hooked: HookSite) -> None:
    hooked.all_hooks()
    hooked.hook("pre-batch.d/15-guard", "echo first; printf 'quota of caf\\351 is out\\n' >&2; exit 1")
    code, said = hooked.run("--all")
    assert code == 4
    assert (
        "batch 1 is not begun: the hook pre-batch.d/15-guard refused it "
        "(exit code 1: first | quota of caf\\xe9 is out)" in said
    )
    # What 10-a did before the batch, its counterpart takes back; nothing else is called, and batch 2 is not begun.
    assert hooked.calls() == ["pre-batch.d/10-a 1", "pre-batch.d/15-guard 1", "post-batch.d/10-a 1 refused"]
    assert hooked.copied() == []
    assert [event.partition(":")[0] for event in hooked.events()] == ["hook-refused"]
    assert hooked.rows("SELECT exit_code, outcome, output FROM hook_calls WHERE name = CAST('15-guard' AS BLOB)") == [
        (1, "refuse", b"first\nquota of caf\xe9 is out\n")
    ]
    hooked.hook("pre-batch.d/15-guard")
    assert hooked.run("--all")[0] == 0
    assert hooked.copied() == ["alice", "bob"]


def test_all_hooks_are_checked_before_anything_is_started(hooked: HookSite) -> None:
    hooked.hook("pre-batch.d/10-a")
    spoiled = hooked.hook("post-purge.d/10-late", mode=0o777)
    for words in ((), ("--user-batch", "1", "--dry-run")):
        code, said = hooked.run(*words)
        assert code == 4
        reason = f"the hook {spoiled} can be written by other users (mode 0777): chmod go-w {spoiled}"
        assert "".join(reason.split()) in "".join(said.split()), "wherever lines end"
    assert hooked.calls() == []
    assert hooked.copied() == []
    done = hooked.site.call("doctor", "--json")
    (finding,) = [one for one in json.loads(done.stdout) if one["check"] == "hooks"]
    assert (finding["status"], finding["fix"]) == ("failure", f"chmod go-w {spoiled}")
    assert done.returncode == 1
    spoiled.chmod(0o755)
    assert hooked.run()[0] == 0
    assert hooked.calls() == ["pre-batch.d/10-a 1"]


def test_a_hook_is_told_the_facts_and_may_ask_the_program(hooked: HookSite) -> None:
    out = hooked.site.directory
    migrator = f"{sys.executable} -m migrator"
    hooked.hook(
        "post-pass.d/10-ask", f'cat > "{out}/document"; cd {Path.cwd()}; {migrator} status --json > "{out}/status"'
    )
    assert hooked.run()[0] == 0
    document = json.loads((out / "document").read_text())
    assert (document["stage"], document["event"], document["pass"], document["state"]) == (
        "post-pass",
        "post",
        "seed",
        "done",
    )
    assert document["trees"] == [{"path": "home/alice", "user": "alice"}]
    assert (document["files"], document["copied_files"], document["attention"]) == (1, 1, 0)
    assert (document["source"], document["target"]) == (str(hooked.site.source), str(hooked.site.target))
    assert json.loads((out / "status").read_text())["site"] == document["site"]["name"] == "bad"
