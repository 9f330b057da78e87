"""Carrying back in a process of its own, to be killed: `python -m tests.faults.carry_child SITE_FILE`."""

import asyncio
import sys
from pathlib import Path

from tests.back_world import opened

if __name__ == "__main__":
    with opened(Path(sys.argv[1])) as (back, record):
        asyncio.run(back.carry(record))
