"""Subjects that are blocked, for status and report. Pure."""

from msgspec import Struct


class Blocker(Struct, frozen=True, kw_only=True):
    """Something blocked, the reason, and the remedy."""

    subject: str
    """What failed or was interrupted."""
    on: str
    """Why."""
    hint: str
