"""Probes as people see them in `status`."""

from migrator.core.probe import Probe, ProbeSide, ProbeTimes
from migrator.render.text import to_markdown
from migrator.report.model import StatusFacts
from migrator.report.view_status import status_document

TIMES = ProbeTimes(create_s=0.0105, write_s=0.001, sync_s=0.25, stat_s=0.002, unlink_s=0.004, readdir_s=1.5)


def shown(*probes: Probe) -> str:
    return to_markdown(status_document(StatusFacts(at_s=1_700_000_000.0, site="site", probes=probes)))


def test_status_tells_what_the_newest_probe_of_each_side_took() -> None:
    text = shown(
        Probe(side=ProbeSide.SOURCE, at_s=1_700_000_000.0, times=TIMES),
        Probe(side=ProbeSide.TARGET, at_s=1_700_000_001.0, waited_s=90.4),
    )
    (source,) = [line for line in text.splitlines() if line.startswith("| source")]
    assert [cell.strip() for cell in source.split("|")[3:9]] == [
        "10.5 ms",
        "1.0 ms",
        "250.0 ms",
        "2.0 ms",
        "4.0 ms",
        "1,500.0 ms",
    ]
    (target,) = [line for line in text.splitlines() if line.startswith("| target")]
    assert "no answer within 90 s" in target
    assert "ms" not in target
