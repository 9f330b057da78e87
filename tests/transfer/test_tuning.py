"""`tune`, `pause`, `resume` as users give them, beside a run that is at work, and beside each other."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from migrator.app.ledger import MigrationLedger
from migrator.core.events import EventKind
from tests.support.cli_site import Site
from tests.support.waiting import wait_for

DEADLINE_S = 600.0


def asked(site: Site, *arguments: str) -> Any:
    done = site.call(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def running(site: Site) -> Iterator["subprocess.Popen[str]"]:
    """`run` at work for the length of the block; ended in order afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-m", "migrator", "--site", str(site.file), "run", "--all", "--deltas", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=DEADLINE_S)


def test_limits_are_shown_kept_and_reset(planned: Site) -> None:
    site = planned
    nothing = asked(site, "tune")
    assert nothing["controls"] == {"hold": None, "tuned": None}
    unset = dict.fromkeys(("jobs", "bwlimit_bytes_per_s", "max_latency_s", "max_load"))
    assert nothing["given"] == unset | {"jobs": 4}
    asked(site, "tune", "--jobs", "2", "--bwlimit", "10MiB")
    tuned = asked(site, "tune", "--max-latency", "50ms", "--max-load", "8")["controls"]["tuned"]
    limits = {"jobs": 2, "bwlimit_bytes_per_s": 10 << 20, "max_latency_s": 0.05, "max_load": 8.0}
    assert tuned["limits"] == unset | limits
    assert asked(site, "tune", "--reset", "--jobs", "3")["controls"]["tuned"]["limits"]["max_load"] is None
    shown = site.call("tune")
    assert "streams on each host" in shown.stdout
    assert "There are no windows" in shown.stdout
    assert "Tuned by" in shown.stdout
    assert asked(site, "tune", "--reset")["controls"]["tuned"] is None
    with MigrationLedger.open(site.directory / "state" / "ledger.db", read_only=True) as ledger:
        said = [event.message for event in ledger.events.latest(20) if event.kind is EventKind.LIMITS_SET]
    assert [message.partition(": ")[2] for message in reversed(said)] == [
        "2 streams on each host, 10.0 MiB/s for all streams together",
        "2 streams on each host, 10.0 MiB/s for all streams together, latency up to 50 ms, load up to 8",
        "3 streams on each host",
        "limits are as given at the start",
    ]


def test_a_pause_holds_a_run_and_a_cutover_and_status_says_so(planned: Site) -> None:
    site = planned
    assert asked(site, "pause", "--reason", "exams")["controls"]["hold"]["reason"] == "exams"
    status = asked(site, "status")
    assert [one["hint"] for one in status["blocked"] if one["subject"] == "runs and cutovers"] == ["migrator resume"]
    refused = site.call("cutover", "--all", "--dry-run")
    assert "the migration is paused" in refused.stdout + refused.stderr
    with running(site) as run:
        wait_for(lambda: asked(site, "status")["governing"]["at_work"])
        governor = asked(site, "status")["governing"]["governor"]
        assert (governor["gate"], governor["streams"], governor["most"]) == ("paused", 0, 4)
        assert "exams" in site.call("status").stdout
        asked(site, "tune", "--jobs", "1", "--bwlimit", "1GiB")
        asked(site, "resume")
        assert run.wait(timeout=DEADLINE_S) == 0
    governor = asked(site, "tune")["governor"]
    assert (governor["gate"], governor["most"], governor["bwlimit_bytes_per_s"]) == ("open", 1, 1 << 30)
    assert sorted(file.name for file in (site.target / "home" / "ann").iterdir()) == sorted(
        file.name for file in (site.source / "home" / "ann").iterdir()
    )
