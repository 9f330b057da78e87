"""Commands in sentences are printed unbroken, so that they can be copied."""

import io

import pytest
from rich.console import Console

from migrator.render import document as doc
from migrator.render.terminal import print_document


def printed(text: str, width: int) -> list[str]:
    stream = io.StringIO()
    page = doc.page("Page", ("", [doc.paragraph(text)]))
    print_document(Console(file=stream, width=width), page)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("width", [20, 40, 80])
@pytest.mark.parametrize(
    "command", ["`migrator purge --user alice --confirm 3f9a1c0b77de`", "`migrator reap release --user x PATH`;"]
)
def test_a_command_is_on_one_line(command: str, width: int) -> None:
    lines = printed(f"To free what is listed, run {command} and then look at the rest of it once more.", width)
    assert any(command in line for line in lines)
    assert all(len(line) <= width for line in lines if "`" not in line)


def test_other_words_are_wrapped_and_folded() -> None:
    lines = printed(f"one two three {'x' * 30} four", 20)
    assert max(map(len, lines)) <= 20
    assert "".join("".join(lines).split()).endswith(f"onetwothree{'x' * 30}four")
