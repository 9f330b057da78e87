"""What BeeGFS says of its targets' states. Pure.

Its tables differ between versions, the words in them do not (doc.beegfs.io, "Target States"): a target is reachable
(`Online`) and its data `Good`. Whatever else stands in a row is a problem, also what is not known here.
"""

import re
from collections.abc import Iterator

_WORD = re.compile(r"[A-Za-z]+")
_HEADER = frozenset({"reachability", "consistency"})
_DOUBTS = frozenset({"offline", "probably", "po", "bad", "resync", "needs", "unknown"})


def target_problems(answer: str) -> tuple[str, ...]:
    """Why a table of target states is no proof that all of them are there; none where every row is `Online` and `Good`."""
    rows = list(_rows(answer))
    if not rows:
        return ("BeeGFS names no target, so nothing is known of them",)
    return tuple(f"a target of BeeGFS is not well: {' '.join(row.split())}" for row in rows if not _is_well(row))


def _rows(answer: str) -> Iterator[str]:
    for line in answer.splitlines():
        words = _words(line)
        # Rules below the header hold no word at all.
        if words and not words & _HEADER:
            yield line


def _is_well(row: str) -> bool:
    words = _words(row)
    return {"online", "good"} <= words and not words & _DOUBTS


def _words(line: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(line)}
