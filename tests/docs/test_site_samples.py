"""The sample site.toml load; those that are wrong on purpose say what is wrong with them."""

from pathlib import Path

import pytest

from migrator.core.errors import ExitCode, UsageError
from migrator.site.config import SECTIONS
from migrator.site.load import load_site

REPOSITORY = Path(__file__).parents[2]
SAMPLES = sorted((REPOSITORY / "docs" / "samples").glob("*.toml"))
INVALID = sorted((Path(__file__).parent / "invalid").glob("*.toml"))
SAYS = "# says: "


@pytest.mark.parametrize("file", SAMPLES, ids=lambda file: file.stem)
def test_a_sample_loads(file: Path) -> None:
    assert load_site(file).file == file


def test_the_sample_of_a_real_site_has_a_value_for_every_key() -> None:
    text = (REPOSITORY / "docs" / "samples" / "site.toml").read_text(encoding="utf-8")
    for section in SECTIONS:
        header = section.header.removesuffix('NAME"]')
        assert header in text
        body = text.split(header, 1)[1].split("\n[", 1)[0]
        for key in section.keys:
            assert f"\n{key.name} = " in body, f"[{section.name}] {key.name}"


@pytest.mark.parametrize("file", INVALID, ids=lambda file: file.stem)
def test_a_wrong_one_says_what_is_wrong(file: Path) -> None:
    says = [line.removeprefix(SAYS) for line in file.read_text(encoding="utf-8").splitlines() if line.startswith(SAYS)]
    assert says
    with pytest.raises(UsageError) as caught:
        load_site(file)
    assert caught.value.exit_code is ExitCode.USAGE
    for sentence in says:
        assert sentence in caught.value.message
