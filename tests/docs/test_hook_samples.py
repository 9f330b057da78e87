"""The sample hooks and docs/hooks.md agree with the program."""

import email
import email.policy
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.bricks.add import call as addition_call
from migrator.bricks.drain import call as drain_call
from migrator.core.entry import UserTree
from migrator.core.errors import ExitCode
from migrator.core.paths import percent_escape
from migrator.core.states import PassKind
from migrator.hooks import model as hooks
from migrator.hooks import rules as hook_rules
from migrator.hooks.rules import MOST_REASON_CHARACTERS, environment, judge
from migrator.site.config import SECTIONS, HooksSection
from tests.support.hook_site import STAGES

REPOSITORY = Path(__file__).parents[2]
HOOKS = REPOSITORY / "hooks"
README = (HOOKS / "README.md").read_text(encoding="utf-8")
PAGE = (REPOSITORY / "docs" / "hooks.md").read_text(encoding="utf-8")
SAMPLES = sorted(path for path in HOOKS.glob("*.d/*"))
OTHER_STAGES = (
    *(
        "pre-freeze",
        "post-freeze",
        "post-thaw",
        "post-announce",
        "pre-add",
        "pre-attach",
        "pre-purge",
        "post-report",
        "post-fail",
    ),
)
HOLD, MAIL = "pre-batch.d/10-hold", "post-pass.d/50-mail-notice"


def document() -> dict[str, object]:
    found = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    facts = json.loads(found[1])
    assert isinstance(facts, dict)
    return facts


def run(hook: str, facts: dict[str, object], **environment: str) -> subprocess.CompletedProcess[str]:
    file = HOOKS / hook
    # The interpreter of the sample's first line may be missing where tests run: this one serves as well.
    argv = [sys.executable, "-I", str(file)] if file.read_bytes().startswith(b"#!/usr/bin/python3") else [str(file)]
    return subprocess.run(
        argv,
        input=json.dumps(facts),
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"]} | environment,
    )


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_a_sample_is_where_the_contract_wants_it(sample: Path) -> None:
    stage = sample.parent.name.removesuffix(".d")
    assert stage in OTHER_STAGES or f"| `{stage}` | `run` |" in PAGE
    assert f"| `{stage}` |" in PAGE
    assert re.fullmatch(r"[0-9]{2}-[a-z0-9-]+", sample.name)
    mode = sample.stat().st_mode
    assert mode & 0o111
    assert not mode & 0o022
    assert f"({sample.parent.name}/{sample.name})" in README


def test_the_report_is_a_mail_with_its_page_beside_it(tmp_path: Path) -> None:
    directory = tmp_path / "weekly caf\u00e9"
    directory.mkdir()
    (directory / "report.md").write_text("# Migration of gl\n\n62.0 %\n\n## Details\n\n17 rows\n", encoding="utf-8")
    (directory / "report.json").write_text('{"verdict": {"sentence": "Copying is 2 days late."}}')
    (directory / "report.html").write_text("<!DOCTYPE html><p>62.0 %</p>", encoding="utf-8")
    facts = document()
    facts["stage"], facts["report"] = "post-report", percent_escape(os.fsencode(directory))
    result = run("post-report.d/50-mail-report", facts)
    assert result.returncode == 0, result.stderr
    mail = email.message_from_string(result.stdout, policy=email.policy.default)
    assert mail["Subject"] == "Migration gl-to-beegfs: Copying is 2 days late."
    text, page = mail.iter_parts()
    assert "62.0 %" in text.get_content()
    assert "17 rows" not in text.get_content()
    assert (page.get_filename(), page.get_content_type()) == ("report.html", "text/html")
    facts["version"] = 2
    assert run("post-report.d/50-mail-report", facts).returncode == 1


def test_each_user_who_waits_gets_their_notice_with_the_report(tmp_path: Path) -> None:
    states = {"alice": "copied", "bob": "moved", "not an account": "planned", "dave": "purged", "erin": "planned"}
    trees = [{"tree": {"user": user}, "state": state} for user, state in states.items()]
    (tmp_path / "report.json").write_text(json.dumps({"status": {"trees": trees}}))
    users = tmp_path / "users"
    users.mkdir()
    for user in states:
        (users / f"{user}.txt").write_text(f"gl: your files move\nfor {user}\n")
    (users / "erin.ics").write_bytes(b"BEGIN:VCALENDAR\r\n")
    facts = document() | {"stage": "post-report"}
    facts |= {name: percent_escape(os.fsencode(path)) for name, path in (("report", tmp_path), ("notices", users))}
    done = run("post-report.d/60-mail-users", facts)
    assert done.returncode == 1
    assert "'not an account'" in done.stderr
    assert re.findall("^To: (.*)$", done.stdout, re.MULTILINE) == ["alice@example.org", "erin@example.org"]
    assert done.stdout.count("text/calendar") == 1
    assert run("post-report.d/60-mail-users", facts | {"version": 2}).returncode == 1


