"""The suites as plans, and whether there is room for them."""

import pytest

from migrator.bench import far_bench
from migrator.bench.model import Place, PlaceRoom, SuiteName
from migrator.bench.suites import publications, room_problems, suite
from migrator.core.units import GIB

SCALES = (0.0001, 0.01, 1.0, 3.0)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", list(SuiteName))
def test_every_suite_is_a_plan_at_every_scale(name: SuiteName, scale: float) -> None:
    planned = suite(name, scale)
    measured = [step for step in planned.steps if step.unit is not None]
    assert measured
    assert len({step.name for step in measured} - {""}) == len(measured)
    assert "{" not in planned.sizes + "".join(step.title for step in planned.steps)
    for step in planned.steps:
        for argv in step.lanes:
            # Everything lies in the work directory.
            paths = [word.rpartition("=")[2] for word in argv]
            assert {path for path in paths if path.startswith("/")} <= {"/dev/zero", "/dev/urandom", "/dev/null"}
            assert not [word for word in argv if ".." in word or "{" in word]
            assert argv[0] in step.programs or argv[0] in far_bench._FUNCTIONS
    assert planned.need_bytes >= max(step.size_bytes for step in planned.steps)
    assert planned.need_inodes > 0


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_a_scale_is_above_0(scale: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        suite(SuiteName.CATALOG, scale)


def test_at_scale_1_sizes_are_those_that_were_published() -> None:
    streaming = suite(SuiteName.STREAMING, 1).steps[0]
    assert len(streaming.lanes) == 10
    assert streaming.size_bytes == pytest.approx(20e9, rel=0.001)
    (tree,) = suite(SuiteName.RECURSIVE, 1).steps[0].lanes
    files, directories, mean_bytes = map(int, tree[2:])
    assert (files, directories) == (28_619, 1_814)
    assert files * mean_bytes == pytest.approx(5.6e9, rel=0.001)
    reading = suite(SuiteName.LATENCY, 1).steps[-1]
    assert len(reading.lanes) == 17
    assert reading.lanes[0][-1] == "11000"


def test_published_figures_stand_beside_their_steps() -> None:
    steps = [step for name in SuiteName for step in suite(name, 1).steps]
    assert all(step.unit for step in steps if step.published)
    references = [reference for step in steps for reference in step.published]
    assert {one.publication for one in references} == set(publications())
    assert all(system and figures for one in references for system, figures in one.figures.items())
    found = {(step.name, one.hosts): one.figures for step in steps for one in step.published}
    assert found["fewer-larger", 1]["Glfs1"] == "699"
    assert found["fewer-larger", 9]["Glfs1"] == "2704±30, 1486±67, 2210±92"


def room(**changes: int | None) -> PlaceRoom:
    values = {"need_bytes": 6 * GIB, "free_bytes": 10 * GIB, "need_inodes": 600, "free_inodes": 1000} | changes
    return PlaceRoom(place=Place(label="target", root=b"/mnt"), **values)  # type: ignore[arg-type]


def problems(one: PlaceRoom, *, inodes_free: int | None = None, accept: bool = False) -> str:
    return "; ".join(room_problems(one, inodes_free=inodes_free, accept_unknown_inodes=accept))


def test_room_is_enough_with_a_margin_of_a_half_in_nine_tenths() -> None:
    assert problems(room()) == ""
    assert "10.0 GiB free" in problems(room(need_bytes=6 * GIB + 1))
    assert "1,000 more files" in problems(room(need_inodes=601))


def test_inodes_that_are_not_told_must_be_told_or_accepted() -> None:
    assert "does not report" in problems(room(free_inodes=None))
    assert problems(room(free_inodes=None), accept=True) == ""
    assert problems(room(free_inodes=None), inodes_free=5000) == ""
    assert "500 more files" in problems(room(free_inodes=None), inodes_free=500)
    assert "10 more files" in problems(room(free_inodes=10), inodes_free=10**9), "the file system counts first"
