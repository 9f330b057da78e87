"""A copied file as a target with given capabilities shows it, and the comparison of one path of both sides. Pure."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, BLOCK_BYTES, Entry, EntryType, acl_entries
from migrator.core.paths import show
from migrator.core.units import MIB
from migrator.fs.acl import AclEntry, is_minimal, owning_group_bits, parse_acl, show_acl
from migrator.fs.model import Difference, DifferenceKind, DigestPolicy, RewrittenLinks, SurpriseKind, TargetCapabilities

# A perfect copy as the target shows it.
#
# The planner uses these rules before the copy, and the verification afterwards. So announced and expected losses are the same.


TEMPORARY_PREFIX = b".migrator-tmp-"
"""The prefix of links, restored files and directories in the making; a leftover after a crash is an extra path."""

KERNEL_LABELS = frozenset({b"security.selinux", b"security.ima", b"security.evm"})
"""Attributes that a kernel sets by its own policy: a copy has those of its own system."""

_ACLS = (ACL_ACCESS, ACL_DEFAULT)
_SAMPLE_DIGITS = 16


class ExpectedLoss(Struct, frozen=True, kw_only=True):
    """One property of a path that the target is known not to keep; `detail` is for people."""

    path: bytes
    kind: SurpriseKind
    detail: str


def floored_time_ns(time_ns: int, capabilities: TargetCapabilities) -> int:
    """A time that the target keeps, as it shows it: floored to its granularity, also before 1970 (-1.5 s becomes -2 s)."""
    granularity_ns = max(capabilities.time_granularity_ns, 1)
    return time_ns // granularity_ns * granularity_ns


def is_kept_time(time_ns: int, capabilities: TargetCapabilities) -> bool:
    """Whether a time lies in the range that the target and this program keep."""
    return capabilities.earliest_time_ns <= time_ns <= capabilities.latest_time_ns


def shows_time(shown_ns: int, time_ns: int, capabilities: TargetCapabilities) -> bool:
    """Whether the target shows a time as it is, or with its expected loss."""
    if shown_ns in (time_ns, floored_time_ns(time_ns, capabilities)):
        return True
    nearest_ns = min(max(time_ns, capabilities.earliest_time_ns), capabilities.latest_time_ns)
    return nearest_ns != time_ns and shown_ns == floored_time_ns(nearest_ns, capabilities)


def expected_link(text: bytes, links: RewrittenLinks | None) -> bytes:
    """The text that a symlink of the source has on the target. It differs only if it begins with the source's directory as
    that is written, and has no `..`, by which it might lead out of there. Nothing is resolved.
    """
    if links is None or not (text + b"/").startswith(links.source + b"/") or b"/../" in text + b"/":
        return text
    return links.target + text[len(links.source) :]


def xattr_loss(name: bytes, value: bytes, capabilities: TargetCapabilities) -> SurpriseKind | None:
    """Why the target cannot keep one extended attribute; None if it can.

    `trusted.*` belongs to the file system and is never carried, even if the target could keep it. Of `system.*` only
    the two POSIX ACLs are carried.
    """
    if name in _ACLS:
        keeps = capabilities.keeps_acls and (name == ACL_ACCESS or capabilities.keeps_default_acls)
        return None if keeps and acl_entries(value) <= capabilities.max_acl_entries else SurpriseKind.LOSS_ACL
    if name in KERNEL_LABELS:
        return SurpriseKind.LOSS_XATTR_NAMESPACE
    if name.startswith(b"user."):
        keeps = capabilities.keeps_user_xattrs
    elif name.startswith(b"security."):
        keeps = capabilities.keeps_security_xattrs
    else:
        keeps = False
    if not keeps:
        return SurpriseKind.LOSS_XATTR_NAMESPACE
    fits = len(name) <= capabilities.max_xattr_name_bytes and len(value) <= capabilities.max_xattr_value_bytes
    return None if fits else SurpriseKind.LOSS_XATTR_SIZE


def kept_xattrs(xattrs: Mapping[bytes, bytes], capabilities: TargetCapabilities) -> dict[bytes, bytes]:
    """The attributes that are carried to the target, including ACLs."""
    return {name: value for name, value in xattrs.items() if xattr_loss(name, value, capabilities) is None}


def absence(source: Entry, capabilities: TargetCapabilities) -> ExpectedLoss | None:
    """Why a path cannot exist on the target or cannot be read back there; None if it must exist."""
    found = next(_reasons_for_absence(source, capabilities), None)
    return None if found is None else ExpectedLoss(path=source.path, kind=found[0], detail=found[1])


def _reasons_for_absence(source: Entry, capabilities: TargetCapabilities) -> Iterator[tuple[SurpriseKind, str]]:
    for component in source.path.split(b"/"):
        if len(component) > (limit := capabilities.max_name_bytes):
            yield SurpriseKind.LOSS_NAME, f"a name of {len(component)} bytes, where the target allows {limit}"
        if component in capabilities.reserved_names:
            yield SurpriseKind.LOSS_NAME, f"the target reserves the name {show(component)}"
    match source.type:
        case EntryType.SYMLINK:
            there = expected_link(source.symlink_target or b"", capabilities.rewritten_links)
            length, limit = len(there), capabilities.max_symlink_target_bytes
            if length > limit:
                detail = f"a link to {length} bytes of path, where the target can read {limit}"
                yield SurpriseKind.LOSS_SYMLINK_TARGET, detail
        case EntryType.FIFO if not capabilities.makes_fifos:
            yield SurpriseKind.LOSS_FIFO, "the target makes no FIFOs"
        case EntryType.SOCKET if not capabilities.makes_sockets:
            yield SurpriseKind.LOSS_SOCKET, "the target makes no sockets"
        case EntryType.BLOCK | EntryType.CHARACTER if not capabilities.makes_devices:
            yield SurpriseKind.LOSS_DEVICE_NODE, "the target makes no device nodes"
        case _:
            pass


def is_sampled(path: bytes, policy: DigestPolicy) -> bool:
    """Whether a file's content is compared: the same path and seed give the same answer on every machine."""
    if policy.share >= 1.0:
        return True
    hashed = hashlib.md5(sample_seed(policy) + path, usedforsecurity=False).hexdigest()
    return hashed[:_SAMPLE_DIGITS] < sample_limit(policy)


