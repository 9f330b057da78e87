"""User trees: the directories that move as one unit."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class UserTree:
    """A directory that moves as one unit, relative to the source root, and the user it belongs to."""

    path: bytes
    user: str
