"""Each public class name stands for one thing in the whole program."""

import ast
from collections import defaultdict
from pathlib import Path

import migrator

PROGRAM = Path(migrator.__file__).parent


def test_each_class_name_exists_once() -> None:
    places = defaultdict[str, list[str]](list)
    for file in sorted(PROGRAM.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(PROGRAM)))
    assert len(places) > 100
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
