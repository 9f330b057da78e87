"""docs/configuration.md says what the program reads."""

from pathlib import Path

from migrator.site.render import render_reference

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_the_one_that_the_table_of_keys_gives() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_reference(), "write it anew: make docs"
