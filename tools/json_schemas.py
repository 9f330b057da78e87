"""Write docs/schemas/ anew: one JSON Schema (2020-12) for the `--json` document of each verb: `make docs`.

The types are those that verbs print; `render/text.py: plain` is how they become JSON. The docstring of a field or property
is the description of its key.
"""

import json
import re
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from migrator.bench import model as bench
from migrator.bench.rules import SuiteComparison
from migrator.bricks.add.model import AdditionSummary
from migrator.bricks.drain.model import DrainSummary
from migrator.bricks.model import BrickListing
from migrator.bricks.retire.model import RetirementSummary
from migrator.bricks.status import BrickStandings
from migrator.catalog.model import CatalogRecord, VerificationRecord
from migrator.core.descriptions import descriptions
from migrator.core.errors import ExitCode, MigratorError
from migrator.core.events import Finding
from migrator.cutover.model_announce import AnnounceSummary, RecordedBackup
from migrator.cutover.model_calls import CutoverSummary
from migrator.doctor.model import ConfigurationCheck, TuningReport
from migrator.lab.churn import ChurnSummary
from migrator.lab.model import LabState
from migrator.plan.limits import LimitReadings
from migrator.plan.model import UsageRanking
from migrator.plan.plan import PlanResult
from migrator.plan.rules_what_if import Sizing
from migrator.purge.model import PurgeSummary
from migrator.reap.model import ReapReport, Released, Restored, TreeArchived
from migrator.render.text import json_keys
from migrator.report.model import MigrationStatus, ReportFacts
from migrator.report.rules_metrics import MetricFamily
from migrator.report.serve import Listening
from migrator.site.init import InitResult
from migrator.transfer.model_governor import GoverningFacts
from migrator.transfer.model_runs import RunSummary

SCHEMAS = Path(__file__).resolve().parent.parent / "docs" / "schemas"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class ErrorWords(Struct):
    """An error."""

    message: str
    cause: str
    hint: str


class ErrorDocument(Struct):
    """Printed instead of the result by a verb that failed."""

    error: ErrorWords
    """The error."""
    exit_code: ExitCode


class PolicyText(Struct):
    """A policy in the form of the other program: `reap policy`."""

    text: str
    """The policy."""


class LabRemoved(Struct):
    """The result of `lab down`."""

    removed: bool
    """There was a lab to remove."""


DOCUMENTS: dict[str, Any] = {
    "init": InitResult,
    "doctor": tuple[Finding, ...] | TuningReport,
    "config check": ConfigurationCheck,
    "scan": CatalogRecord,
    "plan": PlanResult | UsageRanking | LimitReadings | Sizing,
    "run": RunSummary,
    "tune": GoverningFacts,
    "pause": GoverningFacts,
    "resume": GoverningFacts,
    "reap list": ReapReport,
    "reap policy": PolicyText,
    "reap release": Released,
    "reap archive": tuple[TreeArchived, ...],
    "reap restore": tuple[Restored, ...],
    "verify": tuple[VerificationRecord, ...],
    "announce": AnnounceSummary,
    "backup": RecordedBackup,
    "cutover": CutoverSummary,
    "rollback": CutoverSummary,
    "purge": PurgeSummary,
    "metrics": tuple[MetricFamily, ...],
    "serve": Listening,
    "brick list": BrickListing,
    "brick drain": DrainSummary,
    "brick stop": DrainSummary,
    "brick status": BrickStandings,
    "brick add": AdditionSummary,
    "brick forget": BrickStandings,
    "brick retire": RetirementSummary,
    "bench run": bench.BenchmarkSummary,
    "bench list": bench.BenchmarkListing,
    "bench compare": tuple[SuiteComparison, ...],
    "bench clean": bench.Cleaning,
    "status": MigrationStatus,
    "report": ReportFacts,
    "lab up": LabState,
    "lab down": LabRemoved,
    "lab churn": ChurnSummary,
}
"""The result of each verb, by its words. docs/json.md has this order, and explains a type at the first verb that prints it."""


COMMON_KEYS: dict[str, str] = {
    "attempt": "Number of the attempt for the same subject, from 1.",
    "batch": "Number of the batch.",
    "brick": "The brick, as `host:/path`.",
    "bricks": "The bricks, as `host:/path`.",
    "cause": "The usual cause, for people; may be empty.",
    "directories": "Number of directories.",
    "dry_run": "The command was a dry run, and changed nothing.",
    "examples": "The first of a longer list.",
    "exit_code": "Exit code of the command.",
    "failure": "Reason of the last failure, for people.",
    "files": "Number of files: of all paths except directories.",
    "finished_at_s": "When it ended; null: not yet.",
    "free_bytes": "Bytes that are free.",
    "free_inodes": "Inodes that are free.",
    "hint": "The next step, for people; may be empty.",
    "host": "Name of the host.",
    "id": "Number of the record.",
    "message": "What happened, for people.",
    "path": "The path, relative to the root of the source.",
    "plan": "Name of the plan.",
    "reason": "The reason, for people.",
    "reasons": "The reasons, for people.",
    "since_s": "When it reached its state.",
    "size_bytes": "Bytes to copy of the files: holes do not count.",
    "started_at_s": "When it began.",
    "total_bytes": "Bytes in all.",
    "total_inodes": "Inodes in all.",
    "tree": "The user tree: its path, or path and user.",
    "user": "Name of the user.",
    "volume": "Name of the Gluster volume.",
    "whole": "Everything was read without error.",
    "words": "The result or the reason, for people.",
}
"""The meaning of keys whose fields have no docstring."""


