"""Findings of the walks of drained bricks: whether any data is left. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from migrator.bricks.drain import model
from migrator.bricks.drain.model_audit import DrainAudit, Leftover
from migrator.core.units import several
from migrator.gluster.model import Brick, PlaceSeen

MOST_EXAMPLES = 20
"""Number of paths that an audit keeps to show."""

MOST_LEFTOVERS = 10_000
"""Number of findings for which an audit writes commands. More point to a larger fault than single files: too little room,
or a lost host.
"""


def bricks_to_audit(
    state: model.DrainState, bricks: Sequence[Brick], places: Mapping[str, PlaceSeen]
) -> tuple[Brick, ...]:
    """The bricks that an audit walks. Those that were being wiped at a crash are no longer bricks, and were audited before."""
    if state is not model.DrainState.WIPING:
        return tuple(bricks)
    return tuple(brick for brick in bricks if places.get(brick.name) not in (PlaceSeen.EMPTY, PlaceSeen.UNMOUNTED))


@dataclass(slots=True, kw_only=True)
class BrickAudit:
    """The walk of one brick. `failure` says why it did not complete. Otherwise it counted `listed` entries that are not
    directories, `unreadable` paths, `vanished` ones, and `unsure` ones, which only the mount can classify or which are
    being filled. `probes` are files of this program's probes among all these. `arrived` counts the entries received.
    `left`, `may_be_data` and `problems` have the first of each, `leftovers` the first findings.
    """

    brick: str
    failure: str = ""
    listed: int = 0
    unreadable: int = 0
    vanished: int = 0
    unsure: int = 0
    probes: int = 0
    probes_unsure: int = 0
    arrived: int = 0
    left: list[bytes] = field(default_factory=list)
    may_be_data: list[bytes] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)


def audit_of(walks: Sequence[BrickAudit], *, started_at_s: float) -> DrainAudit:
    """Combine these walks of all bricks of the drain into an audit.

    A walk skips the entries that a drained brick keeps: directories, link-to files (by both mode and attribute), and
    Gluster's own. Everything that it lists is left. A link-to file with content is about to become data, and one with
    another mode may be data: both are unsure. A drained brick does not change, so a file that vanishes during the walk
    makes the audit incomplete. A drain is of one subvolume, whose bricks hold the same names: a leftover counts once.
    """
    reasons = tuple(_reasons(walks))
    examples = list(dict.fromkeys(path for walk in walks for path in (*walk.left, *walk.may_be_data)))
    return DrainAudit(
        started_at_s=started_at_s,
        whole=not reasons,
        left=_most([max(walk.arrived, walk.listed) - walk.probes for walk in walks], [walk.left for walk in walks]),
        unsure=_most([walk.unsure - walk.probes_unsure for walk in walks], [walk.may_be_data for walk in walks]),
        examples=tuple(examples[:MOST_EXAMPLES]),
        reasons=reasons,
        leftovers=tuple(islice((one for walk in walks for one in walk.leftovers), MOST_LEFTOVERS)),
    )


def _most(counts: Sequence[int], names: Sequence[Sequence[bytes]]) -> int:
    """Count each name once: at least as many as on one brick, and as the known names."""
    return max((*counts, len({name for some in names for name in some})), default=0)


def _reasons(walks: Sequence[BrickAudit]) -> Iterator[str]:
    if not walks:
        yield "no brick was walked"
    for walk in walks:
        if walk.failure:
            yield f"{walk.brick}: {walk.failure}"
            continue
        if walk.unreadable - walk.probes_unsure:
            shown = f": {'; '.join(walk.problems[:3])}" if walk.problems else ""
            yield f"{walk.brick}: {several(walk.unreadable - walk.probes_unsure, 'path')} could not be read{shown}"
        if walk.vanished:
            yield f"{walk.brick}: {several(walk.vanished, 'path')} vanished while it was walked"
        if walk.arrived != walk.listed:
            yield f"{walk.brick}: of {several(walk.listed, 'entry', 'entries')} {walk.arrived:,} arrived"
