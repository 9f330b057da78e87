"""Freezes: how long users are frozen by a cutover, against what was predicted before it, while they go on working."""

import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.lab import VOLUME, BenchLab, bench_lab
from bench.options import Options
from bench.program import Program, new_site
from bench.results import Section, Table
from bench.timing import ContestantFailed, Run, Series, call, ratio, say
from bench.trees import TREE, UserSpec, describe, small_users
from migrator.cutover.rules_freezes import FreezePart, describe_part

NAME = "freezes"
FILES, USERS = 30_000, 3
_WRITES_PER_S = 5.0
_TRIES = 3


def freezes(options: Options) -> Section:
    """Users of one batch, moved one after the other; each writes as himself until he is frozen, and the others go on."""
    users = small_users(options.count(FILES, 400), options.seed, users=USERS)
    with bench_lab(options, "freezes", users) as lab:
        lab.empty_target()
        call([os.fsdecode(lab.state.gluster), "volume", "set", lab.state.spec.volume, "performance.open-behind", "off"])
        links = _links(lab)
        # This machine's processes may not all be readable, as in containers: the hook answers for them.
        program = new_site(lab, options, [f"{TREE}/*"], cutover={"link": f"{links}/{{user}}", "freeze": "hook"})
        _freeze_hook(program)
        program.scan()
        program.plan()
        with _working(lab, users):
            program.verb("run", "--all")
            program.verb("verify", "--all", allowed=(0, 3))
            program.verb("run", "--all", "--deltas", "1")
            real, predicted, parts = _move(program, users)
        return Section(
            name=NAME,
            title="Freezes, predicted and real",
            facts={
                "tree": f"{describe(lab.tally(TREE))}; {USERS} users, moved one after the other",
                "volume": VOLUME,
                "users": f"each rewrites, makes, renames and removes files of his own, {_WRITES_PER_S:g} times a second, until he "
                "is frozen",
            },
            tables=(
                Table(
                    title="One user",
                    series=(real, predicted),
                    ratios=ratio("predicted against frozen", predicted.times_s, real.times_s),
                ),
                Table(title="Where the seconds of a freeze go", series=parts),
            ),
            notes=(
                "Frozen is from the begin of the freeze to the user's thaw on the target: final pass, verification of all facts and "
                "of the content that changed, two searches for writers, the switch. The content was verified before, by "
                "`migrator verify`.",
                "Of the time in which the top is closed, 2 s are `[cutover] settle`: clients may open known names below it until the "
                "`entry-timeout` of their mounts ends.",
                "Predicted is what `migrator cutover` said at its begin: a prediction has a margin, so that it is rather kept "
                "than not.",
            ),
        )


def _move(program: Program, users: tuple[UserSpec, ...]) -> tuple[Series, Series, tuple[Series, ...]]:
    real, predicted = Series(name="frozen"), Series(name="predicted")
    parts = {part: Series(name=describe_part(part)) for part in FreezePart if part is not FreezePart.INTERRUPTED}
    for user in users:
        load = os.getloadavg()[0]
        outcome = _moved(program, Path(user.path).name)
        for series, value_s in ((real, outcome["cutover"]["freeze_s"]), (predicted, outcome["predicted_freeze_s"])):
            series.runs.append(Run(elapsed_s=value_s, load_before=load))
        for part, series in parts.items():
            spent_s = outcome["freeze_parts_s"].get(part.value, 0.0)
            series.runs.append(Run(elapsed_s=spent_s, load_before=load))
        spent = ", ".join(f"{series.name} {series.times_s[-1]:.2f} s" for series in parts.values())
        say(f"{user.path}: frozen {real.times_s[-1]:.2f} s, predicted {predicted.times_s[-1]:.2f} s: {spent}")
    return real, predicted, tuple(parts.values())


def _moved(program: Program, user: str) -> Any:  # noqa: ANN401 (JSON)
    """A file that is open at the very moment of the freeze gives it up: then it is tried again, as an operator would."""
    for _ in range(_TRIES):
        (outcome,) = program.verb("cutover", "--user", user, allowed=(0, 3, 4))["outcomes"]
        if outcome["ending"] == "moved":
            return outcome
        say(f"{user}: {outcome['words']}")
        program.verb("run", "--user", user)
    raise ContestantFailed(f"{user} was not moved: {outcome['words']}")


def _links(lab: BenchLab) -> Path:
    links = lab.work / "home"
    links.mkdir(exist_ok=True)
    for user in lab.users:
        link = links / Path(user.path).name
        link.unlink(missing_ok=True)
        link.symlink_to(lab.source / user.path)
    return links


def _freeze_hook(program: Program) -> None:
    hook = program.site_file.parent / "hooks" / "pre-freeze.d" / "10-users-are-asked"
    hook.parent.mkdir(parents=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)


@contextmanager
def _working(lab: BenchLab, users: tuple[UserSpec, ...]) -> Iterator[None]:
    """Every user at work, as himself."""
    context = multiprocessing.get_context("fork")
    every = [context.Process(target=_work, args=(lab.source / user.path, user), daemon=True) for user in users]
    for one in every:
        one.start()
    try:
        yield
    finally:
        for one in every:
            one.terminate()
            one.join()


def _work(tree: Path, user: UserSpec) -> None:
    os.setgroups([])
    os.setgid(user.uid)
    os.setuid(user.uid)
    chosen = random.Random(user.seed)
    place, number = tree / "at-work", 0
    try:
        place.mkdir(exist_ok=True)
        while True:
            number += 1
            file = place / f"file-{chosen.randrange(200)}"
            what = chosen.random()
            if what < 0.7 or not file.exists():
                file.write_bytes(chosen.randbytes(chosen.randrange(1, 20_000)))
            elif what < 0.9:
                file.rename(place / f"renamed-{number}")
            else:
                file.unlink()
            time.sleep(chosen.expovariate(_WRITES_PER_S))
    except OSError:
        return  # he is frozen
