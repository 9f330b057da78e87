"""A real Prometheus scrapes `serve`, and answers every query of the dashboard's panels."""

import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_pages import dashboard_expressions, selectors
from tests.report.serving import serving, site_of_weeks
from tests.support.report_world import Weeks

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="there is no prometheus"),
]
TOKEN = "0123456789abcdef!"
NOT_HERE = (
    *("streams", "allowed_streams", "allowed_streams_limit", "attempts_total", "governor_bound"),
    *("host_allowed_streams", "window_holds", "host_load", "host_load_limit", "gluster_moved_bytes_total"),
    *("probe_latency_seconds", "probe_latency_limit_seconds", "probe_operation_seconds", "addition_state"),
    *("batch_predicted_freeze_seconds", "run_last_heartbeat_timestamp_seconds", "run_state", "copy_left_seconds"),
)
"""Nothing has run for long at this site, so that nothing is expected either, and it has no records of probes and additions."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def prometheus(place: Path, scraped: str) -> Iterator[str]:
    """The address of a server that scrapes another one each second."""
    (place / "token").write_text(TOKEN)
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {
                "job_name": "migrator",
                "authorization": {"credentials_file": str(place / "token")},
                "static_configs": [{"targets": [scraped]}],
            }
        ],
    }
    file = place / "prometheus.yml"
    file.write_text(json.dumps(config))  # JSON is YAML
    listening = f"127.0.0.1:{free_port()}"
    options = (f"--config.file={file}", f"--storage.tsdb.path={place / 'data'}", f"--web.listen-address={listening}")
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(["prometheus", *options], stdout=log, stderr=log)
    try:
        yield f"http://{listening}"
    finally:
        process.terminate()
        process.wait(timeout=600)


def query(address: str, expression: str) -> list[Any]:
    words = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"{address}/api/v1/query?{words}", timeout=60) as answer:
        found = json.load(answer)
    assert found["status"] == "success"
    return list(found["data"]["result"])


def test_every_panel_of_the_dashboard_has_its_figures(tmp_path: Path) -> None:
    site_file = site_of_weeks(tmp_path, Weeks(users=8, chunks=80))
    token = tmp_path / "serve-token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    place = tmp_path / "prometheus"
    place.mkdir()
    with (
        serving(site_file, "serve", "--listen", "127.0.0.1:0", "--token-file", str(token)) as server,
        prometheus(place, f"127.0.0.1:{server.listening['port']}") as address,
    ):
        scraped = False
        while not scraped:  # the time limit of the test ends it
            with suppress(OSError):
                # Rates need a second sample.
                scraped = bool(query(address, "rate(migrator_stream_bytes_total[1m])"))
            time.sleep(0.2)
        found = {
            (title, expression): query(
                address,
                expression.replace("$__rate_interval", "1m").replace("$job", "migrator").replace("$instance", ".+"),
            )
            for title, expression in dashboard_expressions()
        }
    empty = [expression for (_, expression), result in found.items() if not result]
    assert {name for one in empty for name, _ in selectors(one)} <= {f"migrator_{name}" for name in NOT_HERE}
    shares = [float(result[0]["value"][1]) for (title, _), result in found.items() if title.startswith("Shares of all")]
    copied, moved, purged = shares
    assert 0 <= purged < moved <= copied < 1
