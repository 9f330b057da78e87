"""Hooks: their order, what their end means, what they are told, which are refused."""

import json
from dataclasses import replace

import pytest

from migrator.core.entry import EntryType, UserTree
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


def directory(path: bytes, uid: int = 0, mode: int = 0o755) -> hooks_model.FileLook:
    return hooks_model.FileLook(path=path, type=EntryType.DIRECTORY, uid=uid, mode=mode)


def file(path: bytes, uid: int = 0, mode: int = 0o755) -> hooks_model.FileLook:
    return hooks_model.FileLook(path=path, type=EntryType.FILE, uid=uid, mode=mode)


def looks(
    *entries: hooks_model.FileLook,
    stage: hooks_model.FileLook | None = None,
    above: tuple[hooks_model.FileLook, ...] = (),
) -> hooks_model.HooksLook:
    return hooks_model.HooksLook(
        above=above or (directory(b"/"), directory(b"/hooks")),
        stages=(hooks_model.StageLook(directory=stage or directory(b"/hooks/pre-batch.d"), entries=entries),),
    )


GOOD = file(b"/hooks/pre-batch.d/10-hold")


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


def test_a_dry_run_names_hooks_in_the_order_of_a_run() -> None:
    hooks = [
        hook(name, hooks_model.HookStage(step=step, event=event))
        for step in (hooks_model.HookStep.PASS, hooks_model.HookStep.BATCH, hooks_model.HookStep.PURGE)
        for event in hooks_model.HookEvent
        for name in (b"20-b", b"10-\xff")
    ]
    assert hooks_rules.would_be_called(hooks, (hooks_model.HookStep.BATCH, hooks_model.HookStep.PASS)) == (
        "pre-batch.d/10-\\xff",
        "pre-batch.d/20-b",
        "pre-pass.d/10-\\xff",
        "pre-pass.d/20-b",
        "post-pass.d/20-b",
        "post-pass.d/10-\\xff",
        "post-batch.d/20-b",
        "post-batch.d/10-\\xff",
    )


@pytest.mark.parametrize(
    ("event", "result", "outcome"),
    [
        (hooks_model.HookEvent.PRE, hooks_model.HookResult(exit_code=0), hooks_model.HookOutcome.GO_ON),
        (hooks_model.HookEvent.PRE, hooks_model.HookResult(exit_code=62), hooks_model.HookOutcome.SKIP),
        (hooks_model.HookEvent.PRE, hooks_model.HookResult(exit_code=1), hooks_model.HookOutcome.REFUSE),
        (hooks_model.HookEvent.PRE, hooks_model.HookResult(exit_code=-9), hooks_model.HookOutcome.REFUSE),
        (
            hooks_model.HookEvent.PRE,
            hooks_model.HookResult(exit_code=None, problem="not started"),
            hooks_model.HookOutcome.REFUSE,
        ),
        (
            hooks_model.HookEvent.PRE,
            hooks_model.HookResult(exit_code=0, timed_out=True),
            hooks_model.HookOutcome.REFUSE,
        ),
        (
            hooks_model.HookEvent.PRE,
            hooks_model.HookResult(exit_code=62, timed_out=True),
            hooks_model.HookOutcome.REFUSE,
        ),
        (hooks_model.HookEvent.POST, hooks_model.HookResult(exit_code=0), hooks_model.HookOutcome.GO_ON),
        (hooks_model.HookEvent.POST, hooks_model.HookResult(exit_code=62), hooks_model.HookOutcome.GO_ON),
        (hooks_model.HookEvent.POST, hooks_model.HookResult(exit_code=1), hooks_model.HookOutcome.WARN),
        (
            hooks_model.HookEvent.POST,
            hooks_model.HookResult(exit_code=None, problem="not started"),
            hooks_model.HookOutcome.WARN,
        ),
        (hooks_model.HookEvent.POST, hooks_model.HookResult(exit_code=0, timed_out=True), hooks_model.HookOutcome.WARN),
    ],
)
def test_what_the_end_of_a_hook_means(
    event: hooks_model.HookEvent, result: hooks_model.HookResult, outcome: hooks_model.HookOutcome
) -> None:
    assert hooks_rules.judge(event, result) is outcome


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