@pytest.mark.parametrize(
    ("failed", "words"), [("drain", "the drain"), ("stop", "taking back"), ("add", "the addition")]
)
def test_whoever_is_on_call_gets_the_reason_of_a_failure(failed: str, words: str) -> None:
    reason = "it stands still: no counter has changed for 6 h\nsee caf\u00e9"
    facts = document() | {"stage": "post-fail", "brick": "gl3:/srv/b1/data", "state": "failed"}
    done = run("post-fail.d/10-mail", facts | {"failed": failed, "reason": reason})
    assert (done.returncode, done.stderr) == (0, "")
    mail = email.message_from_string(done.stdout, policy=email.policy.default)
    assert mail["Subject"].startswith(f"gl-to-beegfs: {words}")
    assert mail["Subject"].endswith("of gl3:/srv/b1/data has failed")
    assert mail["To"].endswith("@example.org")
    assert reason in mail.get_content()
    assert run("post-fail.d/10-mail", facts | {"version": 2}).returncode == 1


def test_the_mail_notice_goes_to_every_user_of_the_batch() -> None:
    facts = document()
    facts["trees"] = [{"path": "home/alice", "user": "alice"}, {"path": "home/b%E9%0Ab%1B[31m", "user": "bob"}]
    facts["attention"] = 3
    done = run(MAIL, facts)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Subject: gl-to-beegfs: seed pass of your files is done") == 2
    assert "To: alice@" in done.stdout
    assert "To: bob@" in done.stdout
    assert "home/b\\xe9\\nb\\x1b[31m" in done.stdout
    assert "3 files need attention" in done.stdout


def test_the_hold_skips_a_batch_while_its_file_is_there(tmp_path: Path) -> None:
    facts = document() | {"stage": "pre-batch", "event": "pre"}
    variables = {"MIGRATOR_SITE": str(tmp_path / "site.toml"), "MIGRATOR_BATCH": "1"}
    free = run(HOLD, facts, **variables)
    assert (free.returncode, free.stderr) == (0, "")
    (tmp_path / "hold").touch()
    held = run(HOLD, facts, **variables)
    assert held.returncode == 62
    assert "batch 1 is held" in held.stderr


PROGRAMS = {
    "htar": 'tar -cf "$4" .',
    "hsi": 'cat "${2#get - : }"',
    "dsmc": '[ "$1" = archive ] || cp -a "${2%/*}/." "$3"',
}
"""What the sample's calls of these programs do."""


