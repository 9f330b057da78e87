"""Errors that stop everything, and what people are told of them."""

import errno

import pytest

from migrator.transfer.model import StopReason
from migrator.transfer.rules import explain, stop_reason


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOSPC, StopReason.TARGET_FULL),
        (errno.EDQUOT, StopReason.TARGET_QUOTA),
        (errno.EROFS, StopReason.TARGET_READ_ONLY),
        (errno.EIO, StopReason.IO_ERROR),
        (errno.ENOTCONN, StopReason.DISCONNECTED),
        (errno.EACCES, None),
        (errno.ENOENT, None),
        (None, None),
    ],
)
def test_which_errors_stop_the_pool(code: int | None, reason: StopReason | None) -> None:
    assert stop_reason(code) is reason


@pytest.mark.parametrize("reason", list(StopReason))
def test_every_reason_is_explained(reason: StopReason) -> None:
    stopped = explain(reason, "the detail")
    assert "the detail" in stopped.message
    assert stopped.cause
    assert "same command" in stopped.hint


def test_streams_that_hang_are_named() -> None:
    stopped = explain(StopReason.TARGET_STUCK, "", ("attempt 7",))
    assert "attempt 7" in stopped.message
    assert stopped.unended == ("attempt 7",)
