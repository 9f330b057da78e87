"""What streams brought, added up by one thing at a time."""

from migrator.report.model import SizeClass, StreamSum
from migrator.transfer.rules import BY, added_up

SUMS = (
    StreamSum(host="gl1", brick="gl1:/b1", engine="direct", size_class=SizeClass.LARGE, attempts=1, files=2, size_bytes=300, stream_s=3.0),
    StreamSum(host="gl1", brick="gl1:/b2", engine="rsync", size_class=SizeClass.TINY, attempts=1, files=5, size_bytes=10, stream_s=2.0),
    StreamSum(host="here", brick=None, engine="rsync", size_class=SizeClass.TINY, attempts=2, files=15, size_bytes=30, stream_s=2.0),
)  # fmt: skip


def test_sums_by_everything_have_the_same_total() -> None:
    for by in BY:
        found = [one for _, one in added_up(SUMS, by)]
        assert (sum(one.files for one in found), sum(one.size_bytes for one in found)) == (22, 340)


def test_each_is_added_up_by_its_name_and_sizes_come_from_the_smallest() -> None:
    assert [name for name, _ in added_up(SUMS, "size of files")] == ["below 16 KiB", "64 MiB and more"]
    assert [name for name, _ in added_up(SUMS, "brick")] == ["gl1:/b1", "gl1:/b2", "the mount"]
    (host, gl1), (_, here) = added_up(SUMS, "host")
    assert (host, gl1.attempts, gl1.stream_s, gl1.bytes_per_s) == ("gl1", 2, 5.0, 62.0)
    assert here.files_per_s == 7.5
