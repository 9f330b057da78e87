"""Whatever any scan saw in the trees is in the manifest, is reported, or is proven gone."""

import asyncio
from collections.abc import Container, Iterator, Sequence

from migrator.domain.paths import parent
from migrator.domain.scan import CatalogRecord
from migrator.domain.verification import Difference, DifferenceKind
from migrator.ports.manifest import ManifestDraft
from migrator.stages.verify.tally import Tally, error_problem
from migrator.stages.verify.walk import TreeComparison


async def compare_with_catalogs(
    scans: Sequence[CatalogRecord],
    draft: ManifestDraft,
    comparison: TreeComparison,
    tally: Tally,
    *,
    trees: tuple[bytes, ...],
    workers: int,
) -> tuple[str, ...]:
    """Account for every path that any of the scans saw in the trees; returns why a catalog could not be asked.

    A directory that the walk missed is walked after all, and the rest asked for again: there may be more in it than any
    scan saw.
    """
    catalogs = [scan.name for scan in scans]
    kept = [scan.name for scan in scans if scan.finished_at_s is not None or not _is_taken_away(scan)]
    problems = await asyncio.to_thread(draft.catalog_problems, kept)
    while True:
        tally.proven_gone = 0
        pieces = draft.unaccounted(catalogs, trees)
        while piece := await asyncio.to_thread(_next_piece, pieces):
            await _account_piece(piece, comparison, tally, workers)
        if not comparison.late_directories:
            return problems
        comparison.late_directories.clear()
        await comparison.run()


async def _account_piece(piece: Sequence[bytes], comparison: TreeComparison, tally: Tally, workers: int) -> None:
    """From the outermost paths inwards: what lies in a directory that is to be walked waits for that."""
    left = set(piece)
    while left := {path for path in left if not _has_above(path, comparison.late_directories)}:
        outermost = sorted(path for path in left if not _has_above(path, left))
        share = -(-len(outermost) // max(workers, 1))
        parts = [outermost[start : start + share] for start in range(0, len(outermost), share)]
        await asyncio.gather(*(asyncio.to_thread(_account, part, comparison, tally) for part in parts))
        left.difference_update(outermost)


def _account(paths: Sequence[bytes], comparison: TreeComparison, tally: Tally) -> None:
    """Each path is compared after all, or proven gone; what is neither is unproven."""
    for path in paths:
        try:
            if not comparison.compare_late(path):
                tally.gone()
        except OSError as error:
            words = f"cannot be looked at: {error_problem(path, 'look', error).reason}"
            tally.found(
                Difference(path=path, kind=DifferenceKind.UNPROVEN, source=words, target="an earlier scan saw it")
            )


def _is_taken_away(scan: CatalogRecord) -> bool:
    """Whether a scan's catalog is taken away where it is stopped before its end: nothing could go on with it."""
    return bool(scan.scope) or scan.via == "bricks"


def _next_piece(pieces: Iterator[Sequence[bytes]]) -> Sequence[bytes]:
    return next(pieces, ())


def _has_above(path: bytes, directories: Container[bytes]) -> bool:
    """Whether one of the directories is above the path."""
    while path := parent(path):
        if path in directories:
            return True
    return False
