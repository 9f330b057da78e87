"""docs/bench.md says what the suites do."""

import re
from pathlib import Path

from migrator.bench.model import SuiteName
from migrator.bench.suites import publications, suite

PAGE = (Path(__file__).parents[2] / "docs" / "bench.md").read_text(encoding="utf-8")


def sections() -> dict[str, tuple[str, str]]:
    """The letters and the text of each suite's section."""
    found = re.findall(r"^### `([\w-]+)` \(([A-E, ]+)\)\n(.*?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return {name: (letters, text) for name, letters, text in found}


def test_every_suite_has_a_section_that_names_whose_it_is() -> None:
    assert set(sections()) == {name.value for name in SuiteName}
    for name, (letters, _) in sections().items():
        theirs = {one.publication for step in suite(SuiteName(name), 1).steps for one in step.published}
        assert theirs <= set(letters.split(", ")), name


def test_every_publication_is_named_by_its_authors() -> None:
    for publication in publications().values():
        author = publication.title.split(",")[0].split(" and ")[0]
        assert f"**{publication.key}** {author}" in PAGE


def test_the_real_commands_are_named() -> None:
    for name, (_, text) in sections().items():
        for step in suite(SuiteName(name), 1).steps:
            if step.unit is not None:
                for program in set(step.programs) & {"dd", "tar", "ls", "du", "grep", "make", "fio"}:
                    assert program in text, (name, program)
