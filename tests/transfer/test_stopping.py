"""Errors that stop everything, and what people are told of them."""

import errno

import pytest

from migrator.transfer.model import StopReason
from migrator.transfer.rules import stop_reason


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
