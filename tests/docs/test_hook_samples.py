"""The sample hooks do what they say: executed by hand, with the document of docs/hooks.md, and by the program."""

import email
import email.policy
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from migrator.core.paths import percent_escape

REPOSITORY = Path(__file__).parents[2]
HOOKS = REPOSITORY / "hooks"
README = (HOOKS / "README.md").read_text(encoding="utf-8")
PAGE = (REPOSITORY / "docs" / "hooks.md").read_text(encoding="utf-8")
SAMPLES = sorted(path for path in HOOKS.glob("*.d/*"))
CUTOVER_STAGES = ("pre-freeze", "post-freeze", "post-thaw")
ANNOUNCE_STAGE = "post-announce"
ADD_STAGE = "pre-add"
REPORT_STAGE = "post-report"
FAIL_STAGE = "post-fail"
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
        env={"PATH": os.environ["PATH"], **environment},
    )


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_a_sample_is_where_the_contract_wants_it(sample: Path) -> None:
    stage = sample.parent.name.removesuffix(".d")
    others = (*CUTOVER_STAGES, ANNOUNCE_STAGE, ADD_STAGE, REPORT_STAGE, FAIL_STAGE)
    assert stage in others or f"| `{stage}` | `run` |" in PAGE
    assert f"| `{stage}` |" in PAGE
    assert re.fullmatch(r"[0-9]{2}-[a-z0-9-]+", sample.name)
    mode = sample.stat().st_mode
    assert mode & 0o111
    assert not mode & 0o022
    assert f"({sample.parent.name}/{sample.name})" in README


def test_the_report_is_a_mail_with_its_page_beside_it(tmp_path: Path) -> None:
    directory = tmp_path / "weekly caf\u00e9"
    directory.mkdir()
    (directory / "report.md").write_text("# Migration of gl\n\n62.0 %\n", encoding="utf-8")
    (directory / "report.html").write_text("<!DOCTYPE html><p>62.0 %</p>", encoding="utf-8")
    facts = document()
    facts["stage"], facts["report"] = "post-report", percent_escape(os.fsencode(directory))
    result = run("post-report.d/50-mail-report", facts)
    assert result.returncode == 0, result.stderr
    mail = email.message_from_string(result.stdout, policy=email.policy.default)
    assert mail["Subject"] == "Migration gl-to-beegfs: report"
    text, page = mail.iter_parts()
    assert "62.0 %" in text.get_content()
    assert (page.get_filename(), page.get_content_type()) == ("report.html", "text/html")
    facts["version"] = 2
    assert run("post-report.d/50-mail-report", facts).returncode == 1


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
