"""Values put together into metrics: each by a name and labels that the catalogue knows. Pure."""

from collections import defaultdict
from collections.abc import Sequence

from migrator.domain.metric_catalogue import CATALOGUE
from migrator.domain.metrics import MetricFamily, MetricSample

_SPECS = {spec.name: spec for spec in CATALOGUE}


class Values:
    """Samples by metric. What is not known (None) is left out: a missing value is not 0."""

    def __init__(self) -> None:
        self._samples: dict[str, list[MetricSample]] = defaultdict(list)

    def add(self, name: str, value: float | None, **labels: object) -> None:
        """One value of a gauge or a counter. Raises KeyError for a name or labels that the catalogue does not have."""
        spec = _SPECS[f"migrator_{name}"]
        if spec.labels != tuple(label.rstrip("_") for label in labels):
            raise KeyError(f"{spec.name} has the labels {spec.labels}, not {tuple(labels)}")
        if value is not None:
            texts = {label.rstrip("_"): str(text) for label, text in labels.items()}
            self._samples[spec.name].append(MetricSample(name=spec.name, labels=texts, value=float(value)))

    def add_histogram(self, name: str, values: Sequence[float], bounds: Sequence[float]) -> None:
        """All values of a histogram, by upper bounds of its buckets."""
        spec = _SPECS[f"migrator_{name}"]
        samples = self._samples[spec.name]
        for bound in (*bounds, float("inf")):
            label = "+Inf" if bound == float("inf") else f"{bound}"
            count = float(sum(value <= bound for value in values))
            samples.append(MetricSample(name=f"{spec.name}_bucket", labels={"le": label}, value=count))
        samples.append(MetricSample(name=f"{spec.name}_count", labels={}, value=float(len(values))))
        samples.append(MetricSample(name=f"{spec.name}_sum", labels={}, value=float(sum(values))))

    def families(self) -> tuple[MetricFamily, ...]:
        """Every metric of the catalogue, in its order, with or without values."""
        return tuple(
            MetricFamily(name=spec.name, kind=spec.kind, help=spec.help, samples=tuple(self._samples[spec.name]))
            for spec in CATALOGUE
        )
