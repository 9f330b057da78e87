"""What is loaded before a verb begins: libraries that take long belong to the work that needs them."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from migrator.cli.main import main

LARGE = {"jinja2", "duckdb", "pyarrow", "sqlalchemy", "rich", "pygments"}
_THEN_PRINT_MODULES = """
import atexit, sys
atexit.register(lambda: print("loaded:", *sorted({name.partition(".")[0] for name in sys.modules})))
from migrator.cli.main import main
main(sys.argv[1:], prog_name="migrator")
"""


def loaded(*words: str) -> set[str]:
    """The packages that were loaded when the program had ended."""
    shown = subprocess.run(
        [sys.executable, "-c", _THEN_PRINT_MODULES, *words], check=True, capture_output=True, text=True
    ).stdout
    assert words[-1] == "--version" or "Usage: migrator" in shown
    return set(shown.rpartition("loaded:")[2].split())


@pytest.mark.parametrize("words", [["--version"], ["run", "--help"], ["scan", "--help"], ["status", "--help"]])
def test_a_verb_that_does_nothing_loads_no_large_library(words: list[str]) -> None:
    packages = loaded(*words)
    assert {"migrator", "click"} <= packages
    assert not packages & LARGE


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench", "list", "--site", "site.toml"], ("--site goes before the verb", "migrator bench list")),
        (["stauts"], ("status",)),
    ],
)
def test_a_mistyped_command_is_answered_with_the_right_one(words: list[str], said: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-m", "migrator", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert all(one in done.stderr for one in said)


def test_help_has_every_verb_in_the_order_of_a_migration_and_cuts_no_words_off() -> None:
    shown = CliRunner().invoke(main, ["--help"], terminal_width=80).output
    lines = shown.partition("Verbs, in the order in which a migration needs them:\n")[2].splitlines()
    assert [line.split()[0] for line in lines] == list(main.load())
    assert not any("..." in line for line in lines)
    assert max(map(len, lines)) <= 80
