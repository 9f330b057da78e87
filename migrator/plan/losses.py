"""Attributes of paths that a target cannot keep, as SQL conditions over a catalog and as descriptions. Pure."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from migrator.core.entry import XattrKinds
from migrator.core.paths import show
from migrator.core.units import NS_PER_S, format_count, format_size
from migrator.fs.model import XATTR_NAME_LIMIT_BYTES, TargetCapabilities
from migrator.fs.model import SurpriseKind as Kind
from migrator.fs.rules_equality import expected_link_sql

_LINUX_NAME_LIMIT_BYTES = 255


class LossQuery(Struct, frozen=True):
    """One kind of loss. `sql` is a condition over the rows of a catalog; empty: no path can be affected."""

    kind: Kind
    sql: str
    words: str


def losses(can: TargetCapabilities) -> Sequence[LossQuery]:
    """The losses that are possible on this target. Catalogs have only the namespaces of extended attributes and the
    size of the largest, so the conditions may match more files than lose something.
    """
    return [loss for possible, loss in _losses(can) if possible]


def lost_atimes(source_problem: str | None, can: TargetCapabilities | None) -> Sequence[LossQuery]:
    """The loss of access times that are to be carried over; none if the source keeps them, and the target as far as is
    known.
    """
    problem = None if can is None or can.keeps_atimes else "the target does not keep them"
    problem = source_problem or problem
    if problem is None:
        return []
    return [LossQuery(Kind.LOSS_ATIME, "type = 'file'", f"access times do not show when files were read: {problem}")]


def loss_details(capabilities: TargetCapabilities) -> dict[Kind, str]:
    """A description of each kind of loss. A missing kind cannot occur on this target."""
    return {loss.kind: loss.words for loss in losses(capabilities)}


def _losses(can: TargetCapabilities) -> Iterator[tuple[bool, LossQuery]]:
    """Every kind, and whether it can occur."""
    device, symlink = "type IN ('block', 'character')", "type = 'symlink'"
    numbers = can.makes_devices and not can.keeps_device_numbers
    acl = f"xattr_kinds & {int(XattrKinds.ACL_ACCESS | XattrKinds.ACL_DEFAULT)} <> 0"
    spaces = (
        ("user.*", XattrKinds.USER, can.keeps_user_xattrs),
        ("security.*", XattrKinds.CAPABILITY | XattrKinds.SECURITY, can.keeps_security_xattrs),
    )
    kept = [name for name, _, keeps in spaces if keeps]
    carried = sum(int(kinds) for _, kinds, keeps in spaces if keeps)
    # `trusted.*` is never copied.
    refused = int(XattrKinds.TRUSTED) + sum(int(kinds) for _, kinds, keeps in spaces if not keeps)
    missing = "the target makes no {}: they will be missing"
    longest, largest = can.max_symlink_target_bytes, can.max_xattr_value_bytes
    grain = can.time_granularity_ns
    grains = "whole seconds" if grain == NS_PER_S else f"steps of {grain / NS_PER_S:g} s"
    yield grain > 1, LossQuery(Kind.LOSS_TIME, f"mtime_ns % {grain} <> 0", f"times are cut to {grains}")
    yield (
        True,
        LossQuery(
            Kind.LOSS_TIME_RANGE,
            f"mtime_ns NOT BETWEEN {can.earliest_time_ns} AND {can.latest_time_ns}",
            f"times before {_day(can.earliest_time_ns)} or after {_day(can.latest_time_ns)} are cut: give these paths another "
            "time on the source with `touch`",
        ),
    )
    yield not can.makes_devices, LossQuery(Kind.LOSS_DEVICE_NODE, device, missing.format("device nodes"))
    lost = "device nodes lose their numbers, and so their use"
    yield numbers, LossQuery(Kind.LOSS_DEVICE, f"{device} AND rdev <> 0", lost)
    yield not can.makes_fifos, LossQuery(Kind.LOSS_FIFO, "type = 'fifo'", missing.format("FIFOs"))
    yield not can.makes_sockets, LossQuery(Kind.LOSS_SOCKET, "type = 'socket'", missing.format("sockets"))
    yield (
        True,
        LossQuery(
            Kind.LOSS_SYMLINK_TARGET,
            f"{symlink} AND octet_length({expected_link_sql('symlink_target', can.rewritten_links)}) > {longest}",
            f"symlinks to more than {format_count(longest)} bytes of path: the target cannot read them, they will be missing",
        ),
    )
    owned = f"{symlink} AND (uid <> 0 OR gid <> 0)"
    yield not can.keeps_symlink_owner, LossQuery(Kind.LOSS_SYMLINK_OWNER, owned, "symlinks lose their owner")
    yield not can.keeps_symlink_times, LossQuery(Kind.LOSS_SYMLINK_TIME, symlink, "symlinks lose their times")
    too_large = f"extended attributes of more than {format_size(largest)}, or with a name of more than {can.max_xattr_name_bytes} bytes, are left out"
    named = can.max_xattr_name_bytes < XATTR_NAME_LIMIT_BYTES
    long = f" OR xattr_kinds & {int(XattrKinds.LONG_NAME)} <> 0" if named else ""
    sized = f"xattr_kinds & {carried} <> 0 AND (xattr_largest_bytes > {largest}{long})"
    yield True, LossQuery(Kind.LOSS_XATTR_SIZE, sized, too_large)
    left_out = (
        f"extended attributes other than {' and '.join(kept)} are left out (file capabilities are security.*)"
        if kept
        else "extended attributes are left out (file capabilities among them)"
    )
    yield True, LossQuery(Kind.LOSS_XATTR_NAMESPACE, f"xattr_kinds & {refused} <> 0", left_out)
    if can.keeps_acls:
        words = f"ACLs of more than {format_count(can.max_acl_entries)} entries are left out"
        many = f"{acl} AND acl_entries > {can.max_acl_entries}"
        if not can.keeps_default_acls:
            words = f"default ACLs (of directories, for new files) and {words}"
            many += f" OR xattr_kinds & {int(XattrKinds.ACL_DEFAULT)} <> 0"
        yield True, LossQuery(Kind.LOSS_ACL, many, words)
    else:
        yield True, LossQuery(Kind.LOSS_ACL, acl, "ACLs are left out")
    exposed = "new files in directories with default ACLs will not inherit them: users whom the ACL keeps out may read these files"
    passed_on = f"type = 'directory' AND xattr_kinds & {int(XattrKinds.ACL_DEFAULT)} <> 0"
    yield not can.inherits_default_acls, LossQuery(Kind.ACL_NOT_INHERITED, passed_on, exposed)
    copies = "the target has no hard links, or none across directories: every name becomes a file of its own"
    yield not can.keeps_hard_links, LossQuery(Kind.LOSS_HARD_LINK, "link_group IS NOT NULL", copies)
    filled = "holes in sparse files are filled: they take their full size"
    yield not can.keeps_sparse, LossQuery(Kind.LOSS_SPARSENESS, "type = 'file' AND blocks * 512 < size", filled)
    reserved = ", ".join(map(show, can.reserved_names))
    also = f", and those that the target reserves ({reserved})" if reserved else ""
    yield (
        True,
        LossQuery(Kind.LOSS_NAME, _names(can), f"names of more than {can.max_name_bytes} bytes{also}, cannot be there"),
    )


def _day(time_ns: int) -> str:
    return str((datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=time_ns // NS_PER_S)).date())


def _names(can: TargetCapabilities) -> str:
    """Paths with a component that the target cannot have, found in their hexadecimal text."""
    checks: list[str] = []
    if can.max_name_bytes < _LINUX_NAME_LIMIT_BYTES:
        # A run of that many bytes without a slash (2F), starting at a byte boundary of the hexadecimal text.
        too_long = f"^(?:..)*?(?:[013-9A-F][0-9A-F]|2[0-9A-E]){{{can.max_name_bytes + 1}}}"
        checks.append(f"(octet_length(path) > {can.max_name_bytes} AND regexp_matches(hex(path), '{too_long}'))")
    for name in can.reserved_names:
        digits = name.hex().upper()
        # A fast, too wide filter on the escaped text first; then the exact match.
        checks.append(
            f"CASE WHEN contains(path::VARCHAR, (unhex('{digits}'))::VARCHAR) "
            f"THEN regexp_matches(hex(path), '^(?:(?:..)*2F)?{digits}(?:2F|$)') ELSE false END"
        )
    return " OR ".join(checks)
