"""What glusterd may be told for an addition, for fakes: whatever a test does not expect fails."""

from collections.abc import Sequence

from migrator.gluster.model import TaskProgress, VolumeTask
from migrator.gluster.rules import LOOKUP_OPTION


class NothingAsked:
    """Of the `AdditionCommands` port what changes a volume: nothing is to be changed. Its lookups are as an addition leaves them."""

    async def add(self, bricks: Sequence[str]) -> None:
        raise AssertionError("nothing is to be added")

    async def replace(self, old: str, new: str) -> None:
        raise AssertionError("nothing is to be replaced")

    async def take_offline(self, brick: str) -> None:
        raise AssertionError("no brick is to be taken offline")

    async def put_in(self, brick: str, *, marked: bool) -> None:
        raise AssertionError("no brick is to take its own place")

    async def start_bricks(self) -> None:
        raise AssertionError("no brick was taken offline")

    async def heal(self) -> None:
        raise AssertionError("nothing waits to be healed")

    async def fix_layout(self) -> str:
        raise AssertionError("no layout is to be changed")

    async def rebalance(self) -> str:
        raise AssertionError("nothing is to be moved")

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        raise AssertionError("there is no task")

    async def option(self, name: str) -> str:
        assert name == LOOKUP_OPTION
        return "off"

    async def set_option(self, name: str, value: str | None) -> None:
        raise AssertionError("no option is to be changed")
