"""Extras: paths that the target has and the source has not, although no list of what vanished names them."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from migrator.domain.changes import Gone


class ExtraOrigin(StrEnum):
    """How an extra is known.

    `earlier-plan`: an earlier plan has brought it, and it was gone when the catalog was made that the present plan begins
    from. `verification`: the newest verification has found it on the target alone.
    """

    EARLIER_PLAN = "earlier-plan"
    VERIFICATION = "verification"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtrasOfTree:
    """Where extras of one tree are looked for. `brought` are the catalogs of all passes that went over it: what none of them
    lists was not brought by this program, and is no extra. `earlier` are those of them that an earlier plan left last.
    `manifest` is that of the verification whose findings count; None: none.
    """

    tree: bytes
    brought: tuple[str, ...]
    earlier: tuple[str, ...] = ()
    manifest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtrasTally:
    """Of one tree: `names_before` and `bytes_before` are what the base lists of it, `names` and `size_bytes` the extras."""

    names_before: int
    bytes_before: int
    names: int
    size_bytes: int


class FoundExtras(Protocol):
    """Extras of some trees. Out of core; one query at a time. Blocking."""

    def tally(self, tree: bytes, origins: Collection[ExtraOrigin]) -> ExtrasTally:
        """How many extras of these origins a tree has."""

    def gone(self, origins: Collection[ExtraOrigin]) -> Iterator[Gone]:
        """The outermost extras of these origins, in order of path. A directory that is known to hold something that this
        program did not bring is not among them.
        """


class Extras(Protocol):
    """Finds extras with the catalogs and manifests of a site."""

    def open(self, wanted: Sequence[ExtrasOfTree], *, base: str, now: str) -> AbstractContextManager[FoundExtras]:
        """Find what the catalog `now` does not list any more, or lists as something else than a directory where one was, or
        the other way round; what vanished since `base` is none of it. Catalogs of `brought` and `earlier` that are not there
        any more are left out: then less is found. Blocking. Raises UsageError and Refused as a comparison does, and Refused
        where the findings of the verification are missing.
        """