def description(kind: type, name: str) -> str:
    """The docstring of a field, property or member, of its class or of a base; empty if it has none."""
    ours = (one for one in kind.__mro__ if one.__module__.startswith(_OURS))
    found = (_descriptions(one.__module__).get(f"{one.__name__}.{name}") for one in ours)
    return next((in_json(text) for text in found if text), "")


def _meaning(kind: type[Struct], name: str) -> str:
    if text := description(kind, name) or COMMON_KEYS.get(name):
        return in_json(text)
    raise TypeError(f"{kind.__name__}.{name} has no docstring, and is no common key")


def summary(kind: type) -> str:
    """The docstring of a struct or enumeration. Further paragraphs of a struct are for those who read its code."""
    text = in_json(_descriptions(kind.__module__)[kind.__name__])
    return text.partition("\n\n")[0] if issubclass(kind, Struct) else text


def in_json(text: str) -> str:
    """A docstring with the literals of JSON."""
    return re.sub(r"\b(None|True|False)\b", lambda found: _LITERALS[found[1]], text)


_OURS = ("migrator.", "tools.", "__main__")
_LITERALS = {"None": "null", "True": "true", "False": "false"}


@cache
def _descriptions(module: str) -> Mapping[str, str]:
    return descriptions(sys.modules[module])


def render_schemas() -> dict[str, str]:
    """The schemas by the names of their files."""
    return {f"{words.replace(' ', '-')}.json": _render(words) for words in DOCUMENTS}


def structs() -> dict[str, type[Struct]]:
    """The structs of all documents by their names, which are unique."""
    render_schemas()
    return dict(_NAMED)


def schema(words: str) -> dict[str, Any]:
    """The schema of what a verb prints: its result, or an error instead."""
    known: dict[str, Any] = {}
    forms = [_form(DOCUMENTS[words], known), _form(ErrorDocument, known)]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"migrator {words} --json",
        "anyOf": forms,
        "$defs": dict(sorted(known.items())),
    }


def _render(words: str) -> str:
    return json.dumps(schema(words), indent=1) + "\n"


_PLAIN: Mapping[Any, dict[str, Any]] = {
    None: {"type": "null"},
    types.NoneType: {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},  # infinite ones become null
    str: {"type": "string"},
    bytes: {"type": "string"},
    Path: {"type": "string"},
    object: {},
    Any: {},
}


_NAMED: dict[str, type[Struct]] = {}
"""Those that have a form already."""


def _form(kind: Any, known: dict[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - a type
    """The schema of a type. The schemas of structs are added to `known`. Raises TypeError for a type without a form."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        forms = [_form(one, known) for one in arguments]
        # A number is null already where it is unknown.
        return forms[0] if forms[1:] == [_PLAIN[None]] and forms[0] == _PLAIN[float] else {"anyOf": forms}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple and arguments[-1] is not Ellipsis:
        items = [_form(one, known) for one in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin in (tuple, list, set, frozenset, Sequence):
        return {"type": "array", "items": _form(arguments[0], known)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _form(arguments[1], known)}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [one.value for one in kind]}
    if isinstance(kind, type) and issubclass(kind, MigratorError):
        return _form(ErrorWords, known)
    if isinstance(kind, type) and issubclass(kind, Struct):
        if (first := _NAMED.setdefault(kind.__name__, kind)) is not kind:
            raise TypeError(f"{kind} has the name of {first}: each name in a document stands for one type")
        if kind.__name__ not in known:
            known[kind.__name__] = {}  # a struct may contain itself
            fields = keys(kind)
            known[kind.__name__] = {
                "type": "object",
                "description": summary(kind),
                "properties": {
                    name: {"description": _meaning(kind, name), **_form(of, known)}
                    for name, of in sorted(fields.items())
                },
                "required": sorted(fields),
            }
        return {"$ref": f"#/$defs/{kind.__name__}"}
    raise TypeError(f"{kind} has no schema")


def keys(kind: type[Struct]) -> dict[str, Any]:
    """The types of the keys of a struct's object by their names."""
    fields, given = typing.get_type_hints(kind), _parameters(kind)
    return {name: _filled(fields[name] if name in fields else _returned(kind, name), given) for name in json_keys(kind)}


def _returned(kind: type[Struct], name: str) -> Any:  # noqa: ANN401 - a type
    return typing.get_type_hints(getattr(kind, name).fget)["return"]


def _filled(kind: Any, given: Mapping[object, Any]) -> Any:  # noqa: ANN401 - types
    """The type with its parameters replaced."""
    parameters = getattr(kind, "__parameters__", ())
    return kind[tuple(given.get(one, one) for one in parameters)] if parameters else given.get(kind, kind)


def _parameters(kind: type[Struct]) -> dict[object, Any]:
    """The values of the type parameters of generic bases."""
    given: dict[object, Any] = {}
    for one in kind.__mro__:
        for base in vars(one).get("__orig_bases__", ()):
            parameters = getattr(typing.get_origin(base), "__parameters__", ())
            given |= zip(parameters, typing.get_args(base), strict=False)
    return given


if __name__ == "__main__":
    SCHEMAS.mkdir(exist_ok=True)
    for name, text in render_schemas().items():
        (SCHEMAS / name).write_text(text, encoding="ascii")
