"""The sshd of every host of a lab, and what ssh needs to reach it from outside: keys, known hosts, a configuration.

Everything lies in the lab's directory; nothing of root's own (`~/.ssh`, `/etc/ssh`) is read or changed.
"""

import os
import pwd
import shlex
import shutil
import sys
from pathlib import Path

from migrator.domain.lab import LabHost, LabSpec, LabState
from migrator.domain.paths import show
from migrator.stages.lab.tools import LabTools
from migrator.stages.lab.waiting import all_of

PROGRAMS = ("sshd", "ssh", "ssh-keygen")

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+=@-")
_PID_FILE = "/run/sshd.pid"
_PRIVILEGE_SEPARATION = "/run/sshd"
_DIALER = Path(__file__).with_name("ssh_dialer.py")


def why_no_sshd(spec: LabSpec) -> str | None:
    """Why the hosts of a lab can run no sshd; None where they can."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if not _PLAIN.issuperset(spec.directory):
        return f"the name of its directory holds characters that ssh's configuration cannot ({show(spec.directory)})"
    return None


def config_path(spec: LabSpec) -> bytes:
    """The configuration for `ssh -F`."""
    return spec.directory + b"/ssh/config"


def destination(host: LabHost) -> str:
    """A host as ssh takes it."""
    return f"root@{host.address}"


def authorized_keys(state: LabState, host: LabHost) -> Path:
    """The file with the one public key that a host lets in."""
    return _home(state, host) / "authorized_keys"


def host_key(state: LabState, host: LabHost) -> Path:
    """The private key by which a host is known; the public one lies beside it, with `.pub`."""
    return _home(state, host) / "host_key"


def pid_file(host: LabHost) -> Path:
    """Where the sshd of a host writes its pid, seen from here."""
    return Path(f"/proc/{host.holder_pid}/root{_PID_FILE}")


async def start_all(state: LabState, tools: LabTools) -> None:
    """Keys, configuration and daemons of all hosts; nothing where the lab has none."""
    if not state.ssh_config:
        return
    common = _common(state)
    common.mkdir()
    for host in state.hosts:
        _home(state, host).mkdir()
    await all_of(make_key(path, tools) for path in (common / "key", *(host_key(state, host) for host in state.hosts)))
    (common / "dial.py").write_bytes(_DIALER.read_bytes())
    (common / "config").write_text(_client_config(state, common), encoding="ascii")
    write_known_hosts(state)
    public = (common / "key.pub").read_text(encoding="ascii")
    for host in state.hosts:
        authorized_keys(state, host).write_text(public, encoding="ascii")
    await all_of(_prepare_and_start(state, host, tools) for host in state.hosts)


def write_known_hosts(state: LabState) -> None:
    """The host keys as they are now, for the client. May be called again."""
    lines = []
    for host in state.hosts:
        kind, key, *_ = host_key(state, host).with_suffix(".pub").read_text(encoding="ascii").split()
        lines.append(f"{host.address} {kind} {key}\n")
    (_common(state) / "known_hosts").write_text("".join(lines), encoding="ascii")


async def start_sshd(state: LabState, host: LabHost, tools: LabTools) -> None:
    """Start the daemon of a host, with the key that it has now; it listens when this returns."""
    home = _home(state, host)
    await tools.on_host(host, _program(), "-f", str(home / "sshd_config"), "-E", str(home / "sshd.log"))


async def _prepare_and_start(state: LabState, host: LabHost, tools: LabTools) -> None:
    _prepare(state, host)
    await start_sshd(state, host, tools)


def _prepare(state: LabState, host: LabHost) -> None:
    (_home(state, host) / "sshd_config").write_text(_server_config(state, host), encoding="ascii")
    Path(f"/proc/{host.holder_pid}/root{_PRIVILEGE_SEPARATION}").mkdir(mode=0o755)


def _program() -> str:
    """By its full path, for it executes itself anew for every connection."""
    return os.path.realpath(shutil.which("sshd") or "/usr/sbin/sshd")


async def make_key(path: Path, tools: LabTools) -> None:
    """A key pair; the file must not be there."""
    await tools.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path))


def _common(state: LabState) -> Path:
    return Path(os.fsdecode(state.ssh_config)).parent


def _home(state: LabState, host: LabHost) -> Path:
    return Path(os.fsdecode(state.spec.directory)) / "hosts" / str(host.number) / "ssh"


_NOT_THE_FIRST_SHELL = 2
"""With this a bash that sshd starts reads no .bashrc: root's own of this machine has nothing to do with the lab's hosts."""


def _server_config(state: LabState, host: LabHost) -> str:
    return f"""\
ListenAddress {host.address}:22
PidFile {_PID_FILE}
HostKey {host_key(state, host)}
AuthorizedKeysFile {authorized_keys(state, host)}
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM {"yes" if _root_is_locked() else "no"}
UseDNS no
PrintMotd no
PrintLastLog no
MaxStartups 200
MaxSessions 200
SetEnv SHLVL={_NOT_THE_FIRST_SHELL}
"""


def _root_is_locked() -> bool:
    """Without PAM sshd lets nobody in whose password is locked by an exclamation mark, with a key neither."""
    try:
        with open("/etc/shadow", "rb") as file:
            fields = [line.split(b":") for line in file]
    except OSError:
        return False
    root = os.fsencode(pwd.getpwuid(0).pw_name)
    return any(entry[0] == root and entry[1].startswith(b"!") for entry in fields if len(entry) > 1)


def _client_config(state: LabState, common: Path) -> str:
    """One connection at a time, with the lab's own key and known hosts, dialled in the network of the lab's client.

    The key exchange is the one that costs least: this machine does both sides of it, for every host.
    """
    nsenter = shutil.which("nsenter") or "/usr/bin/nsenter"
    namespace = f"--net=/run/netns/{state.client_namespace}"
    dial = shlex.join(
        [nsenter, namespace, "--", os.path.realpath(sys.executable), "-IS", str(common / "dial.py"), "%h", "%p"]
    )
    return f"""\
Host *
    ProxyCommand {dial}
    ProxyUseFdpass yes
    IdentityFile {common}/key
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile {common}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    UpdateHostKeys no
    KexAlgorithms curve25519-sha256
    ControlMaster no
    ControlPath none
    BatchMode yes
"""
