"""A real sshd on a host of its own: a network namespace with one link, which can be taken down."""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from migrator.hosts.ssh import Ssh
from tests.support.leftovers import remove_namespace_when_killed
from tests.support.xfs import run_tool

SSHD = "/usr/sbin/sshd"
DEADLINE_S = 600.0
CONNECT_TIMEOUT_S = 60
"""Of ssh, with the exchange of keys: a host that is only slow must not be told from one that does not answer."""


def missing_for_sshd() -> str:
    """Why there can be none here; empty where all is well."""
    if os.geteuid() != 0:
        return "root"
    for program in (SSHD, "ssh", "ssh-keygen", "ip"):
        if shutil.which(program) is None:
            return f"{program} is not installed (Debian: openssh-server, openssh-client, iproute2)"
    return ""


class Sshd:
    """One host. Its processes are of this machine, its network is its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.namespace = f"mt-{secrets.token_hex(4)}"
        self.link = f"v{self.namespace}"
        third, fourth = secrets.randbelow(256), secrets.randbelow(63) * 4
        self.ours, self.address = f"198.19.{third}.{fourth + 1}", f"198.19.{third}.{fourth + 2}"
        self.known_hosts = directory / "known_hosts"
        self.key = directory / "key"
        self._server: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        """Make the namespace, the keys, and start sshd."""
        remove_namespace_when_killed(self.namespace)
        run_tool("ip", "netns", "add", self.namespace)
        run_tool("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        run_tool("ip", "addr", "add", f"{self.ours}/30", "dev", self.link)
        run_tool("ip", "link", "set", self.link, "up")
        self.inside("ip", "addr", "add", f"{self.address}/30", "dev", "eth0")
        self.inside("ip", "link", "set", "eth0", "up")
        self.inside("ip", "link", "set", "lo", "up")
        self.make_key(self.key)
        (self.directory / "authorized_keys").write_bytes(self.key.with_suffix(".pub").read_bytes())
        self.make_key(self.directory / "host_key")
        kind, key = (self.directory / "host_key.pub").read_text().split()[:2]
        self.known_hosts.write_text(f"{self.address} {kind} {key}\n")
        self.start()

    def down(self) -> None:
        """Stop it and remove all of it; may be called again."""
        self.stop()
        subprocess.run(["ip", "link", "delete", self.link], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "delete", self.namespace], check=False, capture_output=True)

    def start(self) -> None:
        """Start sshd and wait until it listens."""
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        config = self.directory / "sshd_config"
        config.write_text(
            f"ListenAddress {self.address}\nHostKey {self.directory}/host_key\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {self.directory}/authorized_keys\nStrictModes no\nPermitRootLogin yes\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 100\n"
        )
        with (self.directory / "sshd.log").open("ab") as log:
            self._server = subprocess.Popen(
                [*self._enter, SSHD, "-D", "-e", "-f", str(config)],
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        deadline_s = time.monotonic() + DEADLINE_S
        while not self._listens():
            assert time.monotonic() < deadline_s, (self.directory / "sshd.log").read_text()
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop sshd and every session of it."""
        if self._server is None:
            return
        members = self.members()
        self._server.kill()
        self._server.wait()
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        self._server = None

    def members(self) -> tuple[int, ...]:
        """Every process in its network."""
        found = subprocess.run(["ip", "netns", "pids", self.namespace], check=True, capture_output=True)
        return tuple(map(int, found.stdout.split()))

    def take_link_down(self) -> None:
        """As when a cable is pulled: nothing comes through, and nobody is told."""
        run_tool("ip", "link", "set", self.link, "down")

    def inside(self, *argv: str) -> None:
        """Run a tool in its network."""
        run_tool(*self._enter, *argv)

    @property
    def _enter(self) -> tuple[str, ...]:
        # `ip netns exec` makes a mount namespace too: its copies would keep other tests' disks busy for as long.
        return ("nsenter", f"--net=/run/netns/{self.namespace}", "--")

    def make_key(self, path: Path) -> None:
        """A new key pair without a passphrase."""
        run_tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))

    def options(self, *, key: Path | None = None) -> tuple[str, ...]:
        """What ssh needs to be told to use nothing of the user's."""
        options = (
            f"IdentityFile={key or self.key}",
            "IdentitiesOnly=yes",
            "IdentityAgent=none",
            f"UserKnownHostsFile={self.known_hosts}",
            "GlobalKnownHostsFile=/dev/null",
            "StrictHostKeyChecking=yes",
        )
        return ("-F", "none", *(word for option in options for word in ("-o", option)))

    def transport(self, *, key: Path | None = None, python: str = "python3", lease_s: float = 30.0) -> Ssh:
        """How this host is reached."""
        return Ssh(
            host="far",
            destination=f"root@{self.address}",
            options=self.options(key=key),
            python=python,
            lease_s=lease_s,
            connect_timeout_s=CONNECT_TIMEOUT_S,
        )

    def _listens(self) -> bool:
        try:
            with socket.create_connection((self.address, 22), timeout=1):
                return True
        except OSError:
            return False


@contextmanager
def running_sshd(directory: Path) -> Iterator[Sshd]:
    """One host, gone afterwards."""
    made = Sshd(directory)
    try:
        made.up()
        yield made
    finally:
        made.down()
