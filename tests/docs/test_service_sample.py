"""The units for systemd: systemd takes them, and the stop of a long verb lets it thaw a user."""

import re
import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from migrator.cli.main import main
from migrator.cli.signals import ENDING

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "docs" / "samples" / "migrator@.service"
UNITS = sorted([*UNIT.parent.glob("*.service"), *UNIT.parent.glob("*.timer")])
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
LETS_A_USER_BE_THAWED = {"KillMode": "mixed", "TimeoutStopSec": "infinity"}
"""The signal goes to the verb alone, not to the streams and hooks that it ends itself, and no time limit ends it."""


def settings() -> ConfigParser:
    found = ConfigParser(interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read_string(UNIT.read_text(encoding="utf-8"))
    return found


def test_the_unit_template_ends_a_verb_by_a_signal_that_thaws_its_user() -> None:
    service = settings()["Service"]
    assert {key: service[key] for key in LETS_A_USER_BE_THAWED} == LETS_A_USER_BE_THAWED
    assert service["KillSignal"] in {getattr(number, "name", "") for number in ENDING}
    assert service["Restart"] == "no"


def test_the_command_for_a_transient_service_has_the_same_properties() -> None:
    (command,) = re.findall(r"systemd-run (.*?)\n(?! {8})", RUNBOOK, re.DOTALL)
    words = shlex.split(command.replace("\\\n", ""))
    properties = dict(word.removeprefix("--property=").split("=") for word in words if word.startswith("--property="))
    assert properties == LETS_A_USER_BE_THAWED


def test_the_verb_of_an_instance_is_split_into_words() -> None:
    service = settings()["Service"]
    assert service["Environment"] == '"VERB=%I"'
    program, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/bin/migrator")
    assert words[-1] == "$VERB"
    (instance,) = re.findall(r"--template=migrator@.service '(.*?)'", UNIT.read_text(encoding="utf-8"))
    name, *options = shlex.split(instance)
    with main.make_context("migrator", [*words[:-1], name]) as context:
        verb = main.get_command(context, name)
        assert verb is not None
        assert verb.make_context(name, options, parent=context).params["numbers"] == (1,)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    program = shlex.split(settings()["Service"]["ExecStart"])[0]
    names = [unit.name.replace("@", "@status") for unit in UNITS]
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text(encoding="utf-8").replace(program, sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in names)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_calls_an_existing_verb_with_existing_options(unit: Path) -> None:
    for line in re.findall(r"^ExecStart=(.*)$", unit.read_text(encoding="utf-8"), flags=re.MULTILINE):
        words = shlex.split(line.replace("$VERB", "status"))[1:]
        before = words.index("--site") + 2 if "--site" in words else 0
        name, *options = words[before:]
        with main.make_context("migrator", [*words[:before], name]) as context:
            verb = main.get_command(context, name)
            assert verb is not None
            assert verb.make_context(name, options, parent=context).params
