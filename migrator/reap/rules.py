"""Globs, the rule of each tree, savings, and releases. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from migrator.core.entry import UserTree
from migrator.core.errors import Refused, UsageError
from migrator.core.events import Finding, failure, ok
from migrator.core.paths import is_beneath, show
from migrator.core.units import format_duration, format_size
from migrator.fs.kinds.table import KINDS
from migrator.fs.model import Mount
from migrator.gluster.rules import is_on
from migrator.plan.model import TransferCost
from migrator.plan.rules_forecast import copy_s
from migrator.reap import model
from migrator.site.model import ReapAction, ReapClock, ReapPolicy, ReapRule

# --- Globs over the paths of a user tree, by bytes
#
# A glob without a slash matches a name anywhere in the tree; one with a slash matches a path from the top of the tree.
# Both match the path itself and everything below a directory that they match. `*`, `?` and `[...]` match bytes within
# one name, a leading dot too: excluding more is safe.


_NAME_BYTES = frozenset(range(256)) - {ord("/")}
_NAME_BYTE = "(?:[013-9A-F].|2[0-9A-E])"


def globs_pattern(globs: Iterable[bytes]) -> str:
    """A pattern for the hexadecimal form of a path below its tree. Each part of it matches whole bytes. The globs have
    no leading slash, `.` or `..`.
    """
    return f"^(?:{'|'.join(map(_glob, globs))})(?:2F|$)"


class GlobMatcher:
    """Several globs at once."""

    def __init__(self, globs: Collection[bytes]) -> None:
        self._pattern = re.compile(globs_pattern(globs)) if globs else None

    def matches(self, path: bytes) -> bool:
        """True if any of them matches a path, which is relative to the top of its tree."""
        return self._pattern is not None and self._pattern.match(path.hex().upper()) is not None


def _glob(glob: bytes) -> str:
    components = glob.rstrip(b"/").split(b"/")
    return "(?:(?:..)*2F)?" * (len(components) == 1) + "2F".join(map(_component, components))


def _component(component: bytes) -> str:
    found: list[str] = []
    place = 0
    while place < len(component):
        end = place + 1
        match component[place:end]:
            case b"*":
                found.append(f"{_NAME_BYTE}*")
            case b"?":
                found.append(_NAME_BYTE)
            case b"[" if (close := _class_end(component, place)) is not None:
                end = close + 1
                chosen = component[place:end]
                found.append(_one_of(byte for byte in _NAME_BYTES if fnmatchcase(bytes((byte,)), chosen)))
            case plain:
                found.append(plain.hex().upper())
        place = end
    return "".join(found)


def _class_end(component: bytes, place: int) -> int | None:
    """The end of the class that begins here. As in fnmatch, a bracket right after its start belongs to it."""
    start = place + 1
    if component[start : start + 1] == b"!":
        start += 1
    if component[start : start + 1] == b"]":
        start += 1
    close = component.find(b"]", start)
    return None if close < 0 else close


def _one_of(chosen: Iterable[int]) -> str:
    by_high: dict[str, str] = {}
    for byte in sorted(chosen):
        high = f"{byte >> 4:X}"
        by_high[high] = by_high.get(high, "") + f"{byte & 0xF:X}"
    # A class without bytes: `Z` is no hexadecimal digit, so it matches nothing.
    return "(?:" + "|".join(f"{high}[{lows}]" for high, lows in by_high.items()) + ")" if by_high else "Z"


# --- Rules of trees, savings, and releases


_CHECK = "reap atime"


def choose_rules(policy: ReapPolicy, trees: Iterable[UserTree]) -> tuple[model.TreeRule, ...]:
    """The rule of each tree, in order of path: that of its path, or else its user's, or else the site's; without trees
    whose rule matches no file.

    Raises UsageError for a name that is neither a user nor a tree: a typo would reap files that are to be kept.
    """
    known = sorted(trees, key=lambda tree: tree.path)
    names = {name for tree in known for name in (tree.user, show(tree.path))}
    if unknown := sorted(policy.by_name.keys() - names):
        raise UsageError(
            f'[reap.users."{unknown[0]}"] is neither a user nor a user tree of the catalog',
            cause="a slip of the keyboard, or the user is gone",
            hint="put the name right, or take the section out of site.toml: nothing is reaped on a guess",
        )
    chosen = (model.TreeRule(tree=tree, rule=_rule_of(policy, tree)) for tree in known)
    return tuple(one for one in chosen if one.rule.matches_anything)


def _rule_of(policy: ReapPolicy, tree: UserTree) -> ReapRule:
    own = policy.by_name.get(show(tree.path)) or policy.by_name.get(tree.user)
    return own or policy.rule


def reaps(rules: Iterable[model.TreeRule]) -> bool:
    """True if any rule archives or skips files, instead of only reporting them."""
    return any(one.rule.action is not ReapAction.LIST for one in rules)


def describe_reap_rule(rule: ReapRule) -> str:
    """A rule in words."""
    conditions = []
    if rule.older_than_s is not None:
        done = "read or changed" if rule.by is ReapClock.ATIME else "changed"
        conditions.append(f"not {done} for {format_duration(rule.older_than_s)}")
    if rule.smaller_than_bytes is not None:
        conditions.append(f"smaller than {format_size(rule.smaller_than_bytes)}")
    named = (("hidden files", rule.hidden), ("executables", rule.executables))
    words = [" and ".join(conditions)]
    if too := [what for what, taken in named if taken]:
        words.append(f"{', '.join(too)} too")
    if rule.exclude:
        words.append(f"without {', '.join(rule.exclude)}")
    return "files " + "; ".join(words)


def savings(trees: Iterable[model.ReapedTree], cost: TransferCost) -> model.Savings:
    """Savings of these trees. Archived files are copied all the same, but not one by one: that saves inodes and time
    per file, and no bytes. The archives themselves, a few per tree, are not counted.
    """
    size_bytes = inodes = 0
    seconds = 0.0
    for tree in trees:
        saved_bytes = 0 if tree.action is ReapAction.ARCHIVE else tree.size_bytes
        size_bytes += saved_bytes
        inodes += tree.files
        seconds += copy_s(tree.files, saved_bytes, cost)
    return model.Savings(size_bytes=size_bytes, inodes=inodes, seconds=seconds)


def atime_problem(kind: str, options: Mapping[str, str] | None, mount: Mount | None) -> str | None:
    """The reason why the source keeps no reliable atime; None if no reason is known.

    `options` are those of the Gluster volume, None if they are unknown or there is no volume; `mount` is that of the
    source. Gluster's own times (`features.ctime`) exclude atime unless `ctime.noatime` is off. Without them, atime
    depends on the mounts of the bricks' file systems, which cannot be checked from here.
    """
    if mount is not None and mount.no_atime:
        return f"{show(mount.point)} is mounted with noatime: when files were read is not kept"
    if not KINDS[kind].atimes.holds:
        return KINDS[kind].atimes.why
    if kind != "gluster":
        return None
    if options is None:
        return "access times of the volume are unknown: its options cannot be read"
    own_times = is_on(options, "features.ctime", default=True)
    ignored = is_on(options, "ctime.noatime", default=True)
    if own_times is not False and ignored is not False:
        return "the volume does not keep when files were read: its option ctime.noatime is on, as it is by default"
    return None


def check_atime(needed: bool, problem: str | None) -> list[Finding]:
    """The findings of `doctor` if a rule depends on atime."""
    if not needed:
        return []
    if problem is None:
        return [ok(_CHECK, "the source keeps when files were read")]
    return [failure(_CHECK, problem, _ATIME_HINT)]


_ATIME_HINT = (
    'set [reap] by = "mtime"; or let the source keep atime (on Gluster: `gluster volume set VOLUME ctime.noatime off`), '
    "and wait until it says something"
)


def require_atime(rules: Iterable[model.TreeRule], problem: str | None) -> None:
    """Raise Refused if a rule depends on atime and the source does not keep it."""
    if problem is not None and any(one.rule.needs_atime for one in rules):
        raise Refused(f'[reap] by = "atime" cannot be: {problem}', hint=_ATIME_HINT)


class Releases:
    """Look-up of paths that were released by name."""

    def __init__(self, releases: Iterable[model.ReapRelease]) -> None:
        self._paths: dict[bytes, list[bytes]] = {}
        globs: dict[bytes, list[bytes]] = {}
        for release in releases:
            kind = globs if release.is_glob else self._paths
            kind.setdefault(release.tree, []).append(release.pattern)
        self._globs = {tree: GlobMatcher(found) for tree, found in globs.items()}

    def has(self, tree: bytes, path: bytes) -> bool:
        """True if a path of a tree (relative to the source's root, as everywhere) was released."""
        below = path[len(tree) + 1 :]
        if any(is_beneath(below, pattern) for pattern in self._paths.get(tree, ())):
            return True
        matcher = self._globs.get(tree)
        return matcher is not None and matcher.matches(below)


def release_patterns(
    trees: Sequence[bytes], named: Sequence[bytes], globs: Sequence[bytes]
) -> list[tuple[bytes, bytes, bool]]:
    """Resolve names into trees, patterns, and whether the pattern is a glob. Paths are relative to the source's root
    or, if the user has a single tree, to its top; globs apply to every tree of the user. Raises UsageError.
    """
    found: list[tuple[bytes, bytes, bool]] = []
    for given in named:
        path = given.rstrip(b"/")
        _require_plain(path)
        tree = next((tree for tree in trees if is_beneath(path, tree)), None)
        if tree is not None:
            below = path[len(tree) + 1 :]
        elif len(trees) == 1:
            tree, below = trees[0], path
        else:
            raise UsageError(
                f"{show(path)} lies in none of the user's trees",
                hint="name it from the source's root, as `migrator reap list` does",
            )
        found.append((tree, below, False))
    for glob in globs:
        _require_plain(glob.rstrip(b"/"))
        found += [(tree, glob.rstrip(b"/"), True) for tree in trees]
    return found


def _require_plain(path: bytes) -> None:
    if any(part in (b"", b".", b"..") for part in path.split(b"/")):
        raise UsageError(
            f'{show(path)!r} cannot be a path of a user tree: it is empty, absolute, or holds "." or ".."',
            hint="name it from the source's root, as `migrator reap list` does",
        )
