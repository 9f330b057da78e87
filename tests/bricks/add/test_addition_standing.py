"""How far additions of bricks are, and when somebody has to be told."""

from dataclasses import replace

import pytest

from migrator.bricks.add.model import AdditionNotes, AdditionRecord, AdditionSide, AdditionState
from migrator.bricks.add.rules import addition_blockers, newest_attempts, standing
from migrator.bricks.drain.model import DrainSample
from migrator.gluster.model import ListedDirectory
from tests.support.making import made
from tests.support.volumes import drain_sample

S = AdditionState
NEW = "gl2:/srv/b/data"


def sample(at_s: float, lookups: int, *, task_id: str = "balance", files: int = 0, host: str = "gl1") -> DrainSample:
    counted = {"lookups": lookups, "failures": 1, "skipped": 2}
    return drain_sample(files, files * 100, at_s=at_s, task_id=task_id, host=host, **counted)


def record(state: AdditionState = S.BALANCING, **changes: object) -> AdditionRecord:
    notes = AdditionNotes(task_id="balance", size_bytes=1000, files=400)
    return made(AdditionRecord, **{"bricks": (NEW,), "state": state, "times": {state: 5.0}, "notes": notes, **changes})


LOOKS = (
    sample(0.0, 0, task_id="layout", files=3),
    sample(10.0, 0),
    sample(10.0, 0, host="gl2"),
    sample(20.0, 60, files=4),
    sample(20.0, 40, host="gl2", files=2),
)


def test_a_rebalance_looks_at_every_file_and_that_is_how_long_it_takes() -> None:
    one = standing(record(), LOOKS)
    assert (one.lookups, one.files, one.left_s) == (100, 400, 30.0)
    assert (one.files_per_s, one.bytes_per_s, one.looked_at_s) == (0.6, 60.0, 20.0)
    # What was moved counts over all tasks; what went wrong only of the one that counts.
    assert (one.moved_files, one.moved_bytes, one.failures, one.skipped) == (9, 900, 2, 4)


@pytest.mark.parametrize(
    "changed",
    [
        record(S.LAYOUT),
        record(S.SETTLED),
        # Begun anew: what is known is of the task before.
        record(notes=AdditionNotes(task_id="another", files=400)),
        # Link-to files are looked at too: there were more than was thought.
        record(notes=AdditionNotes(task_id="balance", files=99)),
        record(notes=AdditionNotes(task_id="balance")),
    ],
    ids=lambda one: f"{one.state}-{one.notes.files}",
)
def test_what_is_not_known_has_no_end(changed: AdditionRecord) -> None:
    assert standing(changed, LOOKS).left_s is None
    before = standing(changed, ())
    assert (before.lookups, before.moved_files, before.files_per_s, before.looked_at_s) == (0, 0, None, None)


def test_of_the_same_bricks_on_the_same_side_only_the_newest_attempt_counts() -> None:
    source = record(S.SETTLED)
    target = replace(source, id=2, side=AdditionSide.TARGET)
    again = replace(source, id=3, attempt=2)
    assert newest_attempts([source, target, again]) == (target, again)


@pytest.mark.parametrize("state", list(AdditionState))
def test_what_nobody_goes_on_with_is_said_and_nothing_else(state: AdditionState) -> None:
    one = standing(record(state, failure="no room", instead_of="gl1:/old"), LOOKS)
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
