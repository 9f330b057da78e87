"""The manual pages: one for each verb, with all of its options, in roff that man accepts."""

import os
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from migrator.cli.main import main
from tools.man_pages import write_man_pages
from tools.reference_pages import verbs


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("man") / "man1"
    write_man_pages(directory)
    return directory


def test_each_verb_has_a_page_with_all_of_its_options(pages: Path) -> None:
    wanted = {"migrator.1": main} | {f"migrator-{'-'.join(words)}.1": command for words, command in verbs(main)}
    assert {page.name for page in pages.iterdir()} == set(wanted)
    for name, command in wanted.items():
        text = (pages / name).read_text(encoding="utf-8").replace("\\-", "-")
        options = [option for option in command.params if isinstance(option, click.Option)]
        assert [name for option in options for name in option.opts if name not in text] == []
        assert "-h, --help" in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_the_pages_are_valid(pages: Path) -> None:
    for page in pages.iterdir():
        done = subprocess.run(
            ["groff", "-man", "-Kutf8", "-Tutf8", "-ww", "-z", page],
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), page.name
