"""Quotas by `beegfs quota` of version 8. The answers' form is that of its sources: none but refusals were recorded, since
quotas need a licence.

Users whose use was never counted are not in `list-usage`, which alone knows the effective limits: their limits are those that
were set for them, or else the pool's.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from migrator.adapters.beegfs.version8 import AS_LINES, parse_rows
from migrator.domain.errors import ToolFailed
from migrator.domain.quota import UserQuota

USAGE = ("quota", "list-usage", "--uids", "all", "--raw", *AS_LINES)
LIMITS = ("quota", "list-limits", "--uids", "all", "--raw", *AS_LINES)
DEFAULTS = ("quota", "list-defaults", "--raw", *AS_LINES)
ABSENT = (b"Feature Quota unavailable", b"Quota support is not enabled")
"""On standard error where there are no quotas: no licence, or they are not turned on."""

_UNLIMITED = (1 << 63) - 1
_NONE = frozenset(("", "-", "?", "∞"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a pool lets users have that have no limits of their own."""

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


def parse_quotas(usage: bytes, limits: bytes, defaults: Defaults, uids: Collection[int]) -> Mapping[int, UserQuota]:
    """Of these users, in the pool of `defaults`. Raises ToolFailed."""
    found = {
        uid: UserQuota(uid=uid, used_chunk_files=0, limit_bytes=defaults.bytes, limit_chunk_files=defaults.chunk_files)
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


def _limited(quota: UserQuota, row: dict[str, Any]) -> UserQuota:
    """With the limits that were set for him; `-` leaves the pool's."""
    space, chunk_files = _word(row, "space"), _word(row, "inode")
    if space != "-":
        quota = replace(quota, limit_bytes=_limit(row, "space"))
    return quota if chunk_files == "-" else replace(quota, limit_chunk_files=_limit(row, "inode"))


def _used(quota: UserQuota, row: dict[str, Any]) -> UserQuota:
    """With what is used; a limit that is not told there is as it was set."""
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
    """A number in digits (`--raw`); None where there is none."""
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
