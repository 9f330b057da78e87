"""A site whose users go on working while passes are made, simulated.

It knows what really happens: which files change when, what a scan, a start and a stream cost. Nothing of it is shared with
what predicts.
"""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from migrator.core.states import PassKind
from migrator.delta.model import ChangeKind, ChangeTally
from migrator.transfer.model import PassFacts

Rate = Callable[[float], float]
"""Changes per second, at a time."""


@dataclass(kw_only=True)
class ChangingSite:
    """`hot` files change all the time: every list holds them. Others change one by one, `rate` of them a second."""

    seed: int
    rate: Rate
    file_bytes: float = 1e6
    hot: int = 0
    scan_s: float = 60.0
    start_s: float = 5.0
    s_per_file: float = 0.002
    bytes_per_s: float = 4e8
    check_s_per_file: float = 0.001
    noise: float = 0.1
    seed_pass_s: float = 20_000.0
    step_s: float = 20.0
    chance: random.Random = field(init=False)
    reached: list[int] = field(init=False, default_factory=lambda: [0])

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def about(self, value: float) -> float:
        """A duration as it comes out in the field."""
        return value * max(self.chance.gauss(1.0, self.noise), 0.2)

    def changes_until(self, at_s: float) -> int:
        """How many changes there were of files that are not hot, since time 0."""
        step = int(at_s / self.step_s)
        while len(self.reached) <= step + 1:
            expected = self.rate((len(self.reached) - 0.5) * self.step_s) * self.step_s
            self.reached.append(self.reached[-1] + self.drawn(expected))
        share = at_s / self.step_s - step
        return round(self.reached[step] + share * (self.reached[step + 1] - self.reached[step]))

    def drawn(self, expected: float) -> int:
        """How many of rare and independent changes happen: Poisson's distribution, from ten on the normal one."""
        if expected >= 10:
            return max(round(self.chance.gauss(expected, expected**0.5)), 0)
        count, product, least = 0, self.chance.random(), math.exp(-expected)
        while product > least:
            count += 1
            product *= self.chance.random()
        return count

    def listed(self, from_s: float, to_s: float) -> int:
        """Files in the list of a pass."""
        return self.changes_until(to_s) - self.changes_until(from_s) + self.hot

    def transfer_s(self, files: int) -> float:
        """What a pass takes behind its scan."""
        return self.about(self.start_s) + self.about(files * (self.s_per_file + self.file_bytes / self.bytes_per_s))

    def passes(self) -> Iterator[PassFacts]:
        """The seed pass, and delta passes one upon the other, without end."""
        scanned_at_s, now_s = 0.0, self.seed_pass_s
        yield PassFacts(
            kind=PassKind.SEED,
            number=0,
            scanned_at_s=0.0,
            scan_s=self.about(self.scan_s),
            started_at_s=self.scan_s * 2,
            finished_at_s=now_s,
            sent_files=1_000_000,
            sent_bytes=10**12,
        )
        number = 0
        while True:
            number += 1
            begun_s, scan_s = now_s, self.about(self.scan_s)
            files = self.listed(scanned_at_s, begun_s)
            now_s = begun_s + scan_s + self.transfer_s(files)
            scanned_at_s = begun_s
            tally = ChangeTally(paths=files, size_bytes=round(files * self.file_bytes))
            yield PassFacts(
                kind=PassKind.DELTA,
                number=number,
                scanned_at_s=begun_s,
                scan_s=scan_s,
                started_at_s=begun_s + scan_s,
                finished_at_s=now_s,
                sent_files=files,
                sent_bytes=tally.size_bytes,
                changes={ChangeKind.REWRITTEN: tally} if files else {},
            )

    def freeze_s(self, last: PassFacts) -> float:
        """How long the users wait if they are frozen when the last pass ends: one more pass, and its verification."""
        files = self.listed(last.scanned_at_s, last.finished_at_s)
        return self.about(self.scan_s) + self.transfer_s(files) + self.about(files * self.check_s_per_file)
