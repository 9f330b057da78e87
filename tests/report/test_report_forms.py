"""The CSV form of a report, and an earlier report read back from its JSON form."""

import csv
import io
import json
from pathlib import Path

import pytest

from migrator.core.errors import UsageError
from migrator.core.paths import show
from migrator.render.text import plain, to_json
from migrator.report.report import read_earlier
from migrator.report.view import to_csv
from tests.render.test_hostile import HOSTILE, assert_safe_text, text_of
from tests.support.facts import AT_S, report


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


class TestCsv:
    def test_every_value_of_the_json_form_has_a_row(self) -> None:
        facts = report()
        found = {(table, row, column): value for table, row, column, value in rows(to_csv(facts))[1:]}
        assert found["", "", "status.overall.done_bytes"] == "620"
        assert found["status.trees", "2", "tree.user"] == "alice2"
        assert found["days", "5", "size_bytes"] == str(2**40 + 1)
        assert found["forecast.cone", "1", "left_bytes"] == "880.0"

        def leaves(value: object) -> int:
            if isinstance(value, dict):
                return sum(map(leaves, value.values()))
            if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
                return sum(map(leaves, value))
            return 1

        assert len(found) == leaves(plain(facts))

    @pytest.mark.parametrize("name", HOSTILE)
    def test_names_are_one_cell_and_no_formula(self, name: bytes) -> None:
        text = to_csv(report(name, text_of(name)))
        assert_safe_text(text)
        assert all(len(row) == 4 for row in rows(text))

    @pytest.mark.parametrize("name", ["=1+1", "+1", "-rf", "@SUM(A1)", "\tx"])
    def test_a_formula_is_text(self, name: str) -> None:
        found = {column: value for _, _, column, value in rows(to_csv(report(b"home/x", name)))}
        shown = show(name.encode()) if name.isprintable() else "\\x09x"
        assert found["status.site"] == (f"'{shown}" if name.isprintable() else shown)

    def test_negative_numbers_are_numbers(self) -> None:
        assert to_csv({"moved_s": -1.5}).splitlines()[1] == ",,moved_s,-1.5"


class TestEarlier:
    def test_what_was_written_is_read_back(self, tmp_path: Path) -> None:
        facts = report()
        (tmp_path / "report.json").write_text(to_json(facts))
        for place in (tmp_path, tmp_path / "report.json"):
            found = read_earlier(place)
            assert (found.at_s, found.plan, found.done_bytes, found.total_files) == (AT_S, "alice", 620, 15)
            assert facts.forecast is not None
            assert found.likely_at_s == facts.forecast.likely_at_s

    def test_one_without_a_forecast(self, tmp_path: Path) -> None:
        document = json.loads(to_json(report()))
        del document["forecast"]
        (tmp_path / "report.json").write_text(json.dumps(document))
        found = read_earlier(tmp_path)
        assert found.likely_at_s is None

    @pytest.mark.parametrize("content", ["", "[]", "{}", '{"status": 7}', "\x00", '{"status": {"at_s": null}}'])
    def test_what_is_no_report(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "other.json").write_text(content)
        with pytest.raises(UsageError, match="is not a report of migrator"):
            read_earlier(tmp_path / "other.json")

    def test_what_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="cannot be read"):
            read_earlier(tmp_path)
