"""The pages and samples under docs/, README and the Makefile agree with the program."""

import json
import re
import shutil
import subprocess
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from migrator.bench.model import SuiteName
from migrator.bench.suites import publications, suite
from migrator.cli.main import main
from migrator.core.errors import EXIT_CODE_MEANINGS, ExitCode, UsageError
from migrator.plan.document import read_document, write_document
from migrator.report.rules_metrics import CATALOGUE, MetricKind
from migrator.site.config import SECTIONS
from migrator.site.load import load_site
from tools.json_reference import render_json_reference
from tools.json_schemas import COMMON_KEYS, description, keys, structs
from tools.locks import locked
from tools.reference_pages import render_cli_reference, render_metrics_reference, render_reference, verbs
from tools.sample_plan import sample_plan

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("page", "made"),
    [
        ("docs/cli.md", render_cli_reference),
        ("docs/configuration.md", render_reference),
        ("docs/json.md", render_json_reference),
        ("docs/metrics.md", render_metrics_reference),
        ("plans/sample.json", lambda: write_document(sample_plan())[0]),
    ],
)
def test_a_page_is_the_one_that_the_program_gives(page: str, made: Callable[[], str]) -> None:
    assert (ROOT / page).read_text(encoding="utf-8") == made(), "write it anew: make docs"


def test_the_sample_plan_is_read_and_written_the_same() -> None:
    text = (ROOT / "plans" / "sample.json").read_text(encoding="utf-8")
    plan, checksum = read_document(text, name="sample")
    assert write_document(plan) == (text, checksum)
    assert any(b"\xe9" in usage.tree.path for usage in plan.ranking)


def test_every_verb_is_in_the_readme_and_the_readme_names_no_other() -> None:
    table = README.partition("## Verbs")[2].partition("## ")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = {cell for row in rows for cell in re.findall(r"`([^`]+)`", row)}
    assert named == {" ".join(words) for words, _ in verbs(main)}


def test_every_option_in_the_readme_exists() -> None:
    options = {name for _, command in verbs(main) for option in command.params for name in option.opts} | {"--site"}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) - {"--help"}
    assert named <= options, named - options


def test_the_readme_has_the_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", README, flags=re.MULTILINE)
    assert rows == [(str(code.value), meaning) for code, meaning in EXIT_CODE_MEANINGS.items()]


def test_exit_codes_are_all_told_and_none_twice() -> None:
    assert set(EXIT_CODE_MEANINGS) == set(ExitCode)
    assert len({code.value for code in ExitCode}) == len(ExitCode)


def test_every_verb_takes_json_and_explains_every_option() -> None:
    for words, command in verbs(main):
        assert "--json" in {name for option in command.params for name in option.opts}, words
        options = [option for option in command.params if isinstance(option, click.Option)]
        assert all(option.help for option in options), words
        assert command.help, words


def anchors(page: Path) -> set[str]:
    """The anchors of a page: its own, and those that GitHub makes of its headings."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    made = {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}
    return made | set(re.findall(r'<a id="([^"]+)">', text))


def test_links_between_the_pages_lead_somewhere() -> None:
    readmes = [ROOT / folder / "README.md" for folder in ("hooks", "plans")]
    for page in (*ROOT.glob("*.md"), *readmes, *(ROOT / "docs").rglob("*.md")):
        for link, anchor in re.findall(r"\]\((?!\w+:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
            file = page.parent / link if link else page
            assert file.exists(), f"{page.name}: {link}"
            assert not anchor or anchor in anchors(file), f"{page.name}: {link}#{anchor}"


BENCH = (ROOT / "docs" / "bench.md").read_text(encoding="utf-8")


def sections() -> dict[str, tuple[str, str]]:
    """The letters and the text of each suite's section."""
    found = re.findall(r"^### `([\w-]+)`(?: \(([A-E, ]+)\))?\n(.*?)(?=^### |\Z)", BENCH, re.MULTILINE | re.DOTALL)
    return {name: (letters, text) for name, letters, text in found}


