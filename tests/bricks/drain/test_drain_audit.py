"""What walks of drained bricks say."""

from typing import Any

import pytest

from migrator.bricks.drain.rules_progress import MOST_EXAMPLES, BrickAudit, audit_of


def walk(**facts: Any) -> BrickAudit:
    return BrickAudit(**{"brick": "gl1:/b", **facts})


def test_nothing_is_left() -> None:
    audit = audit_of([walk(), walk(brick="gl2:/b")], started_at_s=5.0)
    assert (audit.clean, audit.started_at_s, audit.reasons) == (True, 5.0, ())


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"failure": "gl1 is lost"}, "gl1:/b: gl1 is lost"),
        ({"unreadable": 2, "problems": ("a: EIO", "b: EIO")}, "2 paths could not be read: a: EIO; b: EIO"),
        ({"vanished": 1}, "1 path vanished"),
        ({"listed": 3, "arrived": 2}, "of 3 entries 2 arrived"),
    ],
)
def test_what_makes_it_not_whole(facts: dict[str, Any], reason: str) -> None:
    audit = audit_of([walk(**facts), walk(brick="gl2:/b")], started_at_s=5.0)
    assert not audit.whole
    assert not audit.clean
    assert reason in audit.reasons[0]


def test_a_drain_without_bricks_has_no_audit() -> None:
    assert not audit_of([], started_at_s=5.0).whole


def test_the_same_leftover_on_every_brick_of_a_set_is_one() -> None:
    walks = [walk(brick=f"gl{number}:/b", listed=1, arrived=1, left=(b"a",)) for number in (1, 2, 3)]
    audit = audit_of(walks, started_at_s=5.0)
    assert (audit.left, audit.examples, audit.clean) == (1, (b"a",), False)


def test_what_is_left_is_counted_over_all_bricks() -> None:
    walks = [
        walk(listed=2, arrived=2, left=(b"a", b"b")),
        walk(brick="gl2:/b", listed=1, arrived=1, left=(b"c",), unsure=4, may_be_data=(b"d",)),
    ]
    audit = audit_of(walks, started_at_s=5.0)
    assert (audit.whole, audit.left, audit.unsure) == (True, 3, 4)
    assert audit.examples == (b"a", b"b", b"c", b"d")
    assert not audit.clean


def test_the_greater_count_is_believed_and_few_paths_are_kept() -> None:
    many = tuple(b"%d" % number for number in range(2 * MOST_EXAMPLES))
    assert audit_of([walk(listed=0, arrived=40, left=many)], started_at_s=5.0).left == 40
    audit = audit_of([walk(listed=40, arrived=0, left=many)], started_at_s=5.0)
    assert (audit.left, len(audit.examples)) == (40, MOST_EXAMPLES)
