"""The suites as plans."""

import pytest

from migrator.decide.benchmark_suites import suite
from migrator.domain.benchmark import Program, SuiteName, Unit, Work, WorkKind
from migrator.domain.benchmark_reference import PUBLICATIONS, REFERENCES, references_of

SCALES = (0.0001, 0.01, 1.0, 3.0)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", list(SuiteName))
def test_every_suite_is_a_plan_at_every_scale(name: SuiteName, scale: float) -> None:
    planned = suite(name, scale)
    measured = [step for step in planned.steps if step.unit is not None]
    assert measured
    assert len({step.name for step in measured}) == len(measured)
    for step in planned.steps:
        assert step.lanes
        for lane in step.lanes:
            paths = [lane.path] if isinstance(lane, Work) else [word.rpartition(b"=")[2] for word in lane.argv]
            # Everything lies in the work directory.
            assert not [
                path
                for path in paths
                if path.startswith(b"/") and path not in (b"/dev/zero", b"/dev/urandom", b"/dev/null")
            ]
            assert not [path for path in paths if b".." in path]
            if isinstance(lane, Program):
                assert lane.argv[0].decode() in step.programs
            elif step.unit is Unit.MILLISECONDS:
                assert lane.duration_s > 0
    assert planned.need_bytes > 0
    assert planned.need_inodes > 0


@pytest.mark.parametrize("name", list(SuiteName))
def test_needs_grow_with_the_scale_and_hold_what_is_written(name: SuiteName) -> None:
    small, full = suite(name, 0.01), suite(name, 1.0)
    assert full.need_bytes >= small.need_bytes
    assert full.need_inodes >= small.need_inodes
    for planned in (small, full):
        largest = max(
            sum(
                lane.size_bytes * max(lane.count, 1)
                for lane in step.lanes
                if isinstance(lane, Work) and lane.kind is not WorkKind.DOWNLOAD
            )
            for step in planned.steps
        )
        assert planned.need_bytes >= largest
        assert planned.need_bytes >= max(step.size_bytes for step in planned.steps)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_a_scale_is_above_0(scale: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        suite(SuiteName.CATALOG, scale)


def test_at_scale_1_sizes_are_those_that_were_published() -> None:
    streaming = suite(SuiteName.STREAMING, 1).steps[0]
    assert len(streaming.lanes) == 10
    assert streaming.size_bytes == pytest.approx(20e9, rel=0.001)
    tree = suite(SuiteName.RECURSIVE, 1).steps[0].lanes[0]
    assert isinstance(tree, Work)
    assert (tree.count, tree.directories) == (28_619, 1_814)
    assert tree.count * tree.size_bytes == pytest.approx(5.6e9, rel=0.001)
    reading = suite(SuiteName.LATENCY, 1).steps[-1].lanes[0]
    assert isinstance(reading, Work)
    assert (reading.threads, reading.duration_s) == (17, 11)


def test_every_published_figure_stands_beside_a_step_in_its_unit() -> None:
    for reference in REFERENCES:
        units = {step.name: step.unit for step in suite(reference.suite, 1).steps}
        assert units[reference.step] is reference.unit, reference
        assert reference.publication in PUBLICATIONS
        assert all(system and figures for system, figures in reference.figures), reference


def test_published_figures_are_told_apart_by_system() -> None:
    found = {(one.step, one.hosts): dict(one.figures) for one in references_of(SuiteName.UNTAR)}
    assert found["fewer-larger", 1]["Glfs1"] == "699"
    assert found["fewer-larger", 9]["Glfs1"] == "2704±30, 1486±67, 2210±92"
