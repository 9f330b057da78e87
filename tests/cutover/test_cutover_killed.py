"""`kill -9` of a cutover and of a rollback at every transition, and while it carries back: the same command goes on."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from migrator.cutover import rollback
from migrator.cutover.model import CutoverStep
from migrator.cutover.records import CutoverRecords
from migrator.fs.moving import MovingTarget
from migrator.plan.records import PlanRecords
from migrator.transfer.records import PassRecords
from tests.support.cut_site import CutSite, Snapshot, change, cut_site, top_facts
from tests.support.leftovers import remove_when_killed
from tests.support.xfs import missing_for_xfs, xfs

pytestmark = pytest.mark.needs_root

_S = CutoverStep
THERE = (_S.FREEZE, _S.FINAL_PASS, _S.VERIFY, _S.SWITCH, _S.THAW, _S.RETAIN)
BACK = (_S.ROLLBACK_FREEZE, _S.CARRY_BACK, _S.ROLLBACK_VERIFY, _S.SWITCH_BACK, _S.ROLLBACK_THAW)
INTENDED, ACTED = "intended", "acted"
HOOKED = ("pre-freeze", "post-switch", "post-thaw")
REFUSES = "90-refuses"
SIDES = {"cutover": "target", "rollback": "source"}


@pytest.fixture(scope="module")
def shared() -> Iterator[CutSite]:
    """One site for all of these: each ends with the user unharmed on one of the sides."""
    if reason := missing_for_xfs():
        pytest.skip(f"needs XFS on a loop device: {reason}")
    with TemporaryDirectory(prefix="migrator-test-") as name, ExitStack() as stack:
        directory = remove_when_killed(Path(name))
        directory.chmod(0o755)
        for side in ("source", "target"):
            (directory / side).mkdir()
        mounts = [stack.enter_context(xfs(directory / side)) for side in ("source", "target")]
        yield stack.enter_context(cut_site(directory, *mounts, stages=HOOKED))


@pytest.fixture
def site(shared: CutSite) -> CutSite:
    """Its user works on the source."""
    (shared.directory / "hooks" / "pre-switch.d" / REFUSES).unlink(missing_ok=True)
    if shared.tree() != shared.source():
        shared.rollback()
    return shared


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def death_at(step: CutoverStep, moment: str) -> Callable[[], None]:
    """The program ends itself after the intent of a step and before the act, or after the act and before its record."""

    def patch() -> None:
        intend, finish = CutoverRecords.intend, CutoverRecords.finish
        steps: dict[int, CutoverStep] = {}

        def dying_intend(self: CutoverRecords, cutover_id: int, act: Any, **rest: Any) -> int:
            step_id = intend(self, cutover_id, act, **rest)
            steps[step_id] = act.step
            if (act.step, moment) == (step, INTENDED):
                die()
            return step_id

        def dying_finish(self: CutoverRecords, step_id: int, *words: Any, **rest: Any) -> Any:
            if (steps[step_id], moment) == (step, ACTED):
                die()
            return finish(self, step_id, *words, **rest)

        CutoverRecords.intend, CutoverRecords.finish = dying_intend, dying_finish  # type: ignore[method-assign,assignment]

    return patch


def assert_safe(site: CutSite, expected: Snapshot, when: object) -> None:
    """What holds at every instant: where the user's link leads lies all that he has, and no two sides are open to him."""
    assert site.snapshot() == expected, when
    assert not (site.is_open(site.source()) and site.is_open(site.target())), when


def killed(site: CutSite, verb: str, before: Callable[[], None]) -> bool:
    """Whether the call was killed before its end."""
    done = site.start(verb, "--user", "ann", before=before).end()
    assert done.code in (0, -signal.SIGKILL), done.err
    return done.code != 0


@pytest.mark.guarantee("frozen-users")
def test_the_same_command_completes_a_cutover_killed_at_a_transition(site: CutSite) -> None:
    """Twice at each, one after the other, so that every call goes on from where the one before was killed."""
    top = top_facts(site.tree())
    for verb, steps in (("cutover", THERE), ("rollback", BACK)):
        change(site.tree())
        expected = site.snapshot()
        for step, moment in product(steps, (INTENDED, ACTED)):
            assert killed(site, verb, death_at(step, moment)), (step, moment)
            assert_safe(site, expected, (step, moment))
        site.call(verb, "--user", "ann")
        site.assert_works_on(SIDES[verb], expected)
        assert top_facts(site.tree()) == top
    proven = site.rows(
        "SELECT facts ->> '$.notes.verification_id', facts ->> '$.notes.manifest', facts ->> '$.notes.final_pass_id',"
        " facts ->> '$.notes.target_changes.files' FROM operations WHERE state = 'rolled-back'"
    )
    assert proven
    assert not [one for one in proven if None in one], "what a killed call had done is written down by the next"


def death_after(kind: object, name: str) -> Callable[[], None]:
    """The program ends itself when a method has done its work for the first time."""

    def patch() -> None:
        method = getattr(kind, name)

        def dying(*words: Any, **rest: Any) -> None:
            method(*words, **rest)
            die()

        setattr(kind, name, dying)

    return patch


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (rollback, "write_switched"),
        (PlanRecords, "record"),
        (PassRecords, "start"),
        (MovingTarget, "move"),
        (PassRecords, "started"),
        (PassRecords, "finish"),
    ],
)
def test_the_same_command_completes_a_rollback_killed_while_it_carries_back(
    site: CutSite, kind: object, name: str
) -> None:
    # The second change renames a directory of the first: only then has every call something to move.
    change(site.tree())
    site.cutover()
    top = top_facts(site.tree())
    change(site.tree())
    expected = site.snapshot()
    assert killed(site, "rollback", death_after(kind, name))
    assert_safe(site, expected, name)
    # The user waits frozen: the same command finishes what is left.
    site.call("rollback", "--user", "ann")
    site.assert_works_on("source", expected)
    assert top_facts(site.tree()) == top
    assert not list(site.site.source.path.rglob(".migrator-copy-*"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("verb", SIDES)
def test_the_same_command_completes_a_revert_that_was_killed(site: CutSite, verb: str) -> None:
    """The thaw where he was is an act like any other."""
    if verb == "rollback":
        site.cutover()
    side, top = SIDES["cutover" if verb == "rollback" else "rollback"], top_facts(site.tree())
    site.hook(f"pre-switch.d/{REFUSES}", "echo not tonight; exit 1")
    step = _S.REVERT if verb == "cutover" else _S.ROLLBACK_REVERT
    for turn, death in enumerate([death_at(step, INTENDED), death_at(step, ACTED)]):
        change(site.tree())
        expected = site.snapshot()
        assert killed(site, verb, death)
        assert_safe(site, expected, turn)
        site.call(verb, "--user", "ann", code=4)
        site.assert_works_on(side, expected)
        assert top_facts(site.tree()) == top
        assert "not tonight" in site.states()[-1][1]
