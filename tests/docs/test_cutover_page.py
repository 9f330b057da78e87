"""docs/cutover.md says what the program does with links and texts."""

import re
from pathlib import Path

from migrator.decide.texts import EXAMPLES, text_of, text_words
from migrator.domain.hooks import all_stages
from migrator.domain.texts import UserText

PAGE = (Path(__file__).parents[2] / "docs" / "cutover.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    lines = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line] for line in lines]


def test_every_name_that_a_text_may_use_is_told() -> None:
    told = [re.findall(r"`(\w+)`", row[0]) for row in rows(section("Telling users")) if "-cutover.txt" not in row[0]]
    assert [name for names in told for name in names] == list(text_words(EXAMPLES[0]))


def test_the_stages_of_each_text_are_told() -> None:
    told = {row[0].strip("`"): re.findall(r"`([a-z-]+)`", row[1]) for row in rows(section("Telling users"))[:3]}
    wanted: dict[str, list[str]] = {text.file.decode(): [] for text in UserText}
    for stage in all_stages():
        if (text := text_of(stage)) is not None:
            wanted[text.file.decode()].append(stage.name)
    assert told == wanted


def test_the_link_of_the_sample_is_told() -> None:
    assert 'link = "/home/{user}"' in section("Switching")
