"""What streams brought, summed up from the attempts of a run on a virtual clock."""

from migrator.ledger.ledger import Ledger
from migrator.report.model import SizeClass, StreamSum
from tests.support.run_world import ALICE, World, in_loop
from tests.transfer.test_run_governor import Governed


@in_loop
async def test_attempts_that_succeeded_are_summed_by_where_and_what_they_read(world: World) -> None:
    governed = Governed(world)
    assert isinstance(world.ledger, Ledger)
    await governed.run()
    (found,) = world.ledger.report_sums.stream_sums()
    sizes = sum(len(node.content) for path, node in world.source.nodes.items() if path.startswith(ALICE + b"/sub/f"))
    assert found == StreamSum(
        host="here",
        brick=None,
        engine="fake",
        size_class=SizeClass.TINY,
        attempts=4,
        files=8,
        size_bytes=sizes,
        stream_s=found.stream_s,
    )
    assert 4 * governed.streams.takes_s <= found.stream_s <= 4 * governed.streams.takes_s + 60.0
