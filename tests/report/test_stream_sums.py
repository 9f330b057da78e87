"""What streams copied: summed up from the attempts of a run on a virtual clock, and by one property at a time."""

from dataclasses import replace

from migrator.ledger.ledger import Ledger
from migrator.report.model import SizeClass, StreamSum
from migrator.transfer.rules import BY, added_up
from tests.support.run_world import ALICE, World, in_loop
from tests.transfer.test_run_governor import Governed

HERE = StreamSum(
    host="here",
    brick=None,
    engine="rsync",
    size_class=SizeClass.TINY,
    attempts=2,
    files=15,
    size_bytes=30,
    stream_s=2.0,
)
BRICK = replace(HERE, host="gl1", brick="gl1:/b2", attempts=1, files=5, size_bytes=10)
LARGE = replace(
    BRICK, brick="gl1:/b1", engine="direct", size_class=SizeClass.LARGE, files=2, size_bytes=300, stream_s=3.0
)
SUMS = (LARGE, BRICK, HERE)


@in_loop
async def test_attempts_that_succeeded_are_summed_by_where_and_what_they_read(world: World) -> None:
    governed = Governed(world)
    assert isinstance(world.ledger, Ledger)
    await governed.run()
    (found,) = world.ledger.report_sums.stream_sums()
    sizes = sum(len(node.content) for path, node in world.source.nodes.items() if path.startswith(ALICE + b"/sub/f"))
    counts = replace(HERE, engine="fake", attempts=4, files=8, size_bytes=sizes)
    assert found == replace(counts, stream_s=found.stream_s)
    assert 4 * governed.streams.takes_s <= found.stream_s <= 4 * governed.streams.takes_s + 60.0


def test_each_is_added_up_by_its_name_and_sizes_come_from_the_smallest() -> None:
    for by in BY:
        found = [one for _, one in added_up(SUMS, by)]
        assert (sum(one.files for one in found), sum(one.size_bytes for one in found)) == (22, 340)
    assert [name for name, _ in added_up(SUMS, "size of files")] == ["below 16 KiB", "64 MiB and more"]
    assert [name for name, _ in added_up(SUMS, "brick")] == ["gl1:/b1", "gl1:/b2", "the mount"]
    (host, gl1), (_, here) = added_up(SUMS, "host")
    assert (host, gl1.attempts, gl1.stream_s, gl1.bytes_per_s) == ("gl1", 2, 5.0, 62.0)
    assert here.files_per_s == 7.5
