"""`make demo` is the story that README tells: the same commands, stage after stage in the same order."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from tools import demo

README = Path(__file__).parents[2] / "README.md"
STAGES = (
    *("lab up", "init", "doctor", "scan", "plan", "run", "verify", "cutover", "purge"),
    *("brick drain", "brick add", "brick retire", "lab down"),
)
BRICKS = 6
VERBS_OF_TWO = ("lab", "brick")


def command(words: list[str]) -> str:
    """The verb, and the options with what they are given where that is not a name of this site."""
    verb, rest = (words[:2], words[2:]) if words[0] in VERBS_OF_TWO else (words[:1], words[1:])
    options: list[str] = []
    for number, word in enumerate(rest):
        if word.startswith("--") and word not in ("--dir", "--kind", "--name", "--brick-size", "--target-size"):
            value = rest[number + 1] if word in ("--user-batch", "--to", "--via") else ""
            options.append(f"{word} {value}".strip())
    return " ".join([*verb, *sorted(options)])


def story() -> list[str]:
    """The commands of the lab's ten minutes, as README has them."""
    text = README.read_text(encoding="utf-8").partition("\n## Ten minutes in the lab\n")[2].partition("\n## ")[0]
    lines = [line for line in re.findall(r"^    (.*)$", text, re.MULTILINE) if "churn" not in line]
    parts = [part.strip() for line in lines for part in line.partition("  #")[0].split("&&")]
    return [command(shlex.split(part, comments=True)[1:]) for part in parts if part.startswith("migrator ")]


def played(monkeypatch: pytest.MonkeyPatch, directory: Path) -> list[str]:
    """The commands that the demo gives, in which nothing happens."""
    said: list[str] = []
    answers = {
        "bricks": [{"name": f"gl{host}:/srv/b1/data"} for host in range(BRICKS)],
        "volume": "vol1",
        "checksum": "0123456789abcdef",
        "confirm": "word",
    }

    def tell(_: Path | None, *arguments: str, **__: Any) -> int:
        said.append(command(list(arguments)))
        return 0

    def answer(site: Path, *arguments: str) -> dict[str, Any]:
        tell(site, *arguments)
        return answers

    def kills(site: Path, batch: int, _: Path) -> None:
        tell(site, "run", "--user-batch", str(batch))

    monkeypatch.setattr(demo, "migrator", tell)
    monkeypatch.setattr(demo, "answer", answer)
    monkeypatch.setattr(demo, "run_and_kill", kills)
    monkeypatch.setattr(demo, "prepare", lambda *_: None)
    monkeypatch.setattr(demo, "REPOSITORY", directory)
    monkeypatch.setattr("shutil.move", lambda *_: None)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: None)
    monkeypatch.setattr("sys.argv", ["demo", "--kind", "gluster", "--dir", str(directory / "lab")])
    demo.main()
    return said


def stages(commands: list[str]) -> list[str]:
    """The stages by their first command."""
    verbs = [one.partition(" --")[0] for one in commands]
    return [verb for verb in dict.fromkeys(verbs) if verb in STAGES]


def test_the_demo_gives_the_commands_of_the_story_in_its_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told, given = story(), played(monkeypatch, tmp_path)
    assert stages(told) == list(STAGES)
    assert stages(given) == list(STAGES)
    assert set(told) <= set(given), "README tells what the demo does not do"
    assert given.count("brick add --to target") == BRICKS - 1, "all disks but the last one are given away"
