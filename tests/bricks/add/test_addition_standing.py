"""How far additions of bricks are, and when somebody has to be told."""

import pytest

from migrator.bricks.add.model import AdditionNotes, AdditionRecord, AdditionState
from migrator.bricks.add.rules import addition_blockers, standing
from migrator.gluster.model import ListedDirectory
from tests.support.making import made
from tests.support.volumes import drain_sample

S = AdditionState
NEW = "gl2:/srv/b/data"


def record(state: AdditionState = S.BALANCING, **changes: object) -> AdditionRecord:
    notes = AdditionNotes(task_id="balance", size_bytes=1000, files=400)
    return made(AdditionRecord, **{"bricks": (NEW,), "state": state, "times": {state: 5.0}, "notes": notes, **changes})


@pytest.mark.parametrize("state", list(AdditionState))
def test_what_nobody_goes_on_with_is_said_and_nothing_else(state: AdditionState) -> None:
    one = standing(record(state, failure="no room", instead_of="gl1:/old"), [drain_sample(at_s=20.0)])
    found = list(addition_blockers([one], at_work=False, now_s=80.0))
    assert list(addition_blockers([one], at_work=True, now_s=80.0)) == []
    if state in (S.PLANNED, S.SETTLED, S.TAKEN_BACK, S.FORGOTTEN):
        assert found == []
        return
    (blocker,) = found
    assert NEW in blocker.subject
    assert "no room" in blocker.on
    assert f"migrator brick add {NEW} --to source --instead-of gl1:/old" in blocker.hint
    assert ("1 min ago" in blocker.on) == (state is not S.FAILED)


def listed(number: int) -> ListedDirectory:
    return made(ListedDirectory, path=b"home/a\xff/%d" % number, reason="shut", command=f"chmod {number}")


@pytest.mark.parametrize("at_work", [False, True])
def test_directories_wait_each_with_its_command_also_when_everything_else_is_over(at_work: bool) -> None:
    notes = AdditionNotes(directories=tuple(map(listed, range(7))))
    one = standing(record(S.SETTLED, notes=notes), ())
    *first, more = addition_blockers([one], at_work=at_work, now_s=80.0)
    assert [(blocker.subject, blocker.on, blocker.hint) for blocker in first] == [
        (rf"home/a\xff/{number}", "shut", f"`chmod {number}`") for number in range(5)
    ]
    assert more.on.startswith("2 more directories wait")
