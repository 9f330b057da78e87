"""What a migration of a given size takes: the time to copy, by hosts, and the disk of the state directory. Pure."""

from msgspec import Struct

from migrator.plan.model import TransferCost
from migrator.plan.rules_forecast import choose_cost, copy_s

HOSTS = (1, 2, 4, 8, 16)
STATE_BYTES_PER_PATH = 220
"""Two catalogs (30 each), the manifest (40), output of the streams (100), chunk lists (11), rounded up: docs/sizing.md."""
SPILL_BYTES_PER_PATH = 260
"""Of the largest query, a verification of 10^8 paths with 512 MiB of memory: 24.3 GiB."""


class AskedSizes(Struct, frozen=True, kw_only=True):
    """The question."""

    size_bytes: int
    """Bytes to copy."""
    files: int
    """Files to copy."""
    streams: int
    """Streams of each host."""
    rate_bytes_per_s: int = 0
    """Limit of all streams together, by the network or the target; 0: none."""


class CopyTime(Struct, frozen=True, kw_only=True):
    """The time of all seed passes with one number of hosts."""

    hosts: int
    """The number of hosts."""
    streams: int
    """The streams of all hosts."""
    duration_s: float
    """The time."""
    limited_by_rate: bool
    """The given rate limits it, and not the streams."""


class Sizing(Struct, frozen=True, kw_only=True):
    """The time and room that a migration takes: `plan --what-if`."""

    asked: AskedSizes
    """The question."""
    cost: TransferCost
    """Time that a stream spends."""
    times: tuple[CopyTime, ...]
    """The time by number of hosts."""
    state_bytes: int
    """Bytes that stay in the state directory."""
    spill_bytes: int
    """Bytes that one query uses at most, if one batch had all files."""


def size_up(asked: AskedSizes, measured: TransferCost | None) -> Sizing:
    """Hosts are taken not to slow each other down before they reach the given rate."""
    least_s = asked.size_bytes / asked.rate_bytes_per_s if asked.rate_bytes_per_s else 0.0
    times = []
    for hosts in HOSTS:
        streams = hosts * asked.streams
        streams_s = copy_s(asked.files, asked.size_bytes, choose_cost(measured, streams))
        times.append(
            CopyTime(
                hosts=hosts,
                streams=streams,
                duration_s=max(streams_s, least_s),
                limited_by_rate=least_s > streams_s,
            )
        )
    return Sizing(
        asked=asked,
        cost=choose_cost(measured, asked.streams),
        times=tuple(times),
        state_bytes=asked.files * STATE_BYTES_PER_PATH,
        spill_bytes=asked.files * SPILL_BYTES_PER_PATH,
    )
