"""Losses and other surprises, reported to users before the move. Pure."""

from bisect import insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from migrator.core.paths import is_beneath, parent, show
from migrator.core.units import NS_PER_S, format_count, format_size, several
from migrator.fs.model import TargetCapabilities
from migrator.plan.model import Surprise, SurpriseKind, TreeUsage
from migrator.plan.rules import LinkSpan

# --- Losses, in words
#
# The catalog's queries count the paths of each kind. What happens to a single path is decided where it is compared.


def loss_details(capabilities: TargetCapabilities) -> dict[SurpriseKind, str]:
    """A description of each kind of loss. A missing kind cannot occur on this target."""
    details: dict[SurpriseKind, str] = {}
    if capabilities.time_granularity_ns > 1:
        details[SurpriseKind.LOSS_TIME] = f"times are cut to {_granularity(capabilities.time_granularity_ns)}"
    if not capabilities.makes_devices:
        details[SurpriseKind.LOSS_DEVICE_NODE] = "the target makes no device nodes: they will be missing"
    elif not capabilities.keeps_device_numbers:
        details[SurpriseKind.LOSS_DEVICE] = "device nodes lose their numbers, and so their use"
    if not capabilities.makes_fifos:
        details[SurpriseKind.LOSS_FIFO] = "the target makes no FIFOs: they will be missing"
    if not capabilities.makes_sockets:
        details[SurpriseKind.LOSS_SOCKET] = "the target makes no sockets: they will be missing"
    details[SurpriseKind.LOSS_SYMLINK_TARGET] = (
        f"symlinks to more than {format_count(capabilities.max_symlink_target_bytes)} bytes of path: "
        "the target cannot read them, they will be missing"
    )
    details[SurpriseKind.LOSS_SYMLINK_MODE] = (
        f"symlinks show mode {capabilities.symlink_mode:04o} there; the mode of a symlink means nothing"
    )
    if not capabilities.keeps_symlink_owner:
        details[SurpriseKind.LOSS_SYMLINK_OWNER] = "symlinks lose their owner"
    if not capabilities.keeps_symlink_times:
        details[SurpriseKind.LOSS_SYMLINK_TIME] = "symlinks lose their times"
    details[SurpriseKind.LOSS_XATTR_SIZE] = (
        f"extended attributes of more than {format_size(capabilities.max_xattr_value_bytes)} are left out"
    )
    kept = [
        name
        for name, keeps in (
            ("user.*", capabilities.keeps_user_xattrs),
            ("security.*", capabilities.keeps_security_xattrs),
        )
        if keeps
    ]
    details[SurpriseKind.LOSS_XATTR_NAMESPACE] = (
        f"extended attributes other than {' and '.join(kept)} are left out (file capabilities are security.*)"
        if kept
        else "extended attributes are left out (file capabilities among them)"
    )
    details[SurpriseKind.LOSS_ACL] = (
        f"ACLs of more than {format_count(capabilities.max_acl_entries)} entries are left out"
        if capabilities.keeps_acls
        else "ACLs are left out"
    )
    if not capabilities.keeps_hard_links:
        details[SurpriseKind.LOSS_HARD_LINK] = "the target has no hard links: every name becomes a file of its own"
    if not capabilities.keeps_sparse:
        details[SurpriseKind.LOSS_SPARSENESS] = "holes in sparse files are filled: they take their full size"
    reserved = ", ".join(show(name) for name in capabilities.reserved_names)
    details[SurpriseKind.LOSS_NAME] = (
        f"names of more than {capabilities.max_name_bytes} bytes"
        f"{f', and those that the target reserves ({reserved})' if reserved else ''}, cannot be there"
    )
    return details


def _granularity(granularity_ns: int) -> str:
    if granularity_ns == NS_PER_S:
        return "whole seconds"
    return f"steps of {granularity_ns / NS_PER_S:g} s"


# --- Surprises


