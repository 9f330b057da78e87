"""What probes of both file systems took."""

from collections.abc import Sequence

from migrator.adapters.output.document import Block, figure, paths, table, text
from migrator.adapters.output.wording import NONE, when
from migrator.domain.probe import Probe


def probe_table(probes: Sequence[Probe]) -> Block:
    """One row for each."""
    operations = ("create", "write", "sync", "stat", "unlink", "readdir")
    columns = [text("side"), text("probed"), *(figure(name) for name in operations), paths("otherwise")]
    return table("", columns, [_row(probe) for probe in probes])


def _row(probe: Probe) -> tuple[str, ...]:
    times = probe.times
    if times is None:
        took: tuple[float, ...] = ()
    else:
        took = (times.create_s, times.write_s, times.sync_s, times.stat_s, times.unlink_s, times.readdir_s)
    shown = [_milliseconds(one) for one in took] or [NONE] * 6
    return (probe.side.value, when(probe.at_s), *shown, _otherwise(probe))


def _milliseconds(duration_s: float) -> str:
    return f"{1000.0 * duration_s:,.1f} ms"


def _otherwise(probe: Probe) -> str:
    if probe.waited_s is not None:
        return f"no answer within {probe.waited_s:,.0f} s"
    return f"it failed: {probe.failure}" if probe.failure else ""
