"""docs/cutover.md says what the program does with links."""

from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "cutover.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_link_of_the_sample_is_told() -> None:
    assert 'link = "/home/{user}"' in section("Switching")
