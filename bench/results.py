"""What was measured, as a document: one section a measurement, kept beside those of earlier calls."""

import datetime as dt
import json
import os
import platform
import shutil
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.options import Options
from bench.timing import Ratio, Series
from migrator.core.units import GIB

JSON_NAME = "performance.json"
_FORMAT = "migrator benchmarks 1"

_VERSIONS = {
    "glusterfs": ["glusterfs", "--version"],
    "rsync": ["rsync", "--version"],
    "fpart": ["fpart", "-V"],
    "tar": ["tar", "--version"],
    "cp": ["cp", "--version"],
    "find": ["find", "--version"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Contestants for one job, and how many times as fast one was as another."""

    title: str
    series: Sequence[Series]
    ratios: Sequence[Ratio] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Something per second, over some rounds."""

    name: str
    median: float
    lowest: float
    highest: float
    at_least: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One measurement. `facts` say what was measured on, `notes` what a reader must know to judge it."""

    name: str
    title: str
    facts: dict[str, str]
    tables: Sequence[Table]
    notes: Sequence[str] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    rates: Sequence[Rate] = ()

    @property
    def failures(self) -> list[str]:
        return [f"{one.name}: {one.failure}" for table in self.tables for one in table.series if one.failure]

    @property
    def missed(self) -> list[Ratio | Rate]:
        """The ratios and rates below what is asked of them."""
        every: list[Ratio | Rate] = [ratio for table in self.tables for ratio in table.ratios]
        every.extend(self.rates)
        return [one for one in every if one.at_least is not None and one.median < one.at_least]


def section_document(section: Section, options: Options) -> dict[str, Any]:
    """A section as JSON, with what it was measured on."""
    return {
        "title": section.title,
        "measured_at": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "scale": options.scale,
        "seed": options.seed,
        "via": options.via,
        "jobs": options.jobs,
        "caches": "cold" if options.cold else "warm",
        "machine": machine(),
        "facts": section.facts,
        "tables": [
            {
                "title": table.title,
                "series": [_series_document(one) for one in table.series],
                "ratios": [asdict(one) for one in table.ratios],
            }
            for table in section.tables
        ],
        "rates": [asdict(one) for one in section.rates],
        "notes": list(section.notes),
        "left_out": section.left_out,
    }


def _series_document(series: Series) -> dict[str, Any]:
    times = series.times_s
    return {
        "name": series.name,
        "median_s": round(statistics.median(times), 3) if times else None,
        "shortest_s": round(min(times), 3) if times else None,
        "longest_s": round(max(times), 3) if times else None,
        "parts_median_s": _parts(series),
        "runs": [asdict(run) for run in series.runs],
        "failure": series.failure,
    }


def _parts(series: Series) -> dict[str, float]:
    names = list(dict.fromkeys(name for run in series.runs for name in run.parts_s))
    return {
        name: round(statistics.median([run.parts_s[name] for run in series.runs if name in run.parts_s]), 3)
        for name in names
    }


def machine() -> dict[str, str]:
    """What kind of machine this is; nothing that tells which one."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = {
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory_bytes / GIB:.0f} GiB",
        "processor": _processor(),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
    }
    for name, command in _VERSIONS.items():
        if shutil.which(command[0]) is not None:
            said = subprocess.run(command, capture_output=True, text=True, check=False)
            words = (said.stdout + said.stderr).split("\n", 1)[0].split()
            found[name] = next((word.strip(",v") for word in words if word.strip("v")[:1].isdigit()), "unknown")
    return found


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def read_results(directory: Path) -> dict[str, Any]:
    """Every section that was measured so far, by name."""
    try:
        document = json.loads((directory / JSON_NAME).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    sections = document.get("sections", {}) if document.get("format") == _FORMAT else {}
    return dict(sections)


def write_results(directory: Path, sections: dict[str, Any]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": _FORMAT, "sections": sections}, indent=1, ensure_ascii=False)
    (directory / JSON_NAME).write_text(text + "\n")
