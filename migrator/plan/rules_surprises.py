"""Losses and other surprises, reported to users before the move. Pure."""

import posixpath
from bisect import insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from migrator.beegfs.model import LayoutRule
from migrator.beegfs.rules_layout import describe_layout_rule, tree_settings
from migrator.core.paths import is_beneath, parent, show, tree_of
from migrator.core.units import first_of, format_size, several
from migrator.fs.kinds.model import FileSystemKind
from migrator.fs.model import RewrittenLinks, SurpriseKind
from migrator.fs.rules import expected_link
from migrator.gluster.rules import is_on
from migrator.plan.model import Account, Accounts, NotedOwners, Surprise, TreeUsage
from migrator.plan.rules import LinkSpan

MAX_EXAMPLES = 5


class SymlinkRow(Struct, frozen=True, kw_only=True):
    """A symlink of the catalog. `path` and `tree` are relative to the source root."""

    path: bytes
    tree: bytes | None
    target: bytes


def judge_symlink(
    row: SymlinkRow, trees: Collection[bytes], source_root: bytes, *, links: RewrittenLinks | None = None
) -> SurpriseKind | None:
    """The surprise if a symlink changes its meaning when its tree moves.

    An absolute symlink into the source mount keeps pointing to the old place, unless `links` rewrites it. A relative one
    that leaves its tree (into another tree, outside every tree, or out of the source) depends on the files beside the tree
    on the target.
    """
    if row.target.startswith(b"/"):
        if expected_link(row.target, links) != row.target:
            return SurpriseKind.SYMLINK_REWRITTEN
        inside = is_beneath(posixpath.normpath(row.target).strip(b"/"), source_root.strip(b"/"))
        return SurpriseKind.SYMLINK_INTO_SOURCE if inside else None
    # Directories on the way are taken at face value, although they may be symlinks themselves.
    leads_to = posixpath.normpath(posixpath.join(parent(row.path), row.target))
    return SurpriseKind.SYMLINK_CROSSES_TREE if tree_of(leads_to, trees) != row.tree else None


@dataclass(slots=True)
class _Examples:
    count: int = 0
    examples: list[bytes] = field(default_factory=list)

    def add(self, path: bytes) -> None:
        self.count += 1
        if len(self.examples) < MAX_EXAMPLES or path < self.examples[-1]:
            insort(self.examples, path)
            del self.examples[MAX_EXAMPLES:]


def symlink_surprises(
    rows: Iterable[SymlinkRow], trees: Collection[bytes], source_root: bytes, *, links: RewrittenLinks | None
) -> tuple[Surprise, ...]:
    """Symlinks that leave their tree, or are absolute and lead into the source mount. One pass, in constant memory."""
    tallies: dict[tuple[SurpriseKind, bytes | None], _Examples] = {}
    for row in rows:
        kind = judge_symlink(row, trees, source_root, links=links)
        if kind is not None:
            tallies.setdefault((kind, row.tree), _Examples()).add(row.path)
    details = {
        SurpriseKind.SYMLINK_CROSSES_TREE: "relative symlinks that lead out of their tree",
        SurpriseKind.SYMLINK_INTO_SOURCE: f"absolute symlinks into {show(source_root)}: "
        "they still point at the old file system",
        SurpriseKind.SYMLINK_REWRITTEN: "absolute symlinks that will lead into "
        + ("" if links is None else show(links.target)),
    }
    return tuple(
        Surprise(
            kind=kind, tree=tree, count=tally.count, size_bytes=0, detail=details[kind], examples=tuple(tally.examples)
        )
        for (kind, tree), tally in tallies.items()
    )


def link_surprises(spans: Iterable[LinkSpan], batch_of: Mapping[bytes, int]) -> tuple[Surprise, ...]:
    """Link groups that span trees, reported for each tree: those that move in one batch, and those that break.

    `batch_of` is the batch of every tree. `size_bytes` of a broken group is the room that each further copy takes.
    """
    found: list[Surprise] = []
    for span in spans:
        batches = {batch_of.get(tree) if tree is not None else None for tree in span.trees}
        whole = len(batches) == 1 and None not in batches
        for member in span.members:
            others = sorted("outside every tree" if tree is None else show(tree) for tree in span.trees - {member.tree})
            groups = f"{several(span.groups, 'file')} with names in {first_of(others)}"
            found.append(
                Surprise(
                    kind=SurpriseKind.HARD_LINKS_IN_BATCH if whole else SurpriseKind.HARD_LINKS_BROKEN,
                    tree=member.tree,
                    count=member.names,
                    size_bytes=span.size_bytes,
                    detail=(
                        f"{groups}: linked again, the trees move in one batch"
                        if whole
                        else f"{groups}: each batch gets a copy of its own"
                    ),
                    examples=member.examples,
                )
            )
    return tuple(found)


