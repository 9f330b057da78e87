"""Sources that a drain would move for nothing: when it waits for their purge, and what it says."""

from dataclasses import replace

import pytest

from migrator.bricks.drain.model import RetainedSource, TreeOnBricks
from migrator.bricks.drain.rules_preflight import purge_commands, retained_sources
from migrator.core.entry import UserTree
from migrator.core.units import DAY_S, GIB
from migrator.cutover.model import CutoverRecord, CutoverState
from tests.support.making import made

S = CutoverState
ALICE = b"home/alice"
NOW_S = 100.0 + 30 * DAY_S


def cut(tree: bytes, state: CutoverState = S.RETAINED) -> CutoverRecord:
    user = UserTree(path=tree, user=tree.decode().removeprefix("home/"))
    return made(CutoverRecord, plan="plan", tree=user, state=state, times={S.THAWED: 100.0, state: 100.0})


def sources(record: CutoverRecord) -> tuple[RetainedSource, ...]:
    on_brick = [TreeOnBricks(tree=ALICE, files=10, size_bytes=GIB)]
    return retained_sources(on_brick, {ALICE: record}, retain_s=14 * DAY_S, now_s=NOW_S)


@pytest.mark.parametrize("state", list(CutoverState))
def test_only_who_works_on_the_target_and_is_not_purged_has_a_retained_source(state: CutoverState) -> None:
    expected = state in (S.THAWED, S.RETAINED, S.PURGING)
    assert bool(sources(cut(ALICE, state))) == expected


def test_commands_name_the_plan_of_the_cutover_and_are_safe_to_paste() -> None:
    (one,) = sources(cut(ALICE))
    commands = purge_commands([one, replace(one, plan="old", user="o'neil; rm"), one])
    assert commands == (
        "`migrator purge --plan plan --user alice --dry-run`",
        "`migrator purge --plan old --user 'o'\"'\"'neil; rm' --dry-run`",
    )
