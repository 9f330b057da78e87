"""What walks of drained bricks say: whether anything is left on them that somebody could miss. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from migrator.domain.drain_seen import AuditSeen
from migrator.domain.units import several

MOST_EXAMPLES = 20
"""Paths that an audit keeps for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickAudit:
    """The walk of one brick. `failure` says why it came to no end; otherwise it counted itself `listed` entries that are no
    directories, `unreadable` paths, `vanished` ones, and `unsure` ones, that only the mount can tell about or that are being
    filled. `explained` are names that are left and proven to be in the volume, out of all these. `arrived` are the entries that were received. `left`, `may_be_data` and `problems` are the first of each.
    """

    brick: str
    failure: str = ""
    listed: int = 0
    unreadable: int = 0
    vanished: int = 0
    unsure: int = 0
    explained: int = 0
    explained_unsure: int = 0
    arrived: int = 0
    left: tuple[bytes, ...] = ()
    may_be_data: tuple[bytes, ...] = ()
    problems: tuple[str, ...] = ()


def audit_of(walks: Sequence[BrickAudit], *, started_at_s: float) -> AuditSeen:
    """The audit that these walks are: of every brick of the drain.

    A walk passes over what a brick keeps when it is drained: directories, link-to files (their mode and their attribute
    both say so), and Gluster's own. What it lists is left. A link-to file that has content is about to be data, and one whose
    mode says otherwise may be: both are not sure. Nothing changes on a brick that is drained, so a file that vanished under
    the walk makes it not whole. A drain is of one subvolume, whose bricks hold the same names: a leftover counts once.
    """
    reasons = tuple(_reasons(walks))
    examples = list(dict.fromkeys(path for walk in walks for path in (*walk.left, *walk.may_be_data)))
    return AuditSeen(
        started_at_s=started_at_s,
        whole=not reasons,
        left=_most([max(walk.arrived, walk.listed) - walk.explained for walk in walks], [walk.left for walk in walks]),
        unsure=_most([walk.unsure - walk.explained_unsure for walk in walks], [walk.may_be_data for walk in walks]),
        examples=tuple(examples[:MOST_EXAMPLES]),
        reasons=reasons,
        explained=max((walk.explained + walk.explained_unsure for walk in walks), default=0),
    )


def _most(counts: Sequence[int], names: Sequence[Sequence[bytes]]) -> int:
    """How many there are, each name once: at least as many as on one brick, and as the names that are known."""
    return max((*counts, len({name for some in names for name in some})), default=0)


def _reasons(walks: Sequence[BrickAudit]) -> Iterator[str]:
    if not walks:
        yield "no brick was walked"
    for walk in walks:
        if walk.failure:
            yield f"{walk.brick}: {walk.failure}"
            continue
        if walk.unreadable - walk.explained_unsure:
            shown = f": {'; '.join(walk.problems[:3])}" if walk.problems else ""
            yield f"{walk.brick}: {several(walk.unreadable - walk.explained_unsure, 'path')} could not be read{shown}"
        if walk.vanished:
            yield f"{walk.brick}: {several(walk.vanished, 'path')} vanished while it was walked"
        if walk.arrived != walk.listed:
            yield f"{walk.brick}: of {several(walk.listed, 'entry', 'entries')} {walk.arrived:,} arrived"
