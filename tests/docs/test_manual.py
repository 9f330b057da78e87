"""The manual stays short enough to be read, and begins with few terms."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
INDEX = (ROOT / "tools" / "manual" / "index.md").read_text(encoding="utf-8")
GENERATED = "enerated by `make docs`"
WORDS = 30_000


def pages() -> dict[str, list[str]]:
    """The names of the pages by the caption of their table of contents."""
    tables = re.findall(r"^:caption: ([^\n]+)\n(.*?)^```$", INDEX, re.MULTILINE | re.DOTALL)
    return {caption: [line for line in body.splitlines() if line and line[0] != ":"] for caption, body in tables}


def text(page: str) -> str:
    return (ROOT / f"{page}.md").read_text(encoding="utf-8")


def words(page: str) -> int:
    return sum(any(letter.isalnum() for letter in token) for token in text(page).split())


def test_pages_for_operators_have_at_most_30_000_words() -> None:
    listed = pages()
    assert set(listed) == {"Tutorial", "How to", "Concepts", "Reference", "Development"}
    read = [page for caption, names in listed.items() if caption != "Development" for page in names]
    counted = {page: words(page) for page in read if GENERATED not in text(page)}
    assert len(counted) > 15
    assert sum(counted.values()) <= WORDS, counted


def test_the_first_plan_needs_six_terms() -> None:
    section = text("docs/concepts").partition("## Six terms\n")[2].partition("\n## ")[0]
    assert len(re.findall(r"^- \*\*", section, re.MULTILINE)) == 6
