"""The program as a user calls it: a site of its own, one verb after another, each a process."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.lab import BenchLab
from bench.options import Options
from bench.timing import ContestantFailed, call
from bench.trees import TREE

_SCAN_PARTS = ("checks_s", "walk_s", "finish_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """`migrator` on one site. `before` is called in every process before the program starts there."""

    site_file: Path
    before: Callable[[], None] | None = None

    def verb(self, *arguments: str, allowed: tuple[int, ...] = (0,)) -> Any:  # noqa: ANN401 (JSON)
        """One verb, that ends with one of the codes allowed; returns its document."""
        argv = [sys.executable, "-m", "migrator", "--site", str(self.site_file), *arguments, "--json"]
        return json.loads(call(argv, allowed=allowed, before=self.before))

    def scan(self, via: str | None = None) -> tuple[dict[str, Any], dict[str, float]]:
        """A scan: its closing record and what it took, as a whole and by its own account."""
        begun_s = time.monotonic()
        record = self.verb("scan", *(("--via", via) if via else ()))
        parts_s = {"scan_s": time.monotonic() - begun_s}
        inside_s = {name: float(record["times"][name]) for name in _SCAN_PARTS}
        parts_s["start_s"] = max(parts_s["scan_s"] - sum(inside_s.values()), 0.0)
        parts_s.update(inside_s)
        if not record["whole"]:
            raise ContestantFailed(f"the scan is not whole: {'; '.join(record['reasons'])}")
        return record, parts_s

    def plan(self, *options: str) -> dict[str, float]:
        begun_s = time.monotonic()
        self.verb("plan", "--activate", "--accept-unknown-inodes", *options)
        return {"plan_s": time.monotonic() - begun_s}

    def run(self, *options: str) -> dict[str, float]:
        """The seed pass of every batch."""
        begun_s = time.monotonic()
        self.verb("run", "--all", "--deltas", "0", *options)
        return {"run_s": time.monotonic() - begun_s}

    def delta(self) -> tuple[list[dict[str, Any]], dict[str, float]]:
        """One delta pass of every batch: what each came to, and what it took, as a whole and by its own account."""
        begun_s = time.monotonic()
        summary = self.verb("run", "--all", "--deltas", "1")
        elapsed_s = time.monotonic() - begun_s
        deltas = [delta for batch in summary["batches"] for delta in batch["deltas"]]
        parts_s = {
            "find_s": sum(float(delta["scan_s"]) for delta in deltas),
            "send_s": sum(float(delta["elapsed_s"]) for delta in deltas),
        }
        return deltas, {"around_s": max(elapsed_s - sum(parts_s.values()), 0.0), **parts_s}

    def whole_job(self) -> dict[str, float]:
        """From a site that is recorded and nothing else to users' trees on the target."""
        _, parts_s = self.scan()
        return {**parts_s, **self.plan(), **self.run()}


def plain_site(directory: Path, source: Path, target: Path, *, transfer: str = "") -> Program:
    """A recorded site of two plain directories, in an existing directory. `transfer`: lines of that section."""
    (directory / "site.toml").write_text(
        f'[site]\nname = "bench"\nstate_dir = "state"\n[source]\nkind = "posix"\nmount = "{source}"\n[target]\n'
        f'kind = "posix"\nmount = "{target}"\ninodes_free = 1000000\n[users]\ntrees = ["{TREE}/*"]\n[transfer]\n{transfer}'
    )
    program = Program(site_file=directory / "site.toml")
    program.verb("init")
    return program


def planned_plain_site(directory: Path, source: Path, target: Path, *, transfer: str) -> Program:
    """As `plain_site`, made anew, with a scan and an active plan."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    program = plain_site(directory, source, target, transfer=transfer)
    program.verb("doctor", allowed=(0, 3, 4))
    program.scan()
    program.plan()
    return program


def new_site(
    lab: BenchLab,
    options: Options,
    trees: list[str],
    *,
    transfer: Mapping[str, object] | None = None,
    cutover: Mapping[str, object] | None = None,
    before: Callable[[], None] | None = None,
    two_hosts: bool = False,
) -> Program:
    """A site over the lab's volume that no verb has worked on but `init`; any earlier one is forgotten. With `two_hosts`, this
    machine writes what the brick servers read.
    """
    place = lab.work / "site"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    lab.forget_site()
    found = lab.site
    hosts: dict[str, dict[str, Any]] = found["source"].get("hosts", {})
    if two_hosts:
        hosts = {name: {key: value for key, value in facts.items() if key != "target"} for name, facts in hosts.items()}
    sections: dict[str, Mapping[str, Any]] = {
        "site": {"name": "bench", "state_dir": str(place / "state")},
        "source": {**{name: value for name, value in found["source"].items() if name != "hosts"}, "via": options.via},
        **{f'source.hosts."{name}"': facts for name, facts in hosts.items()},
        **({'target.hosts."localhost"': {}} if two_hosts else {}),
        "target": found["target"],
        "users": {"trees": trees},
        "transfer": {**(transfer or {}), "reserve": "16MiB"},
        "cutover": cutover or {},
    }
    if options.jobs is not None:
        sections["transfer"] = {**sections["transfer"], "jobs": options.jobs}
    lines: list[str] = []
    for name, keys in sections.items():
        lines.append(f"[{name}]")
        lines.extend(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in keys.items())
    (place / "site.toml").write_text("\n".join(lines) + "\n")
    program = Program(site_file=place / "site.toml", before=before)
    program.verb("init")
    return program
