"""What `plan` asks for its conversion schedule."""

from typing import TYPE_CHECKING

from migrator.domain.errors import ToolFailed
from migrator.stages.plan_schedule import PlanScheduling

if TYPE_CHECKING:
    from migrator.adapters.filesystems.gluster import GlusterSource
    from migrator.adapters.filesystems.posix import PosixSource


async def look_for_schedule(source: "PosixSource | GlusterSource", *, kind: str) -> PlanScheduling | None:
    """The volume as it is now; None where the source (`[source] kind`) has no bricks."""
    if kind != "gluster":
        return None
    from migrator.adapters.filesystems.gluster import GlusterSource  # noqa: PLC0415

    if not isinstance(source, GlusterSource):
        raise TypeError(f"a source of kind {kind} is no volume")
    try:
        return PlanScheduling(volume=await source.overview())
    except ToolFailed as error:
        return PlanScheduling(volume=None, problem=error.message)
