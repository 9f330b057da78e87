"""Which catalog a plan rests on, and which of its trees are still to be planned."""

from migrator.decide.movable import settled_trees
from migrator.domain.errors import Refused, UsageError
from migrator.domain.scan import CatalogRecord
from migrator.domain.units import several
from migrator.ports.ledger import Ledger
from migrator.ports.site import SiteRecord


def choose_catalog(wanted: str | None, ledger: Ledger) -> str:
    """The catalog that was asked for, or else the newest that was finished. Raises Refused, UsageError."""
    if wanted is not None:
        return wanted
    latest = ledger.scans.latest()
    if latest is not None:
        return latest.name
    if ledger.scans.unfinished() is not None:
        raise Refused(
            "the only catalog is half written",
            cause="its scan was interrupted or is still running",
            hint="run `migrator scan`: it goes on where it was",
        )
    raise UsageError("there is no catalog to plan from", cause="nothing was scanned yet", hint="run `migrator scan`")


def require_usable(catalog: CatalogRecord, site: SiteRecord) -> None:
    """Raises Refused where a plan cannot rest on a catalog."""
    if catalog.finished_at_s is None:
        raise Refused(
            f"catalog {catalog.name!r} is half written",
            cause="its scan was interrupted or is still running",
            hint="run `migrator scan`: it goes on where it was",
        )
    if catalog.site_id != site.site_id:
        raise Refused(
            f"catalog {catalog.name!r} is of another site",
            cause="the state directory was copied, or `init` was run anew",
            hint="run `migrator scan`",
        )
    if catalog.scope:
        raise Refused(
            f"catalog {catalog.name!r} covers {several(len(catalog.scope), 'user tree')} and not the whole source",
            cause="it was made by a delta pass, which scans the trees of its batch alone",
            hint="leave --catalog out for the latest one of the whole source, or run `migrator scan`",
        )


def moved_trees(catalog: CatalogRecord, ledger: Ledger) -> frozenset[bytes]:
    """The trees of a catalog whose users work on the target. Raises UsageError where there are no others."""
    paths = [tree.path for tree in catalog.trees]
    if not paths and not ledger.plans.names():
        raise UsageError(
            f"catalog {catalog.name!r} has no user tree",
            cause="no directory matched [users] trees when it was scanned",
            hint="correct [users] trees in site.toml and run `migrator scan` again",
        )
    moved = settled_trees({path: record for path in paths if (record := ledger.cutovers.latest(path)) is not None})
    if moved.issuperset(paths):
        raise UsageError(
            "there is nothing left to plan: the users of all trees work on the target",
            hint="see `migrator status`; after a rollback a tree can be planned again",
        )
    return moved
