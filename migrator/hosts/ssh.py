"""The transport over OpenSSH's `ssh`, and explanations of its failures."""

import os
import re
import shlex
from collections.abc import Mapping

from msgspec import Struct

from migrator.core.paths import show
from migrator.hosts import connection as far_bundle
from migrator.hosts.ports import HostLost

_PASSED_ON = ("HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "KRB5CCNAME", "TMPDIR")
_FIXED = (
    "BatchMode=yes",
    "RequestTTY=no",
    "ControlMaster=no",
    "ControlPath=none",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "EscapeChar=none",
)
"""Fixed options, which the site cannot override: a connection of our own, without a terminal and without prompts."""
_SAID_BYTES = 300


class Ssh(Struct, frozen=True, kw_only=True):
    """The `Transport` of one host. `destination` is as ssh takes it (`root@gl1`, `ssh://root@gl1:2222`). `options`
    override all but the fixed ones.
    """

    host: str
    destination: str
    options: tuple[str, ...] = ()
    python: str = "python3"
    lease_s: float = 30.0
    connect_timeout_s: int = 15

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that ssh needs for keys, agent and configuration."""
        return far_bundle.own_environment(_PASSED_ON)

    def argv(self, arguments: tuple[str, ...]) -> tuple[bytes, ...]:
        """The command. StrictHostKeyChecking keeps the administrator's setting."""
        alive_s = max(1, int(self.lease_s / 3))
        ours = (
            f"ConnectTimeout={self.connect_timeout_s}",
            f"ServerAliveInterval={alive_s}",
            "ServerAliveCountMax=3",
            "TCPKeepAlive=yes",
        )
        words = (
            "ssh",
            "-T",
            *(word for option in _FIXED for word in ("-o", option)),
            *self.options,
            *(word for option in ours for word in ("-o", option)),
            "--",
            self.destination,
            shlex.join((self.python, *arguments)),
        )
        return tuple(os.fsencode(word) for word in words)

    def explain(self, stderr: bytes, exit_code: int | None, *, connected: bool) -> HostLost:
        """The error for what ssh printed."""
        if not connected and exit_code in (126, 127):
            stderr += b"command not found"
        known = far_bundle.known_failure(
            _FAILURES,
            stderr,
            f"{self.host} cannot be reached over ssh: ",
            host=self.host,
            destination=self.destination,
            python=self.python,
        )
        if known is not None:
            return known
        last = show(stderr.strip()[-_SAID_BYTES:]) or "ssh printed nothing"
        if connected:
            return HostLost(
                f"the connection to {self.host} was lost: {last}",
                cause="the network, or the host, is down, or sshd was stopped",
                hint="streams there end by themselves when their lease runs out; the host is tried again",
            )
        return HostLost(
            f"{self.host} cannot be reached over ssh (exit code {exit_code}): {last}",
            hint=f"try `ssh -o BatchMode=yes {self.destination} {self.python} --version`",
        )


_FAILURES = (
    (
        re.escape(far_bundle.TOO_OLD),
        "its Python is too old",
        "{python} there is older than 3.9",
        'install a newer one beside it and name it in site.toml: [source.hosts."{host}"] python = "/usr/bin/python3.9"',
    ),
    (
        r"(?i)command not found|unknown option: -I",
        "it has no Python 3 of that name",
        "{python} is not installed there, or not on the PATH of a login without a terminal",
        'install Python 3.9 or later there, or name it in site.toml: [source.hosts."{host}"] python = "/path/of/python3"',
    ),
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key has changed",
        "the host was installed anew, or another machine answers under its name",
        "find out which; only then remove the old key (`ssh-keygen -R {host}`) and accept the new one",
    ),
    (
        r"Host key verification failed|No [A-Z0-9a-z-]+ host key is known",
        "its host key is unknown here",
        "no one has connected to it from here before",
        "compare its key with the host's own and accept it once: `ssh {destination} true`",
    ),
    (
        r"Permission denied|Too many authentication failures|No more authentication methods",
        "it refuses the key",
        "the public key is not in authorized_keys there, or the agent does not hold it, or sshd does not let root in",
        "make `ssh -o BatchMode=yes {destination} true` work (sshd: PermitRootLogin prohibit-password)",
    ),
    (
        r"Could not resolve hostname",
        "its name is unknown",
        "the name is mistyped in site.toml, or missing in DNS and /etc/hosts",
        'correct it: [source.hosts."{host}"] ssh = "{destination}"',
    ),
    (
        r"Connection refused",
        "nothing listens there",
        "sshd does not run, or listens on another port",
        'start sshd there, or name the port: options = ["-p", "2222"]',
    ),
    (
        r"timed out|Timeout, server|No route to host|Network is unreachable|Host is down",
        "it does not answer",
        "the host or the network is down, or a firewall drops what is sent",
        "look at the host; streams that ran there end by themselves when their lease runs out",
    ),
)