@pytest.mark.parametrize(
    ("look", "says", "fix"),
    [
        (looks(replace(GOOD, mode=0o775)), "can be written by others (mode 0775)", "chmod go-w"),
        (looks(replace(GOOD, mode=0o757)), "can be written by others (mode 0757)", "chmod go-w"),
        (looks(replace(GOOD, mode=0o644)), "is not executable", "chmod 0755"),
        (looks(replace(GOOD, uid=1000)), "belongs to uid 1000", "chown root:"),
        (looks(replace(GOOD, type=EntryType.SYMLINK)), "is a symlink", "cp"),
        (looks(replace(GOOD, type=EntryType.DIRECTORY)), "is a directory", "remove"),
        (looks(replace(GOOD, type=EntryType.FIFO)), "is a fifo", "remove"),
        (looks(replace(GOOD, path=b"/hooks/pre-batch.d/hold")), "NN-name", "rename"),
        (looks(GOOD, stage=directory(b"/hooks/pre-batch.d", uid=1000)), "belongs to uid 1000", "chown root:"),
        (looks(GOOD, stage=directory(b"/hooks/pre-batch.d", mode=0o777)), "mode 0777", "chmod go-w"),
        (looks(GOOD, stage=directory(b"/hooks/pre-batch.d", mode=0o1777)), "mode 1777", "chmod go-w"),
        (looks(stage=replace(directory(b"/hooks/pre-batch.d"), type=EntryType.SYMLINK)), "is a symlink", "directory"),
        (looks(stage=directory(b"/hooks/pre-bach.d")), "named for no stage", "pre-batch.d"),
        (looks(stage=directory(b"/hooks/pre-fail.d")), "named for no stage", "rename it to post-fail.d"),
        (looks(stage=directory(b"/hooks/\xff.d")), "named for no stage", "docs/hooks.md"),
        (looks(GOOD, above=(directory(b"/"), directory(b"/hooks", mode=0o1777))), "mode 1777", "chmod go-w"),
        (looks(GOOD, above=(directory(b"/x", uid=1000), directory(b"/x/hooks"))), "belongs to uid 1000", "chown"),
        (looks(GOOD, above=(directory(b"/x", mode=0o775), directory(b"/x/hooks"))), "mode 0775", "chmod go-w"),
        (
            hooks_model.HooksLook(
                above=(hooks_model.FileLook(path=b"/hooks", type=EntryType.SYMLINK, uid=0, mode=0o777),)
            ),
            "symlink",
            "real",
        ),
        (
            hooks_model.HooksLook(above=(directory(b"/hooks"),), unread="Input/output error"),
            "Input/output error",
            "fix what prevents it",
        ),
    ],
)
def test_what_others_can_change_is_refused_with_its_remedy(look: hooks_model.HooksLook, says: str, fix: str) -> None:
    (words,) = hooks_rules.problem_words(hooks_rules.examine_hooks(look, euid=0))
    assert says in words
    assert fix in words.partition(says)[2]
    (finding,) = hooks_rules.check_hooks(hooks_rules.examine_hooks(look, euid=0), b"/hooks")
    assert finding.status is FindingStatus.FAILURE


def test_without_root_hooks_may_be_of_the_user_who_runs_the_program_or_of_root() -> None:
    own = looks(replace(GOOD, uid=1000), GOOD, stage=directory(b"/hooks/pre-batch.d", uid=1000))
    assert hooks_rules.examine_hooks(own, euid=1000).problems == ()
    assert len(hooks_rules.examine_hooks(own, euid=1001).problems) == 2


@pytest.mark.parametrize(
    ("look", "names"),
    [
        (hooks_model.HooksLook(), []),
        (looks(GOOD), [b"10-hold"]),
        # Others may create entries in a directory like /tmp above, but replace none.
        (looks(GOOD, above=(directory(b"/"), directory(b"/tmp", mode=0o1777), directory(b"/tmp/hooks"))), [b"10-hold"]),
        # Left by editors, or disabled by an administrator.
        (looks(*(file(b"/hooks/pre-batch.d/" + name, mode=0o666) for name in (b".10-a", b".10-a.swp", b"10-a~"))), []),
        (hooks_model.HooksLook(above=(directory(b"/", uid=5), directory(b"/hooks", mode=0o777))), []),
    ],
    ids=["no directory", "of root", "below /tmp", "left alone", "no hooks"],
)
def test_what_is_accepted(look: hooks_model.HooksLook, names: list[bytes]) -> None:
    found = hooks_rules.examine_hooks(look, euid=0)
    assert ([one.name for one in found.hooks], found.problems) == (names, ())


def test_doctor_names_the_hooks() -> None:
    look = hooks_model.HooksLook(
        above=(directory(b"/hooks"),),
        stages=tuple(
            hooks_model.StageLook(
                directory=directory(b"/hooks/" + stage.directory),
                entries=(file(b"/hooks/" + stage.directory + b"/10-x"),),
            )
            for stage in hooks_model.all_stages()
        ),
    )
    (finding,) = hooks_rules.check_hooks(hooks_rules.examine_hooks(look, euid=0), b"/hooks")
    assert finding.status is FindingStatus.OK
    assert finding.message.startswith("33 hooks in /hooks: pre-batch.d/10-x, post-batch.d/10-x, pre-pass.d/10-x")
    (none,) = hooks_rules.check_hooks(hooks_rules.examine_hooks(hooks_model.HooksLook(), euid=0), b"/hooks")
    assert none.message == "none in /hooks"
