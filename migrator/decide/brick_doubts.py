"""What the rows of all bricks together, and the walks' own counts, say of a scan: doubts that make it not whole, and
findings that an admin should know although it is. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from migrator.decide.strange_files import strange_sentences
from migrator.domain.paths import show
from migrator.domain.scan import StrangeFiles
from migrator.domain.units import several

_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Paths of which something is to be said: how many, and the first of them."""

    count: int
    paths: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickDoubts:
    """`doubts` are reasons why the scan is not whole."""

    doubts: tuple[str, ...]
    findings: tuple[str, ...]


def judge_bricks(
    *,
    doubled_paths: Seen,
    doubled_files: Seen,
    conflicting: Seen,
    differing: Seen,
    incomplete: Seen,
    migrating: int,
    filling: int,
    vanished: int,
    strange: Sequence[StrangeFiles],
    limit: int,
) -> BrickDoubts:
    """Judge it. In a volume whose files lie still nothing is doubled, filled or migrated.

    A directory that some brick lacks is none of these: every file was seen all the same, but the mount may show fewer.
    What was put there past Gluster is not on the volume, so no file of it is missed. What differs between the copies of a directory, and what vanished, was asked of the mount, so far as `limit` goes.
    """
    doubts = [
        *_sentence(doubled_paths, "path was", "paths were", "found more than once"),
        *_sentence(doubled_files, "name belongs", "names belong", "to a file that lies on two bricks at once"),
        *_sentence(conflicting, "directory is", "directories are", "another one on another brick"),
    ]
    if migrating:
        doubts.append(f"{several(migrating, 'file was', 'files were')} being moved to another brick")
    if filling:
        doubts.append(f"{several(filling, 'file was', 'files were')} being filled by a move from another brick")
    if max(doubled_paths.count, differing.count) > limit:
        doubts.append(f"more paths had to be looked at through the mount than the {limit:,} that are")
    findings = [
        *_sentence(
            differing,
            "directory differs",
            "directories differ",
            "between bricks in owner, mode, ACLs or attributes; what the mount says is taken",
        ),
        *_sentence(incomplete, "directory is", "directories are", "missing on some brick; the mount may show less"),
    ]
    if vanished:
        findings.append(
            f"{several(vanished, 'path', 'paths')} vanished while the bricks were read: removed or renamed by users"
        )
    findings += strange_sentences(strange)
    return BrickDoubts(doubts=tuple(doubts), findings=tuple(findings))


def _sentence(seen: Seen, one: str, more: str, what: str) -> Iterable[str]:
    if seen.count:
        shown = ", ".join(show(path) or "the root" for path in seen.paths[:_EXAMPLES])
        others = ", ..." if seen.count > _EXAMPLES else ""
        yield f"{several(seen.count, one, more)} {what} ({shown}{others})"
