"""The schemas in docs/schemas are those of the program, and its documents fit them."""

import json

import jsonschema
import pytest
from msgspec import Struct

from migrator.cli.main import main
from migrator.ledger.model import RunRecord
from migrator.render.text import to_json
from migrator.report.model import RunStatus
from tests.support.facts import report
from tests.support.json_documents import require_valid, verb_of
from tools.json_schemas import COMMON_KEYS, DOCUMENTS, SCHEMAS, description, render_schemas, schema, structs
from tools.reference_pages import verbs


def test_every_verb_has_a_schema() -> None:
    assert set(DOCUMENTS) == {" ".join(words) for words, _ in verbs(main)}


def test_the_committed_schemas_are_current() -> None:
    committed = {file.name: file.read_text(encoding="ascii") for file in SCHEMAS.iterdir()}
    assert committed == render_schemas(), "run `make docs`"


@pytest.mark.parametrize("verb", DOCUMENTS)
def test_a_schema_is_valid_and_permits_errors(verb: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(verb))
    require_valid(verb, {"error": {"message": "failed", "cause": "", "hint": ""}, "exit_code": 1})
    with pytest.raises(jsonschema.ValidationError):
        require_valid(verb, {"error": "failed"})


def test_two_structs_of_one_name_have_no_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    class InitResult(Struct):
        """Of another feature."""

    assert schema("init")
    monkeypatch.setitem(DOCUMENTS, "scan", InitResult)
    with pytest.raises(TypeError, match="InitResult"):
        schema("scan")


def test_a_key_without_an_explanation_has_no_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    assert schema("brick retire")
    monkeypatch.delitem(COMMON_KEYS, "hint")
    with pytest.raises(TypeError, match=r"\.hint"):
        schema("brick retire")


def test_no_keys_are_fields_or_properties() -> None:
    hidden = {kind: kind.NO_KEYS for kind in structs().values() if hasattr(kind, "NO_KEYS")}
    assert len(hidden) > 10
    for kind, names in hidden.items():
        assert all(name in kind.__struct_fields__ or isinstance(getattr(kind, name), property) for name in names), kind


def test_the_docstring_of_a_field_describes_its_key_also_in_a_derived_class() -> None:
    described = schema("status")["$defs"]
    assert described["RunStatus"]["properties"]["silent_s"]["description"] == description(RunStatus, "silent_s") != ""
    assert described["RunStatus"]["properties"]["verb"]["description"] == description(RunRecord, "verb") != ""


def test_a_report_fits_its_schema_and_no_key_may_be_missing_or_of_another_type() -> None:
    document = json.loads(to_json(report()))
    status = document["status"]
    require_valid("report", document)
    require_valid("status", status)
    broken = [{name: value for name, value in status.items() if name != missing} for missing in status]
    for one in [*broken, status | {"at_s": "today"}, status | {"batches": None}]:
        with pytest.raises(jsonschema.ValidationError):
            require_valid("status", one)


def test_the_verb_of_a_call_is_found_among_options_and_values() -> None:
    assert verb_of(["--site", "x", "brick", "list", "--json"]) == "brick list"
    assert verb_of(["--site", "x", "run", "--user", "plan", "--json"]) == "run"
