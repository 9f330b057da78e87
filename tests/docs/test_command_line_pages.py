"""The pages that the program writes, and the README, say what it does."""

import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from migrator.cli.main import main
from migrator.core.errors import EXIT_CODE_MEANINGS, ExitCode
from migrator.plan.document import read_document, write_document
from tools.reference_pages import render_cli_reference, render_reference, verbs
from tools.sample_plan import sample_plan

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "made"),
    [
        ("docs/cli.md", render_cli_reference),
        ("docs/configuration.md", render_reference),
        ("plans/sample.json", lambda: write_document(sample_plan())[0]),
    ],
)
def test_a_page_is_the_one_that_the_program_gives(page: str, made: Callable[[], str]) -> None:
    assert (ROOT / page).read_text(encoding="utf-8") == made(), "write it anew: make docs"


def test_the_sample_plan_is_read_and_written_the_same() -> None:
    text = (ROOT / "plans" / "sample.json").read_text(encoding="utf-8")
    plan, checksum = read_document(text, name="sample")
    assert write_document(plan) == (text, checksum)
    assert any(b"\xe9" in usage.tree.path for usage in plan.ranking)


def test_every_verb_is_in_the_readme_and_the_readme_names_no_other() -> None:
    table = README.partition("## Verbs")[2].partition("## ")[0]
    named = {
        cell
        for row in table.splitlines()
        if row.startswith("| `")
        for cell in re.findall(r"`([^`]+)`", row.split("|")[1])
    }
    assert named == {" ".join(words) for words, _ in verbs(main)}


def test_every_option_in_the_readme_exists() -> None:
    options = {name for _, command in verbs(main) for option in command.params for name in option.opts} | {"--site"}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) - {"--help"}
    assert named <= options, named - options


def test_the_readme_has_the_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", README, flags=re.MULTILINE)
    assert rows == [(str(code.value), meaning) for code, meaning in EXIT_CODE_MEANINGS.items()]


def test_exit_codes_are_all_told_and_none_twice() -> None:
    assert set(EXIT_CODE_MEANINGS) == set(ExitCode)
    assert len({code.value for code in ExitCode}) == len(ExitCode)


def test_every_verb_takes_json_and_explains_every_option() -> None:
    for words, command in verbs(main):
        assert "--json" in {name for option in command.params for name in option.opts}, words
        options = [option for option in command.params if isinstance(option, click.Option)]
        assert all(option.help for option in options), words
        assert command.help, words


def anchors(page: Path) -> set[str]:
    """The anchors of a page: its own, and those that GitHub makes of its headings."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


def test_links_between_the_pages_lead_somewhere() -> None:
    readmes = [ROOT / folder / "README.md" for folder in (".", "hooks", "plans")]
    for page in (*readmes, *(ROOT / "docs").rglob("*.md")):
        for link, anchor in re.findall(r"\]\((?!\w+:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
            file = page.parent / link if link else page
            assert file.exists(), f"{page.name}: {link}"
            assert not anchor or anchor in anchors(file), f"{page.name}: {link}#{anchor}"