def test_every_suite_has_a_section_that_names_whose_it_is() -> None:
    assert set(sections()) == {name.value for name in SuiteName}
    for name, (letters, _) in sections().items():
        theirs = {one.publication for step in suite(SuiteName(name), 1).steps for one in step.published}
        assert theirs <= set(letters.split(", ")), name


def test_every_publication_is_named_by_its_authors() -> None:
    for key, publication in publications().items():
        author = publication["title"].split(",")[0].split(" and ")[0]
        assert f"**{key}** {author}" in BENCH


def test_common_keys_mean_the_same_at_several_places() -> None:
    places = Counter(key for kind in structs().values() for key in keys(kind) if not description(kind, key))
    assert {key for key in COMMON_KEYS if places[key] < 2} == set()


SCRIPTS = sorted([*(ROOT / "tools").glob("*.sh"), ROOT / ".ci" / "run"])


def dry_run(target: str) -> str:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    done = subprocess.run(
        ["make", "--no-print-directory", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_make_command_of_the_readme_exists_and_sets_up_first() -> None:
    named = set(re.findall(r"`?make ([a-z-]+)`?", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert {"demo", "test", "test-all", "venv", "bench"} <= named
    for target in named:
        assert dry_run(target).startswith("tools/setup.sh\n")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_executable_and_parses(script: Path) -> None:
    assert script.stat().st_mode & 0o111
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0


MONITORING = ROOT / "docs" / "monitoring"
ALERTS = (MONITORING / "alerts.yml").read_text(encoding="utf-8")
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "grafana-dashboard.json").read_text(encoding="utf-8"))
MONITORING_PAGE = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")

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


def test_the_page_names_metrics_that_there_are() -> None:
    assert set(re.findall(r"\bmigrator_\w+", MONITORING_PAGE)) <= set(EXPOSED) | {spec.name for spec in CATALOGUE}


def test_every_label_of_the_catalogue_is_one_that_does_not_grow_with_users_or_files() -> None:
    bounded = {
        *("version", "site", "plan", "verb", "state", "exit_code", "kind", "severity", "batch"),
        *("host", "from", "pass", "engine", "bound", "goal", "side", "operation", "brick", "task", "window"),
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


SAMPLES = sorted((ROOT / "docs" / "samples").glob("*.toml"))
INVALID = sorted((Path(__file__).parent / "invalid").glob("*.toml"))
SAYS = "# says: "


@pytest.mark.parametrize("file", SAMPLES, ids=lambda file: file.stem)
def test_a_sample_loads(file: Path) -> None:
    assert load_site(file).file == file


def test_the_sample_of_a_real_site_has_a_value_for_every_key() -> None:
    text = (ROOT / "docs" / "samples" / "site.toml").read_text(encoding="utf-8")
    for section in SECTIONS:
        header = section.header.removesuffix('NAME"]')
        assert header in text
        body = text.split(header, 1)[1].split("\n[", 1)[0]
        for key in section.keys:
            assert f"\n{key.name} = " in body, f"[{section.name}] {key.name}"


@pytest.mark.parametrize("file", INVALID, ids=lambda file: file.stem)
def test_a_wrong_one_says_what_is_wrong(file: Path) -> None:
    says = [line.removeprefix(SAYS) for line in file.read_text(encoding="utf-8").splitlines() if line.startswith(SAYS)]
    assert says
    with pytest.raises(UsageError) as caught:
        load_site(file)
    assert caught.value.exit_code is ExitCode.USAGE
    for sentence in says:
        assert sentence in caught.value.message


def test_no_package_may_be_older_than_what_the_tests_use() -> None:
    """Older ones were not tried: pyarrow 15 ends the process, DuckDB before 2.0 mixes the rows of two queries."""
    tried = {name: version.rpartition(".")[0] for name, (version, _) in locked(ROOT / "requirements.lock").items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for line in project["dependencies"]:
        name, least = line.lower().split(" >= ")
        assert least == tried[name], name
