"""Which directories are user trees, and whose. Pure: the directories are found by the caller, level by level."""

import csv
import io
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from migrator.domain.errors import UsageError
from migrator.domain.paths import is_beneath, name, parent, show
from migrator.domain.tree import UserTree

_WILD = b"*?["
_MAP_COLUMNS = ("tree", "user")


@dataclass(frozen=True, slots=True, kw_only=True)
class TreePattern:
    """A glob of `[users] trees` or `exclude`, by component. Each component is matched within one directory."""

    text: str
    components: tuple[bytes, ...]

    def matches(self, path: bytes) -> bool:
        """Whether the path has as many components and each one matches."""
        parts = path.split(b"/")
        return len(parts) == len(self.components) and all(map(component_matches, self.components, parts))


def component_matches(pattern: bytes, component: bytes) -> bool:
    """As in a shell: `*`, `?` and `[...]` by bytes; a leading dot must be spelled out."""
    if component.startswith(b".") and not pattern.startswith(b"."):
        return False
    return fnmatchcase(component, pattern)


def is_literal(component: bytes) -> bool:
    """Whether a component of a pattern names one entry only."""
    return not any(bytes((wild,)) in component for wild in _WILD)


def parse_patterns(globs: Iterable[str], setting: str) -> tuple[TreePattern, ...]:
    """Globs relative to the source's root. Raises UsageError, naming the setting (`[users] trees`)."""
    patterns: list[TreePattern] = []
    for text in globs:
        components = tuple(text.encode("utf-8", "surrogateescape").strip(b"/").split(b"/"))
        if text.startswith("/") or any(part in (b"", b".", b"..") for part in components):
            raise UsageError(
                f"{setting}: {text!r} is not a glob below the source's mount",
                hint='write it relative to the mount and without "." and "..", such as "home/*"',
            )
        if any(part == b"**" for part in components):
            raise UsageError(
                f'{setting}: {text!r} holds "**", which is not supported',
                hint='write one component for each level, such as "projects/*/*"',
            )
        patterns.append(TreePattern(text=text, components=components))
    return tuple(patterns)


def choose_trees(
    found: Sequence[tuple[TreePattern, Sequence[bytes]]],
    exclude: Sequence[TreePattern],
    users: Mapping[bytes, str],
) -> tuple[UserTree, ...]:
    """The user trees, in order of path: what the globs matched, without what an exclude glob matches, itself or
    a directory above it. The user is the one of the map, or else the tree's last name.

    Raises UsageError where nothing is left, and where two trees overlap.
    """
    depths = [len(pattern.components) for pattern, _ in found]
    for pattern in exclude:
        if len(pattern.components) > max(depths, default=0):
            raise UsageError(
                f"[users] exclude: {pattern.text!r} lies deeper than any user tree and would exclude nothing",
                hint="exclude leaves out whole user trees; it does not reach into one",
            )
    by_path: dict[bytes, TreePattern] = {}
    for pattern, paths in found:
        for path in paths:
            if any(_excludes(excluded, path) for excluded in exclude):
                continue
            if path in by_path:
                raise UsageError(
                    f"user tree {show(path)} is matched by two globs of [users] trees: "
                    f"{by_path[path].text!r} and {pattern.text!r}",
                    hint="every directory moves once: narrow one of the globs, or use exclude",
                )
            by_path[path] = pattern
    if not by_path:
        globs = ", ".join(repr(pattern.text) for pattern, _ in found) or "none are given"
        raise UsageError(
            f"no directory of the source is a user tree; the globs are: {globs}",
            cause="a mistyped glob, or one that matches only files, symlinks or excluded directories",
            hint='set [users] trees to globs relative to the source\'s mount, such as "home/*"',
        )
    _refuse_overlaps(by_path)
    return tuple(UserTree(path=path, user=users.get(path) or show(name(path))) for path in sorted(by_path))


def ways_to(trees: Iterable[bytes]) -> dict[bytes, tuple[bytes, ...]]:
    """What a scan of these trees alone looks at outside them: by directory, beginning with the root `b""`, the entries
    that are a tree or lead to one, in order.
    """
    ways: dict[bytes, set[bytes]] = {}
    for path in trees:
        while path:
            ways.setdefault(parent(path), set()).add(path)
            path = parent(path)  # noqa: PLW2901 -- upwards
    return {directory: tuple(sorted(entries)) for directory, entries in ways.items()}


def parse_user_map(content: bytes) -> dict[bytes, str]:
    """The owner map: CSV with the columns `tree` (relative to the source's mount) and `user`, others are ignored.

    Raises UsageError with the line.
    """
    reader = csv.DictReader(io.StringIO(content.decode("utf-8", "surrogateescape"), newline=""), strict=True)
    users: dict[bytes, str] = {}
    try:
        if not set(_MAP_COLUMNS) <= set(reader.fieldnames or ()):
            raise UsageError(
                "the map of users has no columns `tree` and `user` in its first line",
                hint="begin it with a line `tree,user`, then one line a tree: `home/alice,alice`",
            )
        for row in reader:
            tree = (row["tree"] or "").strip("/").encode("utf-8", "surrogateescape")
            user = (row["user"] or "").strip()
            if not tree or not user:
                raise UsageError(f"the map of users, line {reader.line_num}: a tree and a user are needed")
            if users.setdefault(tree, user) != user:
                raise UsageError(f"the map of users, line {reader.line_num}: {show(tree)} has another user above")
    except csv.Error as error:
        raise UsageError(f"the map of users, line {reader.line_num}: {error}") from error
    return users


class TreeIndex:
    """Finds the user tree that a path lies in. Trees do not overlap, so the nearest one before it decides."""

    def __init__(self, trees: Iterable[UserTree]) -> None:
        self._paths = sorted(tree.path for tree in trees)
        self._roots = frozenset(self._paths)
        self._keys = [path + b"/" for path in self._paths]
        self._keys.sort()

    def of(self, path: bytes) -> bytes | None:
        """The tree that holds the path, or is it; None outside every tree."""
        key = path + b"/"
        position = bisect_right(self._keys, key)
        if position and key.startswith(self._keys[position - 1]):
            return self._keys[position - 1][:-1]
        return None

    def is_root(self, path: bytes) -> bool:
        """Whether the path is a tree itself."""
        return path in self._roots


def _excludes(pattern: TreePattern, path: bytes) -> bool:
    parts = path.split(b"/")
    return pattern.matches(b"/".join(parts[: len(pattern.components)]))


def _refuse_overlaps(by_path: Mapping[bytes, TreePattern]) -> None:
    outer: bytes | None = None
    for path in sorted(by_path, key=lambda path: path.split(b"/")):
        if outer is not None and is_beneath(path, outer):
            raise UsageError(
                f"user trees {show(outer)} ({by_path[outer].text!r}) and {show(path)} ({by_path[path].text!r}) "
                "overlap: one lies in the other",
                hint="every file moves once: exclude one of the two in [users] exclude",
            )
        outer = path
