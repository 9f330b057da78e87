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
    """One value. `name` is that of the metric; a histogram appends `_bucket`, `_sum` or `_count`."""

    name: str
    labels: Mapping[str, str]
    value: float


class MetricFamily(Struct, frozen=True, kw_only=True):
    """One metric with all its values; it may have none."""

    name: str
    kind: MetricKind
    help: str
    samples: tuple[MetricSample, ...]
