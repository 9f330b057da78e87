"""The limit for all streams together, shared out over hosts, while limits, streams and chunks change in any order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from migrator.core.probe import Probe
from migrator.transfer.governor import Governing, Governor
from migrator.transfer.model import Controls, GovernorRecord, HostLoad, Limits, StreamsBy, Tuned
from tests.support.fakes import VirtualClock

HOSTS = {"gl1": 3, "gl2": 16, "here": 7}


@dataclass
class Nothing:
    """A ledger in which limits can be tuned, and nothing else happens."""

    limits: Limits = field(default_factory=Limits)

    def now(self) -> Controls:
        return Controls() if self.limits.nothing else Controls(tuned=Tuned(limits=self.limits, since_s=0.0, by="anna"))

    def add(self, record: GovernorRecord) -> None: ...

    def keep_loads(self, loads: Sequence[HostLoad]) -> None: ...

    def after(self, number: int) -> Sequence[tuple[int, Probe]]:
        return ()

    def last(self) -> int:
        return 0

    async def of(self, host: str) -> float | None:
        return None


def governor_over(ledger: Any, limit: int) -> Governor:
    return Governor(
        governing=Governing(
            controls=ledger,
            records=ledger,
            probes=ledger,
            loads=ledger,
            limits=Limits(bwlimit_bytes_per_s=limit),
            windows=(),
            local_time=lambda _: (0, 0),
            in_words=str,
            measured_cost=lambda: None,
            by=StreamsBy.FIXED,
        ),
        hosts=HOSTS,
        run_id=1,
        clock=VirtualClock(),
        say=lambda _warning, _words: None,
    )


LIMITS = st.integers(1, 10**10)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from(sorted(HOSTS))),
        st.tuples(st.just("end"), st.integers(0, 30)),
        st.tuples(st.just("limit"), LIMITS),
        st.tuples(st.just("jobs"), st.integers(1, 40)),
    ),
    max_size=80,
)


@given(LIMITS, STEPS, st.sets(st.sampled_from(sorted(HOSTS)), min_size=1))
def test_whatever_comes_a_stream_that_begins_never_takes_all_of_them_beyond_the_limit(
    limit: int, steps: list[tuple[str, Any]], busy: set[str]
) -> None:
    """`busy`: the hosts that the routes know of now."""
    ledger = Nothing()
    governor = governor_over(ledger, limit)
    shares: dict[int, int] = {}
    for number, (what, given_value) in enumerate(steps):
        if what == "begin" and given_value in busy and governor.may_begin(given_value, hosts=busy):
            governor.begin(number, given_value, hosts=busy)
            share = governor.share_of(number)
            assert share is not None
            assert share >= 1
            shares[number] = share
            assert sum(shares.values()) <= limit
        elif what == "end" and shares:
            ended = sorted(shares)[given_value % len(shares)]
            governor.end(ended)
            del shares[ended]
        elif what == "limit":
            limit = given_value
            ledger.limits = Limits(jobs=ledger.limits.jobs, bwlimit_bytes_per_s=limit)
            governor.look()
        elif what == "jobs":
            ledger.limits = Limits(jobs=given_value, bwlimit_bytes_per_s=limit)
            governor.look()
    for number in sorted(shares):
        governor.end(number)
    assert all(governor.may_begin(host, hosts=busy) for host in busy), "it never comes to a standstill"
