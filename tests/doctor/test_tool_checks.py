"""Judging the programs by what they say of themselves."""

import pytest

from migrator.core.events import FindingStatus
from migrator.doctor import rules as doctor_rules
from migrator.transfer.engines.rules_rsync import NEEDED_ABILITIES, parse_features

# As rsync 3.5.0 prints it, and as older ones do (3.1.3 of Debian 10; 3.2.3 of Debian 11 has the same words).
RSYNC_3_5 = b"""rsync  version 3.5.0  protocol version 32
Copyright (C) 1996-2026 by Andrew Tridgell, Wayne Davison, and others.
Web site: https://rsync.samba.org/
Capabilities:
    64-bit files, 64-bit inums, 64-bit timestamps, 64-bit long ints,
    socketpairs, symlinks, symtimes, hardlinks, hardlink-specials,
    hardlink-symlinks, IPv6, atimes, batchfiles, inplace, append, ACLs,
    ACL-at, xattrs, optional secluded-args, iconv, prealloc, stop-at,
    no crtimes
Optimizations:
    SIMD-roll, no asm-roll, openssl-crypto, no asm-MD5
"""
RSYNC_OLDER = b"""rsync  version 3.%d.%d  protocol version 31
Copyright (C) 1996-2015 by Andrew Tridgell, Wayne Davison, and others.
Web site: http://rsync.samba.org/
Capabilities:
    64-bit files, 64-bit inums, 64-bit timestamps, 64-bit long ints,
    socketpairs, hardlinks, symlinks, IPv6, batchfiles, inplace,
    append, ACLs, xattrs, iconv, symtimes, prealloc

rsync comes with ABSOLUTELY NO WARRANTY.
"""


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (RSYNC_OLDER % (1, 3), "rsync 3.1.3 is too old: 3.2.3 is needed"),
        *((output, "does not report its version") for output in (None, b"", b"openrsync: protocol version 29\n")),
        *(
            (RSYNC_3_5.replace(b" %s," % word.encode(), b" no %s," % word.encode()), f"was built without {word}")
            for word in NEEDED_ABILITIES[:-1]
        ),
    ],
)
def test_an_rsync_that_does_not_serve(output: bytes | None, said: str) -> None:
    for finding in (doctor_rules.check_rsync("/usr/bin/rsync", output), doctor_rules.check_rsync(None, None)):
        assert finding.status is FindingStatus.FAILURE
        assert "3.2.3" in finding.fix
    assert said in doctor_rules.check_rsync("/usr/bin/rsync", output).message


@pytest.mark.parametrize(
    ("filesystem", "output", "warned"),
    [
        ("beegfs", RSYNC_OLDER % (2, 3), True),
        ("beegfs", RSYNC_OLDER % (2, 4), False),
        ("beegfs", RSYNC_3_5, False),
        ("xfs", RSYNC_OLDER % (2, 3), False),
        # Judged by `check_rsync`.
        ("beegfs", None, False),
        ("beegfs", b"no rsync", False),
    ],
)
def test_an_rsync_that_cannot_sync_each_file(filesystem: str, output: bytes | None, warned: bool) -> None:
    found = doctor_rules.check_syncing(filesystem, output)
    assert bool(found) == warned
    for finding in found:
        assert finding.status is FindingStatus.WARNING
        assert "rsync 3.2.3 cannot sync each file, as the target needs (3.2.4 can)" in finding.message
        assert "3.2.4" in finding.fix


@pytest.mark.parametrize(
    ("output", "version"),
    [
        (b"rsync  version v3.2.7  protocol version 31\n", (3, 2, 7)),
        (b"rsync  version 4.0  protocol version 40\n", (4, 0, 0)),
        (b"rsync  version 3.4.1+ds1-5+deb13u1\n", (3, 4, 1)),
        (b"no such thing\n", None),
    ],
)
def test_versions_of_rsync(output: bytes, version: tuple[int, int, int] | None) -> None:
    features = parse_features(output)
    assert (features.version if features else None) == version
