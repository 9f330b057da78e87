"""`docs/json.md` names every key, and no other."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import migrator

TEXT = (Path(__file__).parents[2] / "docs" / "json.md").read_text()


def values() -> Iterator[type]:
    """The values of all features: the dataclasses of their models, and of the modules that have none."""
    for module in pkgutil.walk_packages(migrator.__path__, "migrator."):
        if module.name.endswith(
            ("model", "bench.rules", "core.statistics", "core.probe", "core.windows", "report.serve")
        ):
            for kind in vars(importlib.import_module(module.name)).values():
                if isinstance(kind, type) and is_dataclass(kind):
                    yield kind


BY_NAME: dict[str, set[type]] = {}
for one in values():
    BY_NAME.setdefault(one.__name__, set()).add(one)


def documented(name: str) -> set[str]:
    section = re.split(r"^##+ ", TEXT.split(f"### {name}\n")[1], flags=re.MULTILINE)[0]
    cells = [line.partition(": ")[0] for line in section.splitlines() if line.startswith("- `")]
    return {key for cell in cells for key in re.findall(r"`([a-z_]+)`", cell)}


def keys(kind: type) -> set[str]:
    properties = {name for name in dir(kind) if not name.startswith("_") and isinstance(getattr(kind, name), property)}
    return properties | {field.name for field in fields(kind)}


@pytest.mark.parametrize("name", re.findall(r"^### (\w+)$", TEXT, re.MULTILINE))
def test_every_key_is_documented(name: str) -> None:
    assert documented(name) in [keys(kind) for kind in BY_NAME[name]]
