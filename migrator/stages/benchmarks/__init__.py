"""`bench`: the field's suites on mounted file systems, and what they say."""

from migrator.stages.benchmarks.cleaning import clean_up
from migrator.stages.benchmarks.context import BenchmarkWorld
from migrator.stages.benchmarks.run import run_benchmarks

__all__ = ["BenchmarkWorld", "clean_up", "run_benchmarks"]
