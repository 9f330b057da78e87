"""Plan documents on disk."""

from collections.abc import Collection
from typing import Protocol

from migrator.domain.plan import Plan


class PlanDocuments(Protocol):
    """`plans/NAME.json`: canonical JSON with a checksum over its content."""

    def write(self, plan: Plan) -> tuple[str, str]:
        """Write atomically; returns path and checksum. A name that is taken is refused."""

    def read(self, name: str) -> tuple[Plan, str]:
        """The plan and its checksum. Raises Refused where it was edited by hand, UsageError where it is missing."""


class NewPlans(PlanDocuments, Protocol):
    """What making a plan needs besides."""

    def next_name(self, *, taken: Collection[str] = ()) -> str:
        """The first free name of the form `plan-0001`; `taken` are names that are in use elsewhere."""

    def require_free(self, name: str) -> None:
        """Raises UsageError where the name cannot be one, or is taken."""
