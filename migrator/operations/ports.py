"""Protocols of moves of users: the features before the cutover read them, and the cutover fulfils them."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Protocol

from migrator.core.entry import UserTree


class TreeMove(Protocol):
    """An attempt to move the user of a tree to the target. Times are None for a state that was never entered.

    Properties of the record are keys of its JSON, which methods are not.
    """

    @property
    def tree(self) -> UserTree: ...
    @property
    def batch(self) -> int: ...
    @property
    def state(self) -> StrEnum: ...
    def has_begun(self) -> bool:
        """True if the user was frozen, and does not work on the source again."""

    @property
    def under_way(self) -> bool:
        """True if the user may be frozen."""

    def is_settled(self) -> bool:
        """True if the user works on the target."""

    def is_purged(self) -> bool:
        """True if the source is freed."""

    @property
    def let_in_s(self) -> float | None:
        """When the user was first let in on the target."""

    def settled_at_s(self) -> float | None:
        """When the user was last thawed on the target."""

    def purging_at_s(self) -> float | None: ...
    def purged_at_s(self) -> float | None: ...


class TreeMoves(Protocol):
    """Every attempt to move a user."""

    def latest(self, tree: bytes, /) -> TreeMove | None:
        """The newest attempt of a tree, of any plan."""

    def of_plan(self, plan: str, /) -> Sequence[TreeMove]:
        """Every attempt of a plan, oldest first."""

    def require_apart(self, trees: Iterable[bytes], /) -> None:
        """Raise Refused if a tree contains, or lies in, another tree that was moved or is being moved."""
