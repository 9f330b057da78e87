"""The script that is sent to hosts."""

from migrator.adapters.benchmarks import far_content, far_main


def test_equal_seeds_make_equal_trees_and_one_file_has_what_is_searched_for() -> None:
    work = {"count": 40, "size_bytes": 900, "directories": 12}
    made = dict(far_content.tree(work, 1))
    assert made == dict(far_content.tree(work, 1))
    assert made != dict(far_content.tree(work, 2))
    assert len(made) == 40
    assert len({path.rpartition("/")[0] for path in made}) == 12
    assert sum(b"zyzzyva" in content for content in made.values()) == 1
    assert max(len(content) for content in made.values()) <= 1800 + 10


def test_no_two_blocks_of_a_transfer_are_equal_and_sizes_are_exact() -> None:
    size = 2 * far_content.BLOCK_BYTES + 17
    pieces = [bytes(piece) for number in (0, 1) for piece in far_content.blocks(1, b"large", number, size)]
    assert sum(map(len, pieces)) == 2 * size
    assert len({piece[:17] for piece in pieces}) == len(pieces)
    assert [len(piece) for piece in far_content.blocks(1, b"small", 0, 3)] == [3]


def test_a_byte_that_goes_through_a_bond_and_its_devices_counts_once() -> None:
    lines = [
        "    lo: 500 1 0 0 0 0 0 0 500 1 0 0 0 0 0 0",
        "  eth0: 30 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0",
        "  eth1: 20 1 0 0 0 0 0 0 3 1 0 0 0 0 0 0",
        " bond0: 50 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0",
    ]
    assert far_main.network_bytes(lines, lambda name: name == "bond0") == 60
