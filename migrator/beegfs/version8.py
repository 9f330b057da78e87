"""`beegfs` of BeeGFS 8: its questions and its answers in JSON."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from migrator.beegfs import model
from migrator.core.errors import ToolFailed

# The questions, and the answers as lines of JSON (tested with recordings of 8.2.2 and 8.3.1).


# In pieces of more than --page-size rows `json` becomes several lists; ndjson stays what it is.
AS_LINES = ("--output", "ndjson")
LIST = ("target", "list", "--state", "--capacity", "--raw", "--columns", "all", *AS_LINES)
QUOTA = ("quota", "list-usage", "--uids", "0", *AS_LINES)
UNLICENSED = b"unable to verify licensed status"
"""8.3.1 ends with 1 after a complete answer if the management service has no licence library."""

_KINDS = {2: model.TargetKind.METADATA, 3: model.TargetKind.STORAGE}
_POOLS = {pool.value: pool for pool in model.CapacityPool}
_REACHABILITY = {state.value: state for state in model.Reachability}
_CONSISTENCY = {state.value: state for state in model.Consistency}
_AGO = re.compile(r"(\d+)s ago")
_SPAN_AGO = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(\d+)s ago")
_DIGITS = re.compile(r"\d+")
_STRIPE = re.compile(r"[A-Za-z0-9 ]+ \((\d+)x(\d+)([KMG]?)\)")
_POOL_NUMBER = re.compile(r".* \((\d+)\)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_targets(output: bytes) -> tuple[model.StorageTarget, ...]:
    """Every target of `target list`. Raises ToolFailed if the answer is malformed."""
    return tuple(_target(row) for row in parse_rows(output))


def parse_directory(output: bytes) -> model.DirectoryFacts:
    """The one directory of `entry info`. Raises ToolFailed."""
    found = parse_rows(output)
    if len(found) != 1:
        raise ToolFailed(f"`beegfs entry info` told of {len(found)} entries instead of one")
    pattern = _text(found[0], "stripe_pattern")
    stripe = _STRIPE.fullmatch(pattern)
    if stripe is None:
        raise ToolFailed(f"`beegfs entry info` told a stripe pattern that is not known: {pattern!r}")
    pool = _POOL_NUMBER.fullmatch(_text(found[0], "storage_pool"))
    return model.DirectoryFacts(
        stripe=model.StripeSettings(
            targets=int(stripe.group(1)), chunk_bytes=int(stripe.group(2)) * _UNITS[stripe.group(3)]
        ),
        storage_pool=int(pool.group(1)) if pool else None,
    )


def parse_rows(output: bytes) -> list[dict[str, Any]]:
    """The objects, one per line. Raises ToolFailed, also if there are none."""
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


def _target(row: dict[str, Any]) -> model.StorageTarget:
    identity = row.get("id")
    numbers: dict[str, Any] = identity if isinstance(identity, dict) else {}
    kind, number = _KINDS.get(numbers.get("node_type", 0)), numbers.get("num_id")
    if kind is None or not isinstance(number, int):
        raise ToolFailed(f"`beegfs target list` told of something that is no target: {identity!r}")
    pool = re.fullmatch(r"s:(\d+)", _text(row, "storage_pool"))
    return model.StorageTarget(
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
    """A number in digits (`--raw`). A text without digits means not known; one with more than digits was rounded."""
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


# Quotas by `beegfs quota`. The format of the answers is taken from its sources: only refusals were recorded, since quotas need a
# licence.
#
# `list-usage` alone knows the effective limits, but omits users without recorded usage: for them the limits that were set count,
# or else the defaults of the pool.


USAGE = ("quota", "list-usage", "--uids", "all", "--raw", *AS_LINES)
LIMITS = ("quota", "list-limits", "--uids", "all", "--raw", *AS_LINES)
DEFAULTS = ("quota", "list-defaults", "--raw", *AS_LINES)
ABSENT = (b"Feature Quota unavailable", b"Quota support is not enabled")
"""On standard error without quotas: no licence, or they are not enabled."""

_UNLIMITED = (1 << 63) - 1
_NONE = frozenset(("", "-", "?", "∞"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The pool's limits for users without limits of their own."""

    pool: str
    bytes: int | None
    chunk_files: int | None


def parse_defaults(output: bytes, pool: int | None) -> Defaults:
    """Of one storage pool by its number; None: of the only one. Raises ToolFailed."""
    rows = [row for row in parse_rows(output) if pool is None or _number(row, "num_id", row.get("id")) == pool]
    if len(rows) != 1:
        raise ToolFailed("the storage pool of the target's directory is not known, so whose limits hold is not")
    (row,) = rows
    return Defaults(
        pool=_word(row, "alias"),
        bytes=_limit(row, "user_space_limit"),
        chunk_files=_limit(row, "user_inode_limit"),
    )


def parse_quotas(
    usage: bytes, limits: bytes, defaults: Defaults, uids: Collection[int]
) -> Mapping[int, model.UserQuota]:
    """Of these users, in the pool of `defaults`. Raises ToolFailed."""
    found = {
        uid: model.UserQuota(
            uid=uid, used_chunk_files=0, limit_bytes=defaults.bytes, limit_chunk_files=defaults.chunk_files
        )
        for uid in uids
    }
    for uid, row in _users(limits, defaults.pool):
        if uid in found:
            found[uid] = _limited(found[uid], row)
    for uid, row in _users(usage, defaults.pool):
        if uid in found:
            found[uid] = _used(found[uid], row)
    return found


def _users(output: bytes, pool: str) -> list[tuple[int, dict[str, Any]]]:
    rows = parse_rows(output) if output.strip() else []
    return [
        (_number(row, "id", row), row) for row in rows if _word(row, "type") == "user" and _word(row, "pool") == pool
    ]


def _limited(quota: model.UserQuota, row: dict[str, Any]) -> model.UserQuota:
    """With the limits that were set for the user; `-` leaves the pool's."""
    space, chunk_files = _word(row, "space"), _word(row, "inode")
    if space != "-":
        quota = replace(quota, limit_bytes=_limit(row, "space"))
    return quota if chunk_files == "-" else replace(quota, limit_chunk_files=_limit(row, "inode"))


def _used(quota: model.UserQuota, row: dict[str, Any]) -> model.UserQuota:
    """With the usage; a limit that is not listed there stays as it was set."""
    space_used, _, space_limit = _word(row, "space").partition("/")
    inodes_used, _, inodes_limit = _word(row, "inode").partition("/")
    return replace(
        quota,
        used_bytes=_parsed(space_used) or 0,
        used_chunk_files=_parsed(inodes_used),
        limit_bytes=quota.limit_bytes if space_limit in ("", "?") else _parsed(space_limit),
        limit_chunk_files=quota.limit_chunk_files if inodes_limit in ("", "?") else _parsed(inodes_limit),
    )


def _limit(row: dict[str, Any], key: str) -> int | None:
    return _parsed(_word(row, key))


def _parsed(word: str) -> int | None:
    """A number in digits (`--raw`); None if there is none."""
    if word in _NONE:
        return None
    if not word.isascii() or not word.isdigit():
        raise ToolFailed(f"`beegfs quota` told {word!r} where a number was to be")
    number = int(word)
    return None if number >= _UNLIMITED else number


def _word(row: dict[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise ToolFailed(f"`beegfs quota` did not tell {key} of {row.get('id')!r}")
    return value


def _number(row: dict[str, Any], key: str, holder: object) -> int:
    value = holder.get(key) if isinstance(holder, dict) else None
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ToolFailed(f"`beegfs quota` told of something that has no number: {row.get('id')!r}")
    return value
