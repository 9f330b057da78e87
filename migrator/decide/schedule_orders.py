"""Which orders of draining and of moving are tried, and which outcome is the best."""

from collections.abc import Iterator, Sequence
from itertools import permutations

from migrator.decide.schedule_play import play
from migrator.domain.schedule import Outcome
from migrator.domain.schedule_facts import BatchFacts, ScheduleFacts

EVERY_ORDER_UP_TO = 4
"""So many subvolumes have 24 orders of draining, and all are tried; of more the likely ones are."""


def drain_orders(facts: ScheduleFacts) -> list[tuple[int, ...]]:
    """Orders of the places in `facts.subvolumes` that are worth a try; the last of each is retired."""
    places = range(len(facts.subvolumes))
    if len(places) <= EVERY_ORDER_UP_TO:
        return list(permutations(places))
    held = [_held(facts, place) for place in places]
    size = [facts.subvolumes[place].total_bytes for place in places]
    of_host: dict[tuple[str, ...], int] = {}
    for place in places:
        of_host[facts.subvolumes[place].hosts] = of_host.get(facts.subvolumes[place].hosts, 0) + held[place]
    by_host = {place: (of_host[facts.subvolumes[place].hosts], facts.subvolumes[place].hosts) for place in places}
    found = [
        # Server after server, the lightest first: whole servers are free soonest.
        tuple(sorted(places, key=lambda place: (by_host[place], held[place], place))),
        tuple(sorted(places, key=lambda place: (held[place], place))),
        tuple(sorted(places, key=lambda place: (-size[place], held[place], place))),
        tuple(sorted(places, key=lambda place: (size[place], held[place], place))),
        # Those without room of their own to spare can only leave.
        tuple(sorted(places, key=lambda place: (size[place] - held[place], place))),
        tuple(places),
    ]
    return list(dict.fromkeys(found))


def _held(facts: ScheduleFacts, place: int) -> int:
    one = facts.subvolumes[place]
    return one.total_bytes - one.free_bytes


def best_outcome(facts: ScheduleFacts, batch_order: Sequence[int]) -> Outcome:
    """The drains in the order that is best for this order of batches."""
    return min((play(facts, batch_order, order) for order in drain_orders(facts)), key=merit)


def is_possible(facts: ScheduleFacts, batch_order: Sequence[int]) -> bool:
    """Whether any order of draining comes to its end."""
    return any(play(facts, batch_order, order).obstacle is None for order in drain_orders(facts))


def merit(outcome: Outcome) -> tuple[float, ...]:
    """Less is better: to come to the end at all, bricks free early, servers free early; or to come far."""
    cleared = [step.cleared_day for step in outcome.subvolumes if step.cleared_day is not None]
    free = [host.free_day for host in outcome.hosts if host.free_day is not None]
    if outcome.obstacle is not None:
        return (1.0, -len(outcome.batches), -len(cleared), outcome.obstacle.lacking_bytes, sum(cleared))
    return (0.0, sum(cleared), sum(free))


def heaviest_first(batches: Sequence[BatchFacts]) -> tuple[int, ...]:
    """Places of the batches by what they hold."""
    return tuple(sorted(range(len(batches)), key=lambda place: (-batches[place].placed.all_bytes, place)))


def likely_orders(facts: ScheduleFacts) -> Iterator[tuple[int, ...]]:
    """Orders of the batches that may free bricks sooner than the heaviest first."""
    batches = facts.batches
    places = range(len(batches))
    yield tuple(places)
    yield heaviest_first(batches)
    yield tuple(sorted(places, key=lambda place: (batches[place].placed.all_bytes, place)))

    def days_for_byte(place: int) -> float:
        return batches[place].copy_days / max(batches[place].placed.all_bytes, 1)

    yield tuple(sorted(places, key=lambda place: (days_for_byte(place), place)))
    for lightest in sorted(range(len(facts.subvolumes)), key=lambda place: (_held(facts, place), place))[:2]:

        def elsewhere(place: int, on: int = lightest) -> float:
            placed = batches[place].placed
            return -placed.size_bytes[on] / max(batches[place].copy_days, 1e-9)

        yield tuple(sorted(places, key=lambda place: (elsewhere(place), place)))


def soonest(facts: ScheduleFacts) -> Outcome:
    """The outcome that frees bricks soonest, of the likely orders."""
    return min((best_outcome(facts, order) for order in dict.fromkeys(likely_orders(facts))), key=merit)
