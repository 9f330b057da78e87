"""docs/cutover.md says what the program does with links."""

from pathlib import Path

from migrator.site.load import load_site

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "cutover.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_link_of_the_sample_is_told() -> None:
    link = load_site(REPOSITORY / "docs" / "samples" / "site.toml").cutover.link
    assert link is not None
    assert f'link = "{link}"' in section("Switch")
