"""Probing both file systems beside whatever else goes on."""

from migrator.stages.probing.loop import ProbeWorld, probing

__all__ = ["ProbeWorld", "probing"]
