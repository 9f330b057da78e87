"""The sample hooks run as the contract in hooks/README.md says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HOOKS = Path(__file__).parents[2] / "hooks"
README = (HOOKS / "README.md").read_text(encoding="utf-8")
SAMPLES = sorted(path for path in HOOKS.glob("*.d/*"))
DOCUMENT = re.search(r"```json\n(.*?)```", README, re.DOTALL)


def document() -> dict[str, object]:
    assert DOCUMENT is not None
    found = json.loads(DOCUMENT[1])
    assert isinstance(found, dict)
    return found


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
    assert re.fullmatch(r"(pre|post)-[a-z]+\.d", sample.parent.name)
    assert f"`{sample.parent.name.removesuffix('.d')}`" in README
    assert re.fullmatch(r"[0-9]{2}-[a-z-]+", sample.name)
    mode = sample.stat().st_mode
    assert mode & 0o111
    assert not mode & 0o022
    assert f"({sample.parent.name}/{sample.name})" in README


def test_there_is_a_sample_before_and_one_after() -> None:
    assert {path.parent.name.partition("-")[0] for path in SAMPLES} == {"pre", "post"}


def test_the_mail_notice_goes_to_every_user_of_the_batch() -> None:
    facts = document()
    facts["trees"] = [{"path": "home/alice", "user": "alice"}, {"path": "home/b%E9%0Ab%1B[31m", "user": "bob"}]
    facts["attention"] = 3
    done = run("post-pass.d/50-mail-notice", facts)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Subject: gl-to-beegfs: seed pass of your files is done") == 2
    assert "To: alice@" in done.stdout
    assert "To: bob@" in done.stdout
    assert "home/b\\xe9\\nb\\x1b[31m" in done.stdout
    assert "3 files need attention" in done.stdout


def test_the_mail_notice_refuses_a_contract_it_does_not_know() -> None:
    done = run("post-pass.d/50-mail-notice", document() | {"version": 2})
    assert done.returncode == 1
    assert "contract version 2" in done.stderr


def test_the_hold_skips_a_batch_while_its_file_is_there(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    facts = document() | {"stage": "pre-batch"}
    free = run("pre-batch.d/10-hold", facts, MIGRATOR_HOLD_FILE=str(hold), MIGRATOR_BATCH="1")
    assert (free.returncode, free.stderr) == (0, "")
    hold.touch()
    held = run("pre-batch.d/10-hold", facts, MIGRATOR_HOLD_FILE=str(hold), MIGRATOR_BATCH="1")
    assert held.returncode == 62
    assert "batch 1 is held" in held.stderr
