"""docs/hooks.md says what the program does with hooks."""

import json
import re
from pathlib import Path

from migrator.bricks.add.stage import AdditionCall
from migrator.bricks.drain.stage import DrainCall
from migrator.core.entry import UserTree
from migrator.core.errors import ExitCode
from migrator.core.states import PassKind
from migrator.hooks import model as hooks
from migrator.hooks.rules import MOST_REASON_CHARACTERS, document, environment, judge
from migrator.site.config import SECTIONS, HooksSection
from tests.support.hook_site import STAGES

PAGE = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text(encoding="utf-8")
STAGE = hooks.HookStage(step=hooks.HookStep.PASS, event=hooks.HookEvent.POST)
SITE = hooks.HookSite(
    site_id="00000000-0000-4000-8000-000000000000",
    name="gl-to-beegfs",
    file=b"/etc/migrator/site.toml",
    source_root=b"/mnt/gl",
    target_root=b"/mnt/beegfs",
)
FACTS = hooks.HookFacts(
    run_id=17,
    plan="plan-0001",
    batch=1,
    pass_kind=PassKind.SEED,
    trees=(UserTree(path=b"home/alice", user="alice"),),
    files=9_000_000,
    size_bytes=13_194_139_533_312,
    state="done",
    copied_files=9_000_000,
    copied_bytes=13_194_139_533_312,
    attention=0,
    started_at_s=1_767_294_000.0,
    finished_at_s=1_767_323_520.0,
)


def section(title: str) -> str:
    return PAGE.split(f"## {title}\n")[1].split("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """The cells of tables, without their headings."""
    lines = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line] for line in lines if not line[0].strip().startswith("---")]


def test_every_stage_is_told_with_the_verbs_that_call_it() -> None:
    table = rows(section("Stages"))[1:]
    assert [row[0] for row in table] == [f"`{stage.name}`" for stage in hooks.all_stages()]
    assert {row[0] for row in table if row[1] == "`run`"} == {f"`{name}`" for name in STAGES}
    assert {row[0] for row in table if "`brick drain`" in row[1] or "`brick stop`" in row[1]} == {
        f"`{stage.name}`" for stage in hooks.all_stages() if stage.step in DrainCall.steps
    }
    assert {row[0] for row in table if "`brick add`" in row[1]} == {
        f"`{stage.name}`" for stage in hooks.all_stages() if stage.step in AdditionCall.steps
    }


def test_what_may_have_failed_and_how_much_of_the_reason_a_variable_has_is_told() -> None:
    cells = {row[0]: row[1] for row in rows(section("Input"))}
    failing = (hooks.HookStep.DRAIN, hooks.HookStep.STOP, hooks.HookStep.ADD)
    assert re.findall(r"`([\w-]+)`", cells["`failed`"]) == [step.value for step in failing]
    assert f"its first {MOST_REASON_CHARACTERS:,} characters" in cells["`MIGRATOR_REASON`"]


def test_the_document_is_the_one_that_a_hook_gets() -> None:
    found = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    assert json.loads(found[1]) == json.loads(document(STAGE, SITE, FACTS))
    assert list(json.loads(found[1])) == list(json.loads(document(STAGE, SITE, FACTS)))
    assert json.loads(found[1])["version"] == hooks.CONTRACT_VERSION


def test_every_key_and_every_variable_is_told() -> None:
    keys, variables = section("Input").split("The environment is clean")
    told = [key for row in rows(keys)[1:] for key in re.findall(r"`(\w+)`", row[0])]
    assert told == list(json.loads(document(STAGE, SITE, FACTS)))
    assert [row[0].strip("`") for row in rows(variables)[1:]] == [name for name, _ in environment(STAGE, SITE, FACTS)]
    values = {name: value for name, value in json.loads(document(STAGE, SITE, FACTS)).items() if value is not None}
    of_variable = dict(environment(STAGE, SITE, FACTS))
    for variable, meaning in rows(variables)[1:]:
        if (key := re.fullmatch(r"`(\w+)`", meaning)) is not None and key[1] in values:
            assert of_variable[variable.strip("`")] == str(values[key[1]])


def test_every_state_is_told() -> None:
    (state,) = [row[1] for row in rows(section("Input")) if row[0] == "`state`"]
    assert re.findall(r"`(\w+)`", state) == ["null", *hooks.HookState]


def test_the_exit_codes_mean_what_the_table_says() -> None:
    table = {row[0]: row[1:] for row in rows(section("Order and results"))[1:]}
    words = {
        "go on": hooks.HookOutcome.GO_ON,
        "as 0": hooks.HookOutcome.GO_ON,
        "skip": hooks.HookOutcome.SKIP,
        "refuse": hooks.HookOutcome.REFUSE,
        "a warning": hooks.HookOutcome.WARN,
    }
    for told, codes in (
        ("0", [0]),
        (str(hooks.SKIP_EXIT_CODE), [hooks.SKIP_EXIT_CODE]),
        ("any other", [1, 2, 61, 63, 255, -9]),
    ):
        (row,) = [cells for first, cells in table.items() if first == told or first.startswith(f"{told},")]
        for event, cell in zip((hooks.HookEvent.PRE, hooks.HookEvent.POST), row, strict=True):
            (outcome,) = [outcome for start, outcome in words.items() if cell.startswith(start)]
            assert {judge(event, hooks.HookResult(exit_code=code)) for code in codes} == {outcome}
    assert f"exit code {int(ExitCode.REFUSED)}, the hook's name" in PAGE


def test_the_limits_are_those_of_the_program() -> None:
    (timeout,) = [key for one in SECTIONS if one.name == "hooks" for key in one.keys]
    assert f"`[hooks] {timeout.name}` of site.toml, `{timeout.default_in_toml.strip(chr(34))}` by default" in PAGE
    assert HooksSection().timeout_s == 600.0
    assert f"The last {hooks.OUTPUT_LIMIT_BYTES >> 10} KiB of its standard output" in PAGE
