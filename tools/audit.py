"""Ask pip-audit for known vulnerabilities of what the packages install: a part of `make test`.

A machine without a network, or whose index has no such service, cannot ask: that is printed, and is not a failure.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 120


def ask(lock: Path) -> str:
    """The JSON document of pip-audit; empty if it has none, with the reason on standard error."""
    options = ["--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "10"]
    argv = [sys.executable, "-m", "pip_audit", *options, "--requirement", str(lock)]
    try:
        return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False, timeout=TIMEOUT_S).stdout
    except subprocess.TimeoutExpired:
        return ""


def findings(document: str) -> tuple[list[str], list[str]]:
    """Known vulnerabilities, and packages that the service does not know."""
    vulnerable, unknown = [], []
    for package in json.loads(document)["dependencies"]:
        if "skip_reason" in package:
            unknown.append(package["name"])
        for found in package.get("vulns", ()):
            mended = ", ".join(found["fix_versions"]) or "no version"
            vulnerable.append(f"{package['name']} {package['version']}: {found['id']}, fixed in {mended}")
    return vulnerable, unknown


def main() -> int:
    """0, or 1 if there are known vulnerabilities."""
    document = ask(ROOT / "requirements.lock")
    if not document:
        print("audit: the service cannot be asked; nothing was checked")
        return 0
    vulnerable, unknown = findings(document)
    if unknown:
        print(f"audit: not checked, since the service does not know them: {', '.join(unknown)}")
    print("\n".join(vulnerable) or "audit: no known vulnerability in the others")
    return len(vulnerable) > 0


if __name__ == "__main__":
    sys.exit(main())
