"""Lookups by name, once the layout of directories changes.

With `cluster.lookup-optimize` (the default) a client asks for a name only where the layout of its directory has it. A drain
and a fix-layout give directories another layout and leave the files of the bricks that stay where they are: they are still
listed, but opening one of them by its name says that it does not exist, and a program that makes it then makes a second file
in its stead (GlusterFS 10.3, seen; #118 and #1918 there). So the option is off before the layout changes, and stays off.
"""

from collections.abc import Callable
from typing import Protocol

from migrator.decide.volume_options import LOOKUP_OPTION, is_on

__all__ = ["LOOKUP_OPTION", "LookupOptions", "look_everywhere"]


class LookupOptions(Protocol):
    """What is asked of the volume. Both raise ToolFailed."""

    async def option(self, name: str) -> str:
        """An option as it is in effect, set or not."""

    async def set_option(self, name: str, value: str | None) -> None:
        """Set an option."""


async def look_everywhere(volume: LookupOptions, say: Callable[[str], None]) -> None:
    """Have clients ask all bricks for a name that is not where its layout has it. `say` tells people. It is not put back: only
    a rebalance of the whole volume brings every file to where its layout has it. May be called again. Raises ToolFailed.
    """
    before = await volume.option(LOOKUP_OPTION)
    # An option that was never set may be told as `on (DEFAULT)`.
    if before.split() and is_on({LOOKUP_OPTION: before.split()[0]}, LOOKUP_OPTION, default=True) is False:
        return
    await volume.set_option(LOOKUP_OPTION, "off")
    say(
        f"{LOOKUP_OPTION} is off now (it was {before}), and is to stay off: otherwise files that stay on their bricks could not "
        "be found by name any more"
    )
