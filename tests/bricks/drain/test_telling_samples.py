"""How far a drain or an addition is follows from a few of its samples as from all of them."""

import random
from pathlib import Path

import pytest

from migrator.bricks.add import rules as addition_standing
from migrator.bricks.drain import rules_progress as drain_standing
from migrator.bricks.drain.model import DrainSample, last_counts
from migrator.gluster.model import TaskStatus
from migrator.ledger.ledger import open_ledger
from tests.support.operations import CHECK, START, do, plan_addition, plan_drain

WINDOW_S = drain_standing.RATE_WINDOW_S


def looks(seed: int) -> list[DrainSample]:
    """Some tasks, one after the other, on hosts that are rebooted, that tell nothing for a moment, and that are missing at times."""
    dice = random.Random(seed)
    found, at_s = [], 0.0
    pause_s = dice.choice((30.0, 400.0, 3000.0))
    for task in range(dice.randrange(1, 4)):
        hosts = {f"h{number}": [0, 0, 0.0] for number in range(dice.randrange(1, 4))}
        for _ in range(dice.randrange(150)):
            at_s += pause_s
            for host, counters in hosts.items():
                if dice.random() < 0.02:
                    counters[:] = [0, 0, 0.0]
                counters[0] += dice.choice((0, 0, 3))
                counters[1] += dice.choice((0, 10))
                counters[2] += pause_s
                if dice.random() < 0.1:
                    continue
                silent = dice.random() < 0.02
                found.append(
                    DrainSample(
                        task_id=f"t{task}",
                        at_s=at_s,
                        host=host,
                        status=TaskStatus.IN_PROGRESS,
                        runtime_s=0.0 if silent else counters[2],
                        files=0 if silent else round(counters[0]),
                        size_bytes=0 if silent else round(counters[1]),
                        lookups=round(2 * counters[0]),
                        failures=task,
                        skipped=0,
                    )
                )
    return found


@pytest.mark.parametrize("seed", range(12))
def test_a_few_samples_tell_what_all_do(tmp_path: Path, seed: int) -> None:
    every = looks(seed)
    with open_ledger(tmp_path / "ledger.db", create=True) as ledger:
        drain = do(ledger.drains, plan_drain(ledger), CHECK, START)
        addition = plan_addition(ledger)
        other = plan_drain(ledger, ("gl9:/b",))
        ledger.drains.add_samples(drain.id, every)
        ledger.drains.add_samples(other.id, looks(seed + 100))
        ledger.additions.add_samples(addition.id, every)
        few = ledger.drains.telling_samples(drain.id, recent_s=WINDOW_S)
        kept = ledger.additions.telling_samples(addition.id, recent_s=WINDOW_S)
    assert few == kept == [one for one in every if one in set(few)]
    assert drain_standing.standing(drain, few) == drain_standing.standing(drain, every)
    assert addition_standing.standing(addition, few) == addition_standing.standing(addition, every)
    assert sorted(map(repr, last_counts(few))) == sorted(map(repr, last_counts(every)))
