"""`beegfs`, the tool of BeeGFS 8: its questions, and its answers as lines of JSON (read by recordings of 8.2.2 and 8.3.1)."""

import json
import re
from typing import Any

from migrator.domain.errors import ToolFailed
from migrator.domain.storage_targets import (
    CapacityPool,
    Consistency,
    DirectoryFacts,
    Reachability,
    StorageTarget,
    StripeSettings,
    TargetKind,
)

# In pieces of more than --page-size rows `json` becomes several lists; ndjson stays what it is.
AS_LINES = ("--output", "ndjson")
LIST = ("target", "list", "--state", "--capacity", "--raw", "--columns", "all", *AS_LINES)
QUOTA = ("quota", "list-usage", "--uids", "0", *AS_LINES)
UNLICENSED = b"unable to verify licensed status"
"""8.3.1 ends with 1 after a whole answer where the management service has no licence library."""

_KINDS = {2: TargetKind.METADATA, 3: TargetKind.STORAGE}
_POOLS = {pool.value: pool for pool in CapacityPool}
_REACHABILITY = {state.value: state for state in Reachability}
_CONSISTENCY = {state.value: state for state in Consistency}
_AGO = re.compile(r"(\d+)s ago")
_SPAN_AGO = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(\d+)s ago")
_DIGITS = re.compile(r"\d+")
_STRIPE = re.compile(r"[A-Za-z0-9 ]+ \((\d+)x(\d+)([KMG]?)\)")
_POOL_NUMBER = re.compile(r".* \((\d+)\)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_targets(output: bytes) -> tuple[StorageTarget, ...]:
    """Every target of `target list`. Raises ToolFailed where it is not what that says."""
    return tuple(_target(row) for row in parse_rows(output))


def parse_directory(output: bytes) -> DirectoryFacts:
    """The one directory of `entry info`. Raises ToolFailed."""
    found = parse_rows(output)
    if len(found) != 1:
        raise ToolFailed(f"`beegfs entry info` told of {len(found)} entries instead of one")
    pattern = _text(found[0], "stripe_pattern")
    stripe = _STRIPE.fullmatch(pattern)
    if stripe is None:
        raise ToolFailed(f"`beegfs entry info` told a stripe pattern that is not known: {pattern!r}")
    pool = _POOL_NUMBER.fullmatch(_text(found[0], "storage_pool"))
    return DirectoryFacts(
        stripe=StripeSettings(targets=int(stripe.group(1)), chunk_bytes=int(stripe.group(2)) * _UNITS[stripe.group(3)]),
        storage_pool=int(pool.group(1)) if pool else None,
    )


def parse_rows(output: bytes) -> list[dict[str, Any]]:
    """The objects, one a line. Raises ToolFailed, also where there are none."""
    found: list[dict[str, Any]] = []
    for line in output.split(b"\n"):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ToolFailed(f"an answer of `beegfs` is cut off or no JSON: {line[:80]!r}") from error
        if not isinstance(row, dict):
            raise ToolFailed(f"an answer of `beegfs` is no list of objects: {line[:80]!r}")
        found.append(row)
    if not found:
        raise ToolFailed("an answer of `beegfs` is empty")
    return found


def _target(row: dict[str, Any]) -> StorageTarget:
    identity = row.get("id")
    numbers: dict[str, Any] = identity if isinstance(identity, dict) else {}
    kind, number = _KINDS.get(numbers.get("node_type", 0)), numbers.get("num_id")
    if kind is None or not isinstance(number, int):
        raise ToolFailed(f"`beegfs target list` told of something that is no target: {identity!r}")
    pool = re.fullmatch(r"s:(\d+)", _text(row, "storage_pool"))
    return StorageTarget(
        kind=kind,
        number=number,
        name=_text(row, "alias"),
        node=_text(row, "node"),
        reachability=_REACHABILITY.get(_text(row, "reachability")),
        consistency=_CONSISTENCY.get(_text(row, "consistency")),
        pool=_POOLS.get(_text(row, "cap_pool").lower()),
        storage_pool=int(pool.group(1)) if pool else None,
        last_contact_s=_ago_s(_text(row, "last_contact")),
        total_bytes=_count(row, "space"),
        free_bytes=_count(row, "space_free"),
        total_inodes=_count(row, "inodes"),
        free_inodes=_count(row, "inodes_free"),
    )


def _text(row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise ToolFailed(f"`beegfs` did not tell {key} of {row.get('alias', row.get('path', 'an entry'))!r}")
    return value


def _count(row: dict[str, Any], key: str) -> int | None:
    """A number in digits (`--raw`). What holds no digit is not known; what holds more than digits was rounded."""
    value = _text(row, key)
    if _DIGITS.fullmatch(value):
        return int(value)
    if any(letter.isdigit() for letter in value):
        raise ToolFailed(f"`beegfs` told {key} rounded, as {value!r}")
    return None


def _ago_s(text: str) -> float | None:
    if found := _AGO.fullmatch(text):
        return float(found.group(1))
    if found := _SPAN_AGO.fullmatch(text):
        hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return float(hours * 3600 + minutes * 60 + seconds)
    return None