def quota_surprises(quotas: Iterable[tuple[bytes, int]], trees: Collection[bytes]) -> tuple[Surprise, ...]:
    """Directories of the source with a limit, which is not copied; `size_bytes` is the limit."""
    return tuple(
        Surprise(
            kind=SurpriseKind.QUOTA,
            tree=tree_of(directory, trees),
            count=1,
            size_bytes=limit_bytes,
            detail=f"a limit of {format_size(limit_bytes)} to set again on the target",
            examples=(directory,),
        )
        for directory, limit_bytes in sorted(quotas)
    )


def layout_surprises(usages: Iterable[TreeUsage], rules: Sequence[LayoutRule]) -> Iterator[Surprise]:
    """The layout of the top directory of each tree, which all below inherit."""
    for usage in usages:
        if (stripe := tree_settings(rules, usage.tree.path)) is not None:
            yield Surprise(
                kind=SurpriseKind.LAYOUT,
                tree=usage.tree.path,
                count=1,
                size_bytes=usage.size_bytes,
                detail=describe_layout_rule(LayoutRule(stripe=stripe)),
                examples=(usage.tree.path,),
            )


def outside_surprises(outside: TreeUsage | None, examples: tuple[bytes, ...]) -> tuple[Surprise, ...]:
    """Paths outside every tree, which no batch moves."""
    if outside is None:
        return ()
    return (
        Surprise(
            kind=SurpriseKind.OUTSIDE_TREES,
            tree=None,
            count=outside.files + outside.directories,
            size_bytes=outside.size_bytes,
            detail="paths in no user tree: no batch moves them; name their directories in [users] trees, or leave them",
            examples=examples,
        ),
    )


# --- Accounts of owners

_FIRST_PERSON = 1000
"""UID_MIN of login.defs(5): accounts below are of services, which have no login shell by design, as `nobody` is."""
_NOBODY = 65534


def group_limits(source: FileSystemKind, options: Mapping[str, str], target: FileSystemKind) -> Mapping[str, int]:
    """How many groups of a user reach the servers, by side; a side without a known limit is left out. `options` are those
    of a Gluster source.
    """
    sides = {f"{source.title} on the source": source.groups, f"{target.title} on the target": target.groups}
    if source.name == "gluster" and is_on(options, "server.manage-gids", default=False):
        del sides[f"{source.title} on the source"]
    return {side: groups for side, groups in sides.items() if groups is not None}


def note_owners(accounts: Accounts, limits: Mapping[str, int]) -> Mapping[SurpriseKind, NotedOwners]:
    """The owners to report, by kind. What is so for every owner is a trait of this host and not of the owners: it may know
    no users of the site, or give all of them a shell without login.
    """
    people = _people(accounts)
    shells_tell = not all(_shuts_out(one) for one in people.values())
    left = {
        uid: f"{one.name} ({one.closed or one.shell})"
        for uid, one in people.items()
        if one.closed or (shells_tell and _shuts_out(one))
    }
    least = min(limits.values(), default=None)
    many = {
        uid: f"{one.name} ({one.groups} groups)"
        for uid, one in accounts.users.items()
        if least is not None and one.groups > least
    }
    sent = ", ".join(f"{side}: {groups}" for side, groups in limits.items())
    words = {
        SurpriseKind.MANY_GROUPS: (f"in more groups than clients send, unless the servers look them up ({sent})", many),
        SurpriseKind.LEFT: ("the account is closed or has no login shell", left),
    }
    if people:
        words |= {
            SurpriseKind.NO_USER: ("no account on this host", {uid: f"uid {uid}" for uid in accounts.no_user}),
            SurpriseKind.NO_GROUP: ("no group on this host", {gid: f"gid {gid}" for gid in accounts.no_group}),
        }
    return {kind: NotedOwners(words=text, names=names) for kind, (text, names) in words.items() if names}


def _people(accounts: Accounts) -> Mapping[int, Account]:
    return {uid: one for uid, one in accounts.users.items() if _FIRST_PERSON <= uid != _NOBODY}


def _shuts_out(account: Account) -> bool:
    return posixpath.basename(account.shell) in ("nologin", "false")


def describe_owners(noted: NotedOwners, ids: Sequence[int]) -> str:
    """The surprise with the first of the owners that have it."""
    return f"{noted.words}: {first_of([noted.names[one] for one in ids])}"


def unknown_accounts(accounts: Accounts) -> Iterator[Surprise]:
    """Look-ups of owners that failed on this host."""
    sentences = []
    if accounts.unknown:
        sentences.append(f"a look-up failed or took too long, so nothing is known of {first_of(accounts.unknown)}")
    if accounts.no_user and not _people(accounts):
        sentences.append(
            f"this host knows none of {several(len(accounts.no_user), 'owner')}: plan where users are known"
        )
    if sentences:
        yield Surprise(
            kind=SurpriseKind.UNKNOWN_ACCOUNTS,
            tree=None,
            count=0,
            size_bytes=0,
            detail="; ".join(sentences),
            examples=(),
        )


def sort_surprises(surprises: Iterable[Surprise]) -> tuple[Surprise, ...]:
    """Sort by the declaration order of the kinds, then by tree."""
    places = {kind: place for place, kind in enumerate(SurpriseKind)}
    return tuple(sorted(surprises, key=lambda found: (places[found.kind], found.tree or b"", found.detail)))
