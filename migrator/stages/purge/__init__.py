"""The source of user trees is freed, against proof."""

from migrator.stages.purge.context import PurgeRequest, PurgeWorld
from migrator.stages.purge.stage import purge

__all__ = ["PurgeRequest", "PurgeWorld", "purge"]
