"""Hooks: their order, what their end means, what they are told, which are refused."""

import json
from dataclasses import replace
from typing import Any

import pytest

from migrator.core.entry import UserTree
from migrator.core.events import FindingStatus
from migrator.core.states import PassKind
from migrator.hooks import model as hooks_model
from migrator.hooks import rules as hooks_rules

PRE = hooks_model.HookStage(step=hooks_model.HookStep.BATCH, event=hooks_model.HookEvent.PRE)
POST = hooks_model.HookStage(step=hooks_model.HookStep.BATCH, event=hooks_model.HookEvent.POST)
SITE = hooks_model.HookSite(
    site_id="5e1f", name="gl-to-bee", file=b"/etc/\xff.toml", source_root=b"/mnt/gl", target_root=b"/b%"
)
FACTS = hooks_model.HookFacts(
    run_id=7,
    plan="plan-0001",
    batch=1,
    pass_kind=PassKind.SEED,
    trees=(UserTree(path=b"home/\xe9\n", user="eve"),),
    files=3,
    size_bytes=4,
    state="done",
    attention=0,
    started_at_s=0.5,
)


def hook(name: bytes, stage: hooks_model.HookStage = PRE) -> hooks_model.Hook:
    return hooks_model.Hook(stage=stage, name=name, path=b"/hooks/" + stage.directory + b"/" + name)


def test_hooks_are_called_by_the_bytes_of_their_names_and_post_hooks_the_other_way_round() -> None:
    names = [b"50-b", b"10-z", b"10-a", b"\xff0-x", b"50-B"]
    hooks = [hook(name, stage) for stage in (PRE, POST) for name in names]
    ordered = [b"10-a", b"10-z", b"50-B", b"50-b", b"\xff0-x"]
    assert [one.name for one in hooks_rules.in_order(hooks, PRE)] == ordered
    assert [one.name for one in hooks_rules.in_order(hooks, POST)] == ordered[::-1]
    assert (
        hooks_rules.in_order(
            hooks, hooks_model.HookStage(step=hooks_model.HookStep.PASS, event=hooks_model.HookEvent.PRE)
        )
        == ()
    )


@pytest.mark.parametrize(
    ("result", "before", "after"),
    [
        ({"exit_code": 0}, "GO_ON", "GO_ON"),
        ({"exit_code": 62}, "SKIP", "GO_ON"),
        ({"exit_code": 1}, "REFUSE", "WARN"),
        ({"exit_code": -9}, "REFUSE", "WARN"),
        ({"exit_code": None, "problem": "not started"}, "REFUSE", "WARN"),
        ({"exit_code": 0, "timed_out": True}, "REFUSE", "WARN"),
        ({"exit_code": 62, "timed_out": True}, "REFUSE", "WARN"),
    ],
)
def test_what_the_end_of_a_hook_means(result: dict[str, Any], before: str, after: str) -> None:
    ended = hooks_model.HookResult(**result)
    assert hooks_rules.judge(hooks_model.HookEvent.PRE, ended) is hooks_model.HookOutcome[before]
    assert hooks_rules.judge(hooks_model.HookEvent.POST, ended) is hooks_model.HookOutcome[after]


def test_the_end_of_a_hook_in_words_is_one_line_of_safe_text() -> None:
    said = hooks_rules.end_of(hooks_model.HookResult(exit_code=1, output=b"first\n\n\x1b[31mred \xff\n"), 600.0)
    assert said == "exit code 1: first | \\x1b[31mred \\xff"
    assert hooks_rules.end_of(hooks_model.HookResult(exit_code=3), 600.0) == "exit code 3; no output"
    assert hooks_rules.end_of(hooks_model.HookResult(exit_code=-15, timed_out=True), 600.0).startswith(
        "ended after its time limit of 10 m"
    )
    assert hooks_rules.end_of(hooks_model.HookResult(exit_code=-9), 600.0) == "ended by signal 9; no output"
    assert (
        hooks_rules.end_of(hooks_model.HookResult(exit_code=None, problem="it could not be started"), 1.0)
        == "it could not be started"
    )
    much = hooks_rules.end_of(hooks_model.HookResult(exit_code=1, output=b"lost" + b"x" * 600 + b"the end"), 600.0)
    assert much.endswith("the end")
    assert "lost" not in much


