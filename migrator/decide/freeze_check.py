"""What verifying in the freeze costs, from the verifications before it. Pure.

The verification in the freeze looks at every path, and reads the content of what no manifest covers: all of a tree that was
never verified, and of others what has changed since. What the final pass itself brings comes on top (`freeze_forecast`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from migrator.decide.forecast import ASSUMED_RATE_BYTES_PER_S
from migrator.domain.convergence import FreezeCheck
from migrator.domain.verification import VerificationRecord

ASSUMED_S_PER_PATH = 0.0005
"""Until something was measured. rsync looks at 50,000 unchanged files through a Gluster mount in 15.6 s, both sides; with
ACLs, attributes and a manifest it is rather more."""

FIXED_S = 5.0
"""Guards before and after, two syncs, earlier catalogs, the manifest: whatever there is to compare."""

_LAST = 10
_SPREAD = 0.25
_PART = 0.05
_FACTORS = (0.01, 100.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeToCheck:
    """A tree, as a plan counts it, and what is known of it: `proven_share` of its bytes lie in a manifest that can be carried
    over, and `changed_bytes` were sent since that was made.
    """

    paths: int
    size_bytes: int
    proven_share: float = 0.0
    changed_bytes: int = 0


def freeze_check(
    verifications: Sequence[VerificationRecord], trees: Iterable[TreeToCheck], *, share: float = 1.0
) -> FreezeCheck:
    """The cost for these trees together, where `share` of the files have to have their content compared. `verifications`
    are all that have ended, oldest first; without any the cost is an assumed one.
    """
    trees = tuple(trees)
    s_per_path, s_per_byte = _cost(verifications)
    return FreezeCheck(
        s_per_file=s_per_path,
        s_per_byte=s_per_byte * share,
        files=sum(tree.paths for tree in trees),
        size_bytes=sum(_to_read_bytes(tree, share) for tree in trees),
        fixed_s=FIXED_S,
    )


def _to_read_bytes(tree: TreeToCheck, share: float) -> int:
    """Of which `share` is read."""
    if share <= 0.0:
        return 0
    missing = max(share - tree.proven_share, 0.0) / share
    return min(round(tree.size_bytes * missing) + tree.changed_bytes, max(tree.size_bytes, tree.changed_bytes))


def _cost(verifications: Sequence[VerificationRecord]) -> tuple[float, float]:
    """Seconds per path and per byte read: those assumed, each with a factor by which the last verifications took longer.

    Every verification gives what it took of what was assumed, and which part of that was paths and which bytes. Where
    these parts differ enough the two factors are those of least squares; otherwise both are the same one, but a part that
    was hardly there tells nothing, and stays as assumed.
    """
    assumed_s_per_byte = 1.0 / ASSUMED_RATE_BYTES_PER_S
    rows: list[tuple[float, float, float]] = []
    for record in verifications:
        if record.finished_at_s is None or record.paths <= 0:
            continue
        elapsed_s = record.finished_at_s - record.started_at_s
        if elapsed_s > 0:
            # Where hardly anything was compared the fixed part may be less than it is said to be.
            took_s = max(elapsed_s - FIXED_S, elapsed_s / 2)
            rows.append((record.paths * ASSUMED_S_PER_PATH, record.digested_bytes * assumed_s_per_byte, took_s))
    by_paths, by_bytes = _factors(rows[-_LAST:])
    return ASSUMED_S_PER_PATH * by_paths, assumed_s_per_byte * by_bytes


def _factors(rows: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    if not rows:
        return 1.0, 1.0
    parts = [(paths_s / (paths_s + bytes_s), took_s / (paths_s + bytes_s)) for paths_s, bytes_s, took_s in rows]
    if max(part for part, _ in parts) - min(part for part, _ in parts) >= _SPREAD:
        found = _least_squares(parts)
        if min(found) > 0.0:
            return _bounded(found[0]), _bounded(found[1])
    all_paths_s, all_bytes_s, all_took_s = (sum(column) for column in zip(*rows, strict=True))
    all_s = all_paths_s + all_bytes_s
    factor = _bounded(all_took_s / all_s)
    return (
        factor if all_paths_s >= _PART * all_s else 1.0,
        factor if all_bytes_s >= _PART * all_s else 1.0,
    )


def _least_squares(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Factors a and b with `took = a * part + b * (1 - part)`, a line over the part of the paths."""
    count = len(parts)
    mean_part = sum(part for part, _ in parts) / count
    mean_took = sum(took for _, took in parts) / count
    slope = sum((part - mean_part) * (took - mean_took) for part, took in parts) / sum(
        (part - mean_part) ** 2 for part, _ in parts
    )
    by_bytes = mean_took - slope * mean_part
    return by_bytes + slope, by_bytes


def _bounded(factor: float) -> float:
    return min(max(factor, _FACTORS[0]), _FACTORS[1])
