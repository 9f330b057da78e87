"""Metrics in Prometheus' text format."""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from migrator.domain.metrics import MetricFamily, MetricKind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Once(Collector):
    """The metrics of one look."""

    def __init__(self, families: Sequence[MetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """In their order."""
        for family in self._families:
            counter = family.kind is MetricKind.COUNTER
            metric = Metric(
                family.name.removesuffix("_total") if counter else family.name, family.help, family.kind.value
            )
            for sample in family.samples:
                metric.add_sample(
                    sample.name, {name: _plain(text) for name, text in sample.labels.items()}, sample.value
                )
            yield metric


def to_prometheus(families: Sequence[MetricFamily]) -> bytes:
    """The text that Prometheus reads, UTF-8. Whatever stands in a label is escaped."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(families))
    return generate_latest(registry)


def _plain(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
