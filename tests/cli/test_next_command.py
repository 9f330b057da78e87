"""A verb that has succeeded ends with the one command that follows."""

import json

import pytest

from migrator.report.model import NextStep
from migrator.report.rules_blockers import next_command
from tests.support.cli_site import Site


def step(hint: str) -> NextStep:
    return NextStep(subject="batch 1", state="waits", hint=hint)


@pytest.mark.parametrize(
    ("hints", "verb", "command"),
    [
        ((), "run", None),
        (("migrator run --all",), "run", "migrator run --all"),
        (("migrator run --all", "migrator verify --user-batch 1"), "run", "migrator verify --user-batch 1"),
        (("migrator run --all", "migrator verify --user-batch 1"), "verify", "migrator run --all"),
    ],
)
def test_the_step_of_another_verb_comes_first(hints: tuple[str, ...], verb: str, command: str | None) -> None:
    assert next_command([step(hint) for hint in hints], verb) == command


def following(site: Site, *words: str) -> str | None:
    done = site.call(*words)
    assert done.returncode == 0, done.stderr
    *_, last = ["", *done.stdout.splitlines()]
    return last.removeprefix("Next: ") if last.startswith("Next: ") else None


@pytest.mark.needs_root
def test_each_verb_names_the_command_that_follows(planned: Site) -> None:
    assert following(planned, "scan") == "migrator run --all"
    assert following(planned, "run", "--user-batch", "1", "--dry-run") is None
    assert following(planned, "run", "--user-batch", "1") == "migrator verify --user-batch 1"
    verified = following(planned, "verify", "--user-batch", "1")
    assert verified is not None
    assert verified.startswith("migrator ")
    assert verified.split()[1] != "verify"
    assert json.loads(planned.call("verify", "--user-batch", "1", "--json").stdout)
    assert following(planned, "status") is None
