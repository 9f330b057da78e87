"""The interface of plan documents."""

from typing import Protocol

from migrator.plan.model import Plan


class PlanDocuments(Protocol):
    """`plans/NAME.json`: canonical JSON with a checksum over its content."""

    def write(self, plan: Plan) -> tuple[str, str]:
        """Write atomically; return path and checksum. Raises UsageError if the name is taken."""

    def read(self, name: str) -> tuple[Plan, str]:
        """Return the plan and its checksum. Raises Refused if it was edited by hand, UsageError if it is missing."""
