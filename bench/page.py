"""docs/development/performance.md, from what was measured."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE_NAME = "performance.md"

_OPENING = """# Performance

Made by `make bench` (`python -m bench`), from what it measured last; the figures themselves are in `performance.json`.
Everything runs on one machine: the hosts of the lab are network and mount namespaces that share its cores and its disk,
so times say little about other machines. Ratios are taken within one call, round by round (A B C, A B C, ...), and are
shown as the median with the lowest and the highest of the rounds; a slow contestant runs once, and its time stands in
every round. Every contestant ends with the same sync of the
target, inside its time; the target is emptied, and everything is written out, before the next one begins. Cold: before
each run the page cache is dropped, that of bricks and target too, and the volume is mounted with a new client; what the
programs themselves are made of is read again, untimed. The time of `migrator` is that of whole commands, from their start to their exit, ledger, attributes and directory times included.
"""

_PART_NAMES = {
    "scan_s": "scan",
    "plan_s": "plan",
    "run_s": "run",
    "start_s": "scan: its start-up",
    "checks_s": "scan: its checks of the volume, before and after",
    "walk_s": "scan: its walk",
    "finish_s": "scan: the end of its catalog",
    "find_s": "delta pass: its scan and comparison",
    "send_s": "delta pass: bringing over what changed",
    "around_s": "delta pass: start, checks and end of the command",
}


def write_page(directory: Path, sections: Mapping[str, Any], order: tuple[str, ...]) -> None:
    known = [name for name in order if name in sections]
    text = _OPENING + "".join("\n" + "\n".join(_section(sections[name])) + "\n" for name in known)
    (directory / PAGE_NAME).write_text(text)


def _section(section: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {section['title']}"
    yield ""
    machine = section["machine"]
    jobs = f", with {section['jobs']} streams on each host" if section["jobs"] else ""
    yield (
        f"{section['measured_at']}, {machine['cores']} cores ({machine['processor']}), {machine['memory']} of memory, "
        f"Linux {machine['kernel']}; scale {section['scale']:g}, seed {section['seed']}, caches {section['caches']}, "
        f"`migrator` reads via {section['via']}{jobs}."
    )
    versions = [f"{name} {value}" for name, value in machine.items() if name not in _NO_VERSIONS]
    yield f"With {', '.join(versions)}."
    if section["facts"]:
        yield ""
        yield from (f"- {name}: {value}" for name, value in section["facts"].items())
    for table in section["tables"]:
        yield from _table(table)
    yield from _rates(section["rates"])
    notes = [*section["notes"], *(f"Left out: {name} ({why})." for name, why in section["left_out"].items())]
    if notes:
        yield ""
        yield from (f"- {note}" for note in notes)


_NO_VERSIONS = frozenset({"cores", "memory", "processor", "kernel"})


def _table(table: Mapping[str, Any]) -> Iterator[str]:
    if table["series"]:
        yield ""
        yield f"| {table['title']} | median | shortest to longest | rounds | load before |"
        yield "| --- | ---: | ---: | ---: | ---: |"
        for series in table["series"]:
            yield from _series(series)
    if table["ratios"]:
        yield ""
        yield f"| {table['title']}: how many times as fast | median | lowest to highest | wanted |"
        yield "| --- | ---: | ---: | ---: |"
        for ratio in table["ratios"]:
            wanted = "" if ratio["at_least"] is None else f"{ratio['at_least']:g}"
            missed = " (missed)" if ratio["at_least"] is not None and ratio["median"] < ratio["at_least"] else ""
            spread = f"{ratio['lowest']:.2f} to {ratio['highest']:.2f}"
            yield f"| {ratio['name']} | {ratio['median']:.2f} | {spread} | {wanted}{missed} |"


def _rates(rates: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if rates:
        yield ""
        yield "| per second | median | lowest to highest | wanted |"
        yield "| --- | ---: | ---: | ---: |"
    for rate in rates:
        wanted = "" if rate["at_least"] is None else _number(rate["at_least"])
        missed = " (missed)" if rate["at_least"] is not None and rate["median"] < rate["at_least"] else ""
        spread = f"{_number(rate['lowest'])} to {_number(rate['highest'])}"
        yield f"| {rate['name']} | {_number(rate['median'])} | {spread} | {wanted}{missed} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"


def _series(series: Mapping[str, Any]) -> Iterator[str]:
    if series["failure"]:
        yield f"| {series['name']} | failed | | | |"
        return
    loads = [run["load_before"] for run in series["runs"]]
    spread = f"{_seconds(series['shortest_s'])} to {_seconds(series['longest_s'])}"
    load = f"{min(loads):.1f} to {max(loads):.1f}"
    yield f"| {series['name']} | {_seconds(series['median_s'])} | {spread} | {len(loads)} | {load} |"
    for name, value in series["parts_median_s"].items():
        yield f"| &nbsp;&nbsp;{_PART_NAMES.get(name, name)} | {_seconds(value)} | | | |"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 100 else f"{value:.0f} s"
