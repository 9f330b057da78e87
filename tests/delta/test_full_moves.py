"""A target without room for renames: which storage target that is, is said."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from migrator.core.states import PassKind
from migrator.delta import moving as pass_moves
from migrator.delta.moving import Moved
from migrator.fs.model import TargetCapabilities
from migrator.fs.moving import TargetMoves
from migrator.ledger.model import PassRecord
from migrator.transfer.context import PassUnderWay
from migrator.transfer.model import StopReason


class Watch:
    async def full_words(self) -> str:
        return "the storage target target_201 is full"


def stops(reason: StopReason) -> Callable[..., Awaitable[Moved]]:
    async def apply(*_: object, **__: object) -> Moved:
        return Moved(stop=(reason, "moving home/alice/f to the trash"))

    return apply


@pytest.mark.parametrize("named", [True, False])
def test_a_full_target_is_named(monkeypatch: pytest.MonkeyPatch, named: bool) -> None:
    reason = StopReason.TARGET_FULL if named else StopReason.TARGET_MOVES
    monkeypatch.setattr(pass_moves, "apply_moves", stops(reason))
    stopped: list[tuple[StopReason, str]] = []
    under_way: Any = SimpleNamespace(
        world=SimpleNamespace(source=None, blocking=None),
        batch=SimpleNamespace(number=1),
        sync=SimpleNamespace(begun_after_now=None),
        health=SimpleNamespace(begun_after_now=None),
        request=SimpleNamespace(stall_timeout_s=1.0),
        storage=Watch(),
        stop=lambda *words: stopped.append(words),
    )
    record: Any = SimpleNamespace(
        moved_at_s=None, move_list="m", move_list_digest="d", started_at_s=0.0, kind=PassKind.DELTA, number=1
    )
    asyncio.run(
        pass_moves.carry_out_moves(
            cast("PassUnderWay", under_way),
            cast("PassRecord", record),
            TargetCapabilities(),
            title="delta pass 1",
            moves=cast("TargetMoves", None),
            lists=cast("Any", None),
        )
    )
    ((found, words),) = stopped
    assert found is reason
    assert words.startswith("moving home/alice/f to the trash")
    assert ("target_201" in words) is named
