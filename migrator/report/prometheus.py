"""Metrics in Prometheus' text format."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from migrator.core.errors import MigratorError
from migrator.report.rules_metrics import MetricFamily, MetricKind

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Once(Collector):
    """The metrics of one snapshot."""

    def __init__(self, families: Sequence[MetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """The metrics in their order."""
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
    """Metrics in Prometheus' text format, UTF-8, with escaped labels."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(families))
    return generate_latest(registry)


def _plain(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def write_metrics(file: Path, families: Sequence[MetricFamily]) -> None:
    """Replace a file for node_exporter atomically, readable by everybody. Raises MigratorError."""
    # The collector reads all names that end with .prom, so the partial file must not.
    partial = file.with_name(f".{file.name}.part")
    try:
        # Left by a killed process. A symlink of that name must not be followed.
        partial.unlink(missing_ok=True)
        with open(partial, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as stream:
            stream.write(to_prometheus(families))
            os.fchmod(stream.fileno(), 0o644)
        partial.replace(file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise MigratorError(
            f"{file} cannot be written: {error.strerror}", hint="name a file in a directory that exists"
        ) from error
