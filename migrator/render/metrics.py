"""Metrics as values, for Prometheus. Pure."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct


class MetricKind(StrEnum):
    """The type of a metric. A counter never decreases, not even across restarts of the program."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricSample(Struct, frozen=True, kw_only=True):
    """One value."""

    name: str
    """The metric's name; a histogram appends `_bucket`, `_sum` or `_count`."""
    labels: Mapping[str, str]
    """Value of each label."""
    value: float
    """The value."""


class MetricFamily(Struct, frozen=True, kw_only=True):
    """One metric with all its values: `metrics`."""

    name: str
    """Its name."""
    kind: MetricKind
    """Its kind."""
    help: str
    """Its meaning."""
    samples: tuple[MetricSample, ...]
    """Its values; it may have none."""
