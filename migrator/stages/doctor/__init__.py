"""Doctor: everything that should be known before a migration begins, each finding with its fix."""

from migrator.stages.doctor.stage import examine
from migrator.stages.doctor.world import DoctorWorld

__all__ = ["DoctorWorld", "examine"]
