"""User trees, the choice between bricks and mount, and doubts that make a scan not whole. Pure."""

import csv
import io
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from migrator.catalog.model import BrickFindings, PathFinding, StrangeFiles
from migrator.core.entry import UserTree
from migrator.core.errors import UsageError
from migrator.core.paths import is_beneath, name, parent, show
from migrator.core.units import first_of, format_count, several
from migrator.fs.model import ScanProblem
from migrator.gluster.model import Brick, BrickRules, Mark, VolumeState
from migrator.gluster.rules import (
    CTIME_OPTION,
    brick_rules,
    choose_bricks,
    is_on,
    option_reasons,
    subvolumes,
    volume_problems,
)

# --- User trees, and their users. The caller finds the directories, level by level.


OWN_PREFIX = b".migrator-"
"""What all names begin with that this program uses in the root of a file system."""

_WILD = b"*?["
_MAP_COLUMNS = ("tree", "user")


class TreePattern(Struct, frozen=True, kw_only=True):
    """A glob of `[users] trees` or `exclude`. Each component is matched within one directory."""

    text: str
    components: tuple[bytes, ...]

    def matches(self, path: bytes) -> bool:
        """True if the path has as many components and each one matches."""
        parts = path.split(b"/")
        return len(parts) == len(self.components) and all(map(component_matches, self.components, parts))


def component_matches(pattern: bytes, component: bytes) -> bool:
    """As in a shell: `*`, `?` and `[...]` by bytes; a leading dot must be spelled out."""
    if component.startswith(b".") and not pattern.startswith(b"."):
        return False
    return fnmatchcase(component, pattern)


def is_literal(component: bytes) -> bool:
    """True if a component of a pattern names one entry only."""
    return not any(bytes((wild,)) in component for wild in _WILD)


