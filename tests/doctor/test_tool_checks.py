"""Judging the programs by what they say of themselves."""

import pytest

from migrator.core.events import FindingStatus
from migrator.doctor import rules
from migrator.transfer.engines.rules_rsync import NEEDED_ABILITIES

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
    for finding in (rules.check_rsync("/usr/bin/rsync", output), rules.check_rsync(None, None)):
        assert finding.status is FindingStatus.FAILURE
        assert "3.2.3" in finding.fix
    assert said in rules.check_rsync("/usr/bin/rsync", output).message
