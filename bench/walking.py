"""The walkers alone, as a section of the page: what `python -m bench walk-speed` measures."""

import json
import sys

from bench.options import Options
from bench.results import Rate, Section
from bench.timing import call

NAME = "walk-speed"
_TARGET_OF = "native, times from mdata, 1 worker"
_ENTRIES = 200_000


def walking(options: Options) -> Section:
    entries = options.count(_ENTRIES, 2_000)
    argv = [sys.executable, "-m", "bench", NAME, "--json", "--entries", str(entries)]
    found = json.loads(call([*argv, "--rounds", str(options.rounds(5))]))
    rates = [
        Rate(
            name=f"entries a core: {name}",
            median=figures["entries_per_core_s"],
            lowest=figures["entries_per_core_s_lowest"],
            highest=figures["entries_per_core_s_highest"],
            at_least=found["target_entries_per_core_s"] if name == _TARGET_OF else None,
        )
        for name, figures in found["walks"].items()
    ]
    return Section(
        name=NAME,
        title="The walkers alone",
        facts={"brick": f"{entries:,} small files with Gluster's own attributes, XFS, caches warm"},
        tables=(),
        rates=rates,
        notes=("A core: by the processor time of the walk, which other work on the machine changes little.",),
    )
