"""A target without room for renames: which storage target that is, is said."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.core.states import PassKind
from migrator.delta import moving
from migrator.delta.moving import Moved
from migrator.fs.model import TargetCapabilities
from migrator.transfer.model import StopReason

DETAIL = "moving home/alice/f to the trash"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (StopReason.TARGET_FULL, f"{DETAIL}; the storage target target_201 is full"),
        (StopReason.TARGET_MOVES, DETAIL),
    ],
)
def test_a_full_target_is_named(monkeypatch: pytest.MonkeyPatch, reason: StopReason, words: str) -> None:
    async def stops(*_: object, **__: object) -> Moved:
        return Moved(stop=(reason, DETAIL))

    async def full_words() -> str:
        return "the storage target target_201 is full"

    monkeypatch.setattr(moving, "apply_moves", stops)
    stopped: list[tuple[StopReason, str]] = []
    nothing = SimpleNamespace(source=None, blocking=None, begun_after_now=None, stall_timeout_s=1.0, number=1)
    ports = dict.fromkeys(("world", "batch", "sync", "health", "request"), nothing)
    storage = SimpleNamespace(full_words=full_words)
    under_way: Any = SimpleNamespace(**ports, storage=storage, stop=lambda *words: stopped.append(words))
    lists = {"moved_at_s": None, "move_list": "m", "move_list_digest": "d"}
    record: Any = SimpleNamespace(**lists, started_at_s=0.0, kind=PassKind.DELTA, number=1)
    no_port: Any = None
    carried = moving.carry_out_moves(
        under_way, record, TargetCapabilities(), title="delta pass 1", moves=no_port, lists=no_port
    )
    asyncio.run(carried)
    assert stopped == [(reason, words)]
