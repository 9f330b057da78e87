"""The time zone of the machine, for the length of a block."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def time_zone(name: str) -> Iterator[None]:
    before = os.environ["TZ"]
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        os.environ["TZ"] = before
        time.tzset()
