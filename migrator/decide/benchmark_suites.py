"""The field's suites as plans of steps: what is prepared, what is measured, and how much room that needs.

At scale 1 counts and sizes are those that were published (docs/benchmarks.md says where they came from, and where a choice
had to be made). Counts and sizes shrink together with the scale, durations too.
"""

from collections.abc import Callable

from migrator.decide import benchmark_suites_data as data
from migrator.decide import benchmark_suites_names as names
from migrator.domain.benchmark import Suite, SuiteName


def suite(name: SuiteName, scale: float) -> Suite:
    """A suite at a scale. Raises ValueError for a scale that is not above 0."""
    if not scale > 0:
        raise ValueError("a scale is above 0")
    return _SUITES[name](scale)


_SUITES: dict[SuiteName, Callable[[float], Suite]] = {
    SuiteName.STREAMING: data.streaming,
    SuiteName.UNTAR: data.untar,
    SuiteName.SMALL_WRITES: data.small_writes,
    SuiteName.RECURSIVE: names.recursive,
    SuiteName.CATALOG: names.catalog,
    SuiteName.BUILD: names.build,
    SuiteName.LATENCY: names.latency,
    SuiteName.TRANSFER: data.transfer,
    SuiteName.RANDOM: data.random_access,
}
