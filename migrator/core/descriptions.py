"""Docstrings that are documentation, read from the source code: Python keeps none of fields."""

import ast
import inspect
from collections.abc import Mapping
from types import ModuleType


def descriptions(module: ModuleType) -> Mapping[str, str]:
    """The docstrings of classes by `Class`, and of their fields, members and properties by `Class.name`. Each paragraph is
    one line.
    """
    found: dict[str, str] = {}
    for kind in ast.parse(inspect.getsource(module)).body:
        if isinstance(kind, ast.ClassDef):
            found[kind.name] = _text(ast.get_docstring(kind))
            for one in kind.body:
                if isinstance(one, ast.FunctionDef) and (text := ast.get_docstring(one)):
                    found[f"{kind.name}.{one.name}"] = _text(text)
            for field, text_below in zip(kind.body, kind.body[1:], strict=False):
                if isinstance(field, ast.Assign | ast.AnnAssign) and isinstance(text_below, ast.Expr):
                    target = field.target if isinstance(field, ast.AnnAssign) else field.targets[0]
                    found[f"{kind.name}.{ast.unparse(target)}"] = _text(ast.literal_eval(text_below.value))
    return found


def _text(docstring: str | None) -> str:
    paragraphs = (" ".join(one.split()) for one in inspect.cleandoc(docstring or "").split("\n\n"))
    return "\n\n".join(paragraphs)