def sample_seed(policy: DigestPolicy) -> bytes:
    """What precedes a path in the MD5 of `is_sampled`. DuckDB computes it too."""
    return policy.seed.to_bytes(16, "big", signed=True)


def sample_limit(policy: DigestPolicy) -> str:
    """The 16 hexadecimal digits below which the first ones of that MD5 have to be; `share` below 1."""
    return f"{int(policy.share * 16**_SAMPLE_DIGITS):0{_SAMPLE_DIGITS}x}"


# The comparison of one path.
#
# An unexpected difference is reported as a difference. A difference that the target's limits explain is counted as an
# expected loss.


SPARSENESS_FACTOR = 2
SPARSENESS_SLACK_BYTES = MIB
"""A copy of a sparse file may use twice its blocks and one MiB more. File systems round holes to their own blocks and
stripes (BeeGFS: 512 KiB; XFS allocates ahead), and rsync keeps runs of zeros below its write size."""

CLOSED_MODE = 0o700
"""The mode of a tree's root on the target until the switch."""

_GROUP_SHIFT = 3
_GROUP_MASK = 0o070
_ALL_BITS = 0o7777


@dataclass(slots=True)
class EntryComparison:
    """The result of comparing one path."""

    path: bytes
    differences: list[Difference] = field(default_factory=list)
    losses: list[ExpectedLoss] = field(default_factory=list)

    def difference(self, kind: DifferenceKind, source: str, target: str) -> None:
        """Add a difference."""
        self.differences.append(Difference(path=self.path, kind=kind, source=source, target=target))

    def loss(self, kind: SurpriseKind, detail: str) -> None:
        """Add an expected loss."""
        self.losses.append(ExpectedLoss(path=self.path, kind=kind, detail=detail))


def compare(source: Entry, target: Entry, capabilities: TargetCapabilities) -> EntryComparison:
    """Compare all metadata of one path. Content and hard links are compared elsewhere.

    If the types differ, nothing else is compared.
    """
    found = EntryComparison(source.path)
    if source.type is not target.type:
        found.difference(DifferenceKind.TYPE, source.type.value, target.type.value)
        return found
    _compare_type_facts(found, source, target, capabilities)
    _compare_time(found, source, target, capabilities)
    _compare_owner(found, source, target, capabilities)
    _compare_acls_and_mode(found, source, target, capabilities)
    _compare_xattrs(found, source, target, capabilities)
    return found


def compare_tree_root(source: Entry, target: Entry, *, owner: tuple[int, int]) -> EntryComparison:
    """Compare the root of a user tree, which is closed on the target until the switch: `owner` (uid and gid), mode
    0700, no ACL. An open root is a difference. The manifest covers the source's own attributes.
    """
    found = EntryComparison(source.path)
    if source.type is not target.type:
        found.difference(DifferenceKind.TYPE, source.type.value, target.type.value)
        return found
    if (target.uid, target.gid) != owner:
        found.difference(DifferenceKind.OWNER, f"closed: {owner[0]}:{owner[1]}", f"{target.uid}:{target.gid}")
    if target.mode != CLOSED_MODE:
        found.difference(DifferenceKind.MODE, f"closed: {CLOSED_MODE:04o}", f"{target.mode:04o}")
    for name in (ACL_ACCESS, ACL_DEFAULT):
        if name in target.xattrs:
            found.difference(DifferenceKind.ACL, "closed: none", _shown_acl(target.xattrs[name]))
    return found