def test_every_kind_of_archive_has_the_digests_of_what_is_read_back(tmp_path: Path) -> None:
    tree, answers, bin_ = (tmp_path / name for name in ("alice", "answers", "bin"))
    for directory in (tree, answers, bin_):
        directory.mkdir()
    (answers / "manifest").touch()
    odd = os.fsencode(tree) + b"/caf\xe9\n\xc3\xa9" + b"x" * 120
    Path(os.fsdecode(odd)).write_bytes(b"odd")
    os.link(odd, tree / "zz")
    (tree / "symlink").symlink_to("zz")
    for name, text in PROGRAMS.items():
        (bin_ / name).write_text(f"#!/bin/sh\n{text}\n")
        (bin_ / name).chmod(0o755)
    kinds = ("tar.zst", "htar", "dsmc")
    (tmp_path / "archives.conf").write_text("".join(f"{kind} {kind} {tmp_path}\n" for kind in kinds))
    facts = document() | {"stage": "pre-purge", "digest": "sha256", "archives": str(answers)}
    variables = {
        "MIGRATOR_SITE": str(tmp_path / "site.toml"),
        "MIGRATOR_ARCHIVES": str(answers),
        "MIGRATOR_OLD_PATH": str(tree),
        "MIGRATOR_MANIFEST": "/state/manifests/v1/manifest.parquet",
        "PATH": f"{bin_}:{os.environ['PATH']}",
    }
    done = run("pre-purge.d/50-archive", facts, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    digest = hashlib.sha256(b"odd").hexdigest().encode()
    for kind in kinds:
        listed = (answers / f"{kind}.digests").read_bytes()
        assert sorted(listed.split(b"\0")) == [b"", *(digest + b"  " + name for name in (os.path.basename(odd), b"zz"))]
        said = (answers / f"{kind}.archive").read_text()
        assert said.startswith(f"{kind} {tmp_path}/home%2Falice.v1.00000000.")
    (bin_ / "htar").write_text("#!/bin/sh\nexit 1\n")
    (answers / "tar.zst.proven").touch()
    failed = run("pre-purge.d/50-archive", facts, **variables)
    assert (failed.returncode, "htar failed" in failed.stderr, "Traceback" in failed.stderr) == (1, True, False)


STAGE = hooks.HookStage(step=hooks.HookStep.PASS, event=hooks.HookEvent.POST)
SITE = hooks.HookSite(
    site_id="00000000-0000-4000-8000-000000000000",
    name="gl-to-beegfs",
    file=b"/etc/migrator/site.toml",
    source_root=b"/mnt/gl",
    target_root=b"/mnt/beegfs",
)
FACTS = hooks.HookFacts(
    run_id=17,
    plan="plan-0001",
    batch=1,
    pass_kind=PassKind.SEED,
    trees=(UserTree(path=b"home/alice", user="alice"),),
    files=9_000_000,
    size_bytes=13_194_139_533_312,
    state="done",
    copied_files=9_000_000,
    copied_bytes=13_194_139_533_312,
    attention=0,
    started_at_s=1_767_294_000.0,
    finished_at_s=1_767_323_520.0,
)


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The cells of tables, without their headings."""
    lines = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line] for line in lines if not line[0].strip().startswith("---")]


def test_every_stage_is_told_with_the_verbs_that_call_it() -> None:
    table = {row[0].strip("`"): row[1] for row in rows(section("Stages"))[1:]}
    assert list(table) == [stage.name for stage in hooks.all_stages()]
    assert {name for name, verbs in table.items() if verbs == "`run`"} == set(STAGES)
    for words, steps in ((("drain", "stop"), drain_call.HOOK_STEPS), (("add",), addition_call.HOOK_STEPS)):
        told = {name for name, verbs in table.items() if any(f"`brick {word}`" in verbs for word in words)}
        assert told == {stage.name for stage in hooks.all_stages() if stage.step in steps}


def test_hooks_get_the_failure_and_a_short_reason() -> None:
    cells = {row[0]: row[1] for row in rows(section("Input"))}
    failing = (hooks.HookStep.DRAIN, hooks.HookStep.STOP, hooks.HookStep.ADD)
    assert re.findall(r"`([\w-]+)`", cells["`failed`"]) == [step.value for step in failing]
    assert f"its first {MOST_REASON_CHARACTERS:,} characters" in cells["`MIGRATOR_REASON`"]


def test_the_document_is_the_one_that_a_hook_gets() -> None:
    assert list(document().items()) == list(json.loads(hook_rules.document(STAGE, SITE, FACTS)).items())
    assert document()["version"] == hooks.CONTRACT_VERSION


def test_every_key_and_every_variable_is_told() -> None:
    keys, variables = section("Input").split("The environment is clean")
    told = [key for row in rows(keys)[1:] for key in re.findall(r"`(\w+)`", row[0])]
    assert told == list(document())
    of_variable = dict(environment(STAGE, SITE, FACTS))
    assert [row[0].strip("`") for row in rows(variables)[1:]] == list(of_variable)
    values = {name: value for name, value in document().items() if value is not None}
    for variable, meaning in rows(variables)[1:]:
        if (key := re.fullmatch(r"`(\w+)`", meaning)) is not None and key[1] in values:
            assert of_variable[variable.strip("`")] == str(values[key[1]])


def test_every_state_is_told() -> None:
    (state,) = [row[1] for row in rows(section("Input")) if row[0] == "`state`"]
    assert re.findall(r"`(\w+)`", state) == ["null", *hooks.HookState]


def test_the_exit_codes_mean_what_the_table_says() -> None:
    table = {row[0]: row[1:] for row in rows(section("Order and results"))[1:]}
    words = {
        "go on": hooks.HookOutcome.GO_ON,
        "as 0": hooks.HookOutcome.GO_ON,
        "skip": hooks.HookOutcome.SKIP,
        "refuse": hooks.HookOutcome.REFUSE,
        "a warning": hooks.HookOutcome.WARN,
    }
    skip = hooks.SKIP_EXIT_CODE
    for told, codes in (("0", [0]), (str(skip), [skip]), ("any other", [1, 2, 61, 63, 255, -9])):
        (row,) = [cells for first, cells in table.items() if first == told or first.startswith(f"{told},")]
        for event, cell in zip((hooks.HookEvent.PRE, hooks.HookEvent.POST), row, strict=True):
            (outcome,) = [outcome for start, outcome in words.items() if cell.startswith(start)]
            assert {judge(event, hooks.HookResult(exit_code=code)) for code in codes} == {outcome}
    assert f"exit code {int(ExitCode.REFUSED)}, the hook's name" in PAGE


def test_the_limits_are_those_of_the_program() -> None:
    (timeout,) = [key for one in SECTIONS if one.name == "hooks" for key in one.keys]
    assert f"`[hooks] {timeout.name}` of site.toml, `{timeout.default_in_toml.strip(chr(34))}` by default" in PAGE
    assert HooksSection().timeout_s == 600.0
    assert f"The last {hooks.OUTPUT_LIMIT_BYTES >> 10} KiB of its standard output" in PAGE
