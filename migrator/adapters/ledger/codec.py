"""How values that are read as a whole lie in one column: JSON, with paths percent-escaped."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from migrator.domain.paths import percent_escape, percent_unescape
from migrator.domain.tree import UserTree

Value = TypeVar("Value")


def _encode_bytes(value: object) -> object:
    raise NotImplementedError(f"no column holds a {type(value).__name__}")


def encode(value: object) -> str:
    """A dataclass as JSON; bytes in it as base64 (msgspec's form)."""
    return msgspec.json.encode(value, enc_hook=_encode_bytes).decode("utf-8")


def decode(text: str, kind: type[Value]) -> Value:
    """What `encode` was given. Raises msgspec.ValidationError where it is something else."""
    return msgspec.json.decode(text, type=kind)


def encode_trees(trees: Iterable[UserTree]) -> str:
    """User trees as pairs of percent-escaped path and user."""
    return json.dumps([[percent_escape(tree.path), tree.user] for tree in trees])


def decode_trees(text: str) -> tuple[UserTree, ...]:
    """What `encode_trees` was given."""
    return tuple(UserTree(path=percent_unescape(path), user=user) for path, user in json.loads(text))


def encode_paths(paths: Iterable[bytes]) -> str:
    """Paths, percent-escaped."""
    return json.dumps([percent_escape(path) for path in paths])


def decode_paths(text: str) -> tuple[bytes, ...]:
    """What `encode_paths` was given."""
    return tuple(percent_unescape(path) for path in json.loads(text))


def encode_words(words: Iterable[str]) -> str:
    """Strings, also with what UTF-8 cannot hold."""
    return json.dumps(list(words))


def decode_words(text: str) -> tuple[str, ...]:
    """What `encode_words` was given."""
    return tuple(json.loads(text))


def encode_counts(counts: Mapping[str, int]) -> str:
    """Counts by name, in order of name."""
    return json.dumps(dict(sorted((str(key), value) for key, value in counts.items())))


def decode_counts(text: str) -> dict[str, int]:
    """What `encode_counts` was given."""
    return {str(key): int(value) for key, value in json.loads(text).items()}


def encode_argv(argv: Sequence[str]) -> str:
    """An argv."""
    return encode_words(argv)