def _compare_type_facts(found: EntryComparison, source: Entry, target: Entry, capabilities: TargetCapabilities) -> None:
    match source.type:
        case EntryType.FILE:
            if source.size_bytes != target.size_bytes:
                found.difference(DifferenceKind.SIZE, str(source.size_bytes), str(target.size_bytes))
            else:
                _compare_sparseness(found, source, target, capabilities)
        case EntryType.SYMLINK:
            text, there = source.symlink_target or b"", target.symlink_target or b""
            expected = expected_link(text, capabilities.rewritten_links)
            if there != expected:
                found.difference(DifferenceKind.SYMLINK_TARGET, show(expected), show(there))
            elif there != text:
                found.loss(SurpriseKind.SYMLINK_REWRITTEN, f"{show(text)} becomes {show(there)}")
        case EntryType.BLOCK | EntryType.CHARACTER:
            if source.rdev != target.rdev:
                before, after = _shown_device(source.rdev), _shown_device(target.rdev)
                if capabilities.keeps_device_numbers:
                    found.difference(DifferenceKind.DEVICE, before, after)
                else:
                    found.loss(SurpriseKind.LOSS_DEVICE, f"device {before} is {after} on the target")
        case EntryType.DIRECTORY | EntryType.FIFO | EntryType.SOCKET:
            pass


def _compare_sparseness(found: EntryComparison, source: Entry, target: Entry, capabilities: TargetCapabilities) -> None:
    source_bytes, target_bytes = source.blocks * BLOCK_BYTES, target.blocks * BLOCK_BYTES
    if source_bytes >= source.size_bytes:
        return
    if target_bytes <= SPARSENESS_FACTOR * source_bytes + SPARSENESS_SLACK_BYTES:
        return
    before, after = f"{source_bytes} bytes allocated", f"{target_bytes} bytes allocated"
    if capabilities.keeps_sparse:
        found.difference(DifferenceKind.SPARSENESS, before, after)
    else:
        found.loss(SurpriseKind.LOSS_SPARSENESS, f"{before} become {after}")


def _compare_time(found: EntryComparison, source: Entry, target: Entry, capabilities: TargetCapabilities) -> None:
    kept = is_kept_time(source.mtime_ns, capabilities)
    if kept and source.mtime_ns == target.mtime_ns:
        return
    if shows_time(target.mtime_ns, source.mtime_ns, capabilities):
        detail = f"{source.mtime_ns} ns becomes {target.mtime_ns} ns"
        kind = SurpriseKind.LOSS_TIME if kept else SurpriseKind.LOSS_TIME_RANGE
        found.loss(kind, detail if kept else f"{detail}: give it another time on the source with `touch`")
    elif source.type is EntryType.SYMLINK and not capabilities.keeps_symlink_times:
        found.loss(SurpriseKind.LOSS_SYMLINK_TIME, f"{source.mtime_ns} ns becomes {target.mtime_ns} ns")
    else:
        found.difference(DifferenceKind.MTIME, f"{source.mtime_ns} ns", f"{target.mtime_ns} ns")


def _compare_owner(found: EntryComparison, source: Entry, target: Entry, capabilities: TargetCapabilities) -> None:
    if (source.uid, source.gid) == (target.uid, target.gid):
        return
    before, after = f"{source.uid}:{source.gid}", f"{target.uid}:{target.gid}"
    if source.type is EntryType.SYMLINK and not capabilities.keeps_symlink_owner:
        found.loss(SurpriseKind.LOSS_SYMLINK_OWNER, f"{before} becomes {after}")
    else:
        found.difference(DifferenceKind.OWNER, before, after)