def test_the_document_and_the_variables_give_every_fact_and_every_byte_of_a_path_back() -> None:
    facts = replace(
        FACTS,
        user="eve",
        link=b"/home/\xe9",
        old_path=b"/mnt/gl/home/\xe9",
        new_path=b"/b%/home/\xe9",
        back=False,
        freeze_s=240.0,
        frozen_s=250.5,
        moved=False,
        reason="Gr\u00fc\u00dfe\n",
        finished_at_s=86400.0,
    )
    text = hooks_rules.document(POST, SITE, facts)
    assert text.isascii()
    found = json.loads(text)
    expected = {
        "version": 1,
        "stage": "post-batch",
        "event": "post",
        "site": {"id": "5e1f", "name": "gl-to-bee", "file": "/etc/%FF.toml"},
        "target": "/b%25",
        "trees": [{"path": "home/%E9%0A", "user": "eve"}],
        "pass": "seed",
        "pass_number": None,
        "brick": None,
        "started_at": "1970-01-01T00:00:00Z",
        "finished_at": "1970-01-02T00:00:00Z",
        "begins_at": None,
        "user": "eve",
        "link": "/home/%E9",
        "old_path": "/mnt/gl/home/%E9",
        "new_path": "/b%25/home/%E9",
        "report": None,
        "back": False,
        "freeze_s": 240.0,
        "frozen_s": 250.5,
        "moved": False,
        "reason": "Gr\u00fc\u00dfe\n",
        "state": "done",
    }
    assert {key: found[key] for key in expected} == expected
    variables = dict(hooks_rules.environment(POST, SITE, facts))
    expected = {
        "USER": "eve",
        "LINK": "/home/\udce9",
        "OLD_PATH": "/mnt/gl/home/\udce9",
        "NEW_PATH": "/b%/home/\udce9",
        "STAGE": "post-batch",
        "PASS": "seed",
        "STATE": "done",
        "SITE": "/etc/\udcff.toml",
        "PASS_NUMBER": "",
        "REPORT": "",
    }
    assert {key: variables["MIGRATOR_" + key] for key in expected} == expected


def test_why_something_has_failed_is_one_line_of_bounded_length_in_a_variable() -> None:
    facts = replace(
        FACTS, state="failed", failed=hooks_model.HookStep.DRAIN, reason="no room\non gl3:/b\0" + 2000 * "x"
    )
    stage = hooks_model.HookStage(step=hooks_model.HookStep.FAIL, event=hooks_model.HookEvent.POST)
    told = json.loads(hooks_rules.document(stage, SITE, facts))
    assert (told["stage"], told["failed"], told["reason"]) == ("post-fail", "drain", facts.reason)
    variables = dict(hooks_rules.environment(stage, SITE, facts))
    assert variables["MIGRATOR_FAILED"] == "drain"
    assert variables["MIGRATOR_REASON"].startswith("no room on gl3:/b xxx")
    assert variables["MIGRATOR_REASON"].endswith("x...")
    assert len(variables["MIGRATOR_REASON"]) == hooks_rules.MOST_REASON_CHARACTERS


def test_doctor_names_the_hooks_or_their_problems() -> None:
    found = hooks_model.HooksFound(hooks=tuple(hook(b"10-x", stage) for stage in hooks_model.all_stages()))
    (finding,) = hooks_rules.check_hooks(found, b"/hooks")
    assert finding.status is FindingStatus.OK
    assert finding.message.startswith("33 hooks in /hooks: pre-batch.d/10-x, post-batch.d/10-x, pre-pass.d/10-x")
    (none,) = hooks_rules.check_hooks(hooks_model.HooksFound(), b"/hooks")
    assert none.message == "none in /hooks"
    spoiled = hooks_model.HooksFound(problems=(hooks_model.HookProblem(b"/hooks", "is a fifo", "remove it"),))
    (bad,) = hooks_rules.check_hooks(spoiled, b"/hooks")
    assert (bad.status, bad.message, bad.fix) == (FindingStatus.FAILURE, "/hooks is a fifo", "remove it")
