"""Interfaces of planning: chunk lists and plan documents."""

from collections.abc import Iterable
from typing import Protocol

from migrator.catalog.rules_packing import PackedChunk
from migrator.core.states import PassKind
from migrator.plan.model import Plan, WrittenList


class ChunkListWriter(Protocol):
    """Writes the chunk lists of a plan in progress."""

    def write(self, plan: str, batch: int, chunks: Iterable[PackedChunk]) -> WrittenList:
        """Write the list of one batch durably, in order of number, replacing the leftovers of an interrupted plan.

        In the result, `chunks` counts all kinds, `files` all paths but directories, links included. Raises OSError.
        """


class PassListWriter(Protocol):
    """Writes the chunk lists of passes after the seed."""

    def write_pass(
        self, plan: str, batch: int, number: int, chunks: Iterable[PackedChunk], *, kind: PassKind = PassKind.DELTA
    ) -> WrittenList:
        """Write the list of a pass durably, in order of number; `ChunkLists` reads it. Replaces an existing list, so it must
        not be called for a pass that is in the ledger. Raises OSError.
        """


class PlanDocuments(Protocol):
    """`plans/NAME.json`: canonical JSON with a checksum over its content."""

    def write(self, plan: Plan) -> tuple[str, str]:
        """Write atomically; return path and checksum. Raises UsageError if the name is taken."""

    def read(self, name: str) -> tuple[Plan, str]:
        """Return the plan and its checksum. Raises Refused if it was edited by hand, UsageError if it is missing."""
