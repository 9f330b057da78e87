"""What `tools/setup.sh` does to the machine."""

import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "tools" / "setup.sh"


def install(directory: Path, apt_get: str) -> "subprocess.CompletedProcess[str]":
    """Run the part that installs with an `apt-get` of this shell command, and say what its state was meanwhile."""
    text = SCRIPT.read_text(encoding="utf-8")
    function = text.partition("without_services() {")[2].partition("\n}\n")[0]
    (directory / "apt-get").write_text(f"#!/bin/bash\n{apt_get}\n")
    (directory / "apt-get").chmod(0o755)
    script = (
        f"set -euo pipefail\npolicy={directory}/policy-rc.d\nwithout_services() {{{function}\n}}\n"
        f"without_services {directory}/apt-get install || echo failed"
    )
    return subprocess.run(
        ["/bin/bash", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )


def test_no_daemon_starts_because_it_is_installed(tmp_path: Path) -> None:
    policy = tmp_path / "policy-rc.d"
    asked = f"{policy} ssh start; echo code $?"
    assert install(tmp_path, asked).stdout == "code 101\n"
    assert not policy.exists()
    assert install(tmp_path, "exit 100").stdout == "failed\n"
    assert not policy.exists()