def parse_patterns(globs: Iterable[str], setting: str) -> tuple[TreePattern, ...]:
    """Parse globs relative to the source's root. Raises UsageError, naming the setting (`[users] trees`)."""
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
    """The user trees, in order of path: the matches of the globs, without those that an exclude glob matches, or that
    are below such a match. The user is that of the map, or else the tree's last component.

    Raises UsageError if no tree is left, if two trees overlap, and for a name of this program's own.
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
            if path.startswith(OWN_PREFIX):
                raise UsageError(
                    f"user tree {show(path)} has a name that this program keeps for itself in the roots of file systems",
                    hint=f'exclude "{OWN_PREFIX.decode()}*"; if it is a directory of a user, let them rename it',
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
    """The entries outside these trees that a scan of them looks up: by directory, from the root `b""` on, the entries
    that are a tree or lead to one, in order.
    """
    ways: dict[bytes, set[bytes]] = {}
    for path in trees:
        while path:
            ways.setdefault(parent(path), set()).add(path)
            path = parent(path)  # noqa: PLW2901 -- upwards
    return {directory: tuple(sorted(entries)) for directory, entries in ways.items()}


def parse_user_map(content: bytes) -> dict[bytes, str]:
    """Parse the owner map: CSV with the columns `tree` (relative to the source's mount) and `user`; others are ignored.

    Raises UsageError with the line number.
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
    """Finds the user tree of a path. Trees do not overlap, so only the nearest one before it can match."""

    def __init__(self, trees: Iterable[UserTree]) -> None:
        self._paths = sorted(tree.path for tree in trees)
        self._roots = frozenset(self._paths)
        self._keys = [path + b"/" for path in self._paths]
        self._keys.sort()

    def of(self, path: bytes) -> bytes | None:
        """The tree that the path is in, or whose root it is; None outside every tree."""
        key = path + b"/"
        position = bisect_right(self._keys, key)
        if position and key.startswith(self._keys[position - 1]):
            return self._keys[position - 1][:-1]
        return None

    def is_root(self, path: bytes) -> bool:
        """True if the path is the root of a tree."""
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


# --- Bricks or mount
#
# The mount is always right, and slow. All reasons against the bricks are listed, each as a sentence.


class BrickChoice(Struct, frozen=True, kw_only=True):
    """The bricks to read, one of each subvolume, the `copies` of which only marks are read, and their rules; or the
    `reasons` against it.
    """

    bricks: tuple[Brick, ...] = ()
    copies: tuple[Brick, ...] = ()
    rules: BrickRules | None = None
    reasons: tuple[str, ...] = ()


def select_bricks(
    state: VolumeState, *, reachable: Collection[str], unreachable: Mapping[str, str] | None = None
) -> BrickChoice:
    """The bricks to read, or every reason against that.

    `state` must include heals and peers. `reachable` are the reached hosts, named as in the brick list; `unreachable`
    maps other hosts of site.toml to the reason.
    """
    reasons = list(reasons_against_bricks(state))
    bricks: tuple[Brick, ...] = ()
    try:
        bricks, problems = choose_bricks(state, unreachable or {}, reachable)
    except ValueError as error:
        reasons.append(f"the volume's bricks cannot be distinguished: {error}")
    else:
        reasons.extend(problems)
    read = [some for some in (subvolumes(state) if bricks else ()) if not set(some).isdisjoint(bricks)]
    copies = tuple(brick for some in read for brick in some if brick not in bricks)
    # The marks on all copies of a file decide which of them is right.
    for host in sorted({brick.host for brick in copies} - set(reachable)):
        why = (unreachable or {}).get(host, f'site.toml has no [source.hosts."{host}"]')
        reasons.append(f"the marks on the copies of host {host} cannot be read: {why}")
    if reasons:
        return BrickChoice(reasons=tuple(dict.fromkeys(reasons)))
    return BrickChoice(bricks=bricks, copies=copies, rules=brick_rules(state))


def reasons_against_bricks(state: VolumeState) -> tuple[str, ...]:
    """Why the content of the bricks differs from the mount's, regardless of the reachable hosts. Known pending heals do not
    count: the marks on all copies, or `held_bricks`, show the files.
    """
    reasons = list(volume_problems(state))
    kind = state.type.lower()
    if state.disperse_count > 0 or "disperse" in kind:
        reasons.append("the volume is dispersed: a brick holds pieces of files")
    if state.stripe_count > 1 or "stripe" in kind:
        reasons.append("the volume is striped: a brick holds pieces of files")
    if "tier" in kind:
        reasons.append("the volume is tiered: files move between its tiers")
    reasons += option_reasons(state.options)
    if is_on(dict(state.options), CTIME_OPTION, default=True) is None:
        reasons.append(f"option {CTIME_OPTION} has an unknown value: the place of the times of files is unclear")
    reasons += [f"a task moves files between bricks, or waits for its commit: {task}" for task in state.tasks]
    reasons += _peer_reasons(state)
    reasons += _heal_reasons(state)
    return tuple(dict.fromkeys(reasons))


def pending_heals(state: VolumeState) -> dict[str, str]:
    """A sentence for each brick with pending heals."""
    return {
        heal.brick: f"{several(heal.entries, 'entry', 'entries')} of brick {heal.brick} wait to be healed"
        for heal in state.heals or ()
        if heal.entries
    }


def held_bricks(state: VolumeState) -> dict[str, str]:
    """The bricks of each replica set with pending heals, with the reason: one of its copies may be stale."""
    pending = pending_heals(state)
    held: dict[str, str] = {}
    for bricks in subvolumes(state):
        if reasons := [pending[brick.name] for brick in bricks if brick.name in pending]:
            held |= {brick.name: "; ".join(reasons) for brick in bricks}
    return held


def _peer_reasons(state: VolumeState) -> list[str]:
    if state.peers_down is None:
        return ["the state of the cluster's hosts is unknown"]
    return [f"host {peer} of the cluster is down, or its glusterd is" for peer in state.peers_down]


def _heal_reasons(state: VolumeState) -> list[str]:
    if state.heals is None:
        return ["the number of pending heals is unknown"]
    reasons = [
        f"the pending heals of brick {heal.brick} are unknown: {heal.status}"
        for heal in state.heals
        if heal.status != "Connected" or heal.entries is None
    ]
    missing = {brick.name for brick in state.bricks} - {heal.brick for heal in state.heals}
    if state.replica_count > 1 and missing:
        reasons.append(f"the pending heals of {format_count(len(missing))} bricks are unknown")
    return reasons


_ROOT_GFID = bytes(15) + b"\x01"


def brick_problem(brick: Brick, *, volume_id: str, found_volume_id: str | None, found_root_gfid: bytes) -> str | None:
    """Why a path is not the brick of the volume that glusterd names there; None if it is."""
    if found_volume_id is None or found_root_gfid != _ROOT_GFID:
        return f"{brick.name} is no root of a brick: is its file system mounted there?"
    if found_volume_id.lower() != volume_id.lower():
        return f"{brick.name} is a brick of another volume: its id is {found_volume_id}, the volume's is {volume_id}"
    return None


def task_changes(before: VolumeState, after: VolumeState) -> tuple[str, ...]:
    """Sentences about tasks that were begun between two snapshots, including finished ones."""
    new = set(after.task_ids) - set(before.task_ids)
    return ("a task that moves files between bricks was begun while they were read",) if new else ()


# --- Stray files: written to bricks past Gluster, without a gfid
#
# Gluster does not know them: no drain moves them, and no user can open them. With `cluster.lookup-optimize` off, as it
# is after a drain or an addition has begun, clients look up a name on every brick. A client that finds such a file on
# another brick than the layout names hangs permanently (seen on GlusterFS 10.3; #3688 there).


_SHOWN = 3

REMEDY = "move them off the brick, and copy what is wanted in through the mount"
_HANGS = (
    "clients that ask for such a name while names are looked for on all bricks, as they are from a drain or an addition on, can "
    "hang (GlusterFS 10.3)"
)


def strange_sentences(found: Sequence[StrangeFiles]) -> Iterator[str]:
    """The findings of a scan, by brick."""
    for one in found:
        yield f"{describe_strange_files(one)}: they are not on the volume, and not in the catalog; {REMEDY}"


def strange_problems(found: Sequence[StrangeFiles]) -> Iterator[str]:
    """Reasons against drains and additions while these files exist."""
    for one in found:
        yield f"{describe_strange_files(one)}; {_HANGS}: {REMEDY}"


def describe_strange_files(one: StrangeFiles) -> str:
    """The number on one brick, with the first names."""
    shown = first_of(list(map(show, one.paths)), _SHOWN, of=one.files)
    named = f" ({shown})" if one.paths else ""
    return f"{several(one.files, 'file')} without a gfid {'was' if one.files == 1 else 'were'} put on {one.brick} past Gluster{named}"


def still_strange(known: StrangeFiles, still: Collection[bytes]) -> StrangeFiles | None:
    """The remaining files of those that a scan found; None if there are none. `still` are the recorded paths that have
    no gfid now; counted files without a recorded path count as remaining.
    """
    paths = tuple(path for path in known.paths if path in still)
    files = len(paths) + known.files - len(known.paths)
    return StrangeFiles(brick=known.brick, files=files, paths=paths) if files else None


# --- Doubts, which make a scan of bricks not whole, and findings, which do not


_EXAMPLES = 3
_UNLIKE = "no heal is pending, and the mount lists those of one copy; run `gluster volume heal VOLUME full`"
_TWINS = "a rename that failed on some bricks left both; move the files of one to a new directory through the mount, and remove it"
_MARKS = {
    Mark.CORRUPTED: (
        "with a copy that the scrubber marked as corrupted: the content that the mount shows is copied; "
        "`gluster volume bitrot VOLUME scrub status` lists the copies"
    ),
    Mark.PENDING: (
        "with a copy that lacks operations, or is being written: taken from the mount; "
        "`gluster volume heal VOLUME` heals copies"
    ),
    Mark.MIGRATION: (
        "with the marks of a failed move to another brick: taken from the mount; `chmod` to the file's own mode, through the "
        "mount, removes them"
    ),
    Mark.LINK_WITH_CONTENT: (
        "with a link-to file that has content: taken from the mount; remove the link-to file on its brick if the mount shows the "
        "file without it"
    ),
}


class MarkedPaths(Struct, frozen=True, kw_only=True):
    """The paths with a mark, in order, and the number of further ones."""

    paths: tuple[bytes, ...]
    more: int = 0


class BrickDoubts(Struct, frozen=True, kw_only=True):
    """`doubts` and `unread` paths make the scan not whole; `findings` do not."""

    doubts: tuple[str, ...]
    unread: tuple[ScanProblem, ...]
    findings: tuple[str, ...]


def judge_bricks(
    found: BrickFindings,
    *,
    marks: Mapping[Mark, MarkedPaths],
    vanished: int,
    hidden_marks: int,
    strange: Sequence[StrangeFiles],
    limit: int,
) -> BrickDoubts:
    """Derive doubts and findings. In a volume that moves no files, nothing is doubled, filled or migrated.

    A directory that is missing on a brick is no doubt: all its files were read, although the mount may show fewer.
    Files written past Gluster are no doubt either: they are not on the volume. Directories that differ between bricks
    or are from before 1970, and vanished paths, were looked up through the mount, up to `limit`.
    """
    doubts: list[str] = []
    unread: list[ScanProblem] = []
    # A user who replaces files and directories during the scan can cause these findings: such paths are below the
    # user's tree.
    for finding, one, more, what in (
        (found.doubled_paths, "path was", "paths were", "found more than once"),
        (found.doubled_inodes, "name belongs", "names belong", "to a file that lies on two bricks at once"),
        (found.conflicting, "directory is", "directories are", "another one on another brick"),
        (found.unlike, "directory has", "directories have", f"other entries on another copy: {_UNLIKE}"),
        (found.twins, "directory has", "directories have", f"the gfid of another directory: {_TWINS}"),
    ):
        if finding.count > len(finding.paths):
            doubts += _sentence(finding, one, more, what)
        else:
            unread += [ScanProblem(path=path, operation="unite", errno=None, reason=what) for path in finding.paths]
    doubts += [
        f"{several(marked.more, 'more path')} with the mark {mark}" for mark, marked in marks.items() if marked.more
    ]
    asked = (found.doubled_paths, found.differing, found.renamed)
    if max(finding.count for finding in asked) > limit:
        doubts.append(f"more paths had to be looked at through the mount than the {limit:,} that are")
    findings = [
        *(
            f"{several(len(marked.paths), 'path')} {_MARKS[mark]} ({first_of(list(map(show, marked.paths)), _EXAMPLES)})"
            for mark, marked in marks.items()
        ),
        *_sentence(
            found.differing,
            "directory differs",
            "directories differ",
            "between bricks in owner, mode, ACLs or attributes, or carry times before 1970; what the mount shows is taken",
        ),
        *_sentence(
            found.incomplete, "directory is", "directories are", "missing on some brick; the mount may show less"
        ),
    ]
    if vanished:
        findings.append(
            f"{several(vanished, 'path', 'paths')} vanished while the bricks were read: removed or renamed by users"
        )
    if hidden_marks:
        findings.append(
            f"{several(hidden_marks, 'file has', 'files have')} both the setgid and the sticky bit, which the mount of a distributed "
            "volume never shows: they arrive without them (`find BRICK -type f -perm -3000` lists them)"
        )
    findings += strange_sentences(strange)
    return BrickDoubts(doubts=tuple(doubts), unread=tuple(unread), findings=tuple(findings))


def _sentence(finding: PathFinding, one: str, more: str, what: str) -> Iterable[str]:
    if finding.count:
        shown = ", ".join(show(path) or "the root" for path in finding.paths[:_EXAMPLES])
        others = ", ..." if finding.count > _EXAMPLES else ""
        yield f"{several(finding.count, one, more)} {what} ({shown}{others})"
