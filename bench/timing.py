"""Taking times: contestants in turn, round by round, each beside the load of the machine at that moment."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

_TAIL_BYTES = 2000


class ContestantFailed(Exception):
    """A contestant ended in an error, or left something out: what it took is no measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. `parts_s` are shares of `elapsed_s`, or figures that the contestant gave of itself."""

    elapsed_s: float
    load_before: float
    parts_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """`prepare` and `check` are not timed; `work` is, and returns its parts. One that takes long stops after `rounds`."""

    name: str
    work: Callable[[], dict[str, float]]
    prepare: Callable[[], object] = lambda: None
    check: Callable[[], None] = lambda: None
    rounds: int | None = None


@dataclass(slots=True, kw_only=True)
class Series:
    """The runs of one contestant; `failure` says why there are no more."""

    name: str
    runs: list[Run] = field(default_factory=list)
    failure: str | None = None

    @property
    def times_s(self) -> list[float]:
        return [run.elapsed_s for run in self.runs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times as fast as something else, pair by pair of one round."""

    name: str
    median: float
    lowest: float
    highest: float
    pairs: int
    at_least: float | None = None


def alternate(contestants: Sequence[Contestant], rounds: int) -> list[Series]:
    """A B C, A B C, ...: what drifts on the machine meets all of them. One that fails is left out from then on."""
    every = [Series(name=contestant.name) for contestant in contestants]
    for number in range(1, rounds + 1):
        for contestant, series in zip(contestants, every, strict=True):
            if series.failure is None and (contestant.rounds is None or number <= contestant.rounds):
                _take(contestant, series, f"round {number} of {rounds}")
    return every


def _take(contestant: Contestant, series: Series, where: str) -> None:
    try:
        contestant.prepare()
        load = os.getloadavg()[0]
        begun_s = time.monotonic()
        parts_s = contestant.work()
        elapsed_s = time.monotonic() - begun_s
        contestant.check()
    except ContestantFailed as error:
        series.failure = str(error)
        series.runs.clear()
        say(f"{where}: {contestant.name}: FAILED: {error}")
        return
    series.runs.append(Run(elapsed_s=elapsed_s, load_before=load, parts_s=parts_s))
    parts = "".join(f", {name} {value:.2f}" for name, value in parts_s.items())
    say(f"{where}: {contestant.name}: {elapsed_s:.2f} s{parts} (load before: {load:.2f})")


def ratio(name: str, slower: Sequence[float], faster: Sequence[float], at_least: float | None = None) -> list[Ratio]:
    """The ratios of pairs of one round; none where one of the two has no runs. What ran once stands in every round."""
    rounds = max(len(slower), len(faster))
    slower, faster = ([*times] * rounds if len(times) == 1 else times for times in (slower, faster))
    pairs = [slow / fast for slow, fast in zip(slower, faster, strict=False) if fast > 0]
    if not pairs:
        return []
    found = Ratio(
        name=name,
        median=statistics.median(pairs),
        lowest=min(pairs),
        highest=max(pairs),
        pairs=len(pairs),
        at_least=at_least,
    )
    return [found]


def best_of(every: Iterable[Series]) -> list[float]:
    """The shortest time of each round, of those that ran in it."""
    return [min(filter(None, of_round)) for of_round in zip_longest(*(series.times_s for series in every))]


def call(
    argv: Sequence[str | Path], *, allowed: tuple[int, ...] = (0,), before: Callable[[], None] | None = None
) -> str:
    """Run a command to its end and return its output; what it says otherwise counts only when it fails."""
    with tempfile.TemporaryFile() as said:
        started = subprocess.Popen(
            [str(argument) for argument in argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            # Compiled Python files are kept, as after any installation.
            env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            preexec_fn=before,  # noqa: PLW1509 (no threads here)
        )
        try:
            output, _ = started.communicate()
        except BaseException:
            started.terminate()
            started.wait()
            raise
        if started.returncode not in allowed:
            said.seek(0)
            words = (output[-_TAIL_BYTES:] + said.read()[-_TAIL_BYTES:]).decode(errors="replace").strip()
            raise ContestantFailed(f"{argv[0]} ended with {started.returncode}: {words}")
    return output.decode(errors="surrogateescape")


def shell(script: str) -> None:
    """Run a script of bash; every part of a pipe must end well."""
    call(["bash", "-c", f"set -euo pipefail; {script}"])


def say(line: str) -> None:
    print(f"bench: {line}", file=sys.stderr, flush=True)
