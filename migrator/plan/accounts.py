"""What this host knows of the owners of files: its own accounts, and what a directory service (LDAP, SSSD) gives to it."""

import contextlib
import ctypes
import grp
import os
import pwd
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from migrator.core.paths import show
from migrator.core.units import DAY_S
from migrator.plan.model import Account, Accounts

SHADOW = Path("/etc/shadow")
_PATIENCE_S = 60.0
"""For all look-ups together; ids that are left then are unknown."""
_TEXT_BYTES = 1 << 16
_libc = ctypes.CDLL(None)


def read_accounts(
    uids: Collection[int],
    gids: Collection[int],
    *,
    now_s: float,
    user: Callable[[int], Account | None] | None = None,
    patience_s: float = _PATIENCE_S,
) -> Accounts:
    """Look up owners by `user`, by default in this host's accounts. One that cannot be looked up, or not in time, is
    unknown, never missing.
    """
    ask_user = user or _Users(now_s)
    questions: dict[str, tuple[Callable[[int], object], int]] = {f"uid {uid}": (ask_user, uid) for uid in sorted(uids)}
    questions |= {f"gid {gid}": (_group, gid) for gid in sorted(gids)}
    answers: dict[str, object] = {}

    def work() -> None:
        for name, (ask, number) in questions.items():
            with contextlib.suppress(OSError):
                answers[name] = ask(number)

    # Not a thread of a pool: the program would wait for it at its end, and a look-up may hang for ever.
    thread = threading.Thread(target=work, name="accounts", daemon=True)
    thread.start()
    thread.join(patience_s)
    known = dict(answers)  # the thread may still be at work
    return Accounts(
        users={uid: one for uid in uids if isinstance(one := known.get(f"uid {uid}"), Account)},
        no_user=frozenset(uid for uid in uids if known.get(f"uid {uid}", ...) is None),
        no_group=frozenset(gid for gid in gids if known.get(f"gid {gid}", ...) is None),
        unknown=tuple(name for name in questions if name not in known),
    )


class _Users:
    def __init__(self, now_s: float) -> None:
        try:
            self._closed = closed_accounts(SHADOW.read_bytes(), int(now_s // DAY_S))
        except OSError:
            self._closed = {}

    def __call__(self, uid: int) -> Account | None:
        try:
            known = pwd.getpwuid(uid)
        except KeyError:
            _require_absent(_libc.getpwuid_r, uid)
            return None
        name = os.fsencode(known.pw_name)
        return Account(
            name=show(name),
            groups=len(set(os.getgrouplist(known.pw_name, known.pw_gid))),
            shell=show(os.fsencode(known.pw_shell)),
            closed=self._closed.get(name, ""),
        )


def _group(gid: int) -> str | None:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        _require_absent(_libc.getgrgid_r, gid)
        return None


def _require_absent(ask: Any, number: int) -> None:  # noqa: ANN401 - a function of libc
    """Raise OSError if an id was not found because the look-up failed. Python has KeyError for both; libc returns 0 only if
    the id does not exist.
    """
    record, text, found = ctypes.create_string_buffer(256), ctypes.create_string_buffer(_TEXT_BYTES), ctypes.c_void_p()
    code = ask(ctypes.c_uint32(number), record, text, ctypes.c_size_t(_TEXT_BYTES), ctypes.byref(found))
    if code or found.value:
        raise OSError(code, os.strerror(code))


def closed_accounts(shadow: bytes, today: int) -> dict[bytes, str]:
    """Why nobody logs in, by name: the account expired before or on this day since 1970, or its password was locked. One that
    never had a password (`!`, `!!`, `*`) is not closed: it may have keys. The format is that of shadow(5).
    """
    found = {}
    for line in shadow.split(b"\n"):
        fields = line.split(b":")
        if len(fields) < 8:
            continue
        name, password, expires = fields[0], fields[1], fields[7]
        if expires.isdigit() and 0 < int(expires) <= today:
            found[name] = "expired"
        elif password.startswith(b"!") and password.lstrip(b"!") not in (b"", b"*"):
            found[name] = "locked"
    return found
