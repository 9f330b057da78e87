"""Carry back what a user changed on the target since he was switched there, for a rollback: the final pass, reversed."""

from migrator.stages.carry_back.back_site import BackParts, Openings
from migrator.stages.carry_back.stage import CarryingBack

__all__ = ["BackParts", "CarryingBack", "Openings"]
