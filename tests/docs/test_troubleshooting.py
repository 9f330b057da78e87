"""docs/troubleshooting.md names every exit code, and messages that the program has."""

import re
from pathlib import Path

from migrator.core.errors import ExitCode

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")


def rows(section: str) -> list[str]:
    """The first cells of the table of a section."""
    text = PAGE.partition(f"\n## {section}")[2].partition("\n## ")[0]
    return [row.split("|")[1].strip() for row in text.splitlines() if row.startswith("| ")][1:]


def test_every_exit_code_but_0_has_a_row() -> None:
    assert [cell for cell in rows("By exit code") if cell.isdigit()] == [str(code.value) for code in ExitCode if code]


def test_every_message_is_one_of_the_program() -> None:
    sources = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "migrator").rglob("*.py"))
    messages = re.findall(r"`([^`]+)`", " ".join(cell for cell in rows("By message") if "---" not in cell))
    assert len(messages) > 5
    assert [message for message in messages if message not in sources] == []