MAX_EXAMPLES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Paths of one tree (None: outside every tree) that a query counted, with the first few as examples.

    `people` is the number of owners, for findings about owners.
    """

    kind: SurpriseKind
    tree: bytes | None
    count: int
    size_bytes: int
    examples: tuple[bytes, ...]
    people: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SymlinkRow:
    """A symlink of the catalog. `path` and `tree` are relative to the source root."""

    path: bytes
    tree: bytes | None
    target: bytes


def resolve_lexically(path: bytes, target: bytes) -> bytes | None:
    """The destination of a relative symlink, relative to the root; None if it leaves the root.

    Directories on the way are taken at face value, although they may be symlinks themselves.
    """
    parts = parent(path).split(b"/") if parent(path) else []
    for component in target.split(b"/"):
        if component in (b"", b"."):
            continue
        if component == b"..":
            if not parts:
                return None
            parts.pop()
        else:
            parts.append(component)
    return b"/".join(parts)


def tree_of(path: bytes, trees: Collection[bytes]) -> bytes | None:
    """The tree that a path lies in, or whose root it is."""
    current = path
    while current:
        if current in trees:
            return current
        current = parent(current)
    return None


def judge_symlink(row: SymlinkRow, trees: Collection[bytes], source_root: bytes) -> SurpriseKind | None:
    """Whether a symlink changes its meaning when its tree moves.

    An absolute symlink into the source mount keeps pointing to the old place. A relative one that leaves its tree (into
    another tree, outside every tree, or out of the source) depends on what lies beside the tree on the target.
    """
    if row.target.startswith(b"/"):
        resolved = resolve_lexically(b"", row.target)
        return (
            SurpriseKind.SYMLINK_INTO_SOURCE
            if resolved is not None and is_beneath(resolved, source_root.strip(b"/"))
            else None
        )
    resolved = resolve_lexically(row.path, row.target)
    if resolved is None:
        return SurpriseKind.SYMLINK_CROSSES_TREE
    return SurpriseKind.SYMLINK_CROSSES_TREE if tree_of(resolved, trees) != row.tree else None


@dataclass(slots=True)
class _Tally:
    count: int = 0
    examples: list[bytes] = field(default_factory=list)

    def add(self, path: bytes) -> None:
        self.count += 1
        if len(self.examples) < MAX_EXAMPLES or path < self.examples[-1]:
            insort(self.examples, path)
            del self.examples[MAX_EXAMPLES:]


def symlink_surprises(rows: Iterable[SymlinkRow], trees: Collection[bytes], source_root: bytes) -> tuple[Surprise, ...]:
    """Symlinks that leave their tree, or are absolute and lead into the source mount. One pass, in constant memory."""
    tallies: dict[tuple[SurpriseKind, bytes | None], _Tally] = {}
    for row in rows:
        kind = judge_symlink(row, trees, source_root)
        if kind is not None:
            tallies.setdefault((kind, row.tree), _Tally()).add(row.path)
    details = {
        SurpriseKind.SYMLINK_CROSSES_TREE: "relative symlinks that lead out of their tree",
        SurpriseKind.SYMLINK_INTO_SOURCE: f"absolute symlinks into {show(source_root)}: "
        "they go on pointing at the old file system",
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
            groups = f"{several(span.groups, 'file')} with names in {_some(others)}"
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


def _some(names: Sequence[str]) -> str:
    if len(names) <= MAX_EXAMPLES:
        return ", ".join(names)
    return f"{', '.join(names[:MAX_EXAMPLES])} and {len(names) - MAX_EXAMPLES} more"


def finding_surprises(
    findings: Iterable[Finding], capabilities: TargetCapabilities, trees: Collection[bytes]
) -> tuple[Surprise, ...]:
    """Findings of the catalog's queries, in words. Losses outside every tree are left out: nothing there is copied."""
    details = {
        **loss_details(capabilities),
        SurpriseKind.LONG_PATH: "paths that no program can open in one piece (4,096 bytes and more with the mount's): "
        "they are copied all the same",
    }
    found: list[Surprise] = []
    for finding in findings:
        if finding.tree is None or finding.tree not in trees:
            continue
        if finding.kind is SurpriseKind.FOREIGN_OWNER:
            people = "one other user" if finding.people == 1 else f"{format_count(finding.people)} other users"
            detail = f"paths owned by {people}; they keep their owner"
        else:
            detail = details[finding.kind]
        found.append(
            Surprise(
                kind=finding.kind,
                tree=finding.tree,
                count=finding.count,
                size_bytes=finding.size_bytes,
                detail=detail,
                examples=finding.examples,
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


def sort_surprises(surprises: Iterable[Surprise]) -> tuple[Surprise, ...]:
    """Sort by the declaration order of the kinds, then by tree."""
    places = {kind: place for place, kind in enumerate(SurpriseKind)}
    return tuple(sorted(surprises, key=lambda found: (places[found.kind], found.tree or b"", found.detail)))