def _compare_acls_and_mode(
    found: EntryComparison, source: Entry, target: Entry, capabilities: TargetCapabilities
) -> None:
    """Compare the access ACL and the mode together, because the ACL changes the meaning of the mode's group bits."""
    source_acl, target_acl = _access_acl(source), _access_acl(target)
    compared, modes, target_mode = _ALL_BITS, {source.mode}, target.mode
    if source_acl == target_acl:
        if source_acl is None:
            modes, target_mode = {_effective_mode(source)}, _effective_mode(target)
    elif (
        source_acl is not None
        and target_acl is None
        and xattr_loss(ACL_ACCESS, source.xattrs[ACL_ACCESS], capabilities)
    ):
        # Without its ACL, a file may show the mask or, which is safer, the effective rights of its owning group.
        found.loss(SurpriseKind.LOSS_ACL, _shown_acl(source.xattrs[ACL_ACCESS]))
        modes.add(_effective_mode(source))
    else:
        found.difference(DifferenceKind.ACL, _shown_access_acl(source), _shown_access_acl(target))
        compared &= ~_GROUP_MASK
    default_source, default_target = source.xattrs.get(ACL_DEFAULT), target.xattrs.get(ACL_DEFAULT)
    if _entries(default_source) != _entries(default_target):
        if (
            default_source is not None
            and default_target is None
            and xattr_loss(ACL_DEFAULT, default_source, capabilities)
        ):
            found.loss(SurpriseKind.LOSS_ACL, f"default: {_shown_acl(default_source)}")
        else:
            found.difference(
                DifferenceKind.ACL, f"default: {_shown_acl(default_source)}", f"default: {_shown_acl(default_target)}"
            )
    if target_mode & compared in {mode & compared for mode in modes}:
        return
    found.difference(DifferenceKind.MODE, f"{min(modes):04o}", f"{target_mode:04o}")


def _compare_xattrs(found: EntryComparison, source: Entry, target: Entry, capabilities: TargetCapabilities) -> None:
    for name in sorted(source.xattrs.keys() | target.xattrs.keys()):
        if name in (ACL_ACCESS, ACL_DEFAULT):
            continue
        before, after = source.xattrs.get(name), target.xattrs.get(name)
        if before == after or (before is None and name in KERNEL_LABELS):
            continue
        kind = None if before is None else xattr_loss(name, before, capabilities)
        if before is not None and kind is not None and (after is None or name in KERNEL_LABELS):
            found.loss(kind, f"{show(name)} of {len(before)} bytes")
        else:
            found.difference(DifferenceKind.XATTR, _shown_xattr(name, before), _shown_xattr(name, after))


def _access_acl(entry: Entry) -> tuple[AclEntry, ...] | bytes | None:
    """The access ACL if a mode cannot express it; the raw bytes if they cannot be parsed."""
    value = entry.xattrs.get(ACL_ACCESS)
    entries = _entries(value)
    return None if isinstance(entries, tuple) and is_minimal(entries) else entries


def _entries(value: bytes | None) -> tuple[AclEntry, ...] | bytes | None:
    if value is None:
        return None
    parsed = parse_acl(value)
    return value if parsed is None else parsed


def _effective_mode(entry: Entry) -> int:
    """The mode with the effective rights of the owning group; a minimal ACL with a mask otherwise shows the mask."""
    entries = _entries(entry.xattrs.get(ACL_ACCESS))
    group = owning_group_bits(entries) if isinstance(entries, tuple) else None
    return entry.mode if group is None else (entry.mode & ~_GROUP_MASK) | (group << _GROUP_SHIFT)


def _shown_access_acl(entry: Entry) -> str:
    return "none" if _access_acl(entry) is None else _shown_acl(entry.xattrs[ACL_ACCESS])


def _shown_acl(value: bytes | None) -> str:
    if value is None:
        return "none"
    entries = parse_acl(value)
    return f"{_shown_bytes(value)} that are no known ACL" if entries is None else show_acl(entries)


def _shown_device(rdev: int) -> str:
    """Major and minor number, as Linux packs them (glibc's gnu_dev_major)."""
    major = (rdev >> 8 & 0xFFF) | (rdev >> 32 & ~0xFFF)
    minor = (rdev & 0xFF) | (rdev >> 12 & ~0xFF)
    return f"{major}:{minor}"


def _shown_xattr(name: bytes, value: bytes | None) -> str:
    return f"{show(name)}: none" if value is None else f"{show(name)}: {_shown_bytes(value)}"


def _shown_bytes(value: bytes) -> str:
    """Length and digest: enough to distinguish values, without user data in reports."""
    return f"{len(value)} bytes ({hashlib.blake2b(value, digest_size=4).hexdigest()})"


def opened_mode(like: Entry, capabilities: TargetCapabilities) -> int:
    """The mode of a tree's top directory on the target: that of the source. If its ACL cannot be kept, the group's bits
    are the effective rights of the owning group, because the mask may grant more.
    """
    acl = like.xattrs.get(ACL_ACCESS)
    if acl is None or xattr_loss(ACL_ACCESS, acl, capabilities) is None:
        return like.mode
    entries = parse_acl(acl)
    group = None if entries is None else owning_group_bits(entries)
    return like.mode & ~_GROUP_MASK | (group or 0) << _GROUP_SHIFT
