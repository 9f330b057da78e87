"""What is read on all bricks after the rebalance of an addition, and what becomes of doubts."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from migrator.bricks.add.model import AdditionEnding, AdditionState
from migrator.catalog.model import CatalogRecord
from migrator.core.errors import ExitCode, MigratorError, Refused, ToolFailed
from migrator.core.events import EventKind
from tests.bricks.add.addition_site import Site, addition_site
from tests.support.catalogs import whole_catalog


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with addition_site(tmp_path) as made:
        yield made


class Scans:
    """Scans of all bricks, and what each comes to: reasons why it is not whole, or why it cannot be made."""

    def __init__(self, *found: Sequence[str] | MigratorError) -> None:
        self._found = list(found)
        self.made = 0

    async def __call__(self) -> CatalogRecord:
        self.made += 1
        found = self._found.pop(0) if len(self._found) > 1 else self._found[0]
        if isinstance(found, MigratorError):
            raise found
        return whole_catalog(whole=not found, reasons=tuple(found))


TWICE = "1 path was found more than once (home/a)"


@pytest.mark.parametrize(
    ("found", "doubts"),
    [
        ([[]], ()),
        # Somebody renamed while it was read: what was not there the second time is none.
        ([[TWICE], []], ()),
        ([[TWICE], [TWICE]], (TWICE,)),
        # Where users write to copies, something waits to be healed now and then.
        ([Refused("2 entries wait to be healed"), ToolFailed("gl2 is not reached"), []], ()),
        ([[TWICE], Refused("2 entries wait to be healed"), [TWICE]], (TWICE,)),
    ],
)
def test_all_bricks_are_read_after_a_rebalance_and_doubts_are_for_people(
    site: Site, found: list[list[str] | MigratorError], doubts: tuple[str, ...]
) -> None:
    scans = Scans(*found)
    site.ports["scan"] = scans
    done = site.add()
    assert (done.ending, done.reasons) == (AdditionEnding.DOUBTED if doubts else AdditionEnding.DONE, doubts)
    assert done.exit_code is (ExitCode.ATTENTION if doubts else ExitCode.DONE)
    assert scans.made == len(found)
    assert site.states == [AdditionState.SETTLED]
    warned = [one.message for one in site.ledger.events.latest(100) if one.kind is EventKind.ADDITION_FAILED]
    assert warned == [f"audit: {doubt}" for doubt in doubts]
    # Given again nothing is left to do, and nothing is read.
    assert site.add().ending is AdditionEnding.DONE
    assert scans.made == len(found)


def test_a_volume_that_cannot_be_read_for_long_is_for_people(site: Site) -> None:
    scans = Scans(Refused("2 entries wait to be healed"))
    site.ports["scan"] = scans
    done = site.add()
    assert done.ending is AdditionEnding.DOUBTED
    assert done.reasons == ("the bricks could not be read after the rebalance: 2 entries wait to be healed",)
    # A look a minute, for a quarter of an hour; in between, whatever that comes to, the daemons that heal are asked to.
    assert scans.made == 16
    assert site.glusterd.heals_asked == 14
