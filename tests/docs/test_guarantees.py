"""Each row of docs/guarantees.md has a test that tries to break it, and `make test` runs it.

A test says so by a mark with the anchor of the row: `@pytest.mark.guarantee("empty-mount")`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "guarantees.md").read_text(encoding="utf-8")
ANCHORS = re.findall(r'^\| <a id="([^"]+)"></a>', PAGE, re.MULTILINE)


def marks(nodes: list[ast.expr]) -> Iterator[tuple[str, str]]:
    """The name and the first argument of every mark of pytest in these expressions."""
    for node in (one for root in nodes for one in ast.walk(root)):
        if isinstance(node, ast.Call):
            yield from ((name, ast.literal_eval(node.args[0])) for name in named(node.func) if name == "guarantee")
        yield from ((name, "") for name in named(node) if name == "exhaustive")


def named(node: ast.expr | ast.AST) -> list[str]:
    known = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute) and node.value.attr == "mark"
    return [node.attr] if known and isinstance(node, ast.Attribute) else []


def marked(body: list[ast.stmt], inherited: list[ast.expr]) -> Iterator[tuple[str, set[tuple[str, str]]]]:
    """Every test with its marks, and those of its class and module."""
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            inherited = [*inherited, node.value]
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from marked(node.body, [*inherited, *node.decorator_list])
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name, set(marks([*inherited, *node.decorator_list]))


def proofs() -> dict[str, list[tuple[str, bool]]]:
    """By anchor the tests that are marked with it, and whether `make test` runs them."""
    found: dict[str, list[tuple[str, bool]]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.guarantee(" in text:
            for name, own in marked(ast.parse(text).body, []):
                for anchor in (argument for mark, argument in own if mark == "guarantee"):
                    found.setdefault(anchor, []).append((f"{path.name}::{name}", ("exhaustive", "") not in own))
    return found


PROOFS = proofs()


def test_every_row_has_an_anchor_of_its_own() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    rows = [line for line in lines if not line.startswith(("| never |", "| --- |"))]
    assert len(rows) == len(ANCHORS) == len(set(ANCHORS))
    assert rows


@pytest.mark.parametrize("anchor", ANCHORS)
def test_make_test_tries_to_break_it(anchor: str) -> None:
    assert [name for name, quick in PROOFS.get(anchor, []) if quick], f"only exhaustive: {PROOFS.get(anchor)}"


def test_no_mark_names_a_row_that_is_not_there() -> None:
    assert set(PROOFS) <= set(ANCHORS)
