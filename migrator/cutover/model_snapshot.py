"""The snapshot of a tree, on which the next step depends. Pure."""

from enum import StrEnum

from msgspec import Struct


class TopState(StrEnum):
    """The top directory of a tree.

    On the source, compared with the record (without a record every top is `open`): `open` as before the freeze,
    `frozen` as the freeze leaves it. On the target: `open` as a thaw leaves it, `frozen` closed, or as the freeze of a
    rollback leaves it.

    `partly`: a mixture of both, from an interrupted freeze or thaw. `other`: none of these. `unknown`: the look-up
    failed. If only a hook freezes, its recorded end decides between `open` and `frozen`.
    """

    OPEN = "open"
    FROZEN = "frozen"
    PARTLY = "partly"
    OTHER = "other"
    UNKNOWN = "unknown"


class LinkState(StrEnum):
    """The side to which the user's path leads. `by-hook`: a hook switches it, and this program cannot check the result."""

    SOURCE = "source"
    TARGET = "target"
    OTHER = "other"
    UNKNOWN = "unknown"
    BY_HOOK = "by-hook"


class FinalPassResult(Struct, frozen=True, kw_only=True):
    """The newest final pass over the tree, or the newest pass that carries back, by its number in the ledger.

    `finished_at_s` is None while it runs. `changed` and `vanished` count files that did so during the pass, `failed`
    those that did not arrive. `whole`: nothing was unreadable, and the side that was read was healthy before and after.
    """

    id: int
    finished_at_s: float | None
    changed: int
    vanished: int
    failed: int
    whole: bool


class TreeProof(Struct, frozen=True, kw_only=True):
    """The newest finished verification of the tree, by its number in the ledger. `by_policy`: it read the content of
    all files that the site's policy requires. `differences` counts those of this tree; `examples` describe some of
    them.
    """

    id: int
    whole: bool
    differences: int
    by_policy: bool
    manifest: str | None
    reasons: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


class TreeSnapshot(Struct, frozen=True, kw_only=True):
    """A snapshot, taken after the record was read.

    `writing`, `copied` and `proof` belong to the direction in flight: the final pass on the source, or the carrying back from
    the target. `writing` lists the reasons why processes may still write to the frozen tree; None if that was not
    checked, which counts as a reason too. In other attributes None means that the thing is missing. `lacks_backup`: the
    site requires a backup of the target, and none is recorded. `too_long` reports that the freeze has reached its limit, and
    what took the time.

    For messages: `link_holds` is the present content of the path, `top_differences` explain a top that is `other`.
    """

    link: LinkState
    source_top: TopState
    target_top: TopState
    writing: tuple[str, ...] | None = None
    copied: FinalPassResult | None = None
    proof: TreeProof | None = None
    lacks_backup: bool = True
    too_long: str = ""
    link_holds: bytes | None = None
    top_differences: tuple[str, ...] = ()
