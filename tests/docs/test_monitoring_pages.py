"""docs/monitoring.md, the dashboard and the alerts name the metrics that there are, and Prometheus takes them."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.report.model import MetricKind
from migrator.report.rules_metrics import CATALOGUE

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "docs" / "monitoring"
ALERTS = (MONITORING / "alerts.yml").read_text(encoding="utf-8")
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "grafana-dashboard.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")

EXPOSED = {spec.name: spec for spec in CATALOGUE if spec.kind is not MetricKind.HISTOGRAM} | {
    f"{spec.name}_{suffix}": spec
    for spec in CATALOGUE
    if spec.kind is MetricKind.HISTOGRAM
    for suffix in ("bucket", "sum", "count")
}
OF_PROMETHEUS = {"job", "instance", "le"}
LABELS = OF_PROMETHEUS | {label for spec in CATALOGUE for label in spec.labels}


def alert_rules() -> list[tuple[str, str]]:
    """Every alert with its expression: the samples are written in a few forms of YAML only."""
    found = []
    for block in re.split(r"^      - alert: ", ALERTS, flags=re.MULTILINE)[1:]:
        name = block.splitlines()[0]
        expression = re.search(r"^        expr: (?:>-\n)?(.*?)(?=^        \w+:)", block, re.MULTILINE | re.DOTALL)
        assert expression is not None, name
        found.append((name, expression[1]))
    return found


def dashboard_expressions() -> list[tuple[str, str]]:
    return [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


EXPRESSIONS = [*alert_rules(), *dashboard_expressions()]


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics that an expression names, with the labels that it chooses them by."""
    for name, matchers in re.findall(r"\b(migrator_\w+)(?:\{((?:[^{}\"]|\"(?:[^\"\\]|\\.)*\")*)\})?", expression):
        yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", matchers))


def grouped(expression: str) -> set[str]:
    lists = re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", expression)
    return {label.strip() for words in lists for label in words.split(",")}


def promtool() -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("there is no promtool")
    return program


def test_there_is_something_to_check() -> None:
    assert len(alert_rules()) == ALERTS.count("- alert:") > 10
    assert len(dashboard_expressions()) > 20
    assert all(any(selectors(expression)) for _, expression in EXPRESSIONS)


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS)
def test_it_names_metrics_and_labels_that_there_are(where: str, expression: str) -> None:
    for name, labels in selectors(expression):
        assert name in EXPOSED, where
        assert labels <= OF_PROMETHEUS | set(EXPOSED[name].labels), f"{where}: {name}"
    assert grouped(expression) <= LABELS, where


def test_the_page_has_every_metric_as_it_is_and_no_other() -> None:
    rows = set(re.findall(r"^- `migrator_.*$", PAGE, re.MULTILINE))
    wanted = {
        f"- `{spec.name}` ({', '.join([spec.kind.value, *(f'`{label}`' for label in spec.labels)])}): {spec.help}"
        for spec in CATALOGUE
    }
    assert rows == wanted
    assert set(re.findall(r"\bmigrator_\w+", PAGE)) <= set(EXPOSED) | {spec.name for spec in CATALOGUE}


def test_every_label_of_the_catalogue_is_one_that_does_not_grow_with_users_or_files() -> None:
    bounded = {
        *("version", "site", "plan", "verb", "state", "exit_code", "kind", "severity", "stage", "outcome", "batch"),
        *("host", "from", "pass", "engine", "bound", "side", "operation", "whole", "brick", "task", "window"),
    }
    assert {label for spec in CATALOGUE for label in spec.labels} == bounded


def test_prometheus_takes_the_alerts_and_they_come_when_they_should() -> None:
    checks = [["check", "rules", str(MONITORING / "alerts.yml")]]
    checks.append(["test", "rules", str(ROOT / "tests" / "fixtures" / "monitoring" / "alerts_test.yml")])
    for words in checks:
        done = subprocess.run([promtool(), *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_every_expression_of_the_dashboard(tmp_path: Path) -> None:
    rules = []
    for number, (_, expression) in enumerate(dashboard_expressions()):
        plain = expression.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*")
        assert "$" not in plain
        rules.append(f"  - record: panel{number}\n    expr: {json.dumps(plain)}\n")
    file = tmp_path / "panels.yml"
    file.write_text("groups:\n- name: panels\n  rules:\n" + "".join(rules))
    done = subprocess.run([promtool(), "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
