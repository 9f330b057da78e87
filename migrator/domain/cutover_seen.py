"""What a look at a tree that is being cut over says, and what is to be done with it. Times in seconds since the epoch."""

from dataclasses import dataclass
from enum import StrEnum

from migrator.domain.cutover import CutoverState, CutoverStep


class TopSeen(StrEnum):
    """The top directory of a tree. On the source, by what is recorded (without a record every top is `open`): `open` as before the freeze, `frozen` as the
    freeze leaves it. On the target: `open` as a thaw leaves it, `frozen` closed, or as the freeze of a rollback leaves it.

    `partly`: a mixture of both, as a freeze or a thaw leaves it that was cut off. `other`: none of these. `unknown`: the
    look failed. Where a hook alone freezes, its recorded end decides between `open` and `frozen`.
    """

    OPEN = "open"
    FROZEN = "frozen"
    PARTLY = "partly"
    OTHER = "other"
    UNKNOWN = "unknown"


class LinkSeen(StrEnum):
    """Where the path of the user leads. `untold`: a hook switches it, and nothing here can tell whether it did."""

    SOURCE = "source"
    TARGET = "target"
    OTHER = "other"
    UNKNOWN = "unknown"
    UNTOLD = "untold"


class BackupSeen(StrEnum):
    """Whether a backup of the target is recorded, where the site asks for one."""

    NOT_ASKED = "not-asked"
    RECORDED = "recorded"
    MISSING = "missing"
    UNKNOWN = "unknown"


class TargetTop(StrEnum):
    """The top directory of a tree on the target, before its user is moved: nobody but root may have worked in it."""

    CLOSED = "closed"
    OPEN = "open"
    MISSING = "missing"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassSeen:
    """The newest final pass over the tree, or the newest carrying back, by its number in the ledger and its scan `catalog`.
    `finished_at_s` None: it goes on. `changed` and `vanished` count files that did so during the pass, `failed` those that did not arrive.
    `whole`: nothing was unreadable, and the side that was read was healthy before and after.
    """

    id: int
    catalog: str
    finished_at_s: float | None
    changed: int
    vanished: int
    failed: int
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofSeen:
    """The newest finished verification of the tree, by its number in the ledger, against `catalog`. `by_policy`: it read the content of all files that
    the site's policy wants read. `differences` are those of this tree, `examples` some of them in words.
    """

    id: int
    catalog: str
    whole: bool
    differences: int
    by_policy: bool
    manifest: str | None
    reasons: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a look at the world says, after the record was read.

    `writing`, `copied` and `proof` are those of the direction under way: of the final pass on the source, or of the
    carrying back from the target. `writing` are the sentences that speak against nobody writing to the frozen tree; None
    where that was not looked for, which speaks against it too. None elsewhere stands for what is not there.

    For people: `link_holds` is what the path holds now, `top_differences` say what is wrong with a top that is `other`.
    """

    link: LinkSeen
    source_top: TopSeen
    target_top: TopSeen
    writing: tuple[str, ...] | None = None
    copied: PassSeen | None = None
    proof: ProofSeen | None = None
    backup: BackupSeen = BackupSeen.UNKNOWN
    link_holds: bytes | None = None
    top_differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Write `intent`, carry the step out, write `result`. `seen_done`: the world shows it done already, only hooks may be
    owed. `reason` says why the user is thawed where he was; it is empty on the way forward.
    """

    step: CutoverStep
    intent: CutoverState
    result: CutoverState
    seen_done: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """Nothing is touched: the world is not what the record explains (`look_again`: a look failed), or may not be changed
    in the way that was asked. `words` say what was found, `hint` what people do about it.
    """

    words: str
    hint: str
    look_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """There is nothing left to do."""

    state: CutoverState
    words: str


Step = Act | Halt | Finished
