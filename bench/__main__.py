"""`python -m bench [NAME ...] [OPTIONS]`: benchmarks that show what the documentation claims; all of them without a name.

That takes less than 20 minutes on two cores, with `--large` some hours.

Not part of the installed program.
"""

import dataclasses
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

from bench import report_scale
from bench.big import big
from bench.bulk import bulk
from bench.forecast import NAME as NAME_OF_FORECAST
from bench.forecast import forecast
from bench.freezes import NAME as NAME_OF_FREEZES
from bench.freezes import freezes
from bench.governor import NAME as NAME_OF_GOVERNOR
from bench.governor import governor
from bench.lab import BenchLab, bench_lab
from bench.latency import NAME as NAME_OF_LATENCY
from bench.latency import latency
from bench.mount_walk import NAME as NAME_OF_MOUNT_WALKS
from bench.mount_walk import mount_walk
from bench.options import Options, parse_options
from bench.page import write_page
from bench.passes import passes
from bench.requests import NAME as NAME_OF_REQUESTS
from bench.requests import requests
from bench.results import Section, read_results, section_document, write_results
from bench.scale import NAME as NAME_OF_SCALE
from bench.scale import scale
from bench.scaling import scaling
from bench.scan import scan
from bench.streams import NAME as NAME_OF_STREAMS
from bench.streams import streams
from bench.timing import ContestantFailed, say
from bench.trees import TREE, small_users
from bench.two_hosts import NAME as NAME_OF_TWO_HOSTS
from bench.two_hosts import two_hosts
from bench.verification import NAME as NAME_OF_VERIFICATION
from bench.verification import verification
from bench.walk_speed import NAME as NAME_OF_WALKS
from bench.walk_speed import walk_speed

ON_THE_TREE: dict[str, Callable[[BenchLab, Options], Section]] = {
    "scan": scan,
    "bulk": bulk,
    NAME_OF_VERIFICATION: verification,
    "passes": passes,
}
"""They share a lab, and are measured in this order: `bulk` leaves a finished copy for the next two, `passes` changes it."""

ON_THEIR_OWN: dict[str, Callable[[Options], Section]] = {
    "big": big,
    "scaling": scaling,
    NAME_OF_TWO_HOSTS: two_hosts,
    NAME_OF_WALKS: walk_speed,
    NAME_OF_MOUNT_WALKS: mount_walk,
    NAME_OF_FREEZES: freezes,
    NAME_OF_STREAMS: streams,
    NAME_OF_REQUESTS: requests,
    NAME_OF_LATENCY: latency,
    NAME_OF_SCALE: scale,
    NAME_OF_FORECAST: forecast,
    NAME_OF_GOVERNOR: governor,
}
ALL = (*ON_THE_TREE, *ON_THEIR_OWN)
ALONE: dict[str, Callable[[list[str]], int]] = {
    report_scale.NAME: report_scale.main,
}
"""Where nothing else is named: with options of their own."""
LARGE = "-large"
"""The end of the names of sections that `--large` measures: they stand beside the quick ones."""
PAGE_ORDER = (
    "bulk",
    "scan",
    NAME_OF_WALKS,
    NAME_OF_MOUNT_WALKS,
    "passes",
    NAME_OF_VERIFICATION,
    "big",
    "scaling",
    NAME_OF_TWO_HOSTS,
    NAME_OF_STREAMS,
    NAME_OF_REQUESTS,
    NAME_OF_LATENCY,
    NAME_OF_FREEZES,
    NAME_OF_FORECAST,
    NAME_OF_GOVERNOR,
    NAME_OF_SCALE,
)


def main() -> int:
    first_option = next((place for place, word in enumerate(sys.argv) if place and word.startswith("-")), len(sys.argv))
    names, arguments = sys.argv[1:first_option], sys.argv[first_option:]
    if len(names) == 1 and names[0] in ALONE:
        return ALONE[names[0]](arguments)
    if any(name not in (*ALL, "all") for name in names):
        print(f"usage: python -m bench [{'|'.join(('all', *ALL, *ALONE))}] [options]", file=sys.stderr)
        return 2
    every = not names or "all" in names
    options = parse_options(arguments, __doc__)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit("bench: ended by SIGTERM"))  # labs are taken down
    return measure(ALL if every else names, options)


def measure(names: Sequence[str], options: Options) -> int:
    """Measure, and write what was found after each, so that nothing is lost. 1 where a contestant failed."""
    failed, begun_s = False, time.monotonic()
    if on_the_tree := [name for name in ON_THE_TREE if name in names]:
        files, users = (200_000, 20) if options.large else (50_000, 4)
        with bench_lab(options, TREE, small_users(options.count(files, 200), options.seed, users=users)) as lab:
            for name in on_the_tree:
                failed |= _measure(name, partial(ON_THE_TREE[name], lab, options), options)
    for name in names:
        if name in ON_THEIR_OWN:
            failed |= _measure(name, partial(ON_THEIR_OWN[name], options), options)
    say(f"{_minutes(begun_s)} in all; written: performance.json and performance.md in {options.output}")
    return 1 if failed else 0


def _measure(name: str, measurement: Callable[[], Section], options: Options) -> bool:
    """Measure one section and write it down; returns whether anything failed in it."""
    say(f"{name}: begins")
    begun_s = time.monotonic()
    try:
        section = measurement()
        say(f"{name}: {_minutes(begun_s)}")
        return _keep(section, options)
    except ContestantFailed as error:
        say(f"{name}: FAILED before anything was measured: {error}")
        return True


def _keep(section: Section, options: Options) -> bool:
    """Write a section down beside the others; returns whether one of its contestants failed."""
    if options.large:
        section = dataclasses.replace(section, name=section.name + LARGE, title=f"{section.title}, large")
    sections = read_results(options.output)
    sections[section.name] = section_document(section, options)
    write_results(options.output, sections)
    write_page(options.output, sections, tuple(name + size for name in PAGE_ORDER for size in ("", LARGE)))
    for missed in section.missed:
        say(f"{section.name}: {missed.name}: {missed.median:,.2f}, {missed.at_least:g} wanted")
    for failure in section.failures:
        say(f"{section.name}: failed: {failure}")
    return bool(section.failures)


def _minutes(begun_s: float) -> str:
    return f"{(time.monotonic() - begun_s) / 60:.1f} minutes"


if __name__ == "__main__":
    raise SystemExit(main())
