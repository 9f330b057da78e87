"""Hooks: their order, what their end means, what they are told, which are refused."""

import json
from dataclasses import replace

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


def test_paths_and_reasons_are_given_byte_by_byte_in_the_document_and_safe_in_variables() -> None:
    reason = "Gr\u00fc\u00dfe\non gl3:/b\0" + 2000 * "x"
    facts = replace(FACTS, user="eve", link=b"/home/\xe9", new_path=b"/b%/home/\xe9", reason=reason)
    text = hooks_rules.document(POST, SITE, facts)
    assert text.isascii()
    found = json.loads(text)
    assert found["site"] == {"id": "5e1f", "name": "gl-to-bee", "file": "/etc/%FF.toml"}
    assert found["trees"] == [{"path": "home/%E9%0A", "user": "eve"}]
    assert (found["link"], found["new_path"]) == ("/home/%E9", "/b%25/home/%E9")
    assert (found["started_at"], found["reason"]) == ("1970-01-01T00:00:00Z", reason)
    variables = dict(hooks_rules.environment(POST, SITE, facts))
    assert (variables["MIGRATOR_SITE"], variables["MIGRATOR_LINK"]) == ("/etc/\udcff.toml", "/home/\udce9")
    assert variables["MIGRATOR_REASON"].startswith("Gr\u00fc\u00dfe on gl3:/b xxx")
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
